//! Parsing of JSON-RPC messages. A message that can be read in more than one way is refused.

use bytes::Bytes;

use super::jsonrpc::RpcError;
use crate::domain::json::{self, JsonFault, Member};

/// Most members of `params`, of its `_meta`, and of the arguments of the gateway's own tools. Members are
/// kept apart while the call waits, which takes more memory than in the body.
pub(super) const MEMBERS_MAX: usize = 1000;
/// Error message for a request with more than [`MEMBERS_MAX`] members in one of these objects.
pub(super) const TOO_MANY_MEMBERS: &str =
    "Invalid params: params, its _meta and the arguments of call_tool_* may have at most 1000 members each";

/// Longest id of a request, and longest progress token, in bytes. Both are repeated in answers, some of them for as long as a
/// stream is open, and nothing counts them there.
pub(super) const ID_BYTES_MAX: usize = 512;

/// Message in the body of a POST.
pub(super) enum Message<'a> {
    /// Request, which is answered under its raw id.
    Request { id: &'a str, method: String, params: Option<&'a str> },
    /// Notification, which gets no answer.
    Notification { method: String, params: Option<&'a str> },
    /// Client's response to the request of the gateway with this raw id.
    Response { id: &'a str, result: Option<&'a str>, error: Option<&'a str> },
}

/// Parses a body. The second part of an error is the raw id of the request, if it could be read.
pub(super) fn read(body: &Bytes) -> Result<Message<'_>, (RpcError, Option<String>)> {
    let text =
        std::str::from_utf8(body).map_err(|_| (RpcError::parse("Parse error: not valid UTF-8"), None))?;
    let members = members(text)?;
    let value = |name: &str| members.iter().find(|member| member.name == name).map(|member| member.value);
    let id = value("id");
    let fail = |message: &str| {
        Err((RpcError::invalid_request(message), id.filter(|id| is_id(id)).map(str::to_owned)))
    };
    if value("jsonrpc") != Some("\"2.0\"") {
        return fail("Invalid request: jsonrpc must be \"2.0\"");
    }
    let Some(method) = value("method") else {
        let (result, error) = (value("result"), value("error"));
        return match id {
            Some(id) if result.is_some() || error.is_some() => Ok(Message::Response { id, result, error }),
            _ => fail("Invalid request: no method"),
        };
    };
    let Ok(method) = serde_json::from_str::<String>(method) else {
        return fail("Invalid request: method must be a string");
    };
    let params = value("params");
    if params.is_some_and(|params| !params.starts_with('{')) {
        return fail("Invalid request: params must be an object");
    }
    match id {
        None => Ok(Message::Notification { method, params }),
        Some(id) if is_id(id) => Ok(Message::Request { id, method, params }),
        Some(_) => fail("Invalid request: id must be a string or an integer of at most 512 bytes"),
    }
}

fn members(text: &str) -> Result<Vec<Member<'_>>, (RpcError, Option<String>)> {
    json::members_of_text(text).map_err(|fault| match fault {
        JsonFault::NotAnObject if text.trim_start().starts_with('[') => {
            (RpcError::invalid_request("Invalid request: batches are not supported"), None)
        }
        JsonFault::NotAnObject => (RpcError::invalid_request("Invalid request: not an object"), None),
        JsonFault::Syntax { .. } => (RpcError::parse(format!("Parse error: {fault}")), None),
        // readable in more than one way: refused under its id where the id is beyond doubt
        JsonFault::DuplicateMember { .. } | JsonFault::TooDeep | JsonFault::LoneSurrogate { .. } => {
            ambiguous(text, &fault)
        }
    })
}

fn ambiguous(text: &str, fault: &JsonFault) -> (RpcError, Option<String>) {
    match json::find_members(text, ["id", "method", "params", "jsonrpc"]) {
        Ok([Some(id), Some(_), Some(_), Some(_)]) if is_id(id) => {
            (RpcError::invalid_params(format!("Invalid params: {fault}")), Some(id.to_owned()))
        }
        _ => (RpcError::invalid_request(format!("Invalid request: {fault}")), None),
    }
}

/// Returns whether this can be the id of a request, or a progress token: a string or an integer, never null (MCP, base
/// protocol), of at most [`ID_BYTES_MAX`].
pub(super) fn is_id(raw: &str) -> bool {
    let digits = raw.strip_prefix('-').unwrap_or(raw);
    let is_integer = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    raw.len() <= ID_BYTES_MAX && (raw.starts_with('"') || is_integer)
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use super::*;

    fn error(body: &'static str) -> (i64, Option<String>) {
        let Err((error, id)) = read(&Bytes::from_static(body.as_bytes())) else { panic!("{body} was read") };
        let text: serde_json::Value = serde_json::from_str(&error.text(None)).unwrap();
        (text["error"]["code"].as_i64().unwrap(), id)
    }

    #[test]
    fn what_cannot_be_read_has_its_code() {
        assert_eq!(error("{"), (-32700, None));
        assert_eq!(error("nonsense"), (-32700, None));
        assert_eq!(error("[]"), (-32600, None));
        assert_eq!(error("7"), (-32600, None));
        assert_eq!(error(r#"{"jsonrpc":"1.0","id":1,"method":"x"}"#), (-32600, Some("1".into())));
        assert_eq!(error(r#"{"jsonrpc":"2.0","id":null,"method":"x"}"#), (-32600, None));
        assert_eq!(error(r#"{"jsonrpc":"2.0","id":1.5,"method":"x"}"#), (-32600, None));
        assert_eq!(error(r#"{"jsonrpc":"2.0","id":1,"method":7}"#), (-32600, Some("1".into())));
        assert_eq!(error(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":[]}"#), (-32600, Some("1".into())));
        assert_eq!(
            error(r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":{"b":1,"\u0062":2}}}"#),
            (-32602, Some("1".into()))
        );
        assert_eq!(error(r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"x","params":{}}"#), (-32600, None));
    }

    #[test]
    fn an_id_that_is_too_long_is_not_repeated() {
        let ask = |id: &str| {
            let body = Bytes::from(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"x"}}"#));
            match read(&body) {
                Ok(Message::Request { id, .. }) => Ok(id.len()),
                Ok(_) => panic!("a request"),
                Err((error, id)) => Err((error.text(None), id)),
            }
        };
        let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
        for longest in [text(ID_BYTES_MAX), "7".repeat(ID_BYTES_MAX)] {
            assert_eq!(ask(&longest), Ok(ID_BYTES_MAX));
        }
        for longer in [text(ID_BYTES_MAX + 1), "7".repeat(ID_BYTES_MAX + 1)] {
            let (error, id) = ask(&longer).unwrap_err();
            assert!(error.contains("of at most 512 bytes") && id.is_none(), "{error}");
        }
        let twice =
            format!(r#"{{"jsonrpc":"2.0","id":{},"method":"x","params":{{"a":1,"a":2}}}}"#, text(600));
        assert!(matches!(read(&Bytes::from(twice)), Err((_, None))));
    }

    #[test]
    fn the_three_kinds() {
        let kind = |body: &'static str| match read(&Bytes::from_static(body.as_bytes())) {
            Ok(Message::Request { id, .. }) => format!("request {id}"),
            Ok(Message::Notification { method, .. }) => format!("notification {method}"),
            Ok(Message::Response { id, result, error }) => format!("response {id} {result:?} {error:?}"),
            Err(_) => "error".to_owned(),
        };
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":"a","method":"x"}"#), "request \"a\"");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","method":"x"}"#), "notification x");
        assert_eq!(kind(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#), r#"response 1 Some("{}") None"#);
    }
}
