//! Results on the wire: the MCP renderer of outcomes, and the conversions between eras.

use bytes::Bytes;

use super::Era;
use super::jsonrpc::message;
use crate::domain::json::{self, escape_into};
use crate::domain::refusal::{Code, Refusal};
use crate::domain::tool::ResultHead;
use crate::gateway::{CallOutcome, Refused, SearchResult};

/// Member of a result's `_meta` that carries a warning.
const WARNING: &str = "mcpproxy/warning";
/// Member of a search's `_meta` that names the servers whose tools are missing.
const MISSING: &str = "mcpproxy/missing";

/// What answers a call.
pub(super) enum Answered {
    /// This message.
    Message(String),
    /// None, since the caller took it back; a client that must have one gets this.
    Withdrawn(String),
}

/// The message that answers a call.
pub(super) fn outcome(era: Era, id: &str, outcome: &CallOutcome) -> Answered {
    let text = match outcome {
        CallOutcome::Result { raw, head, warning } => passed_on(era, id, raw, head, warning.as_deref()),
        CallOutcome::UpstreamError(raw) => message(id, "error", &lossless(raw)),
        CallOutcome::Refused(refused) => message(id, "result", &refusal(era, refused)),
    };
    match outcome {
        CallOutcome::Refused(refused) if refused.refusal.code == Code::Cancelled => Answered::Withdrawn(text),
        _ => Answered::Message(text),
    }
}

fn lossless(raw: &Bytes) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(raw)
}

/// An upstream's result: its bytes, but for what behaviour, section 4 lists.
fn passed_on(era: Era, id: &str, raw: &Bytes, head: &ResultHead, warning: Option<&str>) -> String {
    let mut text = lossless(raw);
    // only a string is a result type; anything else is not passed on as one
    if head.has_result_type && (era == Era::Handshake || head.result_type.is_none()) {
        text = json::without_members(&text, &["resultType"]).into_owned().into();
    }
    if era == Era::Modern && head.result_type.is_none() {
        text = json::with_member_first(&text, "resultType", r#""complete""#).into();
    }
    // older clients take an object or nothing; the text block carries the value
    if era == Era::Handshake && head.result_type.is_some() {
        let structured = json::find_members(&text, ["structuredContent"]).ok().and_then(|[value]| value);
        if structured.is_some_and(|value| !value.starts_with('{')) {
            text = json::without_members(&text, &["structuredContent"]).into_owned().into();
        }
    }
    if let Some(warning) = warning {
        text = with_warning(&text, warning).into();
    }
    message(id, "result", &text)
}

fn with_warning(text: &str, warning: &str) -> String {
    let mut value = String::new();
    escape_into(&mut value, warning);
    let meta = json::find_members(text, ["_meta"]).ok().and_then(|[meta]| meta);
    match meta {
        Some(meta) if meta.starts_with('{') => {
            let meta = json::with_member_first(&json::without_members(meta, &[WARNING]), WARNING, &value);
            json::with_member_first(&json::without_members(text, &["_meta"]), "_meta", &meta)
        }
        Some(_) => text.to_owned(),
        None => json::with_member_first(text, "_meta", &format!("{{\"{WARNING}\":{value}}}")),
    }
}

/// A refusal as a tool result that a model can correct itself by.
fn refusal(era: Era, refused: &Refused) -> String {
    let Refused { refusal, tool, variant, declared } = refused;
    let structured = serde_json::json!({
        "code": refusal.code.as_str(),
        "message": refusal.message,
        "tool": tool,
        "variant": variant.as_str(),
        "declared": declared.map(|d| d.as_str()),
        "expected": refusal.expected.map(|e| e.as_str()),
        "recommended": refusal.recommended.map(|v| v.as_str()),
    });
    error_result(era, &refusal.message, &structured.to_string())
}

/// A refusal of a built-in tool that is no call of an upstream's.
pub(super) fn plain_refusal(era: Era, refusal: &Refusal) -> String {
    let structured = serde_json::json!({"code": refusal.code.as_str(), "message": refusal.message});
    error_result(era, &refusal.message, &structured.to_string())
}

fn error_result(era: Era, text: &str, structured: &str) -> String {
    let mut out = opening(era);
    out.push_str(r#""content":[{"type":"text","text":"#);
    escape_into(&mut out, text);
    out.push_str(r#"}],"structuredContent":"#);
    out.push_str(structured);
    out.push_str(r#","isError":true}"#);
    out
}

/// What a search found, with the servers that are missing from it in `_meta`.
pub(super) fn found(era: Era, found: &SearchResult) -> String {
    if found.missing.is_empty() {
        return structured(opening(era), &found.json);
    }
    let missing = serde_json::json!(found.missing).to_string();
    structured(opening_with(era, &format!("\"{MISSING}\":{missing}")), &found.json)
}

/// A built-in tool's answer, as structured content and as text.
fn structured(opening: String, json: &str) -> String {
    let mut out = opening;
    out.reserve(json.len() * 2 + json.len() / 4);
    out.push_str(r#""content":[{"type":"text","text":"#);
    escape_into(&mut out, json);
    out.push_str(r#"}],"structuredContent":"#);
    out.push_str(json);
    out.push('}');
    out
}

/// The start of a result of our own with one more member of `_meta`.
fn opening_with(era: Era, member: &str) -> String {
    match era {
        Era::Handshake => format!(r#"{{"_meta":{{{member}}},"#),
        Era::Modern => {
            format!(r#"{{"resultType":"complete","_meta":{{{},{member}}},"#, super::methods::SERVER_INFO_META)
        }
    }
}

/// The start of a result of our own.
pub(super) fn opening(era: Era) -> String {
    match era {
        Era::Handshake => "{".to_owned(),
        Era::Modern => {
            format!(r#"{{"resultType":"complete","_meta":{{{}}},"#, super::methods::SERVER_INFO_META)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(era: Era, raw: &'static str, warning: Option<&str>) -> String {
        let head = ResultHead::read(raw).unwrap();
        let text = passed_on(era, "1", &Bytes::from_static(raw.as_bytes()), &head, warning);
        text.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#)
            .unwrap()
            .strip_suffix('}')
            .unwrap()
            .to_owned()
    }

    #[test]
    fn bytes_stay_but_for_the_result_type() {
        let old = r#"{ "content":[], "x":1e400 ,"n":18446744073709551616}"#;
        assert_eq!(pass(Era::Handshake, old, None), old);
        assert_eq!(
            pass(Era::Modern, old, None),
            r#"{"resultType":"complete", "content":[], "x":1e400 ,"n":18446744073709551616}"#
        );
        let new = r#"{"content":[],"resultType":"complete","structuredContent":[1]}"#;
        assert_eq!(pass(Era::Modern, new, None), new);
        assert_eq!(pass(Era::Handshake, new, None), r#"{"content":[]}"#);
    }

    #[test]
    fn a_warning_joins_the_meta() {
        assert_eq!(
            pass(Era::Handshake, r#"{"content":[]}"#, Some("w")),
            r#"{"_meta":{"mcpproxy/warning":"w"},"content":[]}"#
        );
        assert_eq!(
            pass(Era::Handshake, r#"{"content":[],"_meta":{"a":1}}"#, Some("w")),
            r#"{"_meta":{"mcpproxy/warning":"w","a":1},"content":[]}"#
        );
    }
}
