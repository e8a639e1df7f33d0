//! Proxies that the gateway trusts: their connections are not counted, and they name their clients.

use reqwest::{Method, RequestBuilder};
use serde_json::json;

use super::crowds::{PATIENT, PER_ADDRESS, PROBE, ROOM, with_key};
use super::shares::stream_with_key;
use super::{address, alive, idle};
use crate::support::{Api, Collector, Mcp, Stage};

const TRUSTED: (&str, &str) = ("MCPPROXY__SERVER__TRUSTED_PROXIES", "127.0.0.2/32, 10.0.0.0/8");

#[tokio::test]
async fn connections_of_a_trusted_proxy_are_not_counted() {
    let stage = Stage::with(&[TRUSTED, (PER_ADDRESS, "10")]).await;
    let target = address(&stage.gateway.url);
    let (mut proxy, mut other) = (idle("127.0.0.2", target, 50).await, idle("127.0.0.3", target, 50).await);
    assert_eq!(alive(&mut proxy, PROBE, 200).await, 50);
    // one that has lost its place may answer once more before it is closed
    let mut answering = alive(&mut other, PROBE, 200).await;
    for _ in 0..10 {
        if answering > 10 {
            answering = alive(&mut other, PROBE, 200).await;
        }
    }
    assert_eq!(answering, 10);
}

/// A proxy's connections serve many: each counts for a key while a request of that key is under way.
#[tokio::test]
async fn connections_of_a_trusted_proxy_count_for_a_key_only_while_they_are_busy() {
    let stage = Stage::with(&[TRUSTED, PATIENT, (ROOM, "100")]).await;
    let tenant = stage.tenant("acme").await;
    let (agent, operator) = (tenant.agent().await, tenant.operator().await);
    let target = address(&stage.gateway.url);
    let mut proxy = idle("127.0.0.2", target, 80).await;
    for _ in 0..2 {
        assert_eq!(alive(&mut proxy, &with_key(&agent), 200).await, 80);
    }
    let streams = alive(&mut proxy, &stream_with_key(&operator), 200).await;
    assert!((40..=50).contains(&streams), "{streams}");
}

#[tokio::test]
async fn a_trusted_proxy_names_the_client_and_nobody_else_does() {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    let proxies = ("MCPPROXY__SERVER__TRUSTED_PROXIES", "127.0.0.0/8, 10.0.0.0/8");
    settings.push(proxies);
    let trusting = Stage::with(&settings).await;
    settings.retain(|setting| *setting != proxies);
    let plain = Stage::with(&settings).await;
    let (trusting, plain) = (agent(&trusting).await, agent(&plain).await);
    let cases = [
        (&trusting, vec!["203.0.113.9"], "203.0.113.9"),
        // what a client made up stands before what proxies have seen
        (&trusting, vec!["192.0.2.1, 203.0.113.9, 10.1.2.3"], "203.0.113.9"),
        (&trusting, vec!["192.0.2.1", "203.0.113.10:4711", "10.1.2.3"], "203.0.113.10"),
        (&trusting, vec!["[2001:db8::7]:4711"], "2001:db8::7"),
        (&trusting, vec!["203.0.113.9, unknown"], "127.0.0.1"),
        (&trusting, vec![], "127.0.0.1"),
        (&plain, vec!["203.0.113.9"], "127.0.0.1"),
    ];
    for (number, (agent, forwarded, expected)) in cases.iter().enumerate() {
        for (face, request) in ["mcp", "rest"].into_iter().zip(requests(agent)) {
            let trace = format!("{face:a>4}{number:028x}").replace(['m', 'p', 'r', 's', 't'], "f");
            let request = request.header("traceparent", format!("00-{trace}-00f067aa0ba902b7-01"));
            let request = forwarded.iter().fold(request, |sent, hop| sent.header("X-Forwarded-For", *hop));
            agent.send(request).await;
            let [span] = collector.trace(&trace, 1).await.try_into().unwrap();
            assert_eq!(span.get("client.address"), *expected, "{face}: {forwarded:?}");
            // the port of the connection is the proxy's, and says nothing of the client
            let is_peer = *expected == "127.0.0.1";
            assert_eq!(span.get("client.port").is_empty(), !is_peer, "{face}: {forwarded:?}");
        }
    }
}

async fn agent(stage: &Stage) -> Api {
    stage.tenant("acme").await.agent().await
}

/// A list over MCP and a call over REST; both are traced.
fn requests(agent: &Api) -> [RequestBuilder; 2] {
    let call = json!({"name": "no:such", "tool_variant": "call_tool_read"});
    let call = agent.request(Method::POST, "/api/v1/tools/call").json(&call);
    [Mcp::bare(agent).unsent("1", "tools/list", "{}"), call]
}
