//! Permission requests and grants on the command line.

use serde_json::json;

use super::{asked, asking, write};
use crate::support::{Mcp, cli};

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

#[tokio::test]
async fn a_wide_list_of_records_says_who_allowed_a_call_and_its_arguments() {
    let rules = json!([{"id": "free-reads", "effect": "allow", "match": {"op": "read"}}]);
    let (_stage, tenant, _upstream) = asking(&[], rules).await;
    let (agent, auditor) = (tenant.agent().await, tenant.auditor().await);
    let eva = tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    let args = json!({"password": "s3cret-word", "path": "/a", "text": "x".repeat(200)});
    let id = asked(&agent, &args).await;
    let refused = asked(&agent, &json!({"path": "/refused"})).await;
    cli(&eva, &["consent", "allow", &id]).await.ok();
    cli(&eva, &["consent", "deny", &refused]).await.ok();
    write(&agent, &args).await.ok();
    Mcp::bare(&agent).run("read", "zoo:reader", &json!({"path": "/b"})).await.ok();
    tenant.records("type=tool_call&status=success", 2).await;
    let of = async |status: &str| {
        let list = ["activity", "list", "--wide", "--type", "tool_call", "--status", status];
        let list = cli(&auditor, &list).await.ok().out;
        list.lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let ran = of("success").await;
    assert!(ran[0].contains("ALLOWED BY") && ran[0].contains("ARGUMENTS"), "{ran:?}");
    assert!(ran[1].contains("  rule free-reads  ") && ran[1].contains(r#""path":"/b""#), "{ran:?}");
    assert!(ran[2].contains("  eva (cli)  ") && ran[2].contains("[redacted]"), "{ran:?}");
    assert!(ran[2].ends_with("x…") && !ran[2].contains(&"x".repeat(80)), "{ran:?}");
    assert!(!ran[2].contains("s3cret"), "{ran:?}");
    // these did not run
    let blocked = of("blocked").await;
    assert!(blocked.len() == 3 && blocked[1..].iter().all(|row| !row.contains("eva")), "{blocked:?}");
    // the record says it too, also of a call that was refused
    let person = "\n  decided_by:   eva\n  decided_via:  cli\n  decided_at:   20";
    for (tool_call, count, section) in [
        ("status=success&tool=writer", 1, person),
        ("status=blocked", 2, "\nPermission\n  state:        denied\n  decided_by:   eva\n"),
    ] {
        let record = tenant.records(&format!("type=tool_call&{tool_call}"), count).await.remove(0);
        let id = record["id"].as_str().unwrap();
        let shown = cli(&auditor, &["activity", "show", id]).await.ok().out;
        assert!(shown.contains(section), "{shown}");
        assert_eq!(cli(&auditor, &["activity", "show", id, "-o", "json"]).await.ok().json(), record);
    }
    let free = tenant.records("type=tool_call&status=success&tool=reader", 1).await.remove(0);
    let shown = cli(&auditor, &["activity", "show", free["id"].as_str().unwrap()]).await.ok().out;
    assert!(shown.contains("free-reads") && !shown.contains("Permission"), "{shown}");
}
