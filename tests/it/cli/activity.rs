//! `mcpproxy activity`.

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
