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
    let unchanged = "version 1, mode by_risk, 1 rule: in force already, nothing was changed\n";
    assert_eq!((&*again.out, &*again.err), (unchanged, ""));
    let again = cli(&admin, &["policy", "apply", path, "--version", "1"]).await.ok();
    assert_eq!(again.out, unchanged);
    let conflict = "version 1 is in force, and this document replaces version 7";
    cli(&admin, &["policy", "apply", path, "--version", "7"]).await.failed(3, conflict);
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
    // more roles may read the rules than may change them
    for caller in [&agent, &tenant.auditor().await, &tenant.key(&json!({"role": "operator"})).await] {
        let other = write("rules: []\n");
        let other = other.path().to_str().unwrap();
        let refused = cli(caller, &["policy", "apply", other]).await;
        refused.failed(5, "may not do this; it takes one of admin, platform");
    }
    file.write_all(b"- {id: b, effect: deni}\n").unwrap();
    let wrong = cli_with(&[], &["policy", "check", path]).await;
    wrong.failed(2, "rules[1].effect is 'deni'; did you mean 'deny'?");
    for (text, says) in [
        ("", ": the file is empty"),
        ("- id: a\n", ": the policy must be a mapping with 'rules', such as 'rules: []', and is a list"),
        (
            "rules:\n- {id: a, effect: deny, when: \"args.a.matches('[')\"}\n",
            ": rules[0].when calls matches('['): a pattern does not compile: ",
        ),
    ] {
        let file = write(text);
        let path = file.path().to_str().unwrap();
        cli(&admin, &["policy", "apply", path]).await.failed(2, &format!("{path}{says}"));
    }
}

fn write(text: &str) -> tempfile::NamedTempFile {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file
}

#[tokio::test]
async fn what_is_shown_can_be_applied() {
    let (_stage, tenant, _upstream) = zoo(&[]).await;
    let (admin, agent) = (tenant.admin().await, tenant.agent().await);
    let run = async |args: &[&str]| cli(&admin, &[&["policy"], args].concat()).await;
    let none = run(&["show"]).await.ok();
    assert!(none.out.contains("there is no version yet") && none.out.ends_with("rules: []\n"), "{none:?}");
    let first = write("rules:\n- {id: b, effect: deny, match: {tool: 'zo:writer'}}\n");
    let first = run(&["apply", first.path().to_str().unwrap()]).await.ok();
    assert_eq!(first.out, "version 1, mode observe, 1 rule\n");
    let warning =
        "warning: Rule 'b': 'zo:writer' matches no tool that is known now; did you mean 'zoo:writer'?\n";
    assert_eq!(first.err, warning);
    let second = write("mode: by_risk\nrules:\n- {id: a, effect: ask, match: {tool: 'zoo:writer'}}\n");
    run(&["apply", second.path().to_str().unwrap()]).await.ok();
    // every form of every version is a file
    for (args, version) in [
        (&["show"][..], 2),
        (&["show", "--version", "2"], 2),
        (&["show", "-o", "yaml"], 2),
        (&["show", "-o", "json"], 2),
        (&["show", "--version", "1"], 3),
        (&["show"], 3),
        (&["show", "--version", "2", "-o", "yaml"], 4),
        (&["show", "--version", "1", "-o", "json"], 5),
    ] {
        let shown = run(args).await.ok();
        let file = write(&shown.out);
        let path = file.path().to_str().unwrap();
        run(&["check", path]).await.ok();
        let applied = run(&["apply", path]).await.ok();
        assert!(applied.out.starts_with(&format!("version {version}, mode by_risk, 1 rule")), "{applied:?}");
    }
    run(&["show", "--version", "9"]).await.failed(3, "mcpproxy policy history lists them");
    assert_eq!(run(&["history"]).await.ok().rows().len(), 5);
    let doctor = cli(&admin, &["doctor"]).await.ok().out;
    let look =
        "WARN  policy   Rule 'b': 'zo:writer' matches no tool that is known now; did you mean 'zoo:writer'?";
    assert!(doctor.lines().any(|line| line.starts_with(look)), "{doctor}");
    // of a key
    let own = ["--key", &*agent.id];
    let file = write("rules: [{id: mine, effect: deny}]\n");
    run(&[&["apply", file.path().to_str().unwrap()], &own[..]].concat()).await.ok();
    let shown = run(&[&["show"], &own[..]].concat()).await.ok();
    assert!(shown.out.contains("version 1, in force") && shown.out.contains("- id: mine"), "{shown:?}");
    assert!(shown.out.contains("# mode: by_risk holds"), "{shown:?}");
    assert_eq!(run(&[&["history"], &own[..]].concat()).await.ok().rows().len(), 1);
}

#[tokio::test]
async fn explanations_say_what_becomes_of_the_call() {
    let (_stage, tenant, _upstream) = zoo(&[]).await;
    let auditor = tenant.auditor().await;
    let observed = cli(&auditor, &["policy", "explain", "zoo:wiper"]).await.ok();
    let calls = "The mode is observe: the call runs. In mode by_risk a person would be asked first.";
    assert_eq!(observed.out.lines().nth(1), Some(calls), "{observed:?}");
    set(&tenant, "by_risk", json!([])).await;
    let asked = cli(&auditor, &["policy", "explain", "zoo:wiper"]).await.ok();
    assert!(!asked.out.contains("observe"), "{asked:?}");
    let bare = cli(&auditor, &["policy", "explain", "wiper"]).await;
    bare.failed(3, "a tool is named SERVER:TOOL; did you mean 'zoo:wiper'?");
    cli(&auditor, &["policy", "explain", "zoo:wipper"]).await.failed(3, "did you mean 'zoo:wiper'?");
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
