//! Every role at every door.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::Stage;

const ROLES: [&str; 5] = ["agent", "auditor", "operator", "admin", "approver"];

/// Roles by what the table of the contract lets them do.
const SEE_SERVERS: &[&str] = &["auditor", "operator", "admin"];
const CHANGE_SERVERS: &[&str] = &["operator", "admin"];
const MANAGE: &[&str] = &["admin"];
const USE_TOOLS: &[&str] = &["agent", "operator", "admin"];
const READ_ACTIVITY: &[&str] = &["agent", "auditor", "operator", "admin"];
const NOBODY: &[&str] = &[];
const ANYBODY: &[&str] = &ROLES;

#[tokio::test]
async fn every_route_for_every_role() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let id = "00000000-0000-4000-8000-000000000000";
    let (key, key_settings) = (format!("/keys/{id}"), format!("/keys/{id}/settings"));
    let get = Method::GET;
    let post = Method::POST;
    let patch = Method::PATCH;
    let delete = Method::DELETE;
    let doors: Vec<(&Method, &str, Option<Value>, &[&str])> = vec![
        (&get, "/tenants", None, NOBODY),
        (&post, "/tenants", Some(json!({"name": "new"})), NOBODY),
        (&get, "/tenants/acme", None, NOBODY),
        (&patch, "/tenants/acme", Some(json!({"quotas": {"keys": 100}})), NOBODY),
        (&post, "/tenants/none/suspend", None, NOBODY),
        (&post, "/tenants/none/resume", None, NOBODY),
        (&delete, "/tenants/none", None, NOBODY),
        (&get, "/keys", None, MANAGE),
        (&post, "/keys", Some(json!({"role": "agent"})), MANAGE),
        (&get, &key, None, MANAGE),
        (&patch, &key, Some(json!({"name": "x"})), MANAGE),
        (&delete, &key, None, MANAGE),
        (&get, &key_settings, None, MANAGE),
        (&patch, &key_settings, Some(json!({"max_operation": "read"})), MANAGE),
        (&get, "/settings", None, MANAGE),
        (&patch, "/settings", Some(json!({"max_operation": "destructive"})), MANAGE),
        (&get, "/servers", None, SEE_SERVERS),
        (
            &post,
            "/servers",
            Some(json!({"name": "x", "kind": "http", "url": "http://10.0.0.1/"})),
            CHANGE_SERVERS,
        ),
        (&get, "/servers/none", None, SEE_SERVERS),
        (&patch, "/servers/none", Some(json!({"enabled": true})), CHANGE_SERVERS),
        (&delete, "/servers/none", None, CHANGE_SERVERS),
        (&post, "/servers/none/enable", None, CHANGE_SERVERS),
        (&post, "/servers/none/disable", None, CHANGE_SERVERS),
        (&post, "/servers/none/quarantine", None, CHANGE_SERVERS),
        (&post, "/servers/none/unquarantine", None, CHANGE_SERVERS),
        (&post, "/servers/none/refresh", None, CHANGE_SERVERS),
        (&post, "/servers/none/restart", None, CHANGE_SERVERS),
        (&get, "/servers/none/logs", None, CHANGE_SERVERS),
        (&get, "/servers/none/tools", None, SEE_SERVERS),
        (
            &post,
            "/servers/none/tools/t/approve",
            Some(json!({"pin": format!("v1:{}", "0".repeat(64))})),
            CHANGE_SERVERS,
        ),
        (&get, "/tools?query=x", None, USE_TOOLS),
        (&post, "/tools/call", Some(json!({"tool_variant": "call_tool_read", "name": "no:ne"})), USE_TOOLS),
        (&get, "/activity", None, READ_ACTIVITY),
        (&get, "/activity/01ARZ3NDEKTSV4RRFFQ69G5FAV", None, READ_ACTIVITY),
        (&get, "/status", None, ANYBODY),
    ];
    for role in ROLES {
        let api = tenant.key(&json!({ "role": role })).await;
        for (method, path, body, may) in &doors {
            let answer = api.ask((*method).clone(), &format!("/api/v1{path}"), body.as_ref()).await;
            let entered = answer.status != 403;
            assert_eq!(entered, may.contains(&role), "{role} {method} {path}: {answer:?}");
            assert!(
                (200..500).contains(&answer.status) && answer.status != 405,
                "{role} {method} {path}: {answer:?}"
            );
            if !entered {
                answer.refused(403, "forbidden");
            }
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
