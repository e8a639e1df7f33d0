//! One trace from an agent through the gateway to an upstream.

use serde_json::{Value, json};

use super::{AGENT, TRACE, agent, meta, params, stage, told};
use crate::support::upstream::Offers;
use crate::support::{Api, Collector, Kind, Mcp, Stage, Tool, Upstream};

/// A client of each era.
async fn clients(key: &Api) -> [(Mcp, &'static str); 2] {
    [(Mcp::session(key).await, "2025-11-25"), (Mcp::modern(key), "2026-07-28")]
}

#[tokio::test]
async fn one_trace_leads_from_the_agent_to_the_upstream_in_both_eras() {
    let (collector, stage) = stage().await;
    let tenant = stage.tenant("acme").await;
    let old = Upstream::handshake(vec![Tool::reads("look")]).await;
    let new = Upstream::modern(vec![Tool::reads("look")]).await;
    tenant.add("old", &old).await;
    tenant.add("new", &new).await;
    let key = tenant.agent().await;
    let mut number = 0;
    for (client, version) in clients(&key).await {
        for (server, upstream, spoken) in [("old", &old, "2025-06-18"), ("new", &new, "2026-07-28")] {
            number += 1;
            let trace = format!("{number:032x}");
            let parent = format!("00-{trace}-{AGENT}-01");
            let sent = json!({"traceparent": parent, "tracestate": "v=1,w=2", "baggage": "user=\\ana;x", "vendor/x": [1.50]});
            let params = params(&format!("{server}:look"), &json!({"n": 1}), &sent).replace("1.5]", "1.50]");
            client.request_as("\"req-7\"", "tools/call", &params).await.expect(200);
            let [asked, asks] = collector.trace(&trace, 2).await.try_into().unwrap();

            assert_eq!((asked.kind, asked.name.as_str()), (Kind::Server, "tools/call call_tool_read"));
            assert_eq!((asked.parent.as_str(), asked.ended()), (AGENT, (false, "")));
            for (name, expected) in [
                ("mcp.method.name", "tools/call"),
                ("gen_ai.tool.name", "call_tool_read"),
                ("gen_ai.operation.name", "execute_tool"),
                ("jsonrpc.request.id", "req-7"),
                ("mcp.protocol.version", version),
                ("network.transport", "tcp"),
                ("network.protocol.name", "http"),
                ("network.protocol.version", "1.1"),
                ("client.address", "127.0.0.1"),
                ("mcpproxy.tenant", "acme"),
                ("mcpproxy.key", &key.id),
                ("mcpproxy.endpoint", "mcp"),
            ] {
                assert_eq!(asked.get(name), expected, "{name}: {asked:?}");
            }
            assert_ne!(asked.get("client.port"), "");
            let session = asked.get("mcp.session.id");
            assert_eq!(session.is_empty(), client.is_modern(), "{asked:?}");
            assert!(
                !client.session_id().contains(session) || session.is_empty(),
                "the token itself: {asked:?}"
            );

            assert_eq!((asks.kind, asks.name.as_str()), (Kind::Client, "tools/call look"));
            assert_eq!((asks.parent.as_str(), asks.ended()), (asked.id.as_str(), (false, "")));
            let (host, port) = upstream
                .url
                .trim_start_matches("http://")
                .split_once('/')
                .unwrap()
                .0
                .split_once(':')
                .unwrap();
            let call = upstream.calls().pop().unwrap();
            for (name, expected) in [
                ("mcp.method.name", "tools/call"),
                ("gen_ai.tool.name", "look"),
                ("gen_ai.operation.name", "execute_tool"),
                ("jsonrpc.request.id", &call.id),
                ("mcp.protocol.version", spoken),
                ("network.transport", "tcp"),
                ("network.protocol.name", "http"),
                ("server.address", host),
                ("server.port", port),
                ("mcpproxy.tenant", "acme"),
                ("mcpproxy.server", server),
                ("mcpproxy.tier", "read"),
            ] {
                assert_eq!(asks.get(name), expected, "{name}: {asks:?}");
            }
            for span in [&asked, &asks] {
                assert_eq!(span.state, "v=1,w=2");
                assert_eq!(span.resource["service.name"], "mcpproxy");
                assert_eq!(span.resource["service.version"], env!("CARGO_PKG_VERSION"));
                assert_ne!(span.resource["service.instance.id"], "");
            }

            let arrived = meta(&call);
            assert_eq!(told(&arrived), [trace.clone(), asks.id.clone(), "01".to_owned()]);
            assert_eq!(
                (&arrived["tracestate"], &arrived["baggage"]),
                (&json!("v=1,w=2"), &json!("user=\\ana;x"))
            );
            assert!(call.params.contains(r#""vendor/x":[1.50]"#), "{}", call.params);
            assert_eq!(call.arguments, r#"{"n":1}"#);

            let records = tenant.records("type=tool_call", number).await;
            let record = records.iter().find(|record| record["trace_id"] == trace.as_str()).unwrap();
            assert_eq!(record["id"], asks.get("mcpproxy.record"));
        }
    }
}

#[tokio::test]
async fn the_message_goes_before_the_headers_which_are_linked() {
    let (collector, stage) = stage().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    let other = "11".repeat(16);
    let header = format!("00-{other}-{}-01", "22".repeat(8));
    let call = |meta: &Value| {
        client.unsent("1", "tools/call", &params("up:look", &json!({}), meta)).header("traceparent", &header)
    };

    let both = call(&json!({"traceparent": agent("01")})).header("baggage", "a=http");
    client.api.send(both).await.expect(200);
    let [asked, _] = collector.trace(TRACE, 2).await.try_into().unwrap();
    assert_eq!((asked.parent.as_str(), &asked.links), (AGENT, &vec![format!("{other}/{}", "22".repeat(8))]));
    assert_eq!(meta(&upstream.calls()[0]).get("baggage"), None, "that of HTTP goes with the trace of HTTP");

    let alone = call(&json!({})).header("tracestate", "a=1").header("tracestate", "b=2");
    let alone = alone.header("baggage", "a=http").header("baggage", "c=3;d");
    client.api.send(alone).await.expect(200);
    let [asked, asks] = collector.trace(&other, 2).await.try_into().unwrap();
    assert_eq!((asked.parent, asked.links), ("22".repeat(8), vec![]));
    let arrived = meta(&upstream.calls()[1]);
    assert_eq!(told(&arrived), [other, asks.id, "01".to_owned()]);
    assert_eq!((&arrived["tracestate"], &arrived["baggage"]), (&json!("a=1,b=2"), &json!("a=http,c=3;d")));
}

#[tokio::test]
async fn whatever_is_asked_on_the_direct_endpoint_is_traced() {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    settings.push(("MCPPROXY__DIRECT__ENABLED", "true"));
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::modern(vec![Tool::reads("look")]).await;
    upstream.set_offers(Offers {
        completes: true,
        resources: Some(vec![json!({"uri": "https://u:p@host/doc?key=1", "name": "doc"}).to_string()]),
        ..Offers::prompts(&["sum"])
    });
    tenant.add("up", &upstream).await;
    let client = Mcp::direct(&tenant.agent_with(json!({"direct_endpoint": true})).await);
    let mut number = 0;
    for (method, params, asked_as, asks_as, about) in [
        (
            "tools/call",
            r#"{"name":"up:look","arguments":{}}"#,
            "tools/call up:look",
            "tools/call look",
            "gen_ai.tool.name=look",
        ),
        (
            "prompts/get",
            r#"{"name":"up:sum"}"#,
            "prompts/get up:sum",
            "prompts/get sum",
            "gen_ai.prompt.name=sum",
        ),
        (
            "resources/read",
            r#"{"uri":"https://u:p@host/doc?key=1"}"#,
            "resources/read",
            "resources/read",
            "mcp.resource.uri=https://host/doc",
        ),
        (
            "completion/complete",
            r#"{"ref":{"type":"ref/prompt","name":"up:sum"},"argument":{"name":"a","value":"b"}}"#,
            "completion/complete up:sum",
            "completion/complete sum",
            "gen_ai.prompt.name=sum",
        ),
    ] {
        number += 1;
        let trace = format!("{number:032x}");
        let meta = format!(r#"{{"_meta":{{"traceparent":"00-{trace}-{AGENT}-01"}},"#);
        let answer = client.request(method, &params.replacen('{', &meta, 1)).await.expect(200);
        assert!(answer["result"].is_object(), "{answer}");
        let [asked, asks] = collector.trace(&trace, 2).await.try_into().unwrap();
        assert_eq!((asked.name.as_str(), asks.name.as_str()), (asked_as, asks_as));
        assert_eq!((asked.get("mcpproxy.endpoint"), asks.kind), ("direct", Kind::Client));
        let (name, value) = about.split_once('=').unwrap();
        assert_eq!(asks.get(name), value, "{asks:?}");
        assert_eq!((asked.ended(), asks.ended()), ((false, ""), (false, "")));
        if method != "tools/call" {
            let (_, params) = upstream.asked().into_iter().rfind(|(asked, _)| asked == method).unwrap();
            let params: Value = serde_json::from_str(&params).unwrap();
            assert_eq!(told(&params["_meta"])[1], asks.id);
        }
    }
}

#[tokio::test]
async fn a_call_over_rest_and_the_lists_of_clients_are_traced() {
    let (collector, stage) = stage().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    let key = tenant.agent().await;
    let body = json!({"tool_variant": "call_tool_read", "name": "up:look", "args": {}});
    let call = key.request(reqwest::Method::POST, "/api/v1/tools/call").json(&body);
    key.send(call.header("traceparent", agent("01"))).await.expect(200);
    let [asked, asks] = collector.trace(TRACE, 2).await.try_into().unwrap();
    assert_eq!((asked.name.as_str(), asked.parent.as_str()), ("POST /api/v1/tools/call", AGENT));
    assert_eq!(asked.get("http.response.status_code"), "200");
    assert_eq!((asks.parent, told(&meta(&upstream.calls()[0]))[1].clone()), (asked.id, asks.id));

    // a trace that begins here is one that a record leads to
    let refused = json!({"tool_variant": "call_tool_read", "name": "up:nope", "args": {}});
    key.post("/api/v1/tools/call", &refused).await.expect(404);
    let record = tenant.records("status=blocked", 1).await.remove(0);
    let [asked] = collector.trace(record["trace_id"].as_str().unwrap(), 1).await.try_into().unwrap();
    // as HTTP has it, what a client does wrong is no failure
    assert_eq!((asked.parent.as_str(), asked.ended()), ("", (false, "not_found")));

    let client = Mcp::session(&key).await;
    client.tools().await;
    for name in ["initialize", "tools/list"] {
        let span = collector.named(name).await;
        assert_eq!((span.kind, span.ended(), span.get("mcp.method.name")), (Kind::Server, (false, ""), name));
    }
}
