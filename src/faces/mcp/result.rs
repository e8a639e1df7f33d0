//! MCP answers to outcomes, and the conversion of results between eras.

use bytes::Bytes;

use super::jsonrpc::{RpcError, is_missing_capability, message, served};
use super::text::Text;
use super::{ClientEra, Endpoint};
use crate::domain::end::End;
use crate::domain::json::{self, escape_into};
use crate::domain::operation::OperationType;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::tool::ResultHead;
use crate::faces::wire::managed::NotDone;
use crate::gateway::{CallOutcome, ReadResult, Refused, Replaced, SearchResult};

/// Member of a result's `_meta` that carries a warning.
const WARNING: &str = "mcpproxy/warning";
/// Member of a result's `_meta` that says what was cut off it.
const TRUNCATED: &str = "mcpproxy/truncated";
/// Member of a result's `_meta` that carries a refusal where clients hold `structuredContent` against a schema.
const REFUSAL: &str = "mcpproxy/refusal";
/// Member of a search's `_meta` that names the servers whose tools are missing.
const MISSING: &str = "mcpproxy/missing";

/// Member of a result's `_meta` that names this server (MCP 2026-07-28: on every result).
pub(super) const SERVER_INFO_META: &str = concat!(
    r#""io.modelcontextprotocol/serverInfo":{"name":"mcpproxy","title":"mcpproxy","version":""#,
    env!("CARGO_PKG_VERSION"),
    r#""}"#
);
/// Time for which a modern client may cache a list, in milliseconds.
pub(super) const LIST_TTL_MS: u32 = 5_000;

/// Answer to a call.
pub(super) enum Answered {
    /// Message with HTTP status 200.
    Message(Text),
    /// Error of the gateway's own, with the HTTP status that goes with it.
    Failed(RpcError),
    /// Error message of an upstream, with HTTP status 400.
    Rejected(Text),
    /// Refusal with HTTP status 403, since the scopes of the token do not allow this operation.
    NeedsScope(Text, OperationType),
    /// No message, since the caller cancelled the call. A client that needs an answer gets this one.
    Withdrawn(Text),
}

/// Returns the answer to an outcome, and the end of the request for telemetry.
pub(super) fn outcome(
    endpoint: Endpoint,
    era: ClientEra,
    id: &str,
    outcome: &CallOutcome,
) -> (Answered, End) {
    match outcome {
        CallOutcome::Result { raw, head, warning, truncated } => {
            let notes = notes(warning.as_deref(), truncated.as_deref());
            (Answered::Message(passed_on(era, id, raw, head, &notes)), End::result(head.is_error))
        }
        CallOutcome::InputRequired { raw, state, .. } => question(id, raw, state.as_ref()),
        CallOutcome::InvalidState => failed(RpcError::invalid_state()),
        CallOutcome::UpstreamError { raw, code } => upstream_error(era, id, raw, *code),
        // on `/mcp/direct` the tool's name is a parameter of the method, so an unknown one is an error
        CallOutcome::Refused(Refused { refusal, .. })
            if endpoint == Endpoint::Direct && refusal.code == Code::NotFound =>
        {
            failed(RpcError::invalid_params(refusal.message.as_str()))
        }
        CallOutcome::Refused(refused) => {
            let text = Text::Whole(message(id, "result", &refusal(era, refused)));
            let answered = match (refused.refusal.code, refused.refusal.scope_for()) {
                (Code::Cancelled, _) => Answered::Withdrawn(text),
                (_, Some(operation)) => Answered::NeedsScope(text, operation),
                _ => Answered::Message(text),
            };
            (answered, End::Failed(refused.refusal.code.as_str()))
        }
    }
}

/// Returns an error of the gateway's own as an answer.
pub(super) fn failed(error: RpcError) -> (Answered, End) {
    let end = error.end();
    (Answered::Failed(error), end)
}

