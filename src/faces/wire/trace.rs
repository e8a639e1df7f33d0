//! W3C Trace Context: what a request says of the trace that it belongs to.

use http::HeaderMap;

use crate::domain::json;
use crate::domain::trace::{Incoming, TraceParent};

/// The trace of a request whose headers are these, and whose message has this raw `_meta`, which goes first (SEP-414).
pub fn incoming(headers: &HeaderMap, meta: Option<&str>) -> Incoming {
    let told = meta.and_then(|meta| json::find_members(meta, ["traceparent", "tracestate", "baggage"]).ok());
    let text = |raw: Option<&str>| raw.and_then(|raw| serde_json::from_str::<String>(raw).ok());
    let told = told.unwrap_or_default().map(text);
    let carried = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let carried = ["traceparent", "tracestate", "baggage"].map(carried);
    let [parent, state, baggage] = &told;
    Incoming::read([parent.as_deref(), state.as_deref(), baggage.as_deref()], carried)
}

/// The id of the trace that a request belongs to.
pub fn trace_id(headers: &HeaderMap, meta: Option<&str>) -> Option<String> {
    let told = meta.and_then(|meta| json::find_members(meta, ["traceparent"]).ok());
    let told = told.and_then(|[raw]| raw.and_then(|raw| serde_json::from_str::<String>(raw).ok()));
    let told = told.and_then(|text| TraceParent::parse(&text));
    let carried = || TraceParent::parse(headers.get("traceparent")?.to_str().ok()?);
    told.or_else(carried).map(|parent| parent.trace_id())
}
