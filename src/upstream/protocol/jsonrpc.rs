//! JSON-RPC on raw bytes: writes requests by concatenation, reads only the envelope of what comes back.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::domain::json::escape_into;
use crate::domain::relay::LogLevel;
use crate::upstream::admission::shares::MemoryHold;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::events::QuestionReply;

/// Protocol revision without sessions.
pub(in crate::upstream) const MODERN: &str = "2026-07-28";
/// JSON-RPC error code of a method that a server does not have.
pub(in crate::upstream) const METHOD_NOT_FOUND: i64 = -32601;
/// Name of this client, as sent to upstreams.
pub(in crate::upstream) const CLIENT_NAME: &str = "mcpproxy";
pub(in crate::upstream) const CLIENT_VERSION: &str = env!("CARGO_PKG_VERSION");
/// Members of `_meta` that belong to this hop: never taken from a caller.
const HOP_META: &[&str] = &[
    "io.modelcontextprotocol/protocolVersion",
    "io.modelcontextprotocol/clientInfo",
    "io.modelcontextprotocol/clientCapabilities",
    "io.modelcontextprotocol/logLevel",
    "progressToken",
];
/// Estimated bytes of a request besides name, arguments and the caller's `_meta`.
const FRAME_BYTES: usize = 384;

/// Answer of an upstream to a request: the raw `result` or `error` object, as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The `result` object.
    Result(Bytes),
    /// A JSON-RPC error.
    Error {
        /// The `error` object.
        raw: Bytes,
        /// The `code` in the `error` object.
        code: i64,
    },
}

impl Answer {
    /// Returns the answer with its tenant's memory, which it keeps for as long as a slice of it is in use.
    pub(in crate::upstream) fn held_by(self, memory: MemoryHold) -> Answer {
        match self {
            Answer::Result(raw) => Answer::Result(memory.keep(raw)),
            Answer::Error { raw, code } => Answer::Error { raw: memory.keep(raw), code },
        }
    }
}

/// Multi-round-trip part of a request, for the modern era alone (MCP 2026-07-28, multi-round-trip requests).
#[derive(Clone, Debug, Default)]
pub struct Round {
    /// Raw `clientCapabilities` object, which names the questions that the caller can answer. Empty means `{}`.
    pub capabilities: Bytes,
    /// Members of `params` that belong to rounds, as `(name, raw JSON)`.
    pub members: Vec<(&'static str, Bytes)>,
}

/// The `_meta` of a request.
#[derive(Clone, Copy, Default)]
pub(in crate::upstream) struct Meta<'a> {
    /// Whether to declare protocol, client and capabilities, as the modern era requires on every request.
    pub(in crate::upstream) modern: bool,
    /// Token under which progress is asked for; `None` asks for none.
    pub(in crate::upstream) progress_token: Option<u64>,
    /// Lowest level of the wanted log messages, for the modern era alone; `None` for none.
    pub(in crate::upstream) log: Option<LogLevel>,
    /// Multi-round-trip part of a caller's request; sent in the modern era only.
    pub(in crate::upstream) round: Option<&'a Round>,
    /// Further members, as `(name, raw JSON)`.
    pub(in crate::upstream) extra: &'a [(String, Bytes)],
}

impl Meta<'_> {
    /// Checks that the answers and the state of earlier rounds can be sent. Only the modern era carries them, and
    /// without them it would be another call.
    pub(in crate::upstream) fn check_rounds(&self) -> Result<(), UpstreamError> {
        match self.round {
            Some(round) if !self.modern && !round.members.is_empty() => {
                Err(UpstreamError::unsent(FailureKind::NoRounds, "it is spoken to in the handshake era"))
            }
            _ => Ok(()),
        }
    }
}

/// Returns the body of a request; `members` are written into `params` before `_meta`.
pub(in crate::upstream) fn request(
    id: u64,
    method: &str,
    members: &[(&str, &[u8])],
    meta: Meta<'_>,
) -> Bytes {
    let extra: usize = meta.extra.iter().map(|(name, value)| name.len() + value.len() + 8).sum();
    let own: usize = members.iter().map(|(name, value)| name.len() + value.len() + 4).sum();
    let mut out = Vec::with_capacity(FRAME_BYTES + extra + own);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    out.extend_from_slice(decimal(id).as_bytes());
    out.extend_from_slice(br#","method":""#);
    out.extend_from_slice(method.as_bytes());
    out.extend_from_slice(br#"","params":{"#);
    let mut object = Members { out: &mut out, is_first: true };
    for (name, value) in members {
        object.add(name, value);
    }
    for (name, value) in meta.round.filter(|_| meta.modern).map_or(&[][..], |round| &round.members) {
        object.add(name, value);
    }
    write_meta(&mut object, meta);
    out.extend_from_slice(b"}}");
    out.into()
}

/// Returns the body of a notification without parameters.
pub(in crate::upstream) fn notification(method: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"{method}"}}"#).into()
}

