//! Messages of the Agent Client Protocol, version 1, as far as a gateway that asks for permission needs them.
//!
//! The official crates cannot be linked: they switch `serde_json` to another order of members for the whole program. A client
//! made of them is a test (`tests/clients/acp`).

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::domain::consent::{ConsentDecision, ConsentState};
use crate::domain::operation::OperationType;
use crate::domain::reason::{ActionKey, Language};
use crate::gateway::ConsentView;

/// Version of the protocol.
pub(super) const VERSION: u16 = 1;
/// Longest id of a client's request, in bytes.
const ID_BYTES_MAX: usize = 200;
/// Verbs of actions that a client shows as a deletion.
const DELETING: [&str; 8] = ["delete", "remove", "drop", "purge", "destroy", "wipe", "erase", "truncate"];

/// Error of JSON-RPC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AcpError {
    code: i32,
    message: String,
}

impl AcpError {
    pub(super) fn unreadable() -> AcpError {
        AcpError { code: -32700, message: "Parse error: a message is one JSON object".to_owned() }
    }

    pub(super) fn invalid(message: &str) -> AcpError {
        AcpError { code: -32600, message: format!("Invalid request: {message}") }
    }

    pub(super) fn unknown(method: &str) -> AcpError {
        let method: String = method.chars().take(100).collect();
        AcpError { code: -32601, message: format!("Method not found: {method}") }
    }

    pub(super) fn params(message: impl std::fmt::Display) -> AcpError {
        AcpError { code: -32602, message: format!("Invalid params: {message}") }
    }
}

/// Message of a client.
#[derive(Debug)]
pub(super) enum AcpMessage<'a> {
    Request {
        id: &'a RawValue,
        method: String,
        params: Option<&'a RawValue>,
    },
    Notification {
        method: String,
    },
    /// Response to a request of the gateway; `None` if it is an error.
    Response {
        id: String,
        result: Option<&'a RawValue>,
    },
}

#[derive(Deserialize)]
struct Envelope<'a> {
    jsonrpc: String,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
}

/// Reads a message. An error goes back to the client, with the id where there is one.
pub(super) fn read(text: &str) -> Result<AcpMessage<'_>, (AcpError, Option<&RawValue>)> {
    // an array would be read as the members in their order
    let is_object = text.trim_start().starts_with('{');
    let envelope: Envelope<'_> = match serde_json::from_str(text) {
        Ok(_) if !is_object => return Err((AcpError::invalid("not a JSON-RPC 2.0 message"), None)),
        Ok(envelope) => envelope,
        Err(error) if error.is_data() => return Err((AcpError::invalid("not a JSON-RPC 2.0 message"), None)),
        Err(_) => return Err((AcpError::unreadable(), None)),
    };
    let Envelope { jsonrpc, id, method, params, result, error } = envelope;
    let is_id = |id: &&RawValue| {
        let raw = id.get();
        raw.len() <= ID_BYTES_MAX && raw.starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
    };
    if jsonrpc != "2.0" || id.is_some_and(|id| !is_id(&id)) {
        return Err((AcpError::invalid("not a JSON-RPC 2.0 message"), None));
    }
    match (method, id) {
        (Some(method), Some(id)) => Ok(AcpMessage::Request { id, method, params }),
        (Some(method), None) => Ok(AcpMessage::Notification { method }),
        (None, Some(id)) if result.is_some() != error.is_some() => {
            // ids of the gateway are texts: any other belongs to none of its requests
            let id = serde_json::from_str(id.get()).unwrap_or_default();
            Ok(AcpMessage::Response { id, result })
        }
        _ => Err((AcpError::invalid("neither a request nor a response"), id)),
    }
}

/// Returns the parameters of a request.
pub(super) fn params<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, AcpError> {
    serde_json::from_str(params.map_or("{}", RawValue::get)).map_err(AcpError::params)
}

/// Parameters of `initialize`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InitializeParams {
    #[serde(rename = "protocolVersion")]
    pub(super) _version: u16,
    #[serde(default)]
    pub(super) client_info: Option<AcpImplementation>,
}

/// Name and version of a client program.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct AcpImplementation {
    pub(super) name: String,
    #[serde(default)]
    pub(super) version: Option<String>,
}

/// Parameters of requests about a session.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SessionParams {
    pub(super) session_id: String,
}

