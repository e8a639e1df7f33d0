//! `mcpproxy call` and `mcpproxy tools`.

use serde_json::json;

use crate::support::upstream::{Say, zoo};
use crate::support::{Stage, Tenant, Tool, Upstream, cli, cli_at_terminal, cli_reading};

async fn set_up() -> (Stage, Tenant, Upstream) {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let mut tools = zoo();
    tools.push(Tool::reads("number").returns(r#"{"content":[], "structuredContent" : {"n":1.50}}"#));
    tools.push(Tool::reads("broken").returns(r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#));
    tools.push(Tool::reads("crashing").says(Say::Close));
    tools.push(Tool::reads("nasty").returns(r#"{"content":[{"type":"text","text":"a\u001b[2Jb"}]}"#));
    let upstream = Upstream::handshake(tools).await;
    tenant.add("up", &upstream).await;
    (stage, tenant, upstream)
}

#[tokio::test]
async fn each_variant_runs_its_tool_and_declares_what_it_is() {
    let (_stage, tenant, upstream) = set_up().await;
    // also where declaring is required
    let agent = tenant.agent_with(json!({"intent_declaration": "required"})).await;
    for (variant, tool) in [("read", "reader"), ("write", "writer"), ("destructive", "wiper")] {
        let (command, name, args) =
            (format!("tool-{variant}"), format!("up:{tool}"), format!(r#"{{"ticket":"{tool}", "n":1.50}}"#));
        let run = cli(&agent, &["call", &command, &name, "--args", &args]).await.ok();
        // the tool says back its arguments: byte for byte what was typed
        assert_eq!(run.out, format!("{args}\n"));
        let record = tenant.records(&format!("type=tool_call&tool={tool}"), 1).await.remove(0);
        assert_eq!(record["source"], "cli");
        assert_eq!(record["tool_variant"], format!("call_tool_{variant}"));
        assert_eq!(record["intent"]["operation_type"], variant);
        assert_eq!(record["intent_declared"], true);
    }
    assert_eq!(upstream.tickets(), ["reader", "writer", "wiper"]);
}

#[tokio::test]
async fn without_a_variant_a_tool_is_called_with_its_own() {
    let (_stage, tenant, upstream) = set_up().await;
    let agent = tenant.agent_with(json!({"intent_declaration": "required"})).await;
    for (variant, tool) in [("read", "reader"), ("write", "writer"), ("destructive", "wiper")] {
        let (name, args) = (format!("up:{tool}"), format!(r#"{{"ticket":"own {tool}"}}"#));
        let run = cli(&agent, &["call", &name, "--args", &args, "--reason", "by itself"]).await.ok();
        assert_eq!(run.out, format!("{args}\n"));
        assert!(run.err.contains(&format!("{name} is called with call_tool_{variant}")), "{run:?}");
        let record = tenant.records(&format!("type=tool_call&tool={tool}"), 1).await.remove(0);
        let intent = &record["intent"];
        assert_eq!((&intent["operation_type"], &intent["reason"]), (&json!(variant), &json!("by itself")));
    }
    assert_eq!(upstream.tickets().len(), 3);
    // what the key does not see is not called, whatever it is
    let reading = tenant.agent_with(json!({"max_operation": "read"})).await;
    cli(&reading, &["call", "up:wiper"]).await.failed(3, "this key sees no tool up:wiper");
    cli(&agent, &["call", "up:reader", "--argz", "{}"]).await.failed(2, "--argz");
    cli(&agent, &["call", "tool-reed", "up:reader"]).await.failed(2, "did you mean tool-read?");
    assert_eq!(upstream.tickets().len(), 3);
}

#[tokio::test]
async fn an_empty_search_hints_at_what_the_key_may_do() {
    let (_stage, tenant, _upstream) = set_up().await;
    for (key, may) in [(tenant.agent().await, false), (tenant.operator().await, true)] {
        let run = cli(&key, &["tools", "search", "xylophone"]).await.ok();
        assert!(run.err.contains("nothing was found"), "{run:?}");
        assert_eq!(run.err.contains("mcpproxy upstream list"), may, "{run:?}");
    }
}

#[tokio::test]
async fn reason_and_sensitivity_are_recorded() {
    let (_stage, tenant, _upstream) = set_up().await;
    let agent = tenant.agent().await;
    let args = [
        "call",
        "tool-write",
        "up:writer",
        "--reason",
        "tidying up",
        "--sensitivity",
        "private",
        "--args",
        "-",
    ];
    let run = cli_reading(&agent, &args, "{\"a\": 1}\n").await.ok();
    assert_eq!(run.out, "{\"a\": 1}\n");
    let record = tenant.records("type=tool_call", 1).await.remove(0);
    let intent = json!({"operation_type": "write", "data_sensitivity": "private", "reason": "tidying up"});
    assert_eq!(record["intent"], intent);
    let run = cli(&agent, &["call", "tool-write", "up:writer", "--sensitivity", "secret"]).await;
    run.failed(3, "Invalid intent.data_sensitivity 'secret': must be public, internal, private, or unknown");
}

#[tokio::test]
async fn exit_codes_say_what_kind_of_failure_it_was() {
    let (_stage, tenant, upstream) = set_up().await;
    let agent = tenant.agent().await;
    let said = cli(&agent, &["call", "tool-read", "up:broken"]).await;
    assert_eq!((said.code, &*said.out), (1, "no\n"), "{said:?}");
    cli(&agent, &["call", "tool-read", "up:crashing"]).await.failed(1, "may have run");
    for (args, says) in [
        (vec!["call", "tool-read", "up:reader", "--args", "[]"], "must be a JSON object"),
        (vec!["call", "tool-read", "up:reader", "--args", "{"], "--args is not JSON"),
        (vec!["call", "tool-read"], "SERVER:TOOL"),
        (vec!["call", "tool", "up:reader"], "tool-read"),
    ] {
        cli(&agent, &args).await.failed(2, says);
    }
    let refused = cli(&agent, &["call", "tool-read", "up:wiper"]).await;
    refused.failed(3, "Tool 'up:wiper' is marked destructive by server, use call_tool_destructive");
    refused.failed(3, "try: mcpproxy call tool-destructive");
    cli(&agent, &["call", "tool-read", "up:nothing"]).await.failed(3, "not_found");
    cli(&agent, &["call", "tool-read", "up:raeder"]).await.failed(3, "did you mean 'up:reader'?");
    cli(&agent, &["call", "pu:reader"]).await.failed(3, "did you mean 'up:reader'?");
    let reader = tenant.agent_with(json!({"max_operation": "read"})).await;
    cli(&reader, &["call", "tool-write", "up:writer"]).await.failed(3, "operation_not_permitted");
    cli(&tenant.auditor().await, &["call", "tool-read", "up:reader"]).await.failed(5, "forbidden");
    cli(&agent.with_key("mcpk_wrong"), &["call", "tool-read", "up:reader"])
        .await
        .failed(5, "MCPPROXY_API_KEY");
    assert_eq!(upstream.counts().calls, 2);
}

#[tokio::test]
async fn results_for_people_and_for_programs() {
    let (_stage, tenant, _upstream) = set_up().await;
    let agent = tenant.agent().await;
    let json = cli(&agent, &["call", "tool-read", "up:number", "-o", "json"]).await.ok();
    assert_eq!(json.out, "{\"content\":[], \"structuredContent\" : {\"n\":1.50}}\n");
    let pretty = cli(&agent, &["call", "tool-read", "up:number"]).await.ok();
    assert_eq!(pretty.out, "{\n  \"n\": 1.5\n}\n");
    // to a program what the server said, to a terminal nothing that commands it
    assert_eq!(cli(&agent, &["call", "tool-read", "up:nasty"]).await.ok().out, "a\u{1b}[2Jb\n");
    let shown = cli_at_terminal(&agent, &["call", "tool-read", "up:nasty"]).await.ok();
    assert_eq!(shown.out, "a\\u{1b}[2Jb\n");
    let warned = cli(&agent, &["call", "tool-write", "up:reader"]).await.ok();
    assert!(warned.err.starts_with("warning: ") && warned.out == "{}\n", "{warned:?}");
}

#[tokio::test]
async fn tools_are_found_listed_and_shown() {
    let (_stage, tenant, upstream) = set_up().await;
    let (agent, admin) = (tenant.agent().await, tenant.admin().await);
    let found = cli(&agent, &["tools", "search", "wiper", "tool", "--limit", "1"]).await.ok();
    assert_eq!(found.rows()[0][..2], ["up:wiper()", "tool-destructive"], "{found:?}");
    assert!(found.err.contains("1 of "), "{found:?}");
    let reads = cli(&agent, &["tools", "search", "tool", "--read-only", "-o", "json"]).await.ok().json();
    assert!(reads.as_array().unwrap().iter().all(|tool| tool["call_with"] == "call_tool_read"), "{reads}");
    cli(&agent, &["tools", "search", "x", "--limit", "0"]).await.failed(2, "limit");
    cli(&agent, &["tools", "list", "up"]).await.failed(5, "forbidden");

    upstream.set_tools(vec![Tool::reads("reader"), Tool::writes("fresh")]);
    cli(&admin, &["upstream", "refresh", "up"]).await.ok();
    let pending = cli(&admin, &["tools", "list", "up", "--state", "pending"]).await.ok().rows();
    assert_eq!((pending.len(), &*pending[0][0], &*pending[0][1]), (1, "fresh", "pending"));
    cli(&agent, &["call", "tool-write", "up:fresh"]).await.failed(4, "tool_pending");
    let shown = cli(&admin, &["tools", "show", "up:fresh", "-o", "json"]).await.ok().json();
    cli(&admin, &["tools", "approve", "up:fresh", "--pin", "v1:0"]).await.failed(2, "pin");
    cli(&admin, &["tools", "approve", "up:fresh", "--pin", shown["pin"].as_str().unwrap()]).await.ok();
    cli(&agent, &["call", "tool-write", "up:fresh"]).await.ok();
    cli(&admin, &["tools", "show", "fresh"]).await.failed(2, "SERVER:TOOL");
    cli(&admin, &["tools", "show", "up:none"]).await.failed(3, "no tool none");
    for (args, says) in [
        (&["tools", "show", "up:raeder"][..], "did you mean 'up:reader'?"),
        (&["tools", "diff", "up:raeder"], "did you mean 'up:reader'?"),
        (&["tools", "list", "ups"], "did you mean 'up'?"),
        (&["upstream", "show", "ups"], "did you mean 'up'?"),
        (&["upstream", "logs", "ups"], "did you mean 'up'?"),
    ] {
        cli(&admin, args).await.failed(3, says);
    }
    // whoever may not see servers is told of none
    let refused = cli(&agent, &["upstream", "show", "ups"]).await;
    assert!(refused.code == 5 && !refused.err.contains("mean"), "{refused:?}");
}

#[tokio::test]
async fn tools_are_compared_blocked_and_said_anew() {
    let (_stage, tenant, upstream) = set_up().await;
    let (agent, admin) = (tenant.agent().await, tenant.admin().await);
    upstream.set_tools(vec![Tool::destroys("reader")]);
    cli(&admin, &["upstream", "refresh", "up"]).await.ok();
    let listed = cli(&admin, &["tools", "list", "up"]).await.ok().out;
    assert!(listed.contains("changed, to_destructive"), "{listed}");
    let diff = cli(&admin, &["tools", "diff", "up:reader"]).await.ok().out;
    assert!(diff.contains("\n/annotations/destructiveHint\n+ true\n"), "{diff}");
    let pin = cli(&admin, &["tools", "show", "up:reader", "-o", "json"]).await.ok().json()["pin"].clone();
    let pin = pin.as_str().unwrap();
    assert!(diff.ends_with(&format!("mcpproxy tools approve up:reader --pin {pin}\n")), "{diff}");
    cli(&agent, &["call", "tool-read", "up:reader"]).await.failed(4, "tool_changed");
    cli(&admin, &["tools", "approve", "up:reader", "--pin", pin]).await.ok();
    cli(&agent, &["call", "tool-read", "up:reader"]).await.failed(3, "destructive");
    let over = ["tools", "override", "up:reader"];
    let said =
        ["--pin", pin, "--read-only", "true", "--destructive", "false", "--if-version", "0", "-o", "json"];
    let tool = cli(&admin, &[&over[..], &said[..]].concat()).await.ok().json();
    assert_eq!((&tool["tier"], &tool["override"]["version"]), (&json!("read"), &json!(1)));
    cli(&agent, &["call", "tool-read", "up:reader"]).await.ok();
    cli(&admin, &[&over[..], &["--pin", pin][..]].concat()).await.failed(2, "annotations");
    cli(&admin, &over).await.failed(2, "--pin");
    cli(&admin, &[&over[..], &["--clear"][..]].concat()).await.ok();
    cli(&admin, &["tools", "block", "up:reader"]).await.ok();
    cli(&agent, &["call", "tool-destructive", "up:reader"]).await.failed(3, "blocked");
    cli(&admin, &["tools", "unblock", "up:reader"]).await.ok();
    cli(&agent, &["call", "tool-destructive", "up:reader"]).await.ok();
}
