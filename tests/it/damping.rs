//! What comes and goes is let back in at once twice in a minute, and then later. Both tests wait for several listings
//! in a row, each of which takes its second.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::upstream::Era;
use crate::support::{Mcp, Stage, Tenant, Tool, Upstream, eventually, settle};

/// Within this a change is found by listing, every second.
const FOUND: Duration = Duration::from_secs(8);
/// How long the first return that waits is held back.
const HELD: Duration = Duration::from_secs(5);

async fn server(tenant: &Tenant) -> Value {
    tenant.platform.get("/api/v1/servers/up").await.expect(200)
}

async fn connection(tenant: &Tenant) -> String {
    server(tenant).await["connection"].as_str().unwrap().to_owned()
}

async fn tools(tenant: &Tenant) -> Vec<String> {
    let items = tenant.platform.items("/api/v1/servers/up/tools").await;
    items.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
}

async fn is_held(tenant: &Tenant) -> Value {
    eventually("a hold", FOUND, || async {
        let server = server(tenant).await;
        let text = server["last_error"].as_str().unwrap_or_default();
        text.contains("held back until").then_some(server)
    })
    .await
}

#[tokio::test]
async fn a_server_that_comes_and_goes_is_held_back_the_third_time_and_freed_by_a_person() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")]).await;
    let tenant = stage.tenant("acme").await;
    let client = Mcp::bare(&tenant.agent().await);
    let mut upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    for returns in 1..=3 {
        upstream.go_down().await;
        settle("disconnected".to_owned(), FOUND, || connection(&tenant)).await;
        upstream.come_back().await;
        if returns < 3 {
            settle("connected".to_owned(), FOUND, || connection(&tenant)).await;
        }
    }
    let held = is_held(&tenant).await;
    assert_eq!(held["connection"], "disconnected", "{held}");
    client.run("read", "up:look", &json!({})).await.refused("server_unavailable");
    let log = tenant.platform.get("/api/v1/servers/up/logs").await.expect(200).to_string();
    assert!(log.contains("held back until"), "{log}");
    // another replica, and a restart of this one, know it too
    assert_eq!(stage.database.count("select holds::bigint from servers where held_until > now()").await, 1);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!(server(&tenant).await["last_error"], Value::Null);
    client.run("read", "up:look", &json!({})).await.ok();
    // and all is forgotten
    assert_eq!(stage.database.count("select count(*) from servers where holds > 0").await, 0);
}

#[tokio::test]
async fn a_tool_that_comes_and_goes_is_held_back_alone_and_let_in_when_that_is_over() {
    // an hour: what is seen was announced, or let in
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")]).await;
    let tenant = stage.tenant("acme").await;
    let (without, with) = (vec![Tool::reads("stays")], vec![Tool::reads("flaps"), Tool::reads("stays")]);
    let upstream = Upstream::announcing(Era::Modern, with.clone()).await;
    tenant.add_with("up", &upstream, json!({"auto_approve": true})).await;
    settle(1, FOUND, || async { upstream.listeners() }).await;
    let shows = async |offered: &[Tool], names: &[&str]| {
        upstream.set_tools(offered.to_vec());
        upstream.announce(1);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        settle(names, FOUND, || tools(&tenant)).await;
    };
    for _ in 0..2 {
        shows(&without, &["stays"]).await;
        shows(&with, &["flaps", "stays"]).await;
    }
    shows(&without, &["stays"]).await;
    let began = std::time::Instant::now();
    // the third time, with one that is new: that is shown
    let more = [with.clone(), vec![Tool::reads("young")]].concat();
    shows(&more, &["stays", "young"]).await;
    let held = is_held(&tenant).await;
    assert_eq!(held["connection"], "connected", "{held}");
    assert!(held["last_error"].as_str().unwrap().ends_with(": flaps"), "{held}");
    // removal does not wait, and it is still held back by then
    shows(&with, &["stays"]).await;
    let shown = ["flaps".to_owned(), "stays".to_owned()];
    settle(shown.to_vec(), HELD + FOUND, || tools(&tenant)).await;
    assert!(began.elapsed() >= HELD, "{:?}", began.elapsed());
    assert_eq!(server(&tenant).await["last_error"], Value::Null);
}
