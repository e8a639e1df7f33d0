//! What the gateway costs its upstreams.

use serde_json::json;

use crate::support::upstream::Counts;
use crate::support::{Mcp, Stage, Upstream, upstream};

/// Requests without those of the gateway's own schedule, which may fall anywhere.
fn asked(counts: &Counts) -> usize {
    counts.requests - counts.lists - counts.listens
}

#[tokio::test(flavor = "multi_thread")]
async fn one_request_per_call_and_none_per_list() {
    let stage = Stage::start().await;
    for (name, upstream) in [
        ("handshake", Upstream::handshake(upstream::zoo()).await),
        ("modern", Upstream::modern(upstream::zoo()).await),
    ] {
        let tenant = stage.tenant(name).await;
        tenant.add("zoo", &upstream).await;
        let agent = tenant.agent().await;
        let clients = [Mcp::bare(&agent), Mcp::modern(&agent), Mcp::session(&agent).await];
        clients[0].run("read", "zoo:reader", &json!({})).await.ok();
        let before = upstream.counts();
        for client in &clients {
            client.tools().await;
            client.search(&json!({"query": "reader"})).await;
            client.run("read", "zoo:writer", &json!({})).await.refused("server_mismatch");
        }
        let idle = upstream.counts();
        assert_eq!((idle.calls, asked(&idle)), (before.calls, asked(&before)), "{name}");
        for client in &clients {
            for (variant, tool) in [("read", "reader"), ("write", "writer"), ("destructive", "wiper")] {
                client.run(variant, &format!("zoo:{tool}"), &json!({})).await.ok();
            }
        }
        let after = upstream.counts();
        assert_eq!(after.calls - before.calls, 9, "{name}");
        assert_eq!(asked(&after) - asked(&before), 9, "{name}: {before:?} {after:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_kept() {
    const CLIENTS: usize = 8;
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.agent().await;
    let before = upstream.counts();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|n| {
            let client = Mcp::bare(&agent);
            let (variant, name) = if n % 2 == 0 { ("read", "zoo:reader") } else { ("write", "zoo:writer") };
            tokio::spawn(async move {
                for _ in 0..1000 / CLIENTS {
                    client.run(variant, name, &json!({})).await.ok();
                }
            })
        })
        .collect();
    for client in clients {
        client.await.unwrap();
    }
    let after = upstream.counts();
    assert_eq!(after.calls - before.calls, 1000);
    let opened = after.accepts - before.accepts;
    assert!(opened <= CLIENTS + 4, "{opened} connections for {CLIENTS} clients");
    assert_eq!(after.initializes, before.initializes);
    tenant.records("type=tool_call", 1000).await;
}
