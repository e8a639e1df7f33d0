//! Spans as values: what is told of a piece of work once it has ended (OpenTelemetry conventions for MCP).

use std::borrow::Cow;
use std::time::SystemTime;

use super::measure::OTHER;
use super::redact;
use super::trace::{SpanId, TraceParent};

/// The attribute that names the tenant.
pub const TENANT: &str = "mcpproxy.tenant";
/// What a span without texts takes in memory until it is sent, and each of its attributes, in bytes; a little too much.
const SPAN_BYTES: usize = 512;
const ATTRIBUTE_BYTES: usize = 96;
/// Longest text that others chose, in bytes.
const SHOWN_BYTES_MAX: usize = 256;

/// Which side of a request it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// It was asked of us.
    Server,
    /// We asked it.
    Client,
}

/// The value of an attribute.
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

/// A piece of work with a beginning and an end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// Which one it is.
    pub context: TraceParent,
    /// `tracestate` of its trace.
    pub state: Option<String>,
    /// What it is part of.
    pub parent: Option<SpanId>,
    /// Whether that is somebody else's.
    pub is_parent_remote: bool,
    /// Whether it is recorded only because whoever asked wants that.
    pub is_forced: bool,
    /// What else it is connected with.
    pub link: Option<TraceParent>,
    /// Which side.
    pub kind: SpanKind,
    /// Its name.
    pub name: Cow<'static, str>,
    /// When it began.
    pub start: SystemTime,
    /// When it ended.
    pub end: SystemTime,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Whether it failed.
    pub is_error: bool,
}

impl Span {
    /// Adds to what is known.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }

    /// Names it by its method and what that is about.
    pub fn target(&mut self, method: &str, target: &str) {
        self.name = Cow::Owned(format!("{method} {target}"));
    }

    /// The tenant that it is about.
    pub fn tenant(&self) -> Option<&str> {
        self.attributes.iter().find_map(|(name, value)| match value {
            Value::Text(text) if *name == TENANT => Some(text.as_ref()),
            _ => None,
        })
    }

    /// About what it takes in memory.
    pub fn bytes(&self) -> usize {
        let text = |text: &Cow<'static, str>| if let Cow::Owned(text) = text { text.len() } else { 0 };
        let value = |(_, value): &(&'static str, Value)| match value {
            Value::Text(value) => ATTRIBUTE_BYTES + text(value),
            Value::Number(_) => ATTRIBUTE_BYTES,
        };
        // its members are kept one by one
        let state = self
            .state
            .as_ref()
            .map_or(0, |state| state.len() + state.split(',').count() * 2 * size_of::<String>());
        SPAN_BYTES + text(&self.name) + state + self.attributes.iter().map(value).sum::<usize>()
    }

    /// Notes that it failed, and how: the last that is said of that.
    pub fn fail(&mut self, error_type: impl Into<Value>) {
        self.is_error = true;
        self.attributes.retain(|(name, _)| *name != "error.type");
        self.set("error.type", error_type);
    }
}

/// A text that others chose, as it may be told: short, and without what looks like a secret.
pub fn shown(text: &str) -> String {
    redact::preview(text, SHOWN_BYTES_MAX).text
}

/// A URI as it may be told: without whatever may be a credential in it. Of one without an authority nobody knows where
/// that would stand, so only its scheme is told.
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
