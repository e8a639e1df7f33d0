//! `mcpproxy activity`.

use http::Method;
use serde_json::json;

use crate::support::upstream::zoo;
use crate::support::{Api, Stage, Tenant, Upstream, cli, cli_at_terminal};

async fn three_calls() -> (Stage, Tenant, Upstream, Api) {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(zoo()).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    for (variant, tool) in
        [("tool-read", "up:reader"), ("tool-write", "up:writer"), ("tool-destructive", "up:wiper")]
    {
        cli(&agent, &["call", variant, tool, "--reason", "a test"]).await.ok();
    }
    tenant.records("type=tool_call", 3).await;
    (stage, tenant, upstream, agent)
}

#[tokio::test]
async fn the_list_shows_what_was_meant() {
    let (_stage, tenant, _upstream, agent) = three_calls().await;
    let auditor = tenant.auditor().await;
    let list = cli(&auditor, &["activity", "list", "--type", "tool_call"]).await.ok();
    let head: Vec<&str> = list.out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["ID", "TIME", "SERVER", "TOOL", "INTENT", "STATUS", "DURATION"]);
    let shown: Vec<Vec<String>> = list.rows().iter().map(|row| row[2..6].to_vec()).collect();
    let want = [
        ["up", "wiper", "destructive", "success"],
        ["up", "writer", "write", "success"],
        ["up", "reader", "read", "success"],
    ];
    assert_eq!(shown, want, "{list:?}");

    let destructive = cli(&auditor, &["activity", "list", "--intent-type", "destructive"]).await.ok();
    assert_eq!(destructive.rows().len(), 1);
    let records =
        cli(&auditor, &["activity", "list", "--intent-type", "write", "-o", "json"]).await.ok().json();
    assert_eq!((records.as_array().unwrap().len(), &records[0]["intent"]["reason"]), (1, &"a test".into()));
    let yaml = cli(&auditor, &["activity", "list", "--tool", "up:writer", "-o", "yaml"]).await.ok().out;
    assert!(yaml.contains("operation_type: write\n") && yaml.starts_with("- "), "{yaml}");

    // an agent sees its own key's, and nobody sees what is not there
    assert_eq!(cli(&agent, &["activity", "list", "--source", "cli"]).await.ok().rows().len(), 3);
    assert_eq!(cli(&tenant.agent().await, &["activity", "list"]).await.ok().rows().len(), 0);
    assert_eq!(cli(&auditor, &["activity", "list", "--until", "1h"]).await.ok().rows().len(), 0);
    assert_eq!(
        cli(&auditor, &["activity", "list", "--type", "tool_call", "--limit", "2"]).await.ok().rows().len(),
        2
    );
    let wide = cli(&auditor, &["activity", "list", "--wide", "--limit", "1"]).await.ok();
    assert!(wide.out.contains("OWNER") && wide.err.contains("--limit shows more"), "{wide:?}");
    let raw = cli(&auditor, &["activity", "list", "--wide", "-o", "json"]).await.ok();
    assert!(!raw.out.contains("allowed_by"), "{raw:?}");
    cli(&auditor, &["activity", "list", "--limit", "0"]).await.failed(2, "--limit");
    cli(&auditor, &["activity", "list", "--status", "odd"]).await.failed(2, "status");
    cli(&auditor, &["activity", "list", "--since", "12y"]).await.failed(2, "--since 12y");
}

#[tokio::test]
async fn icons_are_for_terminals() {
    let (_stage, _tenant, _upstream, agent) = three_calls().await;
    let icons = ["📖 read", "📝 write", "🔥 destructive"];
    let shown = cli_at_terminal(&agent, &["activity", "list", "--type", "tool_call"]).await.ok().out;
    assert!(icons.iter().all(|icon| shown.contains(icon)), "{shown}");
    for out in [
        cli_at_terminal(&agent, &["activity", "list", "--no-icons"]).await.ok().out,
        cli(&agent, &["activity", "list"]).await.ok().out,
    ] {
        assert!(!icons.iter().any(|icon| out.contains(icon)) && out.contains(" destructive "), "{out}");
    }
}

#[tokio::test]
async fn one_record_whole() {
    let (_stage, tenant, _upstream, agent) = three_calls().await;
    let record = tenant.records("type=tool_call&tool=writer", 1).await.remove(0);
    let id = record["id"].as_str().unwrap();
    let shown = cli(&agent, &["activity", "show", id]).await.ok().out;
    let intent =
        "\nIntent\n  operation_type:    write\n  data_sensitivity:  -\n  reason:            a test\n";
    assert!(shown.contains(intent) && shown.contains("source:") && shown.contains("cli"), "{shown}");
    assert_eq!(cli(&agent, &["activity", "show", id, "-o", "json"]).await.ok().json(), record);
    cli(&tenant.agent().await, &["activity", "show", id]).await.failed(3, "not_found");
}

