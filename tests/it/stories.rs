//! What was asked for, as it was asked for: the acceptance scenarios of the user stories about declared intent, and every
//! line that their documentation shows of the command line. Keys of the first four stories must declare intent, as they
//! have it; the details are tested where they belong.

use serde_json::{Value, json};

use crate::support::{Api, Mcp, Stage, Tenant, Tool, Upstream, cli, cli_at_terminal};

const VARIANTS: [&str; 3] = ["read", "write", "destructive"];

/// A tenant whose GitHub has a tool of each kind, and one that says nothing about itself.
async fn github() -> (Stage, Tenant, Upstream) {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![
        Tool::reads("list_repos"),
        Tool::writes("create_issue"),
        Tool::destroys("delete_repo"),
        Tool::new("star_repo"),
    ])
    .await;
    tenant.add("github", &upstream).await;
    (stage, tenant, upstream)
}

async fn declaring(tenant: &Tenant) -> Mcp {
    Mcp::session(&tenant.agent_with(json!({"intent_declaration": "required"})).await).await
}

/// A call of a variant that declares this type, or nothing.
async fn declare(agent: &Mcp, variant: &str, tool: &str, declared: Option<&str>) -> crate::support::Outcome {
    let mut arguments = json!({"name": format!("github:{tool}"), "args_json": "{}"});
    if let Some(declared) = declared {
        arguments["intent"] = json!({"operation_type": declared});
    }
    agent.call(&format!("call_tool_{variant}"), &arguments).await
}

#[track_caller]
fn says(refused: &Value, message: &str) {
    assert_eq!(refused["message"], message);
}

/// How an IDE treats a tool that it is told nothing else about: what the tool's own annotations say.
#[derive(Debug, PartialEq)]
enum Prompt {
    None,
    Ask,
    AskWithWarning,
}

fn prompt(tools: &[Value], name: &str) -> Prompt {
    let tool = tools.iter().find(|tool| tool["name"] == name).unwrap_or_else(|| panic!("no {name}"));
    let hint = |name: &str| tool["annotations"][name] == true;
    match (hint("readOnlyHint"), hint("destructiveHint")) {
        (true, false) => Prompt::None,
        (false, false) => Prompt::Ask,
        (_, true) => Prompt::AskWithWarning,
    }
}

#[tokio::test]
async fn story_1_ides_tell_reads_from_writes_by_the_tool() {
    let (_stage, tenant, upstream) = github().await;
    let agent = declaring(&tenant).await;
    let tools = agent.tools().await;
    assert!(tools.iter().all(|tool| tool["name"] != "call_tool"), "the tool of old is gone");
    let wanted = [Prompt::None, Prompt::Ask, Prompt::AskWithWarning];
    for ((variant, tool), wanted) in
        VARIANTS.into_iter().zip(["list_repos", "create_issue", "delete_repo"]).zip(wanted)
    {
        assert_eq!(prompt(&tools, &format!("call_tool_{variant}")), wanted);
        // once the person said yes, or needed not be asked
        declare(&agent, variant, tool, Some(variant)).await.ok();
    }
    assert_eq!(prompt(&tools, "retrieve_tools"), Prompt::None);
    assert_eq!(upstream.counts().calls, 3);
}

#[tokio::test]
async fn story_2_what_is_declared_must_be_what_is_called() {
    let (_stage, tenant, upstream) = github().await;
    let agent = declaring(&tenant).await;
    declare(&agent, "read", "list_repos", Some("read")).await.ok();
    let refused = declare(&agent, "read", "list_repos", Some("write")).await.refused("intent_mismatch");
    says(&refused, "Intent mismatch: tool is call_tool_read but intent declares write");
    let refused =
        declare(&agent, "destructive", "delete_repo", Some("read")).await.refused("intent_mismatch");
    says(&refused, "Intent mismatch: tool is call_tool_destructive but intent declares read");
    for variant in VARIANTS {
        let refused = declare(&agent, variant, "star_repo", None).await.refused("missing_intent");
        says(&refused, "intent.operation_type is required");
    }
    assert_eq!(upstream.counts().calls, 1, "what is refused does not run");
}

