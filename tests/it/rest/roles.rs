//! Every role at every door.

use std::collections::BTreeSet;

use mcpproxy::faces::rest::ROUTES;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Api, People, Stage};

const ROLES: [&str; 5] = ["agent", "auditor", "operator", "admin", "approver"];

/// Roles by what the table of the contract lets them do.
const SEE_SERVERS: &[&str] = &["auditor", "operator", "admin"];
const CHANGE_SERVERS: &[&str] = &["operator", "admin"];
const APPROVE: &[&str] = CHANGE_SERVERS;
const MANAGE: &[&str] = &["admin"];
const SEE_POLICIES: &[&str] = SEE_SERVERS;
const DECIDE: &[&str] = &["approver", "admin"];
const USE_TOOLS: &[&str] = &["agent", "operator", "admin"];
const READ_ACTIVITY: &[&str] = &["agent", "auditor", "operator", "admin"];
const NOBODY: &[&str] = &[];
const ANYBODY: &[&str] = &ROLES;

/// Roles that each route admits. A route without a row fails the test.
#[rustfmt::skip]
const DOORS: &[(&str, &str, &[&str])] = &[
    ("GET", "/tenants", NOBODY),
    ("POST", "/tenants", NOBODY),
    ("GET", "/tenants/{name}", NOBODY),
    ("PATCH", "/tenants/{name}", NOBODY),
    ("POST", "/tenants/{name}/suspend", NOBODY),
    ("POST", "/tenants/{name}/resume", NOBODY),
    ("DELETE", "/tenants/{name}", NOBODY),
    ("POST", "/reload", NOBODY),
    ("GET", "/keys", MANAGE),
    ("POST", "/keys", MANAGE),
    ("GET", "/keys/{id}", MANAGE),
    ("PATCH", "/keys/{id}", MANAGE),
    ("DELETE", "/keys/{id}", MANAGE),
    ("POST", "/keys/{id}/rotate", MANAGE),
    ("GET", "/keys/{id}/settings", MANAGE),
    ("PATCH", "/keys/{id}/settings", MANAGE),
    ("GET", "/settings", MANAGE),
    ("PATCH", "/settings", MANAGE),
    ("GET", "/issuers", NOBODY),
    ("POST", "/issuers", NOBODY),
    ("GET", "/issuers/{name}", NOBODY),
    ("PATCH", "/issuers/{name}", NOBODY),
    ("DELETE", "/issuers/{name}", NOBODY),
    ("POST", "/issuers/{name}/check", NOBODY),
    ("GET", "/issuers/{name}/tenants", NOBODY),
    ("PUT", "/issuers/{name}/tenants", NOBODY),
    ("GET", "/identity/rules", MANAGE),
    ("PUT", "/identity/rules", MANAGE),
    ("GET", "/identities", MANAGE),
    ("POST", "/identities/block", MANAGE),
    ("POST", "/identities/{id}/block", MANAGE),
    ("POST", "/identities/{id}/unblock", MANAGE),
    ("GET", "/policy", SEE_POLICIES),
    ("PUT", "/policy", MANAGE),
    ("GET", "/policy/versions", SEE_POLICIES),
    ("POST", "/policy/explain", SEE_POLICIES),
    ("GET", "/keys/{id}/policy", SEE_POLICIES),
    ("PUT", "/keys/{id}/policy", MANAGE),
    ("GET", "/consent", ANYBODY),
    ("GET", "/consent/stream", ANYBODY),
    ("GET", "/consent/grants", ANYBODY),
    ("DELETE", "/consent/grants/{id}", ANYBODY),
    ("GET", "/consent/webhook", MANAGE),
    ("PUT", "/consent/webhook", MANAGE),
    ("POST", "/consent/webhook/test", MANAGE),
    ("DELETE", "/consent/webhook", MANAGE),
    ("GET", "/consent/{id}", ANYBODY),
    ("POST", "/consent/{id}/decision", DECIDE),
    ("GET", "/servers", SEE_SERVERS),
    ("POST", "/servers", CHANGE_SERVERS),
    ("GET", "/servers/{name}", SEE_SERVERS),
    ("PATCH", "/servers/{name}", CHANGE_SERVERS),
    ("DELETE", "/servers/{name}", CHANGE_SERVERS),
    ("POST", "/servers/{name}/enable", CHANGE_SERVERS),
    ("POST", "/servers/{name}/disable", CHANGE_SERVERS),
    ("POST", "/servers/{name}/quarantine", CHANGE_SERVERS),
    ("POST", "/servers/{name}/unquarantine", APPROVE),
    ("POST", "/servers/{name}/refresh", CHANGE_SERVERS),
    ("POST", "/servers/{name}/restart", CHANGE_SERVERS),
    ("GET", "/servers/{name}/logs", CHANGE_SERVERS),
    ("GET", "/servers/{name}/page-report", SEE_SERVERS),
    ("PUT", "/servers/{name}/oauth", CHANGE_SERVERS),
    ("DELETE", "/servers/{name}/oauth", CHANGE_SERVERS),
    ("GET", "/servers/{name}/connections", SEE_SERVERS),
    ("POST", "/servers/{name}/connections", USE_TOOLS),
    ("POST", "/servers/{name}/connections/claim", USE_TOOLS),
    ("DELETE", "/servers/{name}/connections/{id}", CHANGE_SERVERS),
    ("GET", "/servers/{name}/tools", SEE_SERVERS),
    ("GET", "/servers/{name}/prompts", SEE_SERVERS),
    ("GET", "/servers/{name}/resources", SEE_SERVERS),
    ("POST", "/servers/{name}/prompts/{prompt}/approve", APPROVE),
    ("POST", "/servers/{name}/prompts/{prompt}/block", CHANGE_SERVERS),
    ("DELETE", "/servers/{name}/prompts/{prompt}/block", APPROVE),
    ("GET", "/servers/{name}/prompts/{prompt}/diff", SEE_SERVERS),
    ("POST", "/servers/{name}/resources/approve", APPROVE),
    ("POST", "/servers/{name}/resources/block", CHANGE_SERVERS),
    ("POST", "/servers/{name}/resources/unblock", APPROVE),
    ("GET", "/servers/{name}/resources/diff", SEE_SERVERS),
    ("POST", "/servers/{name}/tools/{tool}/approve", APPROVE),
    ("POST", "/servers/{name}/tools/{tool}/block", CHANGE_SERVERS),
    ("DELETE", "/servers/{name}/tools/{tool}/block", APPROVE),
    ("GET", "/servers/{name}/tools/{tool}/diff", SEE_SERVERS),
    ("PUT", "/servers/{name}/tools/{tool}/override", APPROVE),
    ("DELETE", "/servers/{name}/tools/{tool}/override", APPROVE),
    ("GET", "/tools", USE_TOOLS),
    ("POST", "/tools/call", USE_TOOLS),
    ("GET", "/activity", READ_ACTIVITY),
    ("GET", "/activity/export", READ_ACTIVITY),
    ("GET", "/activity/summary", READ_ACTIVITY),
    ("GET", "/activity/stream", READ_ACTIVITY),
    ("GET", "/activity/{id}", READ_ACTIVITY),
    ("GET", "/activity/{id}/provenance", READ_ACTIVITY),
    ("GET", "/events", SEE_SERVERS),
    ("GET", "/status", ANYBODY),
    ("GET", "/openapi.json", ANYBODY),
];