/// Result of `initialize`.
pub(super) fn initialized() -> Value {
    json!({
        "protocolVersion": VERSION,
        "agentCapabilities": { "loadSession": true },
        "agentInfo": { "name": "mcpproxy", "title": "mcpproxy", "version": env!("CARGO_PKG_VERSION") },
        "authMethods": [],
    })
}

pub(super) fn result(id: &RawValue, result: &Value) -> String {
    response(Some(id), "result", result)
}

pub(super) fn error(id: Option<&RawValue>, error: &AcpError) -> String {
    response(id, "error", &json!({ "code": error.code, "message": error.message }))
}

/// Writes a response; its id is repeated as it was written.
fn response(id: Option<&RawValue>, member: &str, value: &Value) -> String {
    let id = id.map_or("null", RawValue::get);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"{member}":{value}}}"#)
}

fn notification(method: &str, params: impl Serialize) -> String {
    #[derive(Serialize)]
    struct Notification<'a, P> {
        jsonrpc: &'a str,
        method: &'a str,
        params: P,
    }
    written(&Notification { jsonrpc: "2.0", method, params })
}

fn written(message: &impl Serialize) -> String {
    // only a map with keys that are no texts cannot be written, and there is none
    serde_json::to_string(message).unwrap_or_default()
}

/// Writes a time: RFC 3339, UTC, seconds.
pub(super) fn time(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Notification that a request of the gateway needs no answer any more.
pub(super) fn cancel_request(call: &str) -> String {
    notification("$/cancel_request", json!({ "requestId": call }))
}

/// Message of the agent within a turn.
pub(super) fn chunk(session: &str, text: &str) -> String {
    let content = json!({ "type": "text", "text": text });
    let update = json!({ "sessionUpdate": "agent_message_chunk", "content": content });
    notification("session/update", json!({ "sessionId": session, "update": update }))
}

/// Status of a call of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CallStatus {
    Pending,
    InProgress,
    Completed,
    Failed,
}

impl CallStatus {
    pub(super) fn of(state: Option<ConsentState>) -> CallStatus {
        match state {
            Some(ConsentState::Pending) => CallStatus::Pending,
            Some(ConsentState::Granted | ConsentState::Consumed) => CallStatus::InProgress,
            Some(ConsentState::Succeeded) => CallStatus::Completed,
            // of a later release as well: nobody may take it for a success
            _ => CallStatus::Failed,
        }
    }

    pub(super) fn is_final(self) -> bool {
        matches!(self, CallStatus::Completed | CallStatus::Failed)
    }
}

/// Call of a tool as a client shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ShownCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    session_update: Option<&'static str>,
    tool_call_id: Uuid,
    title: String,
    name: String,
    kind: &'static str,
    status: CallStatus,
    content: Vec<Value>,
    raw_input: RawInput<'a>,
}

/// Arguments, masked: as they were written, since numbers would lose digits. Those that were cut are a text.
#[derive(Serialize)]
#[serde(untagged)]
enum RawInput<'a> {
    Whole(&'a RawValue),
    Cut(&'a str),
}

impl<'a> ShownCall<'a> {
    fn new(view: &'a ConsentView, language: Language) -> ShownCall<'a> {
        let row = &view.row;
        let text = |text: String| json!({ "type": "content", "content": { "type": "text", "text": text } });
        ShownCall {
            session_update: None,
            tool_call_id: row.id,
            title: view.told_shortly(language),
            name: format!("{}:{}", row.server, row.tool),
            kind: kind(view),
            status: CallStatus::Pending,
            content: view.hidden(language).into_iter().chain(view.details(language)).map(text).collect(),
            raw_input: match serde_json::from_str(&row.arguments) {
                Ok(whole) if !row.was_cut => RawInput::Whole(whole),
                _ => RawInput::Cut(&row.arguments),
            },
        }
    }
}

fn kind(view: &ConsentView) -> &'static str {
    let row = &view.row;
    let verb = row.action_values.first().map(String::as_str).unwrap_or_default();
    match ActionKey::parse(&row.action) {
        Some(ActionKey::ReadFile | ActionKey::ReadConfiguration) => "read",
        Some(ActionKey::WriteFile) => "edit",
        Some(ActionKey::Execute | ActionKey::Sql) => "execute",
        Some(ActionKey::Request) => "fetch",
        Some(ActionKey::Act) if DELETING.contains(&verb) => "delete",
        Some(ActionKey::Act | ActionKey::Call | ActionKey::SubmitForm) | None => {
            match row.operation_type.known() {
                Some(OperationType::Read) => "read",
                _ => "other",
            }
        }
    }
}

/// Announcement of a call that waits for a person.
pub(super) fn announced(session: &str, view: &ConsentView, language: Language) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Update<'a> {
        session_id: &'a str,
        update: ShownCall<'a>,
    }
    let shown = ShownCall { session_update: Some("tool_call"), ..ShownCall::new(view, language) };
    notification("session/update", Update { session_id: session, update: shown })
}

