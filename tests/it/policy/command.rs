//! `mcpproxy policy`, and the activity summary of what policies decide.

use std::io::Write;

use serde_json::json;

use super::{code, put, set, zoo};
use crate::support::{cli, cli_with};

#[tokio::test]
async fn a_file_is_checked_applied_and_explained() {
    let (_stage, tenant, _upstream) = zoo(&[]).await;
    let admin = tenant.admin().await;
    let mut file = tempfile::NamedTempFile::new().unwrap();
    let text = "mode: by_risk\nrules:\n- id: no-wiping\n  effect: deny\n  match: {tool: 'zoo:wiper'}\n  message: Ask the owner.\n";
    file.write_all(text.as_bytes()).unwrap();
    let path = file.path().to_str().unwrap().to_owned();
    let path = &*path;
    // needs no gateway
    let checked = cli_with(&[], &["policy", "check", path]).await.ok();
    assert_eq!(checked.out, format!("{path}: 1 rule, mode by_risk\n"));
    let applied = cli(&admin, &["policy", "apply", path, "-o", "json"]).await.ok();
    assert_eq!((&applied.json()["version"], &applied.json()["mode"]), (&json!(1), &json!("by_risk")));
    let again = cli(&admin, &["policy", "apply", path]).await.ok();
    assert!(again.err.contains("in force already"), "{again:?}");
    cli(&admin, &["policy", "apply", path, "--version", "7"]).await.failed(3, "changed since that version");
    let explained = cli(&admin, &["policy", "explain", "zoo:wiper"]).await.ok();
    assert!(explained.out.starts_with("deny by rule no-wiping, risk high (destroys"), "{explained:?}");
    let rows = explained.out.lines().filter(|line| line.starts_with("tenant")).count();
    assert_eq!(rows, 1, "{explained:?}");
    let history = cli(&admin, &["policy", "history"]).await.ok();
    let rows = history.rows();
    assert_eq!((&*rows[0][0], &*rows[0][1], &*rows[0][2]), ("1", "by_risk", "1"), "{history:?}");
    // of a key
    let agent = tenant.agent().await;
    cli(&admin, &["policy", "apply", path, "--key", &agent.id]).await.ok();
    assert_eq!(code(&agent, "destructive", "wiper").await, "policy_denied");
    cli(&agent, &["policy", "apply", path]).await.failed(5, "");
    file.write_all(b"- {id: b, effect: deni}\n").unwrap();
    let wrong = cli_with(&[], &["policy", "check", path]).await;
    wrong.failed(2, "rules[1].effect is 'deni'; did you mean 'deny'?");
}

#[tokio::test]
async fn the_summary_says_what_would_have_been() {
    let (_stage, tenant, _upstream) = zoo(&[]).await;
    set(&tenant, "observe", json!([{"id": "no-writing", "effect": "deny", "match": {"tool": "zoo:writer"}}]))
        .await;
    let agent = tenant.agent().await;
    for (variant, tool) in
        [("write", "writer"), ("write", "writer"), ("destructive", "wiper"), ("read", "reader")]
    {
        assert_eq!(code(&agent, variant, tool).await, "ok");
    }
    tenant.records("type=tool_call", 4).await;
    let summary = tenant.auditor().await.get("/api/v1/activity/summary?period=1h").await.expect(200);
    assert_eq!(summary["by_decision"], json!({"would_ask": 1, "would_deny": 2}));
    let expected = json!([
        {"decision": "would_deny", "rule": "no-writing", "server": "zoo", "tool": "writer", "calls": 2},
        {"decision": "would_ask", "rule": null, "server": "zoo", "tool": "wiper", "calls": 1},
    ]);
    assert_eq!(summary["top_decisions"], expected);
    let shown = cli(&tenant.auditor().await, &["activity", "summary"]).await.ok();
    assert!(shown.out.contains("decision: would_deny 2, would_ask 1"), "{shown:?}");
    assert!(shown.out.contains("no-writing"), "{shown:?}");
    let listed = cli(&tenant.auditor().await, &["activity", "list", "--decision", "would_deny"]).await.ok();
    assert_eq!(listed.rows().len(), 2, "{listed:?}");
    put(&tenant.platform, "/policy", &json!({"version": 1, "rules": []})).await.expect(200);
}
