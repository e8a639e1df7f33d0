//! `mcpproxy activity watch`.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::support::upstream::zoo;
use crate::support::{
    Api, Balancer, Following, Gateway, Mcp, Stage, Tenant, Upstream, cli, cli_at_terminal, cli_with,
};

async fn with_upstream(stage: &Stage) -> (Tenant, Upstream) {
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(zoo()).await;
    tenant.add("up", &upstream).await;
    (tenant, upstream)
}

async fn calls(api: &Api, count: usize) {
    for _ in 0..count {
        Mcp::bare(api).run("write", "up:writer", &json!({})).await.ok();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watching_survives_the_gateway_it_watches() {
    let mut stage = Stage::start().await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (tenant, _upstream) = with_upstream(&stage).await;
    let balancer = Balancer::before(&[&stage.gateway, &other]).await;
    let (auditor, agent) = (tenant.auditor().await, other.ask_as(&tenant.agent().await));
    let key = auditor.key.clone().unwrap();
    let through = auditor.at(&balancer.url);
    let args = ["activity", "watch", "--type", "tool_call", "--limit", "15", "-o", "json"];
    let mut watch = Following::start(&through, &args);
    watch.says("watching").await;
    // the balancer's first request went to the first replica
    assert_eq!(balancer.passed(&key)[0].replica, 0);
    let mut seen = HashSet::new();
    let mut next = async |watch: &mut Following| {
        let line = watch.line().await.expect("a record");
        let record: Value = serde_json::from_str(&line).unwrap();
        assert!(seen.insert(record["id"].as_str().unwrap().to_owned()), "{line} came twice");
    };
    calls(&agent, 5).await;
    for _ in 0..5 {
        next(&mut watch).await;
    }
    stage.gateway.kill();
    calls(&agent, 10).await;
    for _ in 0..10 {
        next(&mut watch).await;
    }
    assert_eq!(watch.line().await, None, "it ends after the fifteenth");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_people_see() {
    let stage = Stage::start().await;
    let (tenant, _upstream) = with_upstream(&stage).await;
    let (auditor, agent) = (tenant.auditor().await, tenant.agent().await);
    let args = ["activity", "watch", "--type", "tool_call", "--limit", "1", "--wide"];
    let watching = cli_at_terminal(&auditor, &args);
    tokio::pin!(watching);
    let run = loop {
        // it says when it is ready only to a person: calls until it has seen one
        tokio::select! {
            run = &mut watching => break run,
            () = calls(&agent, 1) => {}
        }
    };
    let lines: Vec<&str> = run.out.lines().collect();
    let head: Vec<&str> = lines[0].split_whitespace().collect();
    let wide = [
        "CODE",
        "TYPE",
        "TIER",
        "OWNER",
        "KEY",
        "KEY",
        "ID",
        "SOURCE",
        "CLIENT",
        "ADDRESS",
        "ALLOWED",
        "BY",
        "ARGUMENTS",
    ];
    let columns = ["ID", "TIME", "SERVER", "TOOL", "INTENT", "STATUS", "DURATION"];
    assert_eq!(head, [&columns[..], &wide].concat(), "{run:?}");
    assert!(lines.iter().any(|line| line.contains("📝 write") && line.contains(&agent.id)), "{run:?}");

    // what cannot work ends at once
    cli(&auditor, &["activity", "watch", "--status", "odd"]).await.failed(2, "status");
    cli(&auditor, &["activity", "watch", "--since", "1h"]).await.failed(2, "--since");
    cli(&auditor.with_key("mcpk_unknown"), &["activity", "watch"]).await.failed(5, "API key");
    let nowhere = [("MCPPROXY_URL", "http://127.0.0.1:9"), ("MCPPROXY_API_KEY", "k")];
    cli_with(&nowhere, &["activity", "watch"]).await.failed(6, "no connection");
}