/// Returns the notification that cancels the request `id` at a handshake upstream.
pub(in crate::upstream) fn cancelled(id: u64) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#).into()
}

/// Returns the answer to a `ping` of the upstream.
pub(in crate::upstream) fn pong(id: &RawValue) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#).into()
}

/// Returns the error for a request of the upstream that reaches no client.
pub(in crate::upstream) fn unsupported(id: &RawValue) -> Bytes {
    let error = r#"{"code":-32601,"message":"Method not found"}"#;
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{error}}}"#).into()
}

/// Returns the reply to a question of the upstream, under its raw id.
pub(in crate::upstream) fn reply(id: &str, reply: &QuestionReply) -> Bytes {
    let mut out = format!(r#"{{"jsonrpc":"2.0","id":{id},"#).into_bytes();
    match reply {
        QuestionReply::Result(result) => {
            out.extend_from_slice(br#""result":"#);
            out.extend_from_slice(result);
        }
        QuestionReply::Refused { code, message } => {
            out.extend_from_slice(format!(r#""error":{{"code":{code},"message":"#).as_bytes());
            escape_into(&mut out, message);
            out.push(b'}');
        }
    }
    out.push(b'}');
    out.into()
}

/// Returns the request that asks a handshake upstream for all of its log messages.
pub(in crate::upstream) fn log_everything(id: u64) -> Bytes {
    request(id, "logging/setLevel", &[("level", br#""debug""#)], Meta::default())
}

/// Returns an `initialize` request that declares these capabilities, a raw object.
pub(in crate::upstream) fn initialize(id: u64, version: &str, capabilities: &str) -> Bytes {
    let client = client_info();
    let members: [(&str, &[u8]); 3] = [
        ("protocolVersion", &quoted(version)),
        ("capabilities", capabilities.as_bytes()),
        ("clientInfo", client.as_bytes()),
    ];
    request(id, "initialize", &members, Meta::default())
}

/// Returns `text` as a JSON string.
pub(in crate::upstream) fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len() + 2);
    escape_into(&mut out, text);
    out
}

fn client_info() -> String {
    format!(r#"{{"name":"{CLIENT_NAME}","version":"{CLIENT_VERSION}"}}"#)
}

struct Members<'a> {
    out: &'a mut Vec<u8>,
    is_first: bool,
}

impl Members<'_> {
    fn add(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        self.out.extend_from_slice(value);
    }

    fn name(&mut self, name: &str) {
        if !std::mem::take(&mut self.is_first) {
            self.out.push(b',');
        }
        escape_into(self.out, name);
        self.out.push(b':');
    }
}

fn write_meta(params: &mut Members<'_>, meta: Meta<'_>) {
    let mut extra = meta.extra.iter().filter(|(name, _)| !HOP_META.contains(&name.as_str())).peekable();
    if !meta.modern && meta.progress_token.is_none() && extra.peek().is_none() {
        return;
    }
    params.name("_meta");
    params.out.push(b'{');
    let mut object = Members { out: params.out, is_first: true };
    if meta.modern {
        object.add("io.modelcontextprotocol/protocolVersion", &quoted(MODERN));
        object.add("io.modelcontextprotocol/clientInfo", client_info().as_bytes());
        let declared = meta.round.map_or(&[][..], |round| &round.capabilities);
        let declared = if declared.is_empty() { b"{}" } else { declared };
        object.add("io.modelcontextprotocol/clientCapabilities", declared);
        if let Some(level) = meta.log {
            object.add("io.modelcontextprotocol/logLevel", &quoted(level.as_str()));
        }
    }
    if let Some(token) = meta.progress_token {
        object.add("progressToken", decimal(token).as_bytes());
    }
    for (name, value) in extra {
        object.add(name, value);
    }
    object.out.push(b'}');
}

fn decimal(number: u64) -> String {
    number.to_string()
}

/// JSON-RPC message of an upstream.
#[derive(Deserialize)]
pub(in crate::upstream) struct RpcMessage<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(in crate::upstream) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(in crate::upstream) method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(in crate::upstream) params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ErrorObject<'a> {
    code: i64,
    #[serde(borrow, rename = "message")]
    _message: Cow<'a, str>,
}

impl<'a> RpcMessage<'a> {
    /// Parses the envelope of a message; its contents stay raw.
    pub(in crate::upstream) fn read(body: &'a [u8]) -> Result<Self, UpstreamError> {
        // A derived struct would take an array as a list of its fields; a batch is not a message.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(UpstreamError::invalid("not a JSON object"));
        }
        let message: Self =
            serde_json::from_slice(body).map_err(|_| UpstreamError::invalid("not a JSON-RPC message"))?;
        if message.jsonrpc.as_deref() != Some("2.0") {
            return Err(UpstreamError::invalid("not a JSON-RPC 2.0 message"));
        }
        Ok(message)
    }

    /// Returns the answer to the request `id`, as slices of `body`, from which this message was read.
    pub(in crate::upstream) fn answer(&self, body: &Bytes, id: u64) -> Result<Answer, UpstreamError> {
        if self.method.is_some() {
            return Err(UpstreamError::invalid("a request instead of an answer"));
        }
        if self.id.is_none_or(|found| !is_number(found, id)) {
            return Err(UpstreamError::invalid("the answer has another id"));
        }
        let neither = || UpstreamError::invalid("neither a result nor an error");
        match (self.result, self.error) {
            (Some(result), None) if result.get().starts_with('{') => Ok(Answer::Result(slice(body, result))),
            (None, Some(error)) => {
                let code = code_of(error).ok_or_else(neither)?;
                Ok(Answer::Error { raw: slice(body, error), code })
            }
            _ => Err(neither()),
        }
    }
}

/// Parses a body that holds one answer to the request `id`.
pub(in crate::upstream) fn read_answer(body: &Bytes, id: u64) -> Result<Answer, UpstreamError> {
    RpcMessage::read(body)?.answer(body, id)
}

/// Returns whether the `params` of a progress notification carry the token `id`.
pub(in crate::upstream) fn is_progress_of(params: &RawValue, id: u64) -> bool {
    progress_token(params) == Some(id)
}

/// Returns the token in a progress notification's `params`; `None` if it cannot be one of ours.
pub(in crate::upstream) fn progress_token(params: &RawValue) -> Option<u64> {
    #[derive(Deserialize)]
    struct Progress<'a> {
        #[serde(borrow, rename = "progressToken")]
        token: &'a RawValue,
    }
    if !params.get().starts_with('{') {
        return None;
    }
    number(serde_json::from_str::<Progress<'_>>(params.get()).ok()?.token)
}

/// Returns the raw id of the request that a cancellation's `params` take back; `None` if they name none.
pub(in crate::upstream) fn cancelled_id(params: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Cancelled<'a> {
        #[serde(borrow, rename = "requestId")]
        id: &'a RawValue,
    }
    if !params.get().starts_with('{') {
        return None;
    }
    Some(serde_json::from_str::<Cancelled<'_>>(params.get()).ok()?.id)
}

/// Returns the part of `body` that a raw value read from it covers.
pub(in crate::upstream) fn slice(body: &Bytes, raw: &RawValue) -> Bytes {
    body.slice_ref(raw.get().as_bytes())
}

fn is_number(raw: &RawValue, wanted: u64) -> bool {
    number(raw) == Some(wanted)
}

/// Returns an id or a token as a number; `None` if it cannot be one of ours.
pub(in crate::upstream) fn number(raw: &RawValue) -> Option<u64> {
    raw.get().parse().ok()
}

/// Returns the code of an error object; `None` if it is no error object.
fn code_of(raw: &RawValue) -> Option<i64> {
    let error = raw.get().starts_with('{').then(|| serde_json::from_str::<ErrorObject<'_>>(raw.get()));
    error?.ok().map(|error| error.code)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn requests_hold_arguments_byte_for_byte() {
        let arguments = br#"{ "n": 1.50e+3,"b":1, "a" : "\u00e9" }"#;
        let members: [(&str, &[u8]); 2] = [("name", &quoted("a\"b\\c\n")), ("arguments", arguments)];
        let body = request(7, "tools/call", &members, Meta::default());
        let text = std::str::from_utf8(&body).unwrap();
        assert!(text.contains(std::str::from_utf8(arguments).unwrap()), "{text}");
        assert!(!text.contains("_meta"), "{text}");
        let value: Value = serde_json::from_str(text).unwrap();
        assert_eq!(value["params"]["name"], "a\"b\\c\n");
        assert_eq!(value["id"], 7);
    }

    #[test]
    fn meta_of_the_hop_is_ours() {
        let extra = [
            ("traceparent".to_owned(), Bytes::from_static(br#""00-x""#)),
            ("progressToken".to_owned(), Bytes::from_static(b"\"caller\"")),
            ("io.modelcontextprotocol/clientCapabilities".to_owned(), Bytes::from_static(b"{\"x\":1}")),
        ];
        let meta = Meta { modern: true, progress_token: Some(3), extra: &extra, ..Meta::default() };
        let body: Value = serde_json::from_slice(&request(3, "tools/list", &[], meta)).unwrap();
        let want = json!({
            "io.modelcontextprotocol/protocolVersion": MODERN,
            "io.modelcontextprotocol/clientInfo": {"name": "mcpproxy", "version": CLIENT_VERSION},
            "io.modelcontextprotocol/clientCapabilities": {},
            "progressToken": 3,
            "traceparent": "00-x",
        });
        assert_eq!(body["params"]["_meta"], want);

        let round = Round {
            capabilities: Bytes::from_static(br#"{"roots":{}}"#),
            members: vec![("requestState", Bytes::from_static(b"\"\\u0061\""))],
        };
        let asked = Meta { modern: true, round: Some(&round), ..Meta::default() };
        let body = request(3, "tools/call", &[("name", b"\"x\"")], asked);
        let text = std::str::from_utf8(&body).unwrap();
        assert!(text.contains(r#""params":{"name":"x","requestState":"\u0061","_meta":{"#), "{text}");
        assert!(text.contains(r#""io.modelcontextprotocol/clientCapabilities":{"roots":{}}"#), "{text}");
        let older = Meta { round: Some(&round), ..Meta::default() };
        let body: Value = serde_json::from_slice(&request(3, "tools/call", &[], older)).unwrap();
        assert_eq!(body["params"], json!({}), "in the other era nobody would understand it");

        let only_hop = Meta { extra: &extra[1..], ..Meta::default() };
        let body: Value = serde_json::from_slice(&request(3, "tools/list", &[], only_hop)).unwrap();
        assert_eq!(body["params"], json!({}));
    }

    #[test]
    fn answers_are_slices_and_everything_else_is_invalid() {
        let body = Bytes::from_static(br#" {"x":[1],"result": { "a":1.0 } ,"id":4,"jsonrpc":"2.0"}"#);
        let Answer::Result(result) = read_answer(&body, 4).unwrap() else { panic!() };
        assert_eq!(result, r#"{ "a":1.0 }"#);
        assert!(body.as_ptr_range().contains(&result.as_ptr()));

        let error = Bytes::from_static(
            br#"{"jsonrpc":"2.0","id":4,"error":{"code":-1,"message":"\u0041","data":[ ]}}"#,
        );
        let Answer::Error { raw, code } = read_answer(&error, 4).unwrap() else { panic!() };
        assert_eq!((&*raw, code), (&br#"{"code":-1,"message":"\u0041","data":[ ]}"#[..], -1));

        let bad: &[&[u8]] = &[
            b"",
            b"{}",
            b"null",
            b"[]",
            br#"[{"jsonrpc":"2.0","id":4,"result":{}}]"#,
            br#"["2.0",4,null,null,{},null]"#,
            br#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
            br#"{"jsonrpc":"2.0","id":"4","result":{}}"#,
            br#"{"jsonrpc":"2.0","id":null,"result":{}}"#,
            br#"{"jsonrpc":"2.0","result":{}}"#,
            br#"{"jsonrpc":"1.0","id":4,"result":{}}"#,
            br#"{"id":4,"result":{}}"#,
            br#"{"jsonrpc":"2.0","id":4}"#,
            br#"{"jsonrpc":"2.0","id":4,"result":[]}"#,
            br#"{"jsonrpc":"2.0","id":4,"result":null}"#,
            br#"{"jsonrpc":"2.0","id":4,"error":{"code":"x","message":"m"}}"#,
            br#"{"jsonrpc":"2.0","id":4,"error":[1,"m"]}"#,
            br#"{"jsonrpc":"2.0","id":4,"result":{},"error":{"code":1,"message":"m"}}"#,
            br#"{"jsonrpc":"2.0","id":4,"result":{},"result":{}}"#,
            br#"{"jsonrpc":"2.0","id":4,"method":"ping"}"#,
            br#"{"jsonrpc":"2.0","id":4,"result":{}} x"#,
            b"{\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{\"a\":\"\xff\"}}",
        ];
        for body in bad {
            let read = read_answer(&Bytes::from_static(body), 4);
            assert!(read.is_err(), "{:?}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn progress_is_matched_by_token() {
        let of = |text: &str| is_progress_of(serde_json::from_str(text).unwrap(), 9);
        assert!(of(r#"{"progress":1,"progressToken":9}"#));
        assert!(!of(r#"{"progress":1,"progressToken":8}"#));
        assert!(!of(r#"{"progress":1,"progressToken":"9"}"#));
        assert!(!of(r#"{"progress":1}"#));
        assert!(!of("[9]"));
    }

    proptest! {
        #[test]
        fn quoting_is_json(text in any::<String>()) {
            prop_assert_eq!(serde_json::from_slice::<String>(&quoted(&text)).unwrap(), text);
        }
    }
}
