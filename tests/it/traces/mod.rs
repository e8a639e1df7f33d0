//! What is told of requests, to a real collector of traces.

mod chain;
mod collector;
mod logs;
mod outcomes;
mod sampling;
mod secrets;

use serde_json::{Value, json};

use crate::support::upstream::Call;
use crate::support::{Collector, Stage};

/// The trace and the span of an agent that asks.
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const AGENT: &str = "00f067aa0ba902b7";

/// `traceparent` of an agent whose trace is recorded, or is not.
fn agent(sampled: &str) -> String {
    format!("00-{TRACE}-{AGENT}-{sampled}")
}

/// A gateway that tells a collector.
async fn stage() -> (Collector, Stage) {
    let collector = Collector::start().await;
    let stage = Stage::with(&collector.settings()).await;
    (collector, stage)
}

/// Raw params of a call of an upstream's tool on `/mcp`, with this `_meta`.
fn params(tool: &str, args: &Value, meta: &Value) -> String {
    let arguments = json!({"name": tool, "args": args});
    json!({"name": "call_tool_read", "arguments": arguments, "_meta": meta}).to_string()
}

/// The `_meta` of a call as it arrived.
fn meta(call: &Call) -> Value {
    serde_json::from_str::<Value>(&call.params).unwrap()["_meta"].clone()
}

/// The span that a call at an upstream says it is part of: trace, span, flags.
fn told(meta: &Value) -> [String; 3] {
    let parts: Vec<&str> =
        meta["traceparent"].as_str().unwrap_or_else(|| panic!("{meta}")).split('-').collect();
    [parts[1].to_owned(), parts[2].to_owned(), parts[3].to_owned()]
}