#[tokio::test]
async fn story_3_the_server_has_its_say() {
    let (_stage, tenant, upstream) = github().await;
    let agent = declaring(&tenant).await;
    for variant in ["read", "write"] {
        let refused = declare(&agent, variant, "delete_repo", Some(variant)).await.refused("server_mismatch");
        says(
            &refused,
            "Tool 'github:delete_repo' is marked destructive by server, use call_tool_destructive",
        );
    }
    declare(&agent, "destructive", "list_repos", Some("destructive")).await.ok();
    for variant in VARIANTS {
        declare(&agent, variant, "star_repo", Some(variant)).await.ok();
    }
    assert_eq!(upstream.counts().calls, 4);
    // where the deployment is not strict, a mismatch is a warning
    let lax = json!({"intent_declaration": "required", "strict_server_validation": false});
    let lax = Mcp::session(&tenant.agent_with(lax).await).await;
    let warned = declare(&lax, "read", "delete_repo", Some("read")).await.ok();
    assert!(warned["_meta"]["mcpproxy/warning"].as_str().unwrap().contains("marked destructive"), "{warned}");
    let record = tenant.records("tool=delete_repo&status=success", 1).await.remove(0);
    assert!(record["warning"].as_str().unwrap().contains("marked destructive"), "{record}");
}

