//! The layers of deployment, tenant and key are one evaluation: deny over ask over allow.

use std::io::Write;

use serde_json::{Value, json};

use super::{code, put, set, zoo};
use crate::support::{Database, run_to_end};

/// A file with rules of the deployment.
fn file(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

fn rule(effect: &str) -> Value {
    json!([{"id": "r", "effect": effect, "match": {"tool": "zoo:writer"}}])
}

#[tokio::test]
async fn the_strictest_layer_counts() {
    let ours = file("rules:\n- {id: base, effect: ask, match: {tool: 'zoo:half'}}\n");
    let (_stage, tenant, _upstream) = zoo(&[("MCPPROXY__POLICY__FILE", ours.path().to_str().unwrap())]).await;
    let agent = tenant.agent().await;
    let own = format!("/keys/{}/policy", agent.id);
    let mut version = 0;
    for (of_tenant, of_key, expected) in [
        ("allow", "allow", "ok"),
        ("allow", "ask", "consent_pending"),
        ("ask", "allow", "consent_pending"),
        ("ask", "deny", "policy_denied"),
        ("deny", "allow", "policy_denied"),
    ] {
        set(&tenant, "deny_unless_allowed", rule(of_tenant)).await;
        let body = json!({"version": version, "rules": rule(of_key)});
        version = put(&tenant.platform, &own, &body).await.expect(200)["version"].as_i64().unwrap();
        assert_eq!(code(&agent, "write", "writer").await, expected, "{of_tenant} and {of_key}");
    }
    // the policy of a key is its own
    set(&tenant, "always_allow", rule("allow")).await;
    assert_eq!(code(&tenant.agent().await, "write", "writer").await, "ok");
    // the deployment's rules hold for all, and no allow relaxes them
    let all = json!([{"id": "all", "effect": "allow"}]);
    set(&tenant, "always_allow", all).await;
    assert_eq!(code(&agent, "write", "half").await, "consent_pending");
}

#[tokio::test]
async fn a_key_has_a_mode_of_its_own_but_for_enforced_rules() {
    let ours =
        file(r#"{"rules":[{"id":"base","effect":"deny","match":{"tool":"zoo:half"},"enforced":true}]}"#);
    let (_stage, tenant, _upstream) = zoo(&[("MCPPROXY__POLICY__FILE", ours.path().to_str().unwrap())]).await;
    set(&tenant, "deny_unless_allowed", json!([])).await;
    let agent = tenant.agent_with(json!({"policy_mode": "observe"})).await;
    assert_eq!(code(&agent, "write", "writer").await, "ok");
    assert_eq!(code(&agent, "write", "half").await, "policy_denied");
    assert_eq!(code(&tenant.agent().await, "write", "writer").await, "policy_denied");
    let status = agent.get("/api/v1/status").await.expect(200);
    assert_eq!(status["settings"]["policy_mode"], "observe");
}

#[tokio::test]
async fn a_file_with_a_fault_stops_the_start() {
    let database = Database::migrated().await;
    for (text, says) in [
        ("rules:\n- {id: a, effects: deny}\n", "rules[0].effects is an unknown key; did you mean 'effect'?"),
        ("rules: []\nmode: by_risk\n", "set defaults.policy_mode"),
        ("rules: [", "cannot be read as YAML"),
    ] {
        let wrong = file(text);
        let path = wrong.path().to_str().unwrap();
        let run = run_to_end(&database, &["serve"], &[("MCPPROXY__POLICY__FILE", path)]);
        let said = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && said.contains(says) && said.contains(path), "{said}");
    }
}