/// Change of a call's status; `say` is shown in place of what was.
pub(super) fn moved(session: &str, view: &ConsentView, status: CallStatus, say: Option<&str>) -> String {
    let mut update = json!({
        "sessionUpdate": "tool_call_update",
        "toolCallId": view.row.id,
        "status": status,
        "_meta": { "state": view.row.state.as_str() },
    });
    if let (Some(text), Some(update)) = (say, update.as_object_mut()) {
        let content = json!({ "type": "content", "content": { "type": "text", "text": text } });
        update.insert("content".to_owned(), json!([content]));
    }
    notification("session/update", json!({ "sessionId": session, "update": update }))
}

/// Request for permission. `_meta` has the names of R4.
pub(super) fn request_permission(
    session: &str,
    call: &str,
    view: &ConsentView,
    language: Language,
) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Params<'a> {
        session_id: &'a str,
        tool_call: ShownCall<'a>,
        options: Vec<Value>,
        #[serde(rename = "_meta")]
        meta: Value,
    }
    #[derive(Serialize)]
    struct Request<'a> {
        jsonrpc: &'a str,
        id: &'a str,
        method: &'a str,
        params: Params<'a>,
    }
    let shown = ShownCall::new(view, language);
    let meta = json!({
        "sessionId": session,
        "toolCallId": view.row.id,
        "toolName": shown.name,
        "reason": shown.title,
        "risk": view.risk,
        "expiresAt": time(view.row.expires_at),
    });
    let option = |decision: &ConsentDecision| {
        json!({
            "optionId": option_id(view.row.id, *decision),
            "name": language.choice(*decision),
            "kind": option_kind(*decision),
        })
    };
    let options = view.options.iter().map(option).collect();
    let params = Params { session_id: session, tool_call: shown, options, meta };
    written(&Request { jsonrpc: "2.0", id: call, method: "session/request_permission", params })
}

/// Id of an option, which names the request and the decision.
fn option_id(request: Uuid, decision: ConsentDecision) -> String {
    format!("{request}.{}", decision.as_str())
}

/// Kind of an option. The protocol has none for the end of a turn, which refuses the call too.
fn option_kind(decision: ConsentDecision) -> &'static str {
    match decision {
        ConsentDecision::CancelTurn => ConsentDecision::RejectOnce.as_str(),
        other => other.as_str(),
    }
}

/// Outcome of a request for permission: of the protocol, or a word of R4.
#[derive(Deserialize)]
#[serde(untagged)]
enum Outcome {
    Word(String),
    #[serde(rename_all = "camelCase")]
    Tagged {
        outcome: String,
        #[serde(default)]
        option_id: Option<String>,
    },
}

/// Returns the decision in a client's answer to a request for permission; `None` if it is none that was offered.
pub(super) fn decision(result: &RawValue, view: &ConsentView) -> Option<ConsentDecision> {
    #[derive(Deserialize)]
    struct Answer<'a> {
        #[serde(borrow)]
        outcome: &'a RawValue,
    }
    // serde also reads a list as the members in their order
    let answer = Some(result.get()).filter(|raw| raw.starts_with('{'))?;
    let Answer { outcome } = serde_json::from_str(answer).ok()?;
    let outcome = Some(outcome.get()).filter(|raw| !raw.starts_with('['))?;
    let outcome: Outcome = serde_json::from_str(outcome).ok()?;
    let chosen = match outcome {
        Outcome::Tagged { outcome, option_id: Some(chosen) } if outcome == "selected" => {
            view.options.iter().copied().find(|decision| option_id(view.row.id, *decision) == chosen)?
        }
        Outcome::Tagged { outcome, option_id: None } if outcome == "cancelled" => ConsentDecision::CancelTurn,
        Outcome::Word(word) => match word.as_str() {
            "granted" => ConsentDecision::AllowOnce,
            "denied" => ConsentDecision::RejectOnce,
            "cancelled" => ConsentDecision::CancelTurn,
            _ => return None,
        },
        Outcome::Tagged { .. } => return None,
    };
    view.options.contains(&chosen).then_some(chosen)
}