#[tokio::test]
async fn story_4_search_says_which_variant_to_use() {
    let (_stage, tenant, _upstream) = github().await;
    let agent = declaring(&tenant).await;
    let found = agent.search(&json!({"query": "repo issue", "limit": 10})).await;
    let tool = |name: &str| {
        let name = format!("github:{name}");
        found["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).unwrap().clone()
    };
    assert_eq!(tool("delete_repo")["annotations"]["destructiveHint"], true);
    assert_eq!(tool("delete_repo")["call_with"], "call_tool_destructive");
    assert_eq!(tool("list_repos")["annotations"]["readOnlyHint"], true);
    assert_eq!(tool("list_repos")["call_with"], "call_tool_read");
    assert_eq!(
        (&tool("star_repo")["annotations"], &tool("star_repo")["call_with"]),
        (&json!({}), &json!("call_tool_write"))
    );
    for variant in VARIANTS {
        let named = format!("call_tool_{variant}");
        assert!(found["usage_instructions"].as_str().unwrap().contains(&named), "{found}");
    }
}

async fn run(agent: &Api, line: &[&str]) -> crate::support::Run {
    cli(agent, line).await
}

/// The three lines of the documentation, as they stand there.
async fn three_lines(agent: &Api) {
    run(agent, &["call", "tool-read", "github:list_repos", "--args", r#"{"org": "myorg"}"#]).await.ok();
    let create =
        ["call", "tool-write", "github:create_issue", "--args", r#"{"title": "Bug", "body": "Details"}"#];
    run(agent, &[&create[..], &["--reason", "Creating bug report"]].concat()).await.ok();
    let delete = ["call", "tool-destructive", "github:delete_repo", "--args", r#"{"repo": "test"}"#];
    let flags = ["--sensitivity", "private", "--reason", "User confirmed deletion"];
    run(agent, &[&delete[..], &flags[..]].concat()).await.ok();
}

#[tokio::test]
async fn story_5_tools_are_called_from_the_command_line() {
    let (_stage, tenant, upstream) = github().await;
    let agent = tenant.agent_with(json!({"intent_declaration": "required"})).await;
    three_lines(&agent).await;
    for (variant, tool) in VARIANTS.into_iter().zip(["list_repos", "create_issue", "delete_repo"]) {
        let record = tenant.records(&format!("type=tool_call&tool={tool}"), 1).await.remove(0);
        assert_eq!(record["tool_variant"], format!("call_tool_{variant}"));
        assert_eq!(
            (&record["intent"]["operation_type"], &record["intent_declared"]),
            (&json!(variant), &json!(true))
        );
    }
    let wrong = run(&agent, &["call", "tool-read", "github:delete_repo"]).await;
    wrong.failed(3, "is marked destructive by server, use call_tool_destructive");
    assert!(wrong.err.contains("mcpproxy call tool-destructive"), "{wrong:?}");
    for sensitivity in ["public", "internal", "private", "unknown"] {
        run(&agent, &["call", "tool-read", "github:list_repos", "--sensitivity", sensitivity]).await.ok();
    }
    let secret = run(&agent, &["call", "tool-read", "github:list_repos", "--sensitivity", "secret"]).await;
    assert!(secret.code != 0 && secret.err.contains("public, internal, private"), "{secret:?}");
    let long = "x".repeat(1001);
    let refused = run(&agent, &["call", "tool-read", "github:list_repos", "--reason", &long]).await;
    refused.failed(3, "intent.reason exceeds maximum length of 1000 characters");
    assert_eq!(upstream.counts().calls, 7);
}

#[tokio::test]
async fn stories_6_and_8_the_log_shows_and_filters_operation_types() {
    let (_stage, tenant, _upstream) = github().await;
    let (agent, auditor) = (tenant.agent().await, tenant.auditor().await);
    three_lines(&agent).await;
    tenant.records("type=tool_call", 3).await;
    let list = run(&auditor, &["activity", "list", "--type", "tool_call"]).await.ok();
    let head: Vec<&str> = list.out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["ID", "TIME", "SERVER", "TOOL", "INTENT", "STATUS", "DURATION"]);
    let shown: Vec<String> = list.rows().iter().map(|row| row[2..6].join(" ")).collect();
    let want = [
        "github delete_repo destructive success",
        "github create_issue write success",
        "github list_repos read success",
    ];
    assert_eq!(shown, want);
    let terminal = cli_at_terminal(&auditor, &["activity", "list", "--type", "tool_call"]).await.ok().out;
    for icon in ["📖 read", "📝 write", "🔥 destructive"] {
        assert!(terminal.contains(icon), "{terminal}");
    }
    let records = run(&auditor, &["activity", "list", "--type", "tool_call", "-o", "json"]).await.ok().json();
    let deletion = json!({"operation_type": "destructive", "data_sensitivity": "private", "reason": "User confirmed deletion"});
    assert_eq!(records[0]["intent"], deletion);
    let yaml = run(&auditor, &["activity", "list", "-o", "yaml", "--tool", "delete_repo"]).await.ok().out;
    assert!(yaml.contains("reason: User confirmed deletion"), "{yaml}");
    let id = records[0]["id"].as_str().unwrap();
    let one = run(&auditor, &["activity", "show", id]).await.ok().out;
    let section = one.split_once("\nIntent\n").expect("an intent section").1;
    assert!(section.contains("destructive") && section.contains("private"), "{one}");

    let only = run(&auditor, &["activity", "list", "--intent-type", "destructive"]).await.ok().rows();
    assert_eq!((only.len(), &*only[0][3]), (1, "delete_repo"));
    for (variant, tool) in VARIANTS.into_iter().zip(["list_repos", "create_issue", "delete_repo"]) {
        let found =
            auditor.get(&format!("/api/v1/activity?intent_type={variant}&type=tool_call")).await.expect(200);
        assert_eq!((found["items"].as_array().unwrap().len(), &found["items"][0]["tool"]), (1, &json!(tool)));
    }
}

#[tokio::test]
async fn story_7_why_and_how_sensitive_is_kept() {
    let (_stage, tenant, _upstream) = github().await;
    let agent = declaring(&tenant).await;
    let intent =
        json!({"operation_type": "write", "data_sensitivity": "private", "reason": "Creating user record"});
    let call = json!({"name": "github:create_issue", "args_json": "{}", "intent": intent});
    agent.call("call_tool_write", &call).await.ok();
    let record = tenant.records("type=tool_call", 1).await.remove(0);
    assert_eq!(record["intent"], intent);
    declare(&agent, "read", "list_repos", Some("read")).await.ok();
    let record = tenant.records("type=tool_call&tool=list_repos", 1).await.remove(0);
    assert_eq!(record["intent"], json!({"operation_type": "read", "data_sensitivity": null, "reason": null}));
}