/// Returns a server's question as it came, with `state` in place of the server's own state.
pub(super) fn question(id: &str, raw: &Bytes, state: Option<&Replaced>) -> (Answered, End) {
    let text = match state {
        None => Text::whole(id, "result", raw),
        Some((range, own)) => Text::replacing(id, "result", raw, range, own),
    };
    (Answered::Message(text), End::Well)
}

/// Returns a server's error as it came. To a modern client, a missing capability is also HTTP status 400.
pub(super) fn upstream_error(era: ClientEra, id: &str, raw: &Bytes, code: i64) -> (Answered, End) {
    let text = Text::whole(id, "error", raw);
    let answered = match era == ClientEra::Modern && is_missing_capability(code) {
        true => Answered::Rejected(text),
        false => Answered::Message(text),
    };
    (answered, served(code))
}

/// Returns the gateway's notes on a result, as raw members of its `_meta`.
fn notes(warning: Option<&str>, truncated: Option<&str>) -> Vec<(&'static str, String)> {
    let mut notes = Vec::new();
    if let Some(warning) = warning {
        let mut value = String::new();
        escape_into(&mut value, warning);
        notes.push((WARNING, value));
    }
    notes.extend(truncated.map(|truncated| (TRUNCATED, truncated.to_owned())));
    notes
}

/// Returns an upstream's result, changed only as behaviour, section 4 allows.
fn passed_on(era: ClientEra, id: &str, raw: &Bytes, head: &ResultHead, notes: &[(&str, String)]) -> Text {
    spliced(era, id, raw, head, &Splice { notes, ..Splice::default() })
}

/// Changes to a result besides those that its era needs.
#[derive(Default)]
pub(super) struct Splice<'a> {
    /// Raw members to add to `_meta`.
    pub(super) notes: &'a [(&'a str, String)],
    /// Names of members to leave out.
    pub(super) without: &'a [&'a str],
    /// Raw members, with their names, to put first.
    pub(super) added: &'a [&'a str],
}

