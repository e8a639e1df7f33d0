//! Separation of duties: what an operator brings in, somebody else lets in.

use serde_json::{Value, json};

use crate::support::{Api, Mcp, Stage, Tenant, Tool, Upstream};

/// A tool that only reads, with a title of its own.
fn titled(title: &str) -> Tool {
    Tool::annotated("t", &json!({"readOnlyHint": true, "title": title}).to_string())
}

async fn tool(tenant: &Tenant) -> Value {
    tenant.platform.items("/api/v1/servers/up/tools").await.remove(0)
}

/// Approves the tool as it is now.
async fn approve(tenant: &Tenant, by: &Api) -> crate::support::Answer {
    let pin = tool(tenant).await["pin"].clone();
    by.post("/api/v1/servers/up/tools/t/approve", &json!({ "pin": pin })).await
}

#[tokio::test]
async fn automatic_approval_is_not_for_whoever_added_the_server() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (adder, other) = (tenant.operator().await, tenant.operator().await);
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    let mut at_once = body.clone();
    at_once["auto_approve"] = json!(true);
    adder.post("/api/v1/servers", &at_once).await.refused(403, "forbidden");
    adder.get("/api/v1/servers/up").await.refused(404, "not_found");
    assert_eq!(upstream.counts().accepts, 0, "it was connected to");

    adder.post("/api/v1/servers", &body).await.expect(201);
    let (on, off) = (json!({"auto_approve": true}), json!({"auto_approve": false}));
    adder.patch("/api/v1/servers/up", &on).await.refused(403, "forbidden");
    adder.patch("/api/v1/servers/up", &off).await.expect(200);
    assert_eq!(adder.get("/api/v1/servers/up").await.expect(200)["auto_approve"], false);
    let taken = other.patch("/api/v1/servers/up", &on).await.expect(200);
    assert_eq!((&taken["auto_approve"], &taken["quarantined"]), (&json!(true), &json!(true)), "{taken}");

    // what an admin added is nobody's own
    tenant.add("admins", &upstream).await;
    let taken = adder.patch("/api/v1/servers/admins", &on).await.expect(200);
    assert_eq!((&taken["auto_approve"], &taken["quarantined"]), (&json!(true), &json!(false)), "{taken}");
}

#[tokio::test]
async fn whoever_moves_a_server_has_added_it() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (operator, admin) = (tenant.operator().await, tenant.admin().await);
    let (old, new) =
        (Upstream::handshake(vec![titled("old")]).await, Upstream::handshake(vec![titled("new")]).await);
    let body = json!({"name": "up", "kind": "http", "url": old.url});
    let made = admin.post("/api/v1/servers", &body).await.expect(201);
    assert_eq!(made["added_by"], admin.id, "{made}");
    assert_eq!(tool(&tenant).await["state"], "approved");
    // another query moves nothing
    let path = json!({"url": format!("{}?x=1", old.url)});
    let same = operator.patch("/api/v1/servers/up", &path).await.expect(200);
    assert_eq!((&same["added_by"], &same["quarantined"]), (&json!(admin.id), &json!(false)), "{same}");

    let moved = operator.patch("/api/v1/servers/up", &json!({"url": new.url})).await.expect(200);
    assert_eq!((&moved["added_by"], &moved["quarantined"]), (&json!(operator.id), &json!(true)), "{moved}");
    let pending = tool(&tenant).await;
    assert_eq!(pending["state"], "pending", "{pending}");
    assert_eq!(pending["approved_definition"], Value::Null, "a pin of the old origin stayed: {pending}");
    let unquarantine = "/api/v1/servers/up/unquarantine";
    operator.post(unquarantine, &json!({})).await.refused(403, "forbidden");
    approve(&tenant, &operator).await.refused(403, "forbidden");
    operator.patch("/api/v1/servers/up", &json!({"auto_approve": true})).await.refused(403, "forbidden");
    let client = Mcp::bare(&tenant.agent().await);
    client.run("read", "up:t", &json!({})).await.refused("server_quarantined");
    assert_eq!(tool(&tenant).await["state"], "pending");

    admin.post(unquarantine, &json!({})).await.expect(200);
    client.run("read", "up:t", &json!({})).await.ok();
    // and later changes are not its own to approve either
    new.set_tools(vec![titled("newer")]);
    operator.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    approve(&tenant, &operator).await.refused(403, "forbidden");
    client.run("read", "up:t", &json!({})).await.refused("tool_changed");
    approve(&tenant, &admin).await.expect(200);
    client.run("read", "up:t", &json!({})).await.ok();
    assert_eq!((old.counts().calls, new.counts().calls), (0, 2));
}

#[tokio::test]
async fn automatic_approval_does_not_move_to_another_origin() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (operator, admin) = (tenant.operator().await, tenant.admin().await);
    let (old, new) =
        (Upstream::handshake(vec![titled("old")]).await, Upstream::handshake(vec![titled("new")]).await);
    admin.post("/api/v1/servers", &json!({"name": "up", "kind": "http", "url": old.url})).await.expect(201);
    let both = json!({"url": new.url, "auto_approve": true});
    operator.patch("/api/v1/servers/up", &both).await.refused(403, "forbidden");
    assert_eq!(admin.get("/api/v1/servers/up").await.expect(200)["url"], old.url);
    // switched on first, it is off again after the move
    operator.patch("/api/v1/servers/up", &json!({"auto_approve": true})).await.expect(200);
    let moved = operator.patch("/api/v1/servers/up", &json!({"url": new.url})).await.expect(200);
    assert_eq!((&moved["auto_approve"], &moved["quarantined"]), (&json!(false), &json!(true)), "{moved}");
    // an admin may have both
    let back = json!({"url": old.url, "auto_approve": true});
    let moved = admin.patch("/api/v1/servers/up", &back).await.expect(200);
    assert_eq!((&moved["auto_approve"], &moved["quarantined"]), (&json!(true), &json!(true)), "{moved}");
}
