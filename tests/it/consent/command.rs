//! Permission requests and grants on the command line.

use serde_json::json;

use super::{asked, asking, write};
use crate::support::cli;

#[tokio::test]
async fn a_person_answers_on_the_command_line() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "robot"})).await;
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let id = asked(&agent, &json!({"path": "/a"})).await;
    let listed = cli(&eva, &["consent", "list", "--state", "pending"]).await.ok().out;
    assert!(listed.contains(&id) && listed.contains("zoo:writer") && listed.contains("robot"), "{listed}");
    let shown = cli(&eva, &["consent", "show", &id]).await.ok().out;
    assert!(shown.contains("pending") && shown.contains("/a"), "{shown}");
    let watched = cli(&eva, &["consent", "watch", "--limit", "1"]).await.ok().out;
    assert!(watched.starts_with(&format!("{id}  pending  ")), "{watched}");
    cli(&agent, &["consent", "allow", &id]).await.failed(5, "may not decide permission requests");
    let allowed = cli(&eva, &["consent", "allow", &id, "--always", "--comment", "fine"]).await.ok().out;
    assert_eq!(allowed.trim(), "zoo:writer is granted");
    cli(&eva, &["consent", "deny", &id]).await.failed(3, "eva was first, over cli");
    write(&agent, &json!({"n": 2})).await.ok();
    let grants = cli(&eva, &["grants", "list", "-o", "json"]).await.ok().out;
    let grants: serde_json::Value = serde_json::from_str(&grants).unwrap();
    assert_eq!(grants[0]["consent_id"], id);
    cli(&eva, &["grants", "revoke", grants[0]["id"].as_str().unwrap()]).await.ok();
    let id = asked(&agent, &json!({"n": 3})).await;
    let ended = cli(&eva, &["consent", "deny", &id, "--turn"]).await.ok().out;
    assert_eq!(ended.trim(), "zoo:writer is cancelled");
    cli(&eva, &["consent", "allow", &id, "--expires-in-s", "5"]).await.failed(2, "--always");
}
