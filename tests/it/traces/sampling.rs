//! Which requests are recorded, and what upstreams are told of the others.

use serde_json::{Value, json};

use super::{AGENT, TRACE, agent, meta, params, told};
use crate::support::{Collector, Mcp, Stage, Tenant, Tool, Upstream};

async fn stage(ratio: &str) -> (Collector, Stage, Tenant, Upstream, Mcp) {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    settings.push(("MCPPROXY__TELEMETRY__SAMPLE_RATIO", ratio));
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    (collector, stage, tenant, upstream, client)
}

/// Calls; gives the `_meta` that the upstream got.
async fn call(client: &Mcp, upstream: &Upstream, sent: &Value) -> Value {
    client.request("tools/call", &params("up:look", &json!({}), sent)).await.expect(200);
    meta(&upstream.calls().pop().unwrap())
}

#[tokio::test]
async fn with_a_share_of_nothing_only_callers_have_anything_recorded() {
    let (collector, _stage, tenant, upstream, client) = stage("0.0").await;
    let arrived = call(&client, &upstream, &json!({"baggage": "a=1"})).await;
    let [trace, span, flags] = told(&arrived);
    assert_eq!(
        (flags.as_str(), &arrived["baggage"]),
        ("00", &json!("a=1")),
        "who comes later does not begin one"
    );
    assert_ne!(trace, "0".repeat(32));
    assert_ne!(span, "0".repeat(16));
    assert_eq!(tenant.records("type=tool_call", 1).await[0]["trace_id"], trace.as_str());

    let unrecorded = call(&client, &upstream, &json!({"traceparent": agent("00")})).await;
    assert_eq!(unrecorded["traceparent"], agent("00"), "handed on as it came");

    let recorded = call(&client, &upstream, &json!({"traceparent": agent("01")})).await;
    let spans = collector.trace(TRACE, 2).await;
    assert_eq!(told(&recorded), [TRACE.to_owned(), spans[1].id.clone(), "01".to_owned()]);
    assert_eq!(collector.spans().len(), 2, "{:?}", collector.spans());
}

#[tokio::test]
async fn what_callers_do_not_want_recorded_is_not_whatever_the_share() {
    let (collector, _stage, tenant, upstream, client) = stage("1.0").await;
    let arrived = call(&client, &upstream, &json!({"traceparent": agent("00"), "tracestate": "a=1"})).await;
    assert_eq!((&arrived["traceparent"], &arrived["tracestate"]), (&json!(agent("00")), &json!("a=1")));
    // what is malformed, or too long, is not there
    let long = "a=".to_owned() + &"x".repeat(8200);
    let sent =
        json!({"traceparent": format!("00-{TRACE}-{AGENT}"), "tracestate": "a=1", "baggage": long, "x": 1});
    let arrived = call(&client, &upstream, &sent).await;
    let [trace, span, flags] = told(&arrived);
    assert_eq!((flags.as_str(), trace == TRACE), ("01", false));
    assert_eq!((arrived.get("tracestate"), arrived.get("baggage"), &arrived["x"]), (None, None, &json!(1)));
    let [asked, asks] = collector.trace(&trace, 2).await.try_into().unwrap();
    assert_eq!((asked.parent.as_str(), &asks.parent, asks.id), ("", &asked.id, span));
    let records = tenant.records("type=tool_call", 2).await;
    let traces: Vec<&Value> = records.iter().map(|record| &record["trace_id"]).collect();
    assert_eq!(traces, [&json!(trace), &json!(TRACE)], "newest first");
    assert!(collector.spans().iter().all(|span| span.trace != TRACE));
}

#[tokio::test]
async fn without_a_collector_everything_is_handed_on_as_it_came() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    let sent = json!({"traceparent": "no such thing", "tracestate": "a", "baggage": "b"});
    assert_eq!(call(&client, &upstream, &sent).await, sent);
    let sent = json!({"traceparent": agent("01")});
    assert_eq!(call(&client, &upstream, &sent).await, sent);
    let records = tenant.records("type=tool_call", 2).await;
    let traces: Vec<&Value> = records.iter().map(|record| &record["trace_id"]).collect();
    assert_eq!(traces, [&json!(TRACE), &Value::Null]);
}
