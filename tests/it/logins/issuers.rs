//! Administration of issuers, assignments and rules.

use reqwest::Method;
use serde_json::{Value, json};

use super::{GATEWAY, SETTINGS, bearer, register, set_rules};
use crate::support::{Idp, Mcp, Stage};

#[tokio::test]
async fn issuers_are_managed_by_the_platform() {
    let stage = Stage::with(&SETTINGS).await;
    let tenant = stage.tenant("acme").await;
    let (platform, idp) = (stage.platform(), Idp::start().await);
    let body = json!({"name": "corp", "issuer": idp.url, "tenant": "acme"});
    tenant.admin().await.post("/api/v1/issuers", &body).await.refused(403, "forbidden");
    let made = platform.post("/api/v1/issuers", &body).await.expect(201);
    assert_eq!(
        [&made["subject_claim"], &made["tenant"], &made["host"], &made["token_types"]],
        [&json!("sub"), &json!("acme"), &Value::Null, &Value::Null]
    );
    assert_eq!(made["algorithms"], json!(["RS256", "PS256", "ES256", "ES384", "EdDSA"]));
    assert!(made["keys_fetched_at"].is_string(), "{made}");
    assert_eq!(platform.get("/api/v1/issuers/corp").await.expect(200), made);
    platform.post("/api/v1/issuers", &body).await.refused(409, "conflict");
    for (field, value) in [
        ("issuer", json!("ftp://x")),
        ("issuer", json!("http://192.0.2.1/")),
        ("issuer", json!("https://idp.example/?x=1")),
        ("issuer", json!("https://169.254.169.254/")),
        ("name", json!("A B")),
        ("tenant", json!("nobody")),
        ("algorithms", json!(["HS256"])),
        ("algorithms", json!([])),
        ("jwks_uri", json!("http://10.0.0.1/keys")),
        ("host", json!("")),
        // requests for it are refused
        ("host", json!("b.example")),
        ("token_types", json!([])),
        ("token_types", json!(["id+jwt"])),
    ] {
        let mut wrong = json!({"name": "other", "issuer": "https://idp.example", "tenant": "acme"});
        wrong[field] = value.clone();
        let answer = platform.post("/api/v1/issuers", &wrong).await;
        answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], field, "{value}");
    }
    let version = made["version"].as_i64().unwrap();
    let stale = json!({"audiences": ["x"], "version": version - 1});
    platform.patch("/api/v1/issuers/corp", &stale).await.refused(409, "conflict");
    let patch = json!({"audiences": ["client-7"], "tenant": null, "version": version});
    let changed = platform.patch("/api/v1/issuers/corp", &patch).await.expect(200);
    assert_eq!((&changed["audiences"], &changed["tenant"]), (&json!(["client-7"]), &Value::Null));
    assert_eq!(platform.items("/api/v1/issuers").await.len(), 1);
    let moved = platform.patch("/api/v1/issuers/corp", &json!({"host": "b.example"})).await;
    let said = moved.refused(400, "invalid_request");
    assert_eq!(said, "requests for 'b.example' are refused: add it to server.allowed_hosts first");
    platform.patch("/api/v1/issuers/corp", &json!({"host": "LOCALHOST"})).await.expect(200);
    platform.delete("/api/v1/issuers/corp").await.expect(204);
    platform.get("/api/v1/issuers/corp").await.refused(404, "not_found");
    platform.delete("/api/v1/issuers/corp").await.refused(404, "not_found");
}

#[tokio::test]
async fn metadata_of_another_issuer_gives_no_keys() {
    let stage = Stage::with(&SETTINGS).await;
    let (idp, other) = (Idp::start().await, Idp::start().await);
    idp.lie(&other.url);
    let body = json!({"name": "corp", "issuer": idp.url});
    let made = stage.platform().post("/api/v1/issuers", &body).await.expect(201);
    let error = made["keys_error"].as_str().unwrap();
    assert!(error.contains("is of another issuer"), "{error}");
    assert_eq!(idp.fetches() + other.fetches(), 0);
}