/// A body that the route takes, where one is needed for it to do something.
fn body(method: &str, path: &str) -> Option<Value> {
    Some(match (method, path) {
        ("POST", "/tenants") => json!({"name": "new"}),
        ("POST", "/identities/block") => json!({"issuer": "corp", "subject": "nobody"}),
        ("PATCH", "/tenants/{name}") => json!({"quotas": {"keys": 100}}),
        ("POST", "/keys") => json!({"role": "agent"}),
        ("PATCH", "/keys/{id}") => json!({"name": "x"}),
        ("POST", "/keys/{id}/rotate") => json!({"overlap_s": 60}),
        ("PATCH", "/keys/{id}/settings") => json!({"max_operation": "read"}),
        ("PATCH", "/settings") => json!({"max_operation": "destructive"}),
        ("POST", "/issuers") => json!({"name": "x", "issuer": "https://idp.example", "audiences": ["x"]}),
        ("PATCH", "/issuers/{name}") => json!({"audiences": ["x"]}),
        ("PUT", "/issuers/{name}/tenants") => json!({"items": []}),
        ("PUT", "/identity/rules") => json!({"version": 0, "rules": []}),
        ("PUT", "/policy") => json!({"version": 0, "rules": []}),
        ("PUT", "/keys/{id}/policy") => json!({"version": 0, "rules": []}),
        ("POST", "/policy/explain") => json!({"tool": "no:ne"}),
        ("PUT", "/consent/webhook") => {
            json!({"url": "http://127.0.0.1:9/", "secret": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
        }
        ("POST", "/consent/{id}/decision") => json!({"decision": "allow_once"}),
        ("POST", "/servers") => json!({"name": "x", "kind": "http", "url": "http://10.0.0.1/"}),
        ("PATCH", "/servers/{name}") => json!({"enabled": true}),
        ("POST", "/servers/{name}/tools/{tool}/approve" | "/servers/{name}/prompts/{prompt}/approve") => {
            json!({"pin": format!("v1:{}", "0".repeat(64))})
        }
        ("POST", "/servers/{name}/resources/approve") => {
            json!({"uri": "x://a", "pin": format!("v1:{}", "0".repeat(64))})
        }
        ("POST", "/servers/{name}/resources/block" | "/servers/{name}/resources/unblock") => {
            json!({"uri": "x://a"})
        }
        ("POST", "/tools/call") => json!({"tool_variant": "call_tool_read", "name": "no:ne"}),
        _ => return None,
    })
}

/// An address at which nothing is. Streams would never end: they get a parameter that they refuse.
fn address(path: &str) -> String {
    let id = match path.starts_with("/activity") {
        true => "01ARZ3NDEKTSV4RRFFQ69G5FAV",
        false => "00000000-0000-4000-8000-000000000000",
    };
    let query = match path {
        "/activity/stream" | "/consent/stream" | "/events" => "?no-such-parameter=1",
        "/tools" => "?query=x",
        "/servers/{name}/resources/diff" => "?uri=x://a",
        _ => "",
    };
    let path = path.replace("{name}", "none").replace("{id}", id);
    format!("/api/v1{}{query}", path.replace("{tool}", "t").replace("{prompt}", "p"))
}

#[tokio::test]
async fn every_route_for_every_role() {
    let rows: BTreeSet<(&str, &str)> = DOORS.iter().map(|(method, path, _)| (*method, *path)).collect();
    let served: BTreeSet<(&str, &str)> = ROUTES.iter().copied().collect();
    assert_eq!(rows, served, "DOORS says of every route who may use it, and of nothing else");
    assert_eq!(rows.len(), DOORS.len(), "a route has two rows");
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    for role in ROLES {
        each_door(&tenant.key(&json!({ "role": role })).await, role).await;
    }
}

/// People who log in find the doors that keys of their roles find.
#[tokio::test]
async fn every_route_for_people_of_every_role() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let people = People::of(&stage, &tenant, "acme").await;
    for role in ROLES {
        each_door(&people.person(role, json!({})).await, role).await;
    }
}

/// Tries each door as somebody of a role.
async fn each_door(api: &Api, role: &str) {
    for (method, path, may) in DOORS {
        let how: Method = method.parse().unwrap();
        let answer = api.ask(how, &address(path), body(method, path).as_ref()).await;
        let entered = answer.status != 403;
        assert_eq!(entered, may.contains(&role), "{role} {method} {path}: {answer:?}");
        assert!(
            (200..500).contains(&answer.status) && answer.status != 405,
            "{role} {method} {path}: {answer:?}"
        );
        if !entered {
            answer.refused(403, if *may == DECIDE { "not_approver" } else { "forbidden" });
        }
    }
}

#[tokio::test]
async fn a_tenants_key_cannot_name_another_tenant() {
    let stage = Stage::start().await;
    let (ours, _theirs) = (stage.tenant("ours").await, stage.tenant("theirs").await);
    let admin = ours.admin().await;
    let there = admin.as_tenant("theirs").get("/api/v1/settings").await;
    let nowhere = admin.as_tenant("nowhere").get("/api/v1/settings").await;
    assert_eq!(there.status, nowhere.status);
    let status = admin.as_tenant("theirs").get("/api/v1/status").await;
    assert!(!status.text.contains("theirs"), "{status:?}");
    let platform = stage.platform();
    // without a tenant the platform's key opens no tenant's door
    let answer = platform.get("/api/v1/servers").await;
    assert!(matches!(answer.status, 400 | 403 | 404), "{answer:?}");
    platform.as_tenant("nowhere").get("/api/v1/servers").await.refused(404, "not_found");
}
