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
    assert!(
        allowed.starts_with("zoo:writer is granted: the same call runs once, if the agent repeats it by "),
        "{allowed}"
    );
    let later = allowed.lines().nth(1).unwrap();
    assert!(
        later.starts_with("later calls of this tool by the same key run without asking until "),
        "{later}"
    );
    cli(&eva, &["consent", "deny", &id]).await.failed(3, "eva was first, over cli, at ");
    write(&agent, &json!({"n": 2})).await.ok();
    let grants = cli(&eva, &["grants", "list", "-o", "json"]).await.ok().out;
    let grants: serde_json::Value = serde_json::from_str(&grants).unwrap();
    assert_eq!(grants[0]["consent_id"], id);
    let table = cli(&eva, &["grants", "list"]).await.ok().out;
    for wanted in [" RISK ", " KEY ", " moderate ", agent.id.as_str(), later.rsplit(' ').nth(2).unwrap()] {
        assert!(table.contains(wanted), "{wanted}: {table}");
    }
    cli(&eva, &["grants", "revoke", grants[0]["id"].as_str().unwrap()]).await.ok();
    let id = asked(&agent, &json!({"n": 3})).await;
    let ended = cli(&eva, &["consent", "deny", &id, "--turn", "--comment", "lunch"]).await.ok().out;
    assert!(ended.starts_with("zoo:writer is cancelled: its turn was ended"), "{ended}");
    let sees = ended.lines().nth(1).unwrap().strip_prefix("the agent sees: ").unwrap();
    assert_eq!(write(&agent, &json!({"n": 4})).await.refused("turn_cancelled")["message"], sees);
    let shown = cli(&eva, &["consent", "show", &id]).await.ok().out;
    assert!(shown.contains("\ncancelled: its turn was ended"), "{shown}");
    cli(&eva, &["consent", "allow", &id, "--expires-in-s", "5"]).await.failed(2, "--always");
}