/// Returns an upstream's result with the changes that its era needs, and those of `splice`.
pub(super) fn spliced(era: ClientEra, id: &str, raw: &Bytes, head: &ResultHead, splice: &Splice<'_>) -> Text {
    let Splice { notes, added, .. } = *splice;
    let mut without = splice.without.to_vec();
    let text = std::str::from_utf8(raw).unwrap_or_default();
    // only a string is a result type; anything else is not passed on as one
    if head.has_result_type && (era == ClientEra::Handshake || head.result_type.is_none()) {
        without.push("resultType");
    }
    let adds_type = era == ClientEra::Modern && head.result_type.is_none();
    // older clients take an object or nothing; the text block carries the value
    if era == ClientEra::Handshake && head.result_type.is_some() {
        let structured = json::find_members(text, ["structuredContent"]).ok().and_then(|[value]| value);
        if structured.is_some_and(|value| !value.starts_with('{')) {
            without.push("structuredContent");
        }
    }
    let meta = if notes.is_empty() { None } else { with_notes(text, notes) };
    if meta.is_some() {
        without.push("_meta");
    }
    if without.is_empty() && !adds_type && added.is_empty() {
        return Text::whole(id, "result", raw);
    }
    let Some(object) = json::opened(text, &without) else { return Text::whole(id, "result", raw) };
    let mut before = vec![object.start];
    if let Some(meta) = &meta {
        before.extend([r#""_meta":"#, meta]);
    }
    let complete = adds_type.then_some(r#""resultType":"complete""#);
    for member in complete.iter().chain(added) {
        before.extend([if before.len() > 1 { "," } else { "" }, *member]);
    }
    if before.len() > 1 && !object.is_empty {
        before.push(",");
    }
    Text::around(id, "result", &before, raw, &object.rest)
}

/// Returns the `_meta` of a result with notes added; `None` if it is no object, which stays as it is.
fn with_notes(text: &str, notes: &[(&str, String)]) -> Option<String> {
    let meta = json::find_members(text, ["_meta"]).ok().and_then(|[meta]| meta).unwrap_or("{}");
    if !meta.starts_with('{') {
        return None;
    }
    let names: Vec<&str> = notes.iter().map(|(name, _)| *name).collect();
    let meta = json::without_members(meta, &names).into_owned();
    Some(notes.iter().rev().fold(meta, |meta, (name, value)| json::with_member_first(&meta, name, value)))
}

/// Returns a refusal as a tool result by which a model can correct itself.
fn refusal(era: ClientEra, refused: &Refused) -> String {
    let Refused { refusal, tool, variant, declared, is_structured } = refused;
    let mut structured = serde_json::json!({
        "code": refusal.code,
        "message": refusal.message,
        "tool": tool,
        "variant": variant,
        "declared": declared,
        "expected": refusal.expected,
        "recommended": refusal.recommended,
    });
    if let (Some(id), Some(members)) = (refusal.consent_id, structured.as_object_mut()) {
        members.insert("consent_id".to_owned(), id.to_string().into());
    }
    if let (Some(words), Some(members)) = (&refusal.approver_says, structured.as_object_mut()) {
        members.insert("approver_says".to_owned(), words.as_str().into());
    }
    if *is_structured {
        return error_result(era, &refusal.message, &structured.to_string());
    }
    let mut out = opening_with(era, &format!("\"{REFUSAL}\":{structured}"));
    out.push_str(r#""content":[{"type":"text","text":"#);
    escape_into(&mut out, &refusal.message);
    out.push_str(r#"}],"isError":true}"#);
    out
}

/// Returns the result for a refused built-in tool that calls no upstream's tool.
pub(super) fn plain_refusal(era: ClientEra, refusal: &Refusal) -> String {
    let structured = serde_json::json!({"code": refusal.code, "message": refusal.message});
    error_result(era, &refusal.message, &structured.to_string())
}

/// Returns the result of a management tool.
pub(super) fn managed(era: ClientEra, done: &Result<Bytes, NotDone>) -> String {
    match done {
        Ok(json) => structured(opening(era), &String::from_utf8_lossy(json)),
        Err(NotDone { code, message, field, .. }) => {
            let mut said = serde_json::json!({"code": code, "message": message});
            if let (Some(field), Some(said)) = (field, said.as_object_mut()) {
                said.insert("field".to_owned(), field.as_str().into());
            }
            error_result(era, message, &said.to_string())
        }
    }
}

fn error_result(era: ClientEra, text: &str, structured: &str) -> String {
    let mut out = opening(era);
    out.push_str(r#""content":[{"type":"text","text":"#);
    escape_into(&mut out, text);
    out.push_str(r#"}],"structuredContent":"#);
    out.push_str(structured);
    out.push_str(r#","isError":true}"#);
    out
}

/// Returns the result of a search. The servers missing from it stand in `_meta`.
pub(super) fn found(era: ClientEra, found: &SearchResult) -> String {
    if found.missing.is_empty() {
        return structured(opening(era), &found.json);
    }
    let missing = serde_json::json!(found.missing).to_string();
    structured(opening_with(era, &format!("\"{MISSING}\":{missing}")), &found.json)
}

/// Returns a page of a result that was cut. A page of text stands in a block of its own, followed by how to go on.
pub(super) fn page(era: ClientEra, page: &ReadResult) -> String {
    let Some(text) = &page.text else { return structured(opening(era), &page.json) };
    let mut out = opening(era);
    out.reserve(page.json.len() + text.body.len() + text.note.len() + 128);
    out.push_str(r#""content":[{"type":"text","text":""#);
    out.push_str(&text.body);
    out.push_str(r#""},{"type":"text","text":"#);
    escape_into(&mut out, &text.note);
    out.push_str(r#"}],"structuredContent":"#);
    out.push_str(&page.json);
    out.push('}');
    out
}

/// Returns the result of a built-in tool, as structured content and as text.
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

/// Returns the start of the gateway's own result with one more member of `_meta`.
fn opening_with(era: ClientEra, member: &str) -> String {
    match era {
        ClientEra::Handshake => format!(r#"{{"_meta":{{{member}}},"#),
        ClientEra::Modern => {
            format!(r#"{{"resultType":"complete","_meta":{{{SERVER_INFO_META},{member}}},"#)
        }
    }
}

/// Returns the start of the gateway's own result.
pub(super) fn opening(era: ClientEra) -> String {
    match era {
        ClientEra::Handshake => "{".to_owned(),
        ClientEra::Modern => {
            format!(r#"{{"resultType":"complete","_meta":{{{SERVER_INFO_META}}},"#)
        }
    }
}

/// Returns a raw list as a result. Lists depend on the key, so they are private.
pub(super) fn list_result(era: ClientEra, member: &str, items: &str) -> String {
    let mut out = opening(era);
    out.push_str(&format!("\"{member}\":{items}{}}}", list_notes(era)));
    out
}

/// Returns the members about caching that follow the items of a list; empty for handshake clients.
pub(super) fn list_notes(era: ClientEra) -> String {
    match era {
        ClientEra::Modern => format!(r#","ttlMs":{LIST_TTL_MS},"cacheScope":"private""#),
        ClientEra::Handshake => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(era: ClientEra, raw: &'static str, warning: Option<&str>) -> String {
        let head = ResultHead::read(raw).unwrap();
        let Text::Whole(text) =
            passed_on(era, "1", &Bytes::from_static(raw.as_bytes()), &head, &notes(warning, None))
        else {
            panic!("in pieces: {raw}")
        };
        text.strip_prefix(r#"{"jsonrpc":"2.0","id":1,"result":"#)
            .unwrap()
            .strip_suffix('}')
            .unwrap()
            .to_owned()
    }

    #[test]
    fn bytes_stay_but_for_the_result_type() {
        let old = r#"{ "content":[], "x":1e400 ,"n":18446744073709551616}"#;
        assert_eq!(pass(ClientEra::Handshake, old, None), old);
        assert_eq!(
            pass(ClientEra::Modern, old, None),
            r#"{"resultType":"complete", "content":[], "x":1e400 ,"n":18446744073709551616}"#
        );
        let new = r#"{"content":[],"resultType":"complete","structuredContent":[1]}"#;
        assert_eq!(pass(ClientEra::Modern, new, None), new);
        assert_eq!(pass(ClientEra::Handshake, new, None), r#"{"content":[]}"#);
    }

    #[test]
    fn what_is_put_in_and_left_out_leaves_one_object() {
        assert_eq!(pass(ClientEra::Modern, "{}", None), r#"{"resultType":"complete"}"#);
        assert_eq!(
            pass(ClientEra::Modern, r#"{"resultType":7}"#, Some("w")),
            r#"{"_meta":{"mcpproxy/warning":"w"},"resultType":"complete"}"#
        );
        assert_eq!(pass(ClientEra::Handshake, r#"{"resultType":"complete"}"#, None), "{}");
        assert_eq!(pass(ClientEra::Handshake, r#"{"_meta":7}"#, Some("w")), r#"{"_meta":7}"#);
        assert_eq!(
            pass(ClientEra::Modern, r#"{"content":[]}"#, Some("w")),
            r#"{"_meta":{"mcpproxy/warning":"w"},"resultType":"complete","content":[]}"#
        );
    }

    #[test]
    fn a_warning_joins_the_meta() {
        assert_eq!(
            pass(ClientEra::Handshake, r#"{"content":[]}"#, Some("w")),
            r#"{"_meta":{"mcpproxy/warning":"w"},"content":[]}"#
        );
        assert_eq!(
            pass(ClientEra::Handshake, r#"{"content":[],"_meta":{"a":1}}"#, Some("w")),
            r#"{"_meta":{"mcpproxy/warning":"w","a":1},"content":[]}"#
        );
        let meta = with_notes(r#"{"_meta":{"mcpproxy/truncated":1,"a":1}}"#, &notes(Some("w"), Some("{}")));
        assert_eq!(meta.unwrap(), r#"{"mcpproxy/warning":"w","mcpproxy/truncated":{},"a":1}"#);
    }
}
