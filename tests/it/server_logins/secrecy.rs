//! Secrets and tokens are found nowhere but at the login service and the server.

use serde_json::json;

use super::{add, guarded, login, put};
use crate::support::upstream::Say;
use crate::support::{Mcp, Stage, TokenServer, Tool, Upstream};

#[tokio::test]
async fn secret_and_token_are_found_nowhere() {
    let stage = Stage::with(&[("MCPPROXY__TELEMETRY__LOG_FILTER", "trace")]).await;
    let tenant = stage.tenant("acme").await;
    let tokens = TokenServer::start().await;
    let tools = vec![Tool::writes("echo").says(Say::Headers), Tool::reads("look").says(Say::Headers)];
    let old = guarded(&tokens, Upstream::handshake(tools.clone()).await).await;
    let new = guarded(&tokens, Upstream::modern(tools).await).await;
    let mut answers = vec![
        add(&tenant, "old", &old, &login(&tokens, "gw")).await,
        add(&tenant, "new", &new, &login(&tokens, "gw")).await,
    ];
    for field in ["kind", "client_id", "token_endpoint", "resource", "client_auth", "unknown"] {
        let mut wrong = login(&tokens, "gw");
        wrong[field] = json!("not a good \"value\"\n");
        let refused = put(&tenant.platform, "old", &wrong).await;
        assert!(refused.status >= 400, "{field}: {refused:?}");
        answers.push(refused.json());
    }
    tokens.revoke();
    let agent = Mcp::bare(&tenant.agent().await);
    for server in ["old", "new"] {
        agent.run("write", &format!("{server}:echo"), &json!({})).await.ok();
        agent.run("read", &format!("{server}:look"), &json!({})).await.ok();
    }
    let given = tokens.tokens_of("gw");
    assert_eq!(given.len(), 4, "one of each server, and one more after the end of the first");
    // the server did get it
    let sent = new.sent("authorization");
    assert!(given.iter().any(|token| sent.contains(&format!("Bearer {token}"))), "no token was sent");
    answers.extend(tenant.records("type=tool_call", 4).await);
    answers.extend(tenant.records("type=admin&tool=servers.set_oauth", 8).await);
    for path in
        ["/api/v1/servers", "/api/v1/servers/old", "/api/v1/servers/old/connections", "/api/v1/status"]
    {
        answers.push(tenant.platform.get(path).await.expect(200));
    }
    let export = tenant.platform.get("/api/v1/activity/export?format=json").await;
    let log = stage.gateway.log();
    let rows = stage.database.rows().await;
    assert!(rows.iter().any(|(table, _)| table == "connections"));
    let texts = answers.iter().map(|answer| ("an answer", answer.to_string()));
    let texts = texts.chain(rows.into_iter().map(|(_, row)| ("a row", row)));
    let texts = texts.chain([("the log", log), ("the export", export.text.clone())]);
    for (what, text) in texts {
        for mark in ["opaque-token-of-", "s3cret-of-"] {
            assert!(!text.contains(mark), "{mark} in {what}: {text}");
            let hex: String = mark.bytes().map(|byte| format!("{byte:02x}")).collect();
            assert!(!text.contains(&hex), "{mark} as bytes in {what}: {text}");
        }
    }
}