#[tokio::test]
async fn records_name_the_program_that_called() {
    let (_stage, tenant, _upstream, agent) = three_calls().await;
    let version = env!("CARGO_PKG_VERSION");
    for record in tenant.records("type=tool_call", 3).await {
        assert_eq!(record["client"], json!({"name": "mcpproxy-cli", "version": version}), "{record}");
    }
    let auditor = tenant.auditor().await;
    let wide = cli(&auditor, &["activity", "list", "--wide", "--type", "tool_call"]).await.ok();
    let client = format!("  mcpproxy-cli {version}  ");
    assert_eq!(wide.out.lines().filter(|line| line.contains(&client)).count(), 3, "{wide:?}");

    let call = json!({"tool_variant": "call_tool_read", "name": "up:reader"});
    let (long, secret) = ("x".repeat(200), "sk_live_0123456789abcdefABCDEF/2");
    for (made, (said, client)) in [
        (Some("curl/8.5.0 (linux)"), json!({"name": "curl", "version": "8.5.0"})),
        (Some(&*long), json!({"name": "x".repeat(100), "version": null})),
        (Some(secret), json!({"name": "[redacted]", "version": "2"})),
        (None, json!({"name": null, "version": null})),
    ]
    .into_iter()
    .enumerate()
    {
        let mut request = agent.request(Method::POST, "/api/v1/tools/call").json(&call);
        if let Some(said) = said {
            request = request.header("user-agent", said);
        }
        agent.send(request).await.expect(200);
        let newest = tenant.records("type=tool_call&source=rest", made + 1).await.remove(0);
        assert_eq!(newest["client"], client, "{newest}");
    }
}

#[tokio::test]
async fn an_empty_list_says_which_name_there_is_not() {
    let (_stage, tenant, upstream, agent) = three_calls().await;
    tenant.add("quiet", &upstream).await;
    let auditor = tenant.auditor().await;
    let said = async |caller: &Api, args: &[&str]| {
        let run = cli(caller, &[&["activity", "list"], args].concat()).await.ok();
        assert_eq!(run.rows().len(), 0, "{run:?}");
        run.err
    };
    for (args, says) in [
        (&["--tool", "up:readr"][..], "no tool has the name 'up:readr' now; did you mean 'up:reader'?\n"),
        (&["--tool", "nothing-like-it"], "no tool has the name 'nothing-like-it' now\n"),
        (&["--server", "quite"], "no server has the name 'quite' now; did you mean 'quiet'?\n"),
        (&["--server", "quiet", "--tool", "readr"], "now; did you mean 'quiet:reader'?\n"),
        // an auditor may not see keys
        (&["--key", "nobody"], ""),
        // there is such a thing, without records
        (&["--server", "quiet", "--type", "tool_call"], ""),
        (&["--tool", "quiet:reader"], ""),
        (&["--tool", "servers.remove", "--type", "admin"], ""),
        (&["--tool", "servers.remove"], ""),
        (&["--tool", "retrieve_tools"], ""),
        (&["--since", "1s", "--type", "search"], ""),
    ] {
        let err = said(&auditor, args).await;
        assert!(if says.is_empty() { err.is_empty() } else { err.ends_with(says) }, "{args:?}: {err}");
    }
    let json = cli(&auditor, &["activity", "list", "--tool", "up:readr", "-o", "json"]).await.ok();
    assert!(json.json() == json!([]) && json.err.contains("did you mean"), "{json:?}");
    let named = tenant.key(&json!({"role": "agent", "name": "ide", "owner": "maria"})).await;
    let admin = tenant.admin().await;
    for (args, says) in [
        (["--key", "idee"], "no key has the name 'idee' now; did you mean 'ide'?\n"),
        (["--owner", "mario"], "nobody who logged in, has the name 'mario' now; did you mean 'maria'?\n"),
        (["--key", "ide"], ""),
        (["--key", &named.id], ""),
        (["--owner", "maria"], ""),
    ] {
        let err = said(&admin, &[&args[..], &["--type", "tool_call"]].concat()).await;
        assert!(if says.is_empty() { err.is_empty() } else { err.ends_with(says) }, "{args:?}: {err}");
    }
    // an agent may not see servers, and the command does not try
    assert_eq!(said(&agent, &["--tool", "up:readr"]).await, "");
    agent.get("/api/v1/keys").await.refused(403, "forbidden");
    let refused = tenant.records(&format!("type=admin&key={}", agent.id), 1).await.remove(0);
    assert_eq!(refused["tool"], "keys.list", "{refused}");
}
