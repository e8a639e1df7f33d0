//! Requests as they are sent, and answers as they are read.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json as value};
use tokio::sync::mpsc;

use super::super::*;
use super::fake::*;

fn body_of(answer: &Answer) -> &str {
    match answer {
        Answer::Result(bytes) | Answer::Error { raw: bytes, .. } => std::str::from_utf8(bytes).unwrap(),
    }
}

#[tokio::test]
async fn a_modern_call_is_mirrored_in_headers_and_comes_back_byte_for_byte() {
    let raw = r#"{ "resultType":"complete","content":[ ], "n":1.0e2 ,"z":1,"a":2}"#;
    let fake = Fake::modern(move |seen| result(seen, raw)).await;
    let connection = fake.connection();
    let answer = connection
        .ask(Request {
            meta: vec![("traceparent".to_owned(), Bytes::from_static(br#""00-1""#))],
            param_headers: vec![("Mcp-Param-Region".to_owned(), "eu".to_owned())],
            ..calling("größe", Bytes::from_static(br#"{ "b":1.50 ,"a":"\u00e9"}"#))
        })
        .await
        .unwrap();
    assert_eq!(answer, Answer::Result(Bytes::from(raw)));
    assert_eq!(connection.era(), Some(Era::Modern));

    let seen = fake.seen().pop().unwrap();
    assert_eq!(seen.header("mcp-protocol-version"), "2026-07-28");
    assert_eq!(seen.header("mcp-method"), "tools/call");
    assert_eq!(seen.header("mcp-name"), "=?base64?Z3LDtsOfZQ==?=");
    assert_eq!(seen.header("mcp-param-region"), "eu");
    assert_eq!(seen.header("accept"), "application/json, text/event-stream");
    assert_eq!(seen.header("content-type"), "application/json");
    assert_eq!(seen.header("authorization"), "Bearer upstream-secret");
    assert_eq!(seen.header("host"), fake.address.to_string());
    assert!(seen.raw.contains(r#""arguments":{ "b":1.50 ,"a":"\u00e9"}"#), "{}", seen.raw);
    assert_eq!(seen.body["params"]["name"], "größe");
    let meta = &seen.body["params"]["_meta"];
    assert_eq!(meta["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    assert_eq!(meta["io.modelcontextprotocol/clientCapabilities"], value!({}));
    assert_eq!(meta["traceparent"], "00-1");
    assert_eq!(meta.get("progressToken"), None);
}

#[tokio::test]
async fn a_handshake_call_is_plain_and_in_the_session() {
    let fake = Fake::handshake(|seen| result(seen, r#"{"content":[]}"#)).await;
    let connection = fake.connection();
    let sent = Request { param_headers: vec![("Mcp-Param-A".to_owned(), "x".to_owned())], ..call("t") };
    connection.ask(sent).await.unwrap();
    connection.ask(call("t")).await.unwrap();
    assert_eq!(
        fake.methods(),
        ["server/discover", "initialize", "notifications/initialized", "tools/call", "tools/call"]
    );
    let seen = fake.seen();
    assert_eq!(seen[1].header("mcp-session-id"), "");
    assert_eq!(seen[1].body["params"]["capabilities"], value!({}));
    for later in &seen[2..] {
        assert_eq!(later.header("mcp-session-id"), "s0");
        assert_eq!(later.header("mcp-protocol-version"), "2025-06-18");
        assert_eq!(later.header("mcp-method"), "");
        assert_eq!(later.header("mcp-param-a"), "");
    }
    assert_eq!(seen[3].body["params"], value!({"name": "t", "arguments": {}}));
    assert_ne!(seen[3].body["id"], seen[4].body["id"]);
    assert_eq!(connection.era(), Some(Era::Handshake));
    assert_eq!(fake.accepted(), 1);
}

#[tokio::test]
async fn errors_of_the_upstream_come_back_raw() {
    let table: &[(u16, i64)] = &[(200, -32602), (400, -32020), (404, -32601), (200, 17)];
    for (status, code) in table.iter().copied() {
        let fake = Fake::modern(move |seen| error(status, &seen.body["id"], code)).await;
        let answer = fake.connection().ask(call("t")).await.unwrap();
        assert_eq!(body_of(&answer), format!(r#"{{"code":{code},"message":"m"}}"#));
        assert!(matches!(answer, Answer::Error { .. }));
    }
}

#[tokio::test]
async fn anything_else_is_invalid_and_stays_here() {
    let good = r#"{"jsonrpc":"2.0","id":ID,"result":{}}"#;
    let typed = |kind: &str, body: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let bare = |status: u16, body: &str| {
        let kind = "content-type: application/json";
        format!("HTTP/1.1 {status} X\r\n{kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
    };
    let table = [
        bare(200, r#"{"jsonrpc":"2.0","id":999999,"result":{"secret":1}}"#),
        bare(200, "{\"secret\""),
        bare(200, ""),
        bare(200, &format!("[{good}]")),
        bare(202, good),
        bare(204, ""),
        bare(401, r#"{"secret":1}"#),
        bare(400, r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"secret"}}"#),
        bare(400, good),
        bare(500, r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-1,"message":"secret"}}"#),
        bare(503, "secret"),
        typed("text/html", "secret"),
        typed("text/event-stream", "data: secret\n\n"),
        typed("text/event-stream", &event(r#"{"jsonrpc":"2.0","id":77777,"result":{"secret":1}}"#)),
        "HTTP/1.1 302 X\r\nlocation: http://127.0.0.1:1/secret\r\ncontent-length: 0\r\n\r\n".to_owned(),
        "secret nonsense\r\n\r\n".to_owned(),
    ];
    for answer in table {
        let sent = answer.clone();
        let fake = Fake::modern(move |seen| {
            let id = seen.body["id"].to_string();
            // Same length, so that the announced one stays right.
            let text = sent.replace("ID", &format!("{id:>2}"));
            Say::Last(text.into_bytes())
        })
        .await;
        let failed = fake.connection().ask(call("t")).await.unwrap_err();
        assert_eq!(failed.kind, FailureKind::Invalid, "{answer}");
        assert!(failed.dispatched, "{answer}");
        assert!(!format!("{failed} {failed:?}").contains("secret"), "{failed:?}");
        assert_eq!(fake.methods().iter().filter(|m| *m == "tools/call").count(), 1, "{answer}");
        if answer.contains(" 302 ") {
            assert!(failed.to_string().contains("redirect"), "{failed}");
        }
    }
}

#[tokio::test]
async fn a_stream_brings_progress_and_then_the_answer() {
    let fake = Fake::modern(|seen| {
        let (id, token) = (&seen.body["id"], &seen.body["params"]["_meta"]["progressToken"]);
        assert_eq!(id, token);
        let note = |method: &str, params: &str| {
            event(&format!(r#"{{"jsonrpc":"2.0","method":"{method}","params":{params}}}"#))
        };
        let events = [
            ": hello\n\n".to_owned(),
            note("notifications/message", r#"{"level":"info"}"#),
            note("notifications/progress", &format!(r#"{{ "progress":1.0,"progressToken":{token}}}"#)),
            note("notifications/progress", r#"{"progress":9,"progressToken":123456}"#),
            note("notifications/progress", &format!(r#"{{"progress":2,"progressToken":{token}}}"#)),
            note("notifications/progress", &format!(r#"{{"progress":3,"progressToken":{token}}}"#)),
            event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{ "ok":true }}}}"#)),
        ];
        let mut bytes = stream(&events.concat());
        bytes.extend_from_slice(b"0\r\n\r\n");
        Say::Raw(bytes)
    })
    .await;
    let connection = fake.connection();
    let (sender, mut progress) = mpsc::channel(2);
    let answer = connection.ask(Request { hears: Some(Hears::progress(sender)), ..call("t") }).await.unwrap();
    assert_eq!(body_of(&answer), r#"{ "ok":true }"#);
    let first = progress_in(progress.recv().await);
    assert!(first.starts_with(br#"{ "progress":1.0,"#));
    let second: Value = serde_json::from_slice(&progress_in(progress.recv().await)).unwrap();
    assert_eq!(second["progress"], 2);
    // The third did not fit.
    assert!(progress.recv().await.is_none());
    assert_eq!(connection.probe().1.idle_count(), 1);
}

#[tokio::test]
async fn requests_of_a_handshake_upstream_are_answered() {
    let fake = Fake::handshake(|seen| {
        if seen.method() != "tools/call" {
            return Say::Http(202, vec![], String::new());
        }
        let id = &seen.body["id"];
        let events = [
            event(r#"{"jsonrpc":"2.0","id":"p-1","method":"ping"}"#),
            event(r#"{"jsonrpc":"2.0","id":7,"method":"elicitation/create","params":{}}"#),
            event(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)),
        ];
        Say::Raw([stream(&events.concat()), b"0\r\n\r\n".to_vec()].concat())
    })
    .await;
    fake.connection().ask(call("t")).await.unwrap();
    let replies: Vec<_> = fake.seen().into_iter().filter(|s| s.method().is_empty()).collect();
    assert_eq!(replies.len(), 2);
    assert_eq!(replies[0].body, value!({"jsonrpc": "2.0", "id": "p-1", "result": {}}));
    assert_eq!(replies[1].body["id"], 7);
    assert_eq!(replies[1].body["error"]["code"], -32601);
    assert!(replies.iter().all(|reply| reply.header("mcp-session-id") == "s0"));
}

#[tokio::test]
async fn lists_are_read_page_by_page() {
    let fake = Fake::modern(|seen| match seen.body["params"]["cursor"].as_str() {
        None => result(seen, r#"{"tools":[{"name":"a", "v":1.0}],"nextCursor":"n\"1"}"#),
        Some("n\"1") => result(seen, r#"{"tools":[{"name":"b"},7],"nextCursor":""}"#),
        Some("") => result(seen, r#"{"tools":[{"name":"c"}]}"#),
        Some(other) => panic!("{other}"),
    })
    .await;
    let listing = fake.connection().list(ListKind::Tools).await.unwrap();
    let found: Vec<_> = listing.entries.iter().map(|t| (t.name.as_str(), &t.definition[..])).collect();
    assert_eq!(
        found,
        [("a", &br#"{"name":"a", "v":1.0}"#[..]), ("b", br#"{"name":"b"}"#), ("c", br#"{"name":"c"}"#)]
    );
    assert_eq!(listing.problems.len(), 1);
    assert_eq!(fake.seen()[1].header("mcp-method"), "tools/list");
}

#[tokio::test]
async fn a_broken_list_is_an_error_not_a_short_list() {
    let fake = Fake::modern(|seen| match seen.body["params"]["cursor"].as_str() {
        None => result(seen, r#"{"tools":[{"name":"a"}],"nextCursor":"n"}"#),
        Some(_) => error(200, &seen.body["id"], -32603),
    })
    .await;
    assert_eq!(fake.connection().list(ListKind::Tools).await.unwrap_err().kind, FailureKind::Invalid);
}

#[tokio::test]
async fn a_sign_of_life_fits_the_era() {
    let old = Fake::handshake(|seen| result(seen, "{}")).await;
    old.connection().ping().await.unwrap();
    assert_eq!(old.methods().last().unwrap(), "ping");
    let modern = Fake::modern(|_| panic!("only discover is asked")).await;
    modern.connection().ping().await.unwrap();
    assert_eq!(modern.methods().last().unwrap(), "server/discover");
    let dead = Fake::modern(|_| panic!("only discover is asked")).await;
    let target = dead.target().at("http://127.0.0.1:1/".to_owned());
    let failed = pool().connection(&target).ping().await.unwrap_err();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::Unreachable, false));
}

#[tokio::test]
async fn hop_headers_of_a_server_do_not_count() {
    let fake = Fake::modern(|seen| result(seen, "{}")).await;
    let names = ["content-length", "transfer-encoding", "mcp-name", "accept", "x-fine"];
    let headers = names.map(|name| (name.parse().unwrap(), ::http::HeaderValue::from_static("evil")));
    let target = fake.target().with_headers(headers.to_vec());
    pool().connection(&target).ask(call("t")).await.unwrap();
    let seen = fake.seen().pop().unwrap();
    assert_eq!(seen.header("mcp-name"), "t");
    assert_eq!(seen.header("x-fine"), "evil");
    assert_eq!(seen.headers.values().filter(|value| *value == "evil").count(), 1);
    assert!(!format!("{target:?}").contains("evil"));
}

#[tokio::test]
async fn bodies_in_pieces_are_whole() {
    let text = "x".repeat(40_000);
    let (whole, want) = (text.clone(), format!(r#"{{"text":"{text}"}}"#));
    let fake = Fake::modern(move |seen| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{"text":"{whole}"}}}}"#, seen.body["id"]);
        let (a, b) = body.split_at(20_000);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        Say::Raw(format!("{head}{}{}0\r\n\r\n", chunk(a), chunk(b)).into_bytes())
    })
    .await;
    let connection = fake.connection();
    for _ in 0..3 {
        let answer = connection.ask(call("t")).await.unwrap();
        assert_eq!(body_of(&answer), want);
    }
    assert_eq!(fake.accepted(), 1);
    let timeout = Request { timeout: Duration::from_secs(1), ..call("t") };
    connection.ask(timeout).await.unwrap();
}
