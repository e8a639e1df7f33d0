//! What is listed when: nobody waits for another tenant's dead servers, and silence wears off.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;

use crate::support::{Database, Gateway, Hostile, Mcp, Stage, Tool, Upstream, Vice, eventually, settle};

#[tokio::test(flavor = "multi_thread")]
async fn one_tenants_deaf_servers_do_not_delay_another_tenants_listings() {
    const DEAF: usize = 40;
    let stage = Stage::with(&[
        ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1"),
        ("MCPPROXY__LIMITS__LISTING_TIMEOUT_S", "3"),
    ])
    .await;
    let (bad, good) = (stage.tenant("bad").await, stage.tenant("good").await);
    let deaf = Hostile::start(Vice::Deaf).await;
    let added = (0..DEAF).map(|n| {
        let body = json!({"name": format!("deaf-{n}"), "kind": "http", "url": deaf.url});
        bad.platform.post("/api/v1/servers", &body)
    });
    for answer in join_all(added).await {
        assert!(answer.expect(201)["last_error"].is_string(), "{answer:?}");
    }
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    good.add("up", &upstream).await;
    // listing all deaf ones takes 40 × 3 s ÷ 16 each time: a round of all servers would take 8 s
    let before = upstream.counts().lists;
    let began = std::time::Instant::now();
    eventually("four more listings", Duration::from_secs(8), || async {
        (upstream.counts().lists >= before + 4).then_some(())
    })
    .await;
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
}

#[tokio::test]
async fn what_is_down_is_listed_again_soon_and_by_itself() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "2")]).await;
    let tenant = stage.tenant("acme").await;
    let mut upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    let connection = async || {
        tenant.platform.get("/api/v1/servers/up").await.expect(200)["connection"].as_str().unwrap().to_owned()
    };
    upstream.go_down().await;
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!(connection().await, "disconnected");
    upstream.come_back().await;
    settle("connected".to_owned(), Duration::from_secs(15), connection).await;
}

/// Holds the lease for listing as a replica that does nothing with it.
async fn nobody_lists(database: &Database) {
    let mut connection = database.connect().await;
    for statement in [
        "insert into replicas (replica_id, version, heartbeat_at)
         values ('00000000-0000-0000-0000-000000000001', '0', now() + interval '1 day')",
        "insert into leases (name, replica_id) values ('relist', '00000000-0000-0000-0000-000000000001')",
    ] {
        sqlx::query(statement).execute(&mut connection).await.unwrap();
    }
}

#[tokio::test]
async fn being_connected_wears_off_on_every_replica() {
    let settings = [("MCPPROXY__LIMITS__CONNECTED_S", "2"), ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")];
    let database = Database::migrated().await;
    nobody_lists(&database).await;
    let stage = Stage { gateway: Gateway::start(&database, &settings).await, database };
    let other = Gateway::start(&stage.database, &settings).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    let agent = tenant.agent().await;
    let clients = [Mcp::bare(&agent), Mcp::bare(&other.ask_as(&agent))];
    tenant.add("up", &upstream).await;
    let found = async || {
        let mut found = Vec::new();
        for client in &clients {
            let result = client.call("retrieve_tools", &json!({"query": "look"})).await.ok();
            let total = result["structuredContent"]["total"].as_u64().unwrap();
            found.push((total, result["_meta"]["mcpproxy/missing"].to_string()));
        }
        found
    };
    let worn_off = vec![(0, r#"["up"]"#.to_owned()); 2];
    settle(worn_off, Duration::from_secs(10), found).await;
    let server = tenant.platform.get("/api/v1/servers/up").await.expect(200);
    assert_eq!(server["connection"], "disconnected", "{server}");
    assert!(server["last_error"].as_str().is_some_and(|text| text.contains("no sign of life")), "{server}");
    for client in &clients {
        client.run("read", "up:look", &json!({})).await.refused("server_unavailable");
    }
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    clients[0].run("read", "up:look", &json!({})).await.ok();
}
