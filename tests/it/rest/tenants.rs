//! Tenants, for the platform operator.

use serde_json::{Value, json};

use crate::support::{Mcp, Stage};

#[tokio::test]
async fn a_tenants_life() {
    let stage = Stage::start().await;
    let platform = stage.platform();
    let made = platform.post("/api/v1/tenants", &json!({"name": "acme"})).await.expect(201);
    assert_eq!(made["name"], "acme");
    platform.post("/api/v1/tenants", &json!({"name": "acme"})).await.refused(409, "conflict");
    let read = platform.get("/api/v1/tenants/acme").await.expect(200);
    assert_eq!(read, made);
    platform.post("/api/v1/tenants", &json!({"name": "zeta"})).await.expect(201);
    let listed: Vec<Value> =
        platform.items("/api/v1/tenants").await.into_iter().map(|t| t["name"].clone()).collect();
    assert!(listed.contains(&json!("acme")) && listed.contains(&json!("zeta")), "{listed:?}");

    let body = json!({"role": "agent"});
    let key = platform.as_tenant("acme").post("/api/v1/keys", &body).await.expect(201);
    let agent = stage.gateway.anonymous().with_key(key["key"].as_str().unwrap());
    Mcp::bare(&agent).request("tools/list", "{}").await.expect(200);
    platform.delete("/api/v1/tenants/acme").await.expect(204);
    assert_eq!(Mcp::bare(&agent).request("tools/list", "{}").await.status, 401);
    platform.get("/api/v1/tenants/acme").await.refused(404, "not_found");
    platform.delete("/api/v1/tenants/acme").await.refused(404, "not_found");
    platform.as_tenant("acme").get("/api/v1/servers").await.refused(404, "not_found");
    // the name is free again, and nothing of the old tenant comes back
    let again = platform.post("/api/v1/tenants", &json!({"name": "acme"})).await.expect(201);
    assert_ne!(again["id"], made["id"]);
    assert_eq!(platform.as_tenant("acme").items("/api/v1/keys").await, [Value::Null; 0]);
    assert_eq!(Mcp::bare(&agent).request("tools/list", "{}").await.status, 401);
}

#[tokio::test]
async fn names_and_bodies_are_checked() {
    let stage = Stage::start().await;
    let platform = stage.platform();
    for name in ["", "A", "a_b", "-a", "a-", "a--b", "a b", "ä", "x\u{0}y", &"a".repeat(33)] {
        let answer = platform.post("/api/v1/tenants", &json!({ "name": name })).await;
        answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], "name", "{name}");
    }
    for body in [json!({}), json!({"name": 7}), json!({"name": "ok", "more": 1}), json!([]), json!("x")] {
        platform.post("/api/v1/tenants", &body).await.refused(400, "invalid_request");
    }
    platform.post("/api/v1/tenants", &json!({"name": "platform"})).await.refused(409, "conflict");
    let twice =
        platform.request(reqwest::Method::POST, "/api/v1/tenants").header("Content-Type", "application/json");
    platform.send(twice.body(r#"{"name":"one","name":"two"}"#)).await.refused(400, "invalid_request");
}

#[tokio::test]
async fn unknown_routes_and_methods_are_json() {
    let stage = Stage::start().await;
    let platform = stage.platform();
    platform.get("/api/v1/no-such-thing").await.refused(404, "not_found");
    platform.get("/api/v1/tenants?no=such").await.refused(400, "invalid_request");
    let wrong = platform.delete("/api/v1/tenants").await;
    assert_eq!(wrong.status, 405, "{wrong:?}");
    assert!(wrong.json()["error"]["code"].is_string() && !wrong.header("allow").is_empty(), "{wrong:?}");
    for limit in ["0", "101", "x", "-1"] {
        platform.get(&format!("/api/v1/tenants?limit={limit}")).await.refused(400, "invalid_request");
    }
    platform.get("/api/v1/tenants?cursor=%21%21").await.refused(400, "invalid_request");
}

#[tokio::test(flavor = "multi_thread")]
async fn there_are_as_many_as_the_deployment_allows() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__TENANTS_MAX", "3")]).await;
    let platform = stage.platform();
    let made = (0..12).map(|n| platform.post("/api/v1/tenants", &json!({"name": format!("t{n}")})));
    let made = futures_util::future::join_all(made.map(tokio::spawn)).await;
    let (made, refused): (Vec<_>, Vec<_>) =
        made.into_iter().map(Result::unwrap).partition(|answer| answer.status == 201);
    assert_eq!(made.len(), 3);
    for answer in refused {
        answer.refused(429, "rate_limited");
    }
    // there is room again for each that goes
    let name = platform.items("/api/v1/tenants").await[0]["name"].as_str().unwrap().to_owned();
    platform.delete(&format!("/api/v1/tenants/{name}")).await.expect(204);
    platform.post("/api/v1/tenants", &json!({"name": "again"})).await.expect(201);
}
