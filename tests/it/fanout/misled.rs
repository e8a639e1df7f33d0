//! A client is told by one replica and lists on another that has not heard yet: it is told once more.

use serde_json::json;

use super::{ACT, ON, OWN, modern, names, open};
use crate::support::{Database, Ear, Gateway, Line, Stage, Tool, Upstream, Way};

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_was_out_of_date_is_made_good() {
    let database = Database::create().await;
    Gateway::migrate(&database);
    let line = Line::to(database.port()).await;
    let behind = line.url(&database.url());
    let behind = Gateway::start(&database, &[ON, ("MCPPROXY__DATABASE__URL", &behind)]).await;
    let stage = Stage { gateway: Gateway::start(&database, &[ON]).await, database };
    let tenant = open(&stage, "acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("reader")]).await;
    tenant.add("zoo", &upstream).await;
    let (agent, other) = (tenant.agent().await, tenant.agent().await);
    let late = modern(&behind.ask_as(&agent));
    assert_eq!(names(&late).await, ["read_cache", "zoo:reader"]);
    let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let ear = Ear::listen(&modern(&agent), &all).await;
    let spared = Ear::of(&modern(&other), None).await;

    line.turn(Way::Refuses);
    tenant.platform.post("/api/v1/servers/zoo/disable", &json!({})).await.expect(200);
    ear.hears(1, ACT).await;
    spared.hears(1, ACT).await;
    // as a balancer may have it: the replica that has not heard yet
    assert_eq!(names(&late).await, ["read_cache", "zoo:reader"], "it goes on with what it knows");
    line.turn(Way::Open);
    ear.hears(2, OWN + ACT).await;
    assert_eq!(names(&late).await, ["read_cache"]);

    // whoever was served nothing in the meantime hears of the next change only
    tenant.platform.post("/api/v1/servers/zoo/enable", &json!({})).await.expect(200);
    ear.hears(3, ACT).await;
    spared.hears(2, ACT).await;
    for list in ["prompts", "resources"] {
        assert!(ear.notices_of(list).is_empty(), "only tools were other ones: {:?}", ear.messages());
    }
}
