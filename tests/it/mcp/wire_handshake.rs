//! The handshake revisions: 2025-11-25, 2025-06-18, 2025-03-26.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use crate::support::{Mcp, Stage, masked};

#[tokio::test]
async fn versions_are_negotiated() {
    let stage = Stage::start().await;
    let agent = stage.tenant("acme").await.agent().await;
    let cases = [
        ("2025-11-25", "2025-11-25"),
        ("2025-06-18", "2025-06-18"),
        ("2025-03-26", "2025-03-26"),
        ("2026-07-28", "2025-11-25"),
        ("1999-01-01", "2025-11-25"),
    ];
    let mut results = Vec::new();
    for (offered, settled) in cases {
        let hello = json!({"protocolVersion": offered, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
        let answer = Mcp::bare(&agent).request("initialize", &hello.to_string()).await;
        let result = answer.expect(200)["result"].clone();
        assert_eq!(result["protocolVersion"], settled, "{result}");
        results.push(masked(&result, &["protocolVersion", "version"]));
        let session = answer.header("mcp-session-id");
        assert!((1..=1024).contains(&session.len()), "{}", session.len());
        assert!(!answer.text.contains("resultType"), "{answer:?}");
    }
    results.dedup();
    insta::assert_json_snapshot!(results, @r#"
    [
      {
        "capabilities": {
          "logging": {},
          "prompts": {
            "listChanged": false
          },
          "resources": {
            "listChanged": false,
            "subscribe": false
          },
          "tools": {
            "listChanged": false
          }
        },
        "instructions": "Find tools with retrieve_tools, then call them with the variant named in call_with.",
        "protocolVersion": "[text]",
        "serverInfo": {
          "name": "mcpproxy",
          "title": "mcpproxy",
          "version": "[text]"
        }
      }
    ]
    "#);
}

#[tokio::test]
async fn malformed_messages_get_the_right_error() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__REQUEST_BYTES_MAX", "65536")]).await;
    let agent = stage.tenant("acme").await.agent().await;
    let large =
        format!(r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{{"x":"{}"}}}}"#, "x".repeat(70_000));
    let nested = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"ping","params":{}{}}}"#,
        "[".repeat(9000),
        "]".repeat(9000)
    );
    let cases: Vec<(&[u8], u16, i64)> = vec![
        (b"", 400, -32700),
        (b"{", 400, -32700),
        (b"not json", 400, -32700),
        (br#"{"jsonrpc":"2.0","id":1,"method":"ping"} {}"#, 400, -32700),
        (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"params\":{\"x\":\"\xff\"}}", 400, -32700),
        (br#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, 400, -32600),
        (b"[]", 400, -32600),
        (b"7", 400, -32600),
        (b"null", 400, -32600),
        (br#"{"id":1,"method":"ping"}"#, 400, -32600),
        (br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, 400, -32600),
        (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, 400, -32600),
        (br#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, 400, -32600),
        (br#"{"jsonrpc":"2.0","id":1,"method":7}"#, 400, -32600),
        (br#"{"jsonrpc":"2.0"}"#, 400, -32600),
        (large.as_bytes(), 413, -32600),
    ];
    let client = Mcp::session(&agent).await;
    for (body, status, code) in cases {
        let answer = client.post(body).await;
        let shown = String::from_utf8_lossy(body.get(..80).unwrap_or(body)).into_owned();
        assert_eq!(
            (answer.status, &answer.json()["error"]["code"]),
            (status, &json!(code)),
            "{shown}: {answer:?}"
        );
        assert_eq!(answer.json()["jsonrpc"], "2.0", "{shown}: {answer:?}");
    }
    let answer = client.post(nested).await;
    assert!(answer.json()["error"]["code"].is_number(), "{answer:?}");
    // and after all that it still works
    client.request("ping", "{}").await.expect(200);
}

#[tokio::test]
async fn a_member_given_twice_is_refused() {
    let stage = Stage::start().await;
    let agent = stage.tenant("acme").await.agent().await;
    let client = Mcp::session(&agent).await;
    let cases = [
        r#"{"name":"retrieve_tools","name":"call_tool_read","arguments":{"query":"x"}}"#,
        r#"{"name":"retrieve_tools","arguments":{"query":"x","query":"y"}}"#,
        r#"{"name":"call_tool_read","arguments":{"name":"a:b","args":{"x":1,"x":2}}}"#,
        r#"{"name":"call_tool_read","arguments":{"name":"a:b","args":{"deep":[{"x":1,"\u0078":2}]}}}"#,
    ];
    for params in cases {
        let answer = client.request("tools/call", params).await;
        assert_eq!(answer.json()["error"]["code"], -32602, "{params}: {answer:?}");
    }
    let inner = r#"{"name":"call_tool_read","arguments":{"name":"a:b","args_json":"{\"x\":1,\"x\":2}"}}"#;
    let answer = client.request("tools/call", inner).await.json();
    assert_eq!(answer["result"]["structuredContent"]["code"], "invalid_arguments", "{answer}");
}

#[tokio::test]
async fn methods_and_messages_without_an_answer() {
    let stage = Stage::start().await;
    let agent = stage.tenant("acme").await.agent().await;
    let client = Mcp::session(&agent).await;
    client.request("ping", "{}").await.expect(200);
    for (method, member) in [("prompts/list", "prompts"), ("resources/list", "resources")] {
        let result = client.request(method, "{}").await.expect(200)["result"].clone();
        assert_eq!(result[member], json!([]), "{method}: {result}");
    }
    let unknown = client.request("no/such/method", "{}").await;
    assert_eq!(unknown.json()["error"]["code"], -32601, "{unknown:?}");
    let tool = client.request("tools/call", r#"{"name":"no_such_tool","arguments":{}}"#).await;
    assert_eq!(tool.json()["error"]["code"], -32602, "{tool:?}");
    let nameless = client.request("tools/call", "{}").await;
    assert_eq!(nameless.json()["error"]["code"], -32602, "{nameless:?}");
    let silent = [
        r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/of-the-future"}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{}}"#,
        r#"{"jsonrpc":"2.0","id":7,"error":{"code":-1,"message":"m"}}"#,
    ];
    for body in silent {
        let answer = client.post(body).await;
        assert_eq!((answer.status, answer.text.as_str()), (202, ""), "{body}");
    }
}

#[tokio::test]
async fn a_session_belongs_to_its_key() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (ours, theirs) = (tenant.agent().await, tenant.agent().await);
    let client = Mcp::session(&ours).await;
    client.request("tools/list", "{}").await.expect(200);
    let own = client.session_id();
    let forged = format!("{own}x");
    let cases =
        [(&theirs, own), (&ours, "no-such-session"), (&ours, forged.as_str()), (&theirs, "no-such-session")];
    let mut bodies = Vec::new();
    for (api, session) in cases {
        let stranger = Mcp::in_session(api, session);
        let answer = stranger.request("tools/list", "{}").await;
        assert_eq!(answer.status, 404, "{session}: {answer:?}");
        bodies.push(answer.text);
        for method in [Method::GET, Method::DELETE] {
            let answer = api.send(stranger.http(method.clone())).await;
            assert_eq!(answer.status, 404, "{method} {session}: {answer:?}");
        }
    }
    bodies.dedup();
    assert_eq!(bodies.len(), 1, "a foreign session and none at all can be told apart: {bodies:?}");
    // without a session it works too
    Mcp::bare(&ours).request("tools/list", "{}").await.expect(200);
    let ended = ours.send(client.http(Method::DELETE)).await;
    assert!(matches!(ended.status, 200 | 204), "{ended:?}");
}

#[tokio::test]
async fn the_stream_opens_and_ends_with_its_key() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let client = Mcp::session(&agent).await;
    let mut response = client.http(Method::GET).header("Accept", "text/event-stream").send().await.unwrap();
    assert_eq!(response.status(), 200);
    let content_type = response.headers()["content-type"].to_str().unwrap();
    assert!(content_type.starts_with("text/event-stream"), "{content_type}");
    tenant.platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    let ended = tokio::time::timeout(Duration::from_secs(5), async {
        while let Ok(Some(_)) = response.chunk().await {}
    });
    assert!(ended.await.is_ok(), "the stream of a revoked key stays open");
}

#[tokio::test]
async fn an_unknown_protocol_version_is_400_without_a_modern_code() {
    let stage = Stage::start().await;
    let agent = stage.tenant("acme").await.agent().await;
    let request = agent.request(Method::POST, "/mcp").header("Content-Type", "application/json");
    let request = request
        .header("Accept", "application/json, text/event-stream")
        .header("MCP-Protocol-Version", "1999-01-01");
    let answer = agent.send(request.body(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)).await;
    assert_eq!(answer.status, 400, "{answer:?}");
    assert!(answer.json()["error"]["code"].is_number(), "{answer:?}");
}
