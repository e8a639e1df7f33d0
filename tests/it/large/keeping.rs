//! How much is kept, and what happens when it cannot be.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Scene, read, result_of};
use crate::support::{Database, Gateway, Line, Mcp, Stage, Tool, Upstream, Way, eventually};

#[tokio::test]
async fn the_oldest_go_first() {
    let settings = [
        ("MCPPROXY__LIMITS__TENANT_CACHE_ENTRIES_MAX", "2"),
        ("MCPPROXY__LIMITS__TENANT_CACHE_BYTES_MAX", "2500"),
    ];
    let scene = Scene::with(&settings, 100, &result_of(&"x".repeat(1000))).await;
    let codes = async |keys: &[String]| {
        let mut codes = Vec::new();
        for key in keys {
            codes.push(read(&scene.agent, &json!({ "key": key })).await.code());
        }
        codes
    };
    let mut keys = vec![scene.key().await, scene.key().await];
    assert_eq!(codes(&keys).await, ["ok", "ok"]);
    keys.push(scene.key().await);
    assert_eq!(codes(&keys).await, ["not_found", "ok", "ok"], "two texts");
    scene.upstream.set_tools(vec![Tool::reads("get").returns(&result_of(&"x".repeat(2000)))]);
    keys.push(scene.key().await);
    assert_eq!(codes(&keys).await, ["not_found", "not_found", "not_found", "ok"], "2500 bytes");
    // one that is larger than all that may be kept stays whole
    let large = result_of(&"x".repeat(2500));
    scene.upstream.set_tools(vec![Tool::reads("get").returns(&large)]);
    let result = scene.get().await.ok();
    assert_eq!(result["content"][0]["text"], "x".repeat(2500));
    let warning = result["_meta"]["mcpproxy/warning"].as_str().unwrap();
    assert!(warning.contains("was not cut") && warning.contains("larger than all"), "{warning}");
    assert_eq!(codes(&keys).await[3], "ok", "and takes nothing else away");
    // another tenant's quota is its own
    let other = scene.stage.tenant("other").await;
    other.platform.patch("/api/v1/settings", &json!({"response_limit": 100})).await.expect(200);
    scene.upstream.set_tools(vec![Tool::reads("get").returns(&result_of(&"x".repeat(1000)))]);
    other.add("up", &scene.upstream).await;
    Mcp::bare(&other.agent().await).run("read", "up:get", &json!({})).await.ok();
    assert_eq!(codes(&keys).await[3], "ok");
}

#[tokio::test]
async fn what_has_expired_is_deleted() {
    let scene =
        Scene::with(&[("MCPPROXY__LIMITS__RETENTION_INTERVAL_S", "1")], 100, &result_of(&"x".repeat(200)))
            .await;
    scene.key().await;
    let mut connection = scene.stage.database.connect().await;
    sqlx::query("update response_cache set expires_at = now()").execute(&mut connection).await.unwrap();
    let fresh = scene.key().await;
    eventually("the old text to be deleted", Duration::from_secs(10), || async {
        (scene.stage.database.count("select count(*) from response_cache").await == 1).then_some(())
    })
    .await;
    assert_eq!(read(&scene.agent, &json!({ "key": fresh })).await.code(), "ok");
}

/// A call has been made by then: its result is handed on, whole.
async fn away(way: Way) {
    let database = Database::migrated().await;
    let line = Line::to(database.port()).await;
    let url = line.url(&database.url());
    let stage =
        Stage { gateway: Gateway::start(&database, &[("MCPPROXY__DATABASE__URL", &url)]).await, database };
    let tenant = stage.tenant("acme").await;
    let large = result_of(&"x".repeat(30_000));
    let upstream = Upstream::handshake(vec![Tool::reads("get").returns(&large)]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let kept = super::key_of(&Mcp::bare(&agent).run("read", "up:get", &json!({})).await.ok());
    line.turn(way).await;
    let began = Instant::now();
    let result = Mcp::bare(&agent).run("read", "up:get", &json!({})).await.ok();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    assert_eq!(result["content"][0]["text"], "x".repeat(30_000));
    assert!(result["_meta"]["mcpproxy/warning"].as_str().unwrap().contains("in time"), "{}", result["_meta"]);
    assert_eq!(read(&agent, &json!({ "key": kept })).await.code(), "unavailable");
    line.turn(Way::Open).await;
    eventually("what was kept to be read again", Duration::from_secs(20), || async {
        (read(&agent, &json!({ "key": kept })).await.code() == "ok").then_some(())
    })
    .await;
}

#[tokio::test]
async fn without_a_database_a_result_is_whole() {
    away(Way::Refuses).await;
}

#[tokio::test]
async fn with_a_database_that_says_nothing_a_result_is_whole() {
    away(Way::Hangs).await;
}
