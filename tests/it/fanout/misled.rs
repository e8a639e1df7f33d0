//! A client is told by one replica and lists on another that has not heard yet: it is told once more.

use serde_json::json;

use super::{ACT, ON, OWN, modern, names, open};
use crate::support::{Database, Ear, Gateway, Line, Stage, Tool, Upstream, Way};

#[tokio::test(flavor = "multi_thread")]
async fn a_list_that_was_out_of_date_is_made_good() {
    let database = Database::migrated().await;
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
    let ear = Ear::of(&modern(&agent), None).await;
    let spared = Ear::of(&modern(&other), None).await;

    line.turn(Way::Refuses).await;
    tenant.platform.post("/api/v1/servers/zoo/disable", &json!({})).await.expect(200);
    ear.hears(1, ACT).await;
    spared.hears(1, ACT).await;
    // as a balancer may have it: the replica that has not heard yet
    assert_eq!(names(&late).await, ["read_cache", "zoo:reader"], "it goes on with what it knows");
    line.turn(Way::Open).await;
    ear.hears(2, OWN + ACT).await;
    assert_eq!(names(&late).await, ["read_cache"]);

    // whoever was served nothing in the meantime hears of the next change only
    tenant.platform.post("/api/v1/servers/zoo/enable", &json!({})).await.expect(200);
    ear.hears(3, ACT).await;
    spared.hears(2, ACT).await;
}

/// A client lists, something changes, and only then it opens its stream.
#[tokio::test]
async fn a_change_between_a_list_and_the_stream_is_told() {
    let mut scene = super::Scene::set().await;
    scene.add("zoo", &["reader"]).await;
    let agent = scene.tenant.agent().await;
    let there = scene.there(&agent);
    let session = super::session(&there).await;
    assert_eq!(names(&session).await, ["read_cache", "zoo:reader"]);
    scene.act("zoo", "disable").await;
    crate::support::settle(vec!["read_cache".to_owned()], ACT, || names(&session)).await;
    // the list before was of another key's client as well; this one opens its stream now
    let ear = Ear::of(&super::session(&agent).await, None).await;
    ear.hears(1, ACT).await;
    // what comes after it is told as ever, once
    scene.act("zoo", "enable").await;
    ear.hears(2, ACT).await;
}
