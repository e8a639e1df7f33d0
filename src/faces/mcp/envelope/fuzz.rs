use serde::de::IgnoredAny;
use serde_json::Value;

use super::*;
use crate::domain::fuzz::{fuzz, shape};

const SEEDS: &[&str] = &[
    r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a:b","arguments":{"n":1.50e+3}}}"#,
    r#"{"jsonrpc":"2.0","id":"\u00e9","method":"tools/list","params":{"_meta":{"a":[null,true,-0.0]}}}"#,
    r#" {"method":"notifications/cancelled","jsonrpc":"2.0","params":{"requestId":7}} "#,
    r#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":{"b":1,"\u0062":2}}}"#,
    "[]",
];
const WORDS: &[&str] = &[
    r#""id":2,"#,
    r#""\u0069d":2,"#,
    "[[[[[[[[",
    "1e400",
    r#""\ud800""#,
    r#"{"a":"#,
    "99999999999999999999",
    "null",
];

/// Checks that a parsed message is what any JSON parser reads, and that an error is JSON-RPC with the id that was read.
#[test]
fn messages() {
    fuzz(SEEDS, WORDS, |input| {
        let body = Bytes::copy_from_slice(input);
        let is_json = serde_json::from_slice::<IgnoredAny>(input).is_ok();
        match read(&body) {
            Ok(message) => {
                assert!(is_json, "read, and no JSON");
                as_others_read(input, &message);
                match message {
                    Message::Request { params, .. } => shape((1, params.is_some())),
                    Message::Notification { params, .. } => shape((2, params.is_some())),
                    Message::Response { .. } => 3,
                }
            }
            Err((error, id)) => {
                let text = error.text(id.as_deref());
                assert!(
                    serde_json::from_str::<IgnoredAny>(&text).is_ok(),
                    "an error that is no JSON: {text}"
                );
                // the id is returned as it came, even if `Value` cannot hold it
                let Ok(answer) = serde_json::from_str::<Value>(&text) else { return 4 };
                let code = answer["error"]["code"].as_i64().expect("a code");
                assert!([-32700, -32600, -32602].contains(&code), "{answer}");
                assert_eq!(answer["id"].is_null(), id.is_none(), "{answer}");
                shape((code, id.is_some(), answer["error"]["message"].as_str().map(str::len)))
            }
        }
    });
}

/// Checks a body against `Value`, which refuses numbers beyond a double and lone surrogates. What `Value` takes must agree.
fn as_others_read(input: &[u8], message: &Message<'_>) {
    let Ok(value) = serde_json::from_slice::<Value>(input) else { return };
    let (method, params) = match message {
        Message::Request { id, method, params } => {
            assert_eq!(serde_json::from_str::<Value>(id).expect("an id"), value["id"]);
            (method, params)
        }
        Message::Notification { method, params } => {
            assert!(value.get("id").is_none(), "a request taken for a notification");
            (method, params)
        }
        Message::Response { .. } => {
            return assert!(value.get("method").is_none(), "a request taken for an answer");
        }
    };
    assert_eq!(value["method"], **method);
    assert_eq!(
        params.map(|raw| serde_json::from_str::<Value>(raw).expect("params")),
        value.get("params").cloned()
    );
}
