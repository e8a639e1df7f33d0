//! Connections with a valid key: one key, and one tenant, leave enough of them to others.

use tokio::net::TcpStream;

use super::crowds::{PATIENT, PER_ADDRESS, PROBE, ROOM, with_key};
use super::{address, alive, ask, connect, ends, idle, status};
use crate::support::{ADMIN, Api, Page, Stage};

/// Beyond 50 connections with a valid key, a tenant has a quarter of these, and a key an eighth.
const FEW: (&str, &str) = (ROOM, "100");

/// A request for a stream with this caller's key.
pub(super) fn stream_with_key(api: &Api) -> String {
    with_key(api).replace("/api/v1/status", "/api/v1/events")
}

/// A connection on which this request was answered, with the answer.
async fn asked(stage: &Stage, request: &str) -> (TcpStream, String) {
    let mut stream = connect("127.0.0.1", address(&stage.gateway.url)).await.unwrap();
    let answer = ask(&mut stream, request).await.unwrap_or_default();
    (stream, answer)
}

#[tokio::test]
async fn one_key_loses_its_oldest_idle_connections_and_nobody_else_any() {
    let stage = Stage::with(&[ADMIN, PATIENT, FEW]).await;
    let (greedy, other) = (stage.tenant("acme").await, stage.tenant("globex").await.agent().await);
    let (greedy, colleague) = (greedy.agent().await, greedy.agent().await);
    let mut quiet = Vec::new();
    for key in [&other, &colleague].repeat(5) {
        quiet.push(asked(&stage, &with_key(key)).await.0);
    }
    let mut many = Vec::new();
    for number in 0..150 {
        let (stream, answer) = asked(&stage, &with_key(&greedy)).await;
        assert_eq!(status(Some(&answer)), 200, "connection {number}: {answer}");
        many.push(stream);
    }
    for _ in 0..5 {
        let (stream, answer) = asked(&stage, &with_key(&other)).await;
        assert_eq!(status(Some(&answer)), 200, "{answer}");
        quiet.push(stream);
    }
    assert_eq!(alive(&mut quiet, PROBE, 200).await, 15, "connections of others");
    assert_eq!(alive(&mut many[140..], PROBE, 200).await, 10, "the newest of the greedy key");
    let page = stage.gateway.scrape().await;
    let closed = page.sum("mcpproxy_client_connections_closed_total", &[("reason", "share")]);
    assert!(closed >= 100.0, "{closed}");
}

#[tokio::test]
async fn a_tenant_whose_connections_are_all_busy_is_told_to_come_back() {
    let stage = Stage::with(&[ADMIN, PATIENT, FEW]).await;
    let (greedy, other) = (stage.tenant("acme").await, stage.tenant("globex").await.agent().await);
    let keys = [greedy.operator().await, greedy.operator().await];
    let (mut streams, mut refused) = (Vec::new(), 0);
    for key in keys.iter().cycle().take(120) {
        let (mut stream, answer) = asked(&stage, &stream_with_key(key)).await;
        if status(Some(&answer)) == 200 {
            streams.push(stream);
            continue;
        }
        refused += 1;
        assert_eq!(status(Some(&answer)), 503, "{answer}");
        let lower = answer.to_lowercase();
        let parts = ["retry-after: 5\r\n", "connection: close\r\n", "\"code\":\"overloaded\""];
        assert!(parts.iter().all(|part| lower.contains(part)), "{answer}");
        assert!(ends(&mut stream).await, "an end of the connection");
    }
    assert!((40..=50).contains(&streams.len()), "{} streams, {refused} refused", streams.len());
    let (_, answer) = asked(&stage, &with_key(&other)).await;
    assert_eq!(status(Some(&answer)), 200, "{answer}");
    let page = stage.gateway.scrape().await;
    let open = page.sum("mcpproxy_streams", &[("kind", "events")]);
    assert_eq!(open, streams.len() as f64, "a stream is no idle connection");
    // a place that is given back is taken
    streams.truncate(10);
    let what = |page: &Page| page.sum("mcpproxy_streams", &[("kind", "events")]) <= 10.0;
    stage.gateway.scrape_until("the end of streams", what).await;
    let (_, answer) = asked(&stage, &stream_with_key(&keys[0])).await;
    assert_eq!(status(Some(&answer)), 200, "{answer}");
}

#[tokio::test]
async fn a_connection_whose_key_was_revoked_counts_for_its_address_again() {
    let stage = Stage::with(&[PATIENT, (PER_ADDRESS, "5")]).await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let (target, request) = (address(&stage.gateway.url), with_key(&agent));
    let mut kept = Vec::new();
    for _ in 0..8 {
        kept.extend(idle("127.0.0.2", target, 1).await);
        assert_eq!(alive(kept.last_mut().map(std::slice::from_mut).unwrap(), &request, 200).await, 1);
    }
    tenant.platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    assert_eq!(alive(&mut kept, &request, 401).await, 8);
    assert_eq!(alive(&mut kept, PROBE, 200).await, 5);
}
