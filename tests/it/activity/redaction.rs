//! Secrets are masked before they are stored: every text column of the log is searched.

use serde_json::json;
use sqlx::AssertSqlSafe;

use crate::support::upstream::Say;
use crate::support::{Mcp, Stage, Tool, Upstream};

/// Planted secrets; none may be found anywhere afterwards.
const SECRETS: [&str; 8] = [
    "mcpk_q7ZpLw2Xr9TfYb4NcHs6VdKg8MjQeUaR1oPiWtBxEz3",
    "ghp_a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "sk-ant-api03-a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "AKIAIOSFODNN7EXAMPLE",
    "hunter2-in-a-member",
    "opaque-bearer-value-123456",
    "url-password-98765",
];

fn planted() -> serde_json::Value {
    json!({
        "note": format!("use {} or {}", SECRETS[0], SECRETS[1]),
        "header": format!("Authorization: Bearer {}", SECRETS[6]),
        "password": SECRETS[5],
        "nested": {"deep": [{"api_key": SECRETS[2]}, SECRETS[3], SECRETS[4]]},
        "link": format!("https://user:{}@example.com/x", SECRETS[7]),
        "text": format!(r#"{{"client_secret": "{}"}}"#, SECRETS[5]),
    })
}

#[tokio::test]
async fn no_planted_secret_is_stored() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let leak =
        json!({"content": [{"type": "text", "text": planted().to_string()}], "structuredContent": planted()});
    let rpc = json!({"code": -31000, "message": format!("denied for {}", SECRETS[0]), "data": planted()});
    let upstream = Upstream::handshake(vec![
        Tool::writes("echo"),
        Tool::reads("look"),
        Tool::writes("leak").returns(&leak.to_string()),
        Tool::writes("rpc").says(Say::RpcError(rpc.to_string())),
        Tool::writes("http").says(Say::Http(500, planted().to_string())),
    ])
    .await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let client = Mcp::session(&agent).await;
    for (variant, tool) in [
        ("write", "echo"),
        ("read", "look"),
        ("write", "leak"),
        ("write", "rpc"),
        ("write", "http"),
        ("read", "leak"),
    ] {
        client.run(variant, &format!("up:{tool}"), &planted()).await;
    }
    for secret in SECRETS {
        let reason = json!({"name": "up:echo", "intent_reason": format!("password: {secret}")});
        client.call("call_tool_write", &reason).await.ok();
    }
    client.run("read", &format!("up:{}", SECRETS[0]), &json!({})).await;
    client.run("read", SECRETS[0], &json!({})).await;
    client.search(&json!({"query": format!("password: {}", SECRETS[5])})).await;
    client.call("call_tool_write", &json!({"name": "up:echo", "intent_operation_type": SECRETS[1]})).await;
    client.call("call_tool_write", &json!({"name": "up:echo", "intent_data_sensitivity": SECRETS[1]})).await;
    tenant.records("type=tool_call", 6 + SECRETS.len() + 4).await;
    tenant.records("type=search", 1).await;

    let mut connection = stage.database.connect().await;
    for table in ["activity", "activity_open"] {
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(format!("select to_jsonb(t)::text from {table} t")))
                .fetch_all(&mut connection)
                .await
                .unwrap();
        for row in rows {
            for secret in SECRETS.into_iter().chain(agent.key.as_deref()) {
                assert!(!row.contains(secret), "{secret} in {table}: {row}");
            }
        }
    }
    let log = stage.gateway.log();
    for secret in SECRETS.into_iter().chain(agent.key.as_deref()) {
        assert!(!log.contains(secret), "{secret} in the gateway's log");
    }
    // the caller itself gets everything
    let whole = client.run("write", "up:echo", &planted()).await;
    assert!(SECRETS.iter().all(|secret| whole.answer.text.contains(secret)), "{whole:?}");
}

#[tokio::test]
async fn a_secret_across_the_cut_is_masked_too() {
    let stage = Stage::with(&[("MCPPROXY__ACTIVITY__PREVIEW_BYTES", "256")]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    let secret = SECRETS[0];
    for before in (180..260).step_by(5) {
        let arguments = json!({"a": format!("{} {secret}", "x".repeat(before))});
        client.run("write", "up:echo", &arguments).await.ok();
    }
    for record in tenant.records("type=tool_call", 16).await {
        assert_eq!(record["truncated"], true, "{record}");
        for preview in [&record["arguments"], &record["response"]] {
            let preview = preview.as_str().unwrap();
            assert!(preview.len() <= 300, "{}", preview.len());
            let start: String = secret.chars().take(9).collect();
            assert!(!preview.contains(&start), "{preview}");
        }
    }
}