#[tokio::test]
async fn claims_lead_to_tenants_and_several_need_a_name() {
    let stage = Stage::with(&SETTINGS).await;
    let idp = Idp::start().await;
    for name in ["acme", "beta", "gone"] {
        set_rules(&stage.tenant(name).await, json!([{"role": "agent"}])).await;
    }
    let platform = stage.platform();
    let body = json!({"name": "corp", "issuer": idp.url, "tenant_claim": "org"});
    platform.post("/api/v1/issuers", &body).await.expect(201);
    let items = json!({"items": [
        {"value": "a", "tenant": "acme"}, {"claim": "groups", "value": "b-people", "tenant": "beta"},
        {"value": "g", "tenant": "gone"},
    ]});
    let path = "/api/v1/issuers/corp/tenants";
    let put = platform.ask(Method::PUT, path, Some(&items)).await.expect(200);
    assert_eq!(put["items"][0], json!({"claim": "org", "value": "a", "tenant": "acme"}));
    assert_eq!(platform.get(path).await.expect(200), put);
    let mut versioned = items.clone();
    versioned["version"] = put["version"].clone();
    let again = platform.ask(Method::PUT, path, Some(&versioned)).await.expect(200);
    assert_eq!(again["version"].as_i64(), put["version"].as_i64().map(|version| version + 1));
    platform.ask(Method::PUT, path, Some(&versioned)).await.refused(409, "conflict");
    let wrong = json!({"items": [{"value": "a", "tenant": "nobody"}]});
    let answer = platform.ask(Method::PUT, path, Some(&wrong)).await;
    answer.refused(400, "invalid_request");
    assert_eq!(answer.json()["error"]["field"], "items[0].tenant");
    platform.delete("/api/v1/tenants/gone").await.expect(204);

    let person = |more: Value| bearer(&stage, &idp.token("u1", GATEWAY, more));
    let tenant_of = |api: crate::support::Api| async move {
        api.get("/api/v1/status").await.expect(200)["tenant"].clone()
    };
    assert_eq!(tenant_of(person(json!({"org": "a"}))).await, "acme");
    assert_eq!(tenant_of(person(json!({"groups": ["x", "b-people"]}))).await, "beta");
    let both = person(json!({"org": ["a"], "groups": ["b-people"]}));
    let said = both.get("/api/v1/status").await.refused(400, "invalid_request");
    assert_eq!(said, "this account belongs to several tenants: name one with the header X-Tenant");
    assert_eq!(tenant_of(both.as_tenant("acme")).await, "acme");
    assert_eq!(tenant_of(both.as_tenant("beta")).await, "beta");
    both.as_tenant("gone").get("/api/v1/status").await.refused(404, "not_found");
    person(json!({"org": "a"})).as_tenant("beta").get("/api/v1/status").await.refused(404, "not_found");
    let no_rule = "this account is known, but no rule gives it access here; ask whoever runs this gateway";
    for nobody in [json!({}), json!({"org": "g"}), json!({"org": "x"})] {
        assert_eq!(person(nobody).get("/api/v1/status").await.refused(403, "forbidden"), no_rule);
    }
    let ids: Vec<String> = [("acme", json!({"org": "a"})), ("beta", json!({"groups": ["b-people"]}))]
        .map(|(_, claims)| person(claims))
        .into_iter()
        .map(|api| api.key.unwrap())
        .collect();
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn rules_decide_role_and_settings() {
    let stage = Stage::with(&SETTINGS).await;
    let tenant = stage.tenant("acme").await;
    let idp = Idp::start().await;
    register(&stage, &idp, "corp", "acme").await;
    let path = "/api/v1/identity/rules";
    assert_eq!(tenant.platform.get(path).await.expect(200), json!({"version": 0, "rules": []}));
    let person = |more: Value| bearer(&stage, &idp.token("u1", GATEWAY, more));
    person(json!({})).get("/api/v1/status").await.refused(403, "forbidden");

    let rules = json!([
        {"issuer": "corp", "conditions": [{"claim": "groups", "op": "contains", "value": "admins"}], "role": "admin"},
        {"conditions": [{"claim": "groups", "op": "any_of", "value": ["dev"]}], "role": "operator",
         "settings": {"max_operation": "write"}},
        {"conditions": [], "role": "agent", "settings": {"allowed_tools": ["docs:*"]}},
    ]);
    let admin = tenant.admin().await;
    let put = |version: i64, rules: &Value| {
        let body = json!({"version": version, "rules": rules});
        admin.ask(Method::PUT, path, Some(&body))
    };
    let stored = put(0, &rules).await.expect(200);
    assert_eq!((&stored["version"], &stored["rules"]), (&json!(1), &rules));
    put(0, &rules).await.refused(409, "conflict");
    for (pointer, value, field) in [
        ("/0/role", json!("platform"), "rules[0].role"),
        ("/0/conditions", json!([]), "rules[0].conditions"),
        ("/0/issuer", json!("nobody"), "rules[0].issuer"),
        ("/1/conditions/0/value", json!("dev"), "rules[1].conditions[0].value"),
        ("/1/settings/max_operation", json!("all"), "rules[1].settings.max_operation"),
        ("/2/role", json!("king"), "rules[2]"),
    ] {
        let mut wrong = rules.clone();
        *wrong.pointer_mut(pointer).unwrap() = value;
        let answer = put(1, &wrong).await;
        answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], field);
    }
    tenant.operator().await.get(path).await.refused(403, "forbidden");

    for (claims, role, ceiling) in [
        (json!({"groups": ["admins", "dev"]}), "admin", "destructive"),
        (json!({"groups": ["dev"]}), "operator", "write"),
        (json!({"groups": ["dev"], "scope": "openid mcp:read"}), "operator", "read"),
        (json!({"groups": ["x"]}), "agent", "destructive"),
    ] {
        let status = person(claims).get("/api/v1/status").await.expect(200);
        assert_eq!((&status["role"], &status["settings"]["max_operation"]), (&json!(role), &json!(ceiling)));
        assert_eq!(status["key_id"], Value::Null);
    }
    // admins by token manage keys, agents do not
    person(json!({"groups": ["admins"]})).get("/api/v1/keys").await.expect(200);
    person(json!({})).get("/api/v1/keys").await.refused(403, "forbidden");
    Mcp::bare(&person(json!({}))).request("tools/list", "{}").await.expect(200);
}
