//! Spans as values, which are exported after their end (OpenTelemetry conventions for MCP).

use std::borrow::Cow;
use std::time::SystemTime;

use super::measure::OTHER;
use super::redact;
use super::trace::{SpanId, TraceParent};

/// Name of the attribute for the tenant.
pub const TENANT: &str = "mcpproxy.tenant";
/// Memory of a span without texts and attributes until it is exported, in bytes; rounded up.
const SPAN_BYTES: usize = 512;
/// Memory of an attribute without its text, in bytes; rounded up.
const ATTRIBUTE_BYTES: usize = 96;
/// Longest untrusted text in a span, in bytes.
const SHOWN_BYTES_MAX: usize = 256;

/// Side of a request that a span is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Request that the gateway received.
    Server,
    /// Request that the gateway sent.
    Client,
}

/// Value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A number.
    Number(i64),
}

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Value {
        Value::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(Cow::Owned(text))
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number)
    }
}

/// Span: an operation with a start and an end, as OpenTelemetry defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Trace and id of the span.
    pub context: TraceParent,
    /// `tracestate` of the trace.
    pub state: Option<String>,
    /// Parent span; `None` for the root of a trace.
    pub parent: Option<SpanId>,
    /// True if the parent is a span of another process.
    pub is_parent_remote: bool,
    /// True if the span is recorded only because the caller's `traceparent` has the flag `sampled`.
    pub is_forced: bool,
    /// Span of another trace that this one is linked to.
    pub link: Option<TraceParent>,
    /// Side of the request.
    pub kind: SpanKind,
    /// Name of the span.
    pub name: Cow<'static, str>,
    /// Start time.
    pub start: SystemTime,
    /// End time.
    pub end: SystemTime,
    /// Attributes, by name.
    pub attributes: Vec<(&'static str, Value)>,
    /// True if the operation failed.
    pub is_error: bool,
}

impl Span {
    /// Adds an attribute.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }

    /// Sets the name to the method and its target.
    pub fn target(&mut self, method: &str, target: &str) {
        self.name = Cow::Owned(format!("{method} {target}"));
    }

    /// Returns the name of the tenant from the attributes; `None` when there is none.
    pub fn tenant(&self) -> Option<&str> {
        self.attributes.iter().find_map(|(name, value)| match value {
            Value::Text(text) if *name == TENANT => Some(text.as_ref()),
            _ => None,
        })
    }

    /// Returns the approximate size in memory, in bytes.
    pub fn bytes(&self) -> usize {
        let text = |text: &Cow<'static, str>| if let Cow::Owned(text) = text { text.len() } else { 0 };
        let value = |(_, value): &(&'static str, Value)| match value {
            Value::Text(value) => ATTRIBUTE_BYTES + text(value),
            Value::Number(_) => ATTRIBUTE_BYTES,
        };
        // the exporter keeps name and value of each member as strings
        let state = self
            .state
            .as_ref()
            .map_or(0, |state| state.len() + state.split(',').count() * 2 * size_of::<String>());
        SPAN_BYTES + text(&self.name) + state + self.attributes.iter().map(value).sum::<usize>()
    }

    /// Marks the span as failed, with this `error.type`; the last call wins.
    pub fn fail(&mut self, error_type: impl Into<Value>) {
        self.is_error = true;
        self.attributes.retain(|(name, _)| *name != "error.type");
        self.set("error.type", error_type);
    }
}

/// Returns an untrusted text that is safe to export: at most 256 bytes, with secrets masked.
pub fn shown(text: &str) -> String {
    redact::preview(text, SHOWN_BYTES_MAX).text
}

/// Returns a URI that is safe to export, without user, query and fragment, which may be credentials. A URI without an
/// authority is reduced to its scheme, as a credential could be anywhere in it.
pub fn shown_uri(uri: &str) -> String {
    let plain = uri.split(['?', '#']).next().unwrap_or_default();
    let Some((scheme, rest)) = plain.split_once("://") else {
        let scheme = plain.split_once(':').map(|(scheme, _)| scheme).filter(|scheme| is_scheme(scheme));
        return scheme.map_or_else(|| OTHER.to_owned(), |scheme| shown(&format!("{scheme}:")));
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    shown(&format!("{scheme}://{host}{path}"))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_told_without_credentials() {
        for (uri, expected) in [
            ("file:///a/b.txt", "file:///a/b.txt"),
            ("https://user:pass@host:8443/x?key=1#f", "https://host:8443/x"),
            ("https://a@b@host?key=1", "https://host"),
            ("note:one?two", "note:"),
            ("data:text/plain,secret", "data:"),
            ("postgres:u:p@h/db", "postgres:"),
            ("no uri", "_OTHER"),
            ("a/b:c", "_OTHER"),
        ] {
            assert_eq!(shown_uri(uri), expected);
        }
        assert_eq!(shown(&"x y ".repeat(100)).len(), SHOWN_BYTES_MAX);
    }
}
