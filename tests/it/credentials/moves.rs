//! A server's place is scheme, host, port and path: at another one it gets no credential that was given for this one.

use serde_json::{Value, json};

use crate::support::{Mcp, Stage, Tenant, Tool, Upstream};

const UP: &str = "/api/v1/servers/up";

/// Values of `x-key` in the requests for exactly this path and query.
fn keys_at(upstream: &Upstream, path: &str) -> Vec<String> {
    let (paths, keys) = (upstream.sent(":path"), upstream.sent("x-key"));
    paths.into_iter().zip(keys).filter(|(at, _)| at == path).map(|(_, key)| key).collect()
}

/// Another path of the same host.
fn elsewhere(upstream: &Upstream) -> String {
    upstream.url.replace("/mcp", "/other/tenant")
}

async fn state_of_tool(tenant: &Tenant) -> Value {
    tenant.platform.items("/api/v1/servers/up/tools").await.remove(0)["state"].clone()
}

#[tokio::test]
async fn another_path_of_the_host_never_gets_it() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (operator, admin) = (tenant.operator().await, tenant.admin().await);
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    let body = json!({"name": "up", "kind": "http", "url": upstream.url, "headers": {"X-Key": "for-mcp"}});
    admin.post("/api/v1/servers", &body).await.expect(201);
    assert_eq!(state_of_tool(&tenant).await, "approved");

    let moved = operator.patch(UP, &json!({"url": elsewhere(&upstream)})).await.expect(200);
    assert_eq!((&moved["headers"], &moved["quarantined"]), (&json!([]), &json!(true)), "{moved}");
    assert_eq!(moved["added_by"], operator.id, "{moved}");
    assert_eq!(state_of_tool(&tenant).await, "pending");
    operator.post(&format!("{UP}/unquarantine"), &json!({})).await.refused(403, "forbidden");
    admin.post(&format!("{UP}/unquarantine"), &json!({})).await.expect(200);
    Mcp::bare(&tenant.agent().await).run("write", "up:t", &json!({})).await.ok();
    let keys = keys_at(&upstream, "/other/tenant");
    assert!(keys.len() > 3 && keys.iter().all(String::is_empty), "{keys:?}");
    assert!(keys_at(&upstream, "/mcp").iter().all(|key| key == "for-mcp"));
    let mut database = stage.database.connect().await;
    let left: i64 =
        sqlx::query_scalar("select count(*) from server_secrets").fetch_one(&mut database).await.unwrap();
    assert_eq!(left, 0, "the credential of the former place is still stored");
}

#[tokio::test]
async fn an_admin_moves_a_server_without_quarantine_and_may_keep_its_credentials() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (operator, admin) = (tenant.operator().await, tenant.admin().await);
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    let other = Upstream::handshake(vec![Tool::writes("t")]).await;
    tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "kept"}})).await;
    let client = Mcp::bare(&tenant.agent().await);

    let keeping = |url: String| json!({"url": url, "keep_credentials": true});
    let refused = operator.patch(UP, &keeping(elsewhere(&upstream))).await.refused(403, "forbidden");
    assert!(refused.contains("admin"), "{refused}");
    for (body, field) in [
        (json!({"keep_credentials": true}), "keep_credentials"),
        (
            json!({"url": other.url, "keep_credentials": true, "headers": {"X-Key": "new"}}),
            "keep_credentials",
        ),
    ] {
        let answer = admin.patch(UP, &body).await;
        answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], field, "{answer:?}");
    }
    assert_eq!(keys_at(&upstream, "/other/tenant").len(), 0, "something was sent");

    let moved = admin.patch(UP, &keeping(elsewhere(&upstream))).await.expect(200);
    assert_eq!((&moved["headers"], &moved["quarantined"]), (&json!(["X-Key"]), &json!(false)), "{moved}");
    assert_eq!(moved["added_by"], admin.id, "{moved}");
    // what it offers there is the new baseline
    assert_eq!(state_of_tool(&tenant).await, "approved");
    client.run("write", "up:t", &json!({})).await.ok();
    let keys = keys_at(&upstream, "/other/tenant");
    assert!(keys.len() > 3 && keys.iter().all(|key| key == "kept"), "{keys:?}");
    // on another host as well, and from there the seal opens
    admin.patch(UP, &keeping(other.url.clone())).await.expect(200);
    client.run("write", "up:t", &json!({})).await.ok();
    assert!(keys_at(&other, "/mcp").iter().all(|key| key == "kept"), "{:?}", other.sent("x-key"));
    // without the word it goes, whoever moves it
    let moved = admin.patch(UP, &json!({"url": upstream.url})).await.expect(200);
    assert_eq!((&moved["headers"], &moved["quarantined"]), (&json!([]), &json!(false)), "{moved}");
    let record = &tenant.records("type=admin&tool=servers.update&status=success", 3).await[0];
    assert!(!record.to_string().contains("kept\""), "{record}");
}

#[tokio::test]
async fn spelling_and_query_are_no_other_place_and_a_slash_is() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let operator = tenant.operator().await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    let local = upstream.url.replace("127.0.0.1", "localhost");
    let headers = json!({"name": "up", "kind": "http", "url": local, "headers": {"X-Key": "one"}});
    let made = tenant.platform.post("/api/v1/servers", &headers).await.expect(201);
    let client = Mcp::bare(&tenant.agent().await);
    for url in [local.replace("localhost", "LocalHost"), format!("{local}?part=1"), local.clone()] {
        let same = operator.patch(UP, &json!({ "url": url })).await.expect(200);
        assert_eq!((&same["headers"], &same["quarantined"]), (&json!(["X-Key"]), &json!(false)), "{same}");
        assert_eq!(same["added_by"], made["added_by"], "{same}");
        client.run("write", "up:t", &json!({})).await.ok();
        assert_eq!(upstream.sent("x-key").last().unwrap(), "one", "{url}");
    }
    for url in [format!("{local}/"), local.replace("/mcp", "/./mcp"), local.replace("/mcp", "/%6dcp")] {
        tenant.platform.patch(UP, &json!({"url": local, "headers": {"X-Key": "one"}})).await.expect(200);
        let moved = operator.patch(UP, &json!({ "url": url })).await.expect(200);
        assert_eq!((&moved["headers"], &moved["quarantined"]), (&json!([]), &json!(true)), "{url}: {moved}");
    }
}
