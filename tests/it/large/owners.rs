//! Only the key that made the call can read on, and only for a while.

use serde_json::{Value, json};
use sqlx::Connection;

use super::{Scene, key_of, read, result_of};
use crate::support::{Gateway, Mcp};

async fn change(scene: &Scene, statement: &'static str) {
    let done = sqlx::query(statement).execute(&mut scene.stage.database.connect().await).await.unwrap();
    assert!(done.rows_affected() > 0, "{statement}");
}

#[tokio::test]
async fn everybody_else_is_told_the_same() {
    let scene = Scene::with(&[], 100, &result_of(&"needle ".repeat(50))).await;
    let key = scene.key().await;
    let ask = json!({"key": key, "offset": 100});
    assert_eq!(read(&scene.agent, &ask).await.code(), "ok");
    let colleague = scene.tenant.agent().await;
    let stranger = scene.stage.tenant("other").await.agent().await;
    let nobody = read(&scene.agent, &json!({"key": "0".repeat(32)})).await.result();
    assert_eq!(nobody["structuredContent"]["code"], "not_found", "{nobody}");
    for api in [&colleague, &stranger, &scene.tenant.platform] {
        assert_eq!(read(api, &ask).await.result(), nobody);
    }
    let cut: &str = key.split_at(31).0;
    for bad in [
        "",
        "é",
        cut,
        &format!("{key}."),
        &format!("{key}.0"),
        &format!("{key}.x"),
        &key.to_uppercase(),
        &"9".repeat(5000),
    ] {
        assert_eq!(read(&scene.agent, &json!({ "key": bad })).await.result(), nobody, "{bad}");
    }
    // what is stored neither says anything nor opens elsewhere
    let mut connection = scene.stage.database.connect().await;
    let rows: Vec<(Vec<u8>, String)> =
        sqlx::query_as("select sealed, to_jsonb(response_cache)::text from response_cache")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    assert_eq!(rows.len(), 1);
    assert!(!rows[0].0.windows(6).any(|part| part == b"needle") && !rows[0].1.contains(&key));
    connection.close().await.unwrap();
    let theirs = format!("update response_cache set principal_id = '{}'", colleague.id);
    let mut connection = scene.stage.database.connect().await;
    sqlx::query(sqlx::AssertSqlSafe(theirs)).execute(&mut connection).await.unwrap();
    assert_eq!(read(&colleague, &ask).await.result(), nobody, "moved to another key it does not open");
    let ours = format!("update response_cache set principal_id = '{}'", scene.agent.id);
    sqlx::query(sqlx::AssertSqlSafe(ours)).execute(&mut connection).await.unwrap();
    assert_eq!(read(&scene.agent, &ask).await.code(), "ok");
    change(
        &scene,
        "update response_cache set expires_at = now() where expires_at > now() + interval '119 minutes'",
    )
    .await;
    assert_eq!(read(&scene.agent, &ask).await.result(), nobody, "expired");
}

#[tokio::test]
async fn a_key_and_a_tenant_take_theirs_with_them() {
    let scene = Scene::with(&[], 100, &result_of(&"x".repeat(200))).await;
    let count = || scene.stage.database.count("select count(*) from response_cache");
    let other = scene.tenant.agent().await;
    Mcp::bare(&other).run("read", "up:get", &json!({})).await.ok();
    let kept = scene.key().await;
    assert_eq!(count().await, 2);
    scene.tenant.platform.delete(&format!("/api/v1/keys/{}", other.id)).await.expect(204);
    assert_eq!(count().await, 1);
    assert_eq!(read(&scene.agent, &json!({ "key": kept })).await.code(), "ok");
    scene.stage.platform().delete("/api/v1/tenants/acme").await.expect(204);
    assert_eq!(count().await, 0);
}

#[tokio::test]
async fn any_replica_reads_what_another_kept() {
    let scene = Scene::with(&[], 100, &result_of(&"x".repeat(200))).await;
    let there = Gateway::start(&scene.stage.database, &[]).await;
    let key = scene.key().await;
    let page = read(&there.ask_as(&scene.agent), &json!({"key": key, "offset": 150})).await.ok();
    assert_eq!(page["structuredContent"]["text"], "x".repeat(50));
    let theirs = Mcp::bare(&there.ask_as(&scene.agent)).run("read", "up:get", &json!({})).await.ok();
    let page = read(&scene.agent, &json!({"key": key_of(&theirs)})).await.ok();
    assert_eq!(page["structuredContent"]["total"], Value::from(200));
}
