//! How requests end that last: both the sample and the span are told of it once, when it is over.

use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use super::agreement::{Asked, COUNT};
use crate::support::upstream::{Offers, Say};
use crate::support::{Api, DIRECT, Mcp, Tool, Upstream, settle};

const CALL: &str = "tools/call";
const OF_CALLS: (&str, &str) = ("mcp_method_name", CALL);

/// A tenant with a tool that tells of progress, then waits for the gate.
async fn slow(asked: &Asked) -> (watch::Sender<bool>, Upstream, Api) {
    let tenant = asked.stage.tenant("acme").await;
    let (open, gate) = watch::channel(false);
    let upstream = Upstream::handshake(vec![Tool::reads("slow").says(Say::ProgressThen(gate))]).await;
    tenant.add("up", &upstream).await;
    (open, upstream, tenant.agent().await)
}

fn params(traceparent: &str) -> String {
    let meta = json!({"traceparent": traceparent, "progressToken": "t"});
    json!({"_meta": meta, "name": "call_tool_read", "arguments": {"name": "up:slow"}}).to_string()
}

#[tokio::test]
async fn a_stream_ends_with_its_last_message() {
    let mut asked = Asked::gateway().await;
    let (open, _upstream, agent) = slow(&asked).await;
    let client = Mcp::modern(&agent);
    let params = params(&asked.next());
    let (said, took_s) = asked
        .around(&[OF_CALLS], async {
            let begun = client.begin("1", CALL, &params).await;
            assert_eq!(asked.stage.gateway.scrape().await.sum(COUNT, &[OF_CALLS]), 0.0);
            open.send_replace(true);
            begun.bytes().await.unwrap();
        })
        .await;
    assert_eq!(said, ["", "", CALL, "2026-07-28", "call_tool_read"]);
    assert!(took_s > 0.0);
}

#[tokio::test]
async fn who_leaves_in_the_middle_of_a_stream_has_given_up() {
    let mut asked = Asked::gateway().await;
    let (_open, upstream, agent) = slow(&asked).await;
    let client = Mcp::modern(&agent);
    let params = params(&asked.next());
    let (said, _) = asked
        .around(&[OF_CALLS], async {
            drop(client.begin("1", CALL, &params).await);
            settle(1, Duration::from_secs(5), || async { upstream.abandoned() }).await;
        })
        .await;
    assert_eq!(said, ["cancelled", "", CALL, "2026-07-28", "call_tool_read"]);
}

#[tokio::test]
async fn what_is_taken_back_has_a_code_only_where_that_is_sent() {
    let mut asked = Asked::gateway().await;
    let tenant = asked.stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![]).await;
    upstream.set_offers(Offers::resources(&["x://hang"]));
    tenant.add("up", &upstream).await;
    let key = tenant.agent_with(json!({"direct_endpoint": true})).await;
    let session = Mcp::bare(&key).at(DIRECT).shake_hands("2025-11-25").await;
    for (number, accept, code) in
        [(1, "application/json, text/event-stream", ""), (2, "application/json", "-32603")]
    {
        let meta = json!({"traceparent": asked.next()});
        let body = json!({"jsonrpc": "2.0", "id": number, "method": "resources/read",
            "params": {"_meta": meta, "uri": "x://hang"}});
        let request = session.http(reqwest::Method::POST).header("Content-Type", "application/json");
        let mut request = request.body(body.to_string()).build().unwrap();
        request.headers_mut().insert("accept", accept.parse().unwrap());
        let cancel =
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": number}});
        let (said, _) = asked
            .around(&[("mcp_method_name", "resources/read")], async {
                let takes_back = async {
                    settle(number, Duration::from_secs(5), || async { upstream.asked_of("resources/read") })
                        .await;
                    session.post(cancel.to_string()).await;
                };
                let (answer, ()) = tokio::join!(reqwest::Client::new().execute(request), takes_back);
                answer.unwrap().bytes().await.unwrap();
            })
            .await;
        assert_eq!(said, ["cancelled", code, "resources/read", "2025-11-25", ""]);
    }
}
