//! W3C Trace Context of requests, in headers and in `_meta`.

use std::borrow::Cow;

use http::HeaderMap;

use crate::domain::json::{Member, value_of};
use crate::domain::trace::{Incoming, TraceParent};

/// Returns the trace context of a request. The `_meta` of its message takes precedence over the headers (SEP-414).
pub fn incoming(headers: &HeaderMap, meta: &[Member<'_>]) -> Incoming {
    let [parent, state, baggage] = &["traceparent", "tracestate", "baggage"].map(|name| text(meta, name));
    let (carried_state, carried_baggage) = (list(headers, "tracestate"), list(headers, "baggage"));
    Incoming::read(
        [parent.as_deref(), state.as_deref(), baggage.as_deref()],
        [only(headers, "traceparent"), carried_state.as_deref(), carried_baggage.as_deref()],
    )
}

/// Returns the id of the trace that a request belongs to; `None` without a valid one.
pub fn trace_id(headers: &HeaderMap, meta: &[Member<'_>]) -> Option<String> {
    let told = text(meta, "traceparent").and_then(|text| TraceParent::parse(&text));
    let carried = || TraceParent::parse(only(headers, "traceparent")?);
    told.or_else(carried).map(|parent| parent.trace_id())
}

/// Returns the text of a member; `None` without one, and for a value that is no string.
fn text(meta: &[Member<'_>], name: &str) -> Option<String> {
    serde_json::from_str(value_of(meta, name)?).ok()
}

/// Returns the value of a header that must not be repeated; `None` if it is, since any of the values may be meant.
fn only<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?;
    lines.next().is_none().then(|| first.to_str().ok()).flatten()
}

/// Returns the value of a list header, joined over its lines (W3C Trace Context 3.3.1, RFC 9110 5.3).
fn list<'a>(headers: &'a HeaderMap, name: &str) -> Option<Cow<'a, str>> {
    let mut lines = headers.get_all(name).iter().map(|line| line.to_str().ok());
    let mut all = Cow::Borrowed(lines.next()??);
    for line in lines {
        let all = all.to_mut();
        all.push(',');
        all.push_str(line?);
    }
    Some(all)
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;
    use crate::domain::json::top_level_members;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        let mut headers = HeaderMap::new();
        for (name, value) in lines.iter().map(line) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn lists_may_come_in_several_lines() {
        let headers = headers(&[
            ("traceparent", PARENT),
            ("tracestate", "a=1,b=2"),
            ("tracestate", "c=3"),
            ("baggage", "d=4;x"),
            ("baggage", "e=5"),
            ("baggage", "f=6"),
        ]);
        let read = incoming(&headers, &[]);
        assert_eq!(read.parent, TraceParent::parse(PARENT));
        assert_eq!(
            (read.state.as_deref(), read.baggage.as_deref()),
            (Some("a=1,b=2,c=3"), Some("d=4;x,e=5,f=6"))
        );
    }

    #[test]
    fn of_several_parents_none_is_one() {
        let several = headers(&[("traceparent", PARENT), ("traceparent", PARENT), ("tracestate", "a=1")]);
        assert_eq!(incoming(&several, &[]), Incoming::default());
        assert_eq!(trace_id(&several, &[]), None);
        // whatever the message says counts
        let meta = format!(r#"{{"traceparent":"{PARENT}"}}"#);
        let meta = top_level_members(&meta).unwrap();
        let read = incoming(&several, &meta);
        assert_eq!((read.parent, read.link), (TraceParent::parse(PARENT), None));
        assert_eq!(trace_id(&several, &meta), trace_id(&headers(&[("traceparent", PARENT)]), &[]));
    }

    #[test]
    fn together_they_are_no_longer_than_one_may_be() {
        let mut headers = headers(&[("traceparent", PARENT)]);
        for number in 0..33 {
            let member = HeaderValue::from_str(&format!("k{number}=1")).unwrap();
            headers.append("tracestate", member.clone());
            headers.append("baggage", member);
        }
        let read = incoming(&headers, &[]);
        assert_eq!((read.state, read.baggage.unwrap().split(',').count()), (None, 33));
        headers.append("baggage", HeaderValue::from_bytes(b"x=\xff").unwrap());
        assert_eq!(incoming(&headers, &[]).baggage, None);
    }
}
