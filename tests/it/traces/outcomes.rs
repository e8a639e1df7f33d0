//! How spans say that something failed.

use serde_json::json;

use super::{AGENT, params, stage};
use crate::support::upstream::Say;
use crate::support::{Kind, Mcp, Seen, Tool, Upstream};

const OK: (bool, &str) = (false, "");

#[tokio::test]
async fn failures_of_upstreams_are_told_as_the_conventions_say() {
    let (collector, stage) = stage().await;
    let tenant = stage.tenant("acme").await;
    let error = |code: i64| Say::RpcError(format!(r#"{{"code":{code},"message":"no"}}"#));
    let upstream = Upstream::handshake(vec![
        Tool::reads("fails").returns(r#"{"content":[],"isError":true}"#),
        Tool::reads("blames").says(error(-32602)),
        Tool::reads("breaks").says(error(-32050)),
        Tool::reads("leaves").says(Say::Close),
        Tool::writes("writes"),
    ])
    .await;
    tenant.add("up", &upstream).await;
    let client = Mcp::modern(&tenant.agent().await);
    let mut number = 0;
    for (tool, asked, asks, code) in [
        ("fails", (true, "tool_error"), Some((true, "tool_error")), ""),
        // the caller is to blame, and so are we, to the upstream
        ("blames", OK, Some((true, "-32602")), "-32602"),
        ("breaks", (true, "-32050"), Some((true, "-32050")), "-32050"),
        ("leaves", (true, "upstream_lost"), Some((true, "upstream_lost")), ""),
        ("writes", (true, "server_mismatch"), None, ""),
        ("nope", (true, "not_found"), None, ""),
    ] {
        number += 1;
        let trace = format!("{number:032x}");
        let meta = json!({"traceparent": format!("00-{trace}-{AGENT}-01")});
        client.request("tools/call", &params(&format!("up:{tool}"), &json!({}), &meta)).await.expect(200);
        let spans = collector.trace(&trace, 1 + usize::from(asks.is_some())).await;
        assert_eq!(spans[0].ended(), asked, "{tool}: {spans:?}");
        assert_eq!(spans[0].get("rpc.response.status_code"), code, "{tool}: {spans:?}");
        assert_eq!(spans.get(1).map(Seen::ended), asks, "{tool}: {spans:?}");
        if let Some(asks) = spans.get(1) {
            assert_eq!((asks.kind, asks.get("rpc.response.status_code")), (Kind::Client, code), "{tool}");
        }
    }
}

#[tokio::test]
async fn what_a_client_does_wrong_is_no_failure_of_the_server() {
    let (collector, stage) = stage().await;
    let tenant = stage.tenant("acme").await;
    let (client, hasty) =
        (Mcp::bare(&tenant.agent().await), Mcp::bare(&tenant.agent_with(json!({"rate_limit": 1})).await));
    let ask = async |client: &Mcp, number: u32, method: &str, rest: &str| {
        let trace = format!("{number:032x}");
        let meta = format!(r#"{{"_meta":{{"traceparent":"00-{trace}-{AGENT}-01"}}{rest}}}"#);
        client.request(method, &meta).await;
        let [span] = collector.trace(&trace, 1).await.try_into().unwrap();
        span
    };
    for (number, method, rest, name, ended, code) in [
        (1, "planets/list", "", "_OTHER", OK, "-32601"),
        (2, "prompts/get", r#","name":"x""#, "prompts/get", OK, "-32602"),
        (3, "resources/read", r#","uri":"x://y?token=1""#, "resources/read", OK, "-32002"),
        (4, "tools/call", r#","name":"sk-secret-0123456789abcdef""#, "tools/call", OK, "-32602"),
        (5, "ping", "", "ping", OK, ""),
        (
            6,
            "tools/call",
            r#","name":"retrieve_tools","arguments":{}"#,
            "tools/call retrieve_tools",
            (true, "invalid_request"),
            "",
        ),
        (
            7,
            "tools/call",
            r#","name":"read_cache","arguments":{"key":"x"}"#,
            "tools/call read_cache",
            (true, "not_found"),
            "",
        ),
    ] {
        let span = ask(&client, number, method, rest).await;
        assert_eq!((span.name.as_str(), span.ended()), (name, ended), "{span:?}");
        assert_eq!(span.get("rpc.response.status_code"), code, "{span:?}");
    }
    // too much is our refusal
    for number in 10..60 {
        let span = ask(&hasty, number, "tools/list", "").await;
        if span.is_error {
            assert_eq!(
                (span.get("error.type"), span.get("rpc.response.status_code")),
                ("rate_limited", "-31429")
            );
            return;
        }
    }
    panic!("no rate limit");
}

#[tokio::test]
async fn a_client_that_goes_away_has_cancelled() {
    let (collector, stage) = stage().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::modern(vec![Tool::reads("hangs").says(Say::Hang)]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::modern(&tenant.agent().await);
    let trace = "ab".repeat(16);
    let meta = json!({"traceparent": format!("00-{trace}-{AGENT}-01")});
    let request = client.unsent("1", "tools/call", &params("up:hangs", &json!({}), &meta));
    let asking = tokio::spawn(request.send());
    crate::support::settle(1, std::time::Duration::from_secs(5), || async { upstream.calls().len() }).await;
    asking.abort();
    let spans = collector.trace(&trace, 2).await;
    assert!(spans.iter().all(|span| span.ended() == (true, "cancelled")), "{spans:?}");
}

#[tokio::test]
async fn a_call_with_progress_lasts_until_its_result() {
    let (collector, stage) = stage().await;
    let tenant = stage.tenant("acme").await;
    let (open, gate) = tokio::sync::watch::channel(false);
    let upstream = Upstream::handshake(vec![Tool::reads("slow").says(Say::ProgressThen(gate))]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::modern(&tenant.agent().await);
    let trace = "ab".repeat(16);
    let meta = json!({"traceparent": format!("00-{trace}-{AGENT}-01"), "progressToken": "t"});
    let begun = client.begin("1", "tools/call", &params("up:slow", &json!({}), &meta)).await;
    assert_eq!(collector.spans().iter().filter(|span| span.trace == trace).count(), 0);
    open.send_replace(true);
    begun.bytes().await.unwrap();
    let spans = collector.trace(&trace, 2).await;
    assert!(spans.iter().all(|span| span.ended() == OK), "{spans:?}");
}
