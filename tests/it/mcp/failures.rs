//! After dispatch: what an upstream does wrong, and what its caller is told.

use std::time::Duration;

use serde_json::json;

use crate::support::upstream::{Era, Form, Say};
use crate::support::{Mcp, Stage, Tool, Upstream};

#[tokio::test]
async fn every_fault_has_its_code_and_says_that_the_call_may_have_run() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let secret = "upstream-internal-secret-7";
    let cases = [
        ("hangs", Say::Hang, "upstream_timeout"),
        ("closes", Say::Close, "upstream_lost"),
        ("large", Say::Large(300_000), "upstream_too_large"),
        ("nothing", Say::Result("7".to_owned()), "upstream_invalid"),
        ("fails", Say::Http(500, format!("stack trace {secret}")), "upstream_invalid"),
        (
            "asks",
            Say::Result(r#"{"resultType":"input_required","inputRequests":{}}"#.to_owned()),
            "upstream_needs_input",
        ),
    ];
    let tools: Vec<Tool> = cases.iter().map(|(name, say, _)| Tool::writes(name).says(say.clone())).collect();
    let upstream = Upstream::modern(tools).await;
    tenant
        .add_with("bad", &upstream, json!({"limits": {"call_timeout_s": 1, "response_bytes_max": 100_000}}))
        .await;
    let client = Mcp::bare(&tenant.agent().await);
    for (at, (tool, _, code)) in cases.into_iter().enumerate() {
        let outcome = client.run("write", &format!("bad:{tool}"), &json!({})).await;
        let refused = outcome.refused(code);
        assert!(refused["message"].as_str().unwrap().contains("may have run"), "{refused}");
        assert!(!outcome.answer.text.contains(secret), "{outcome:?}");
        assert_eq!(upstream.counts().calls, at + 1, "{tool}: dispatched once, never again");
        let record = tenant.records(&format!("type=tool_call&tool={tool}"), 1).await;
        assert_eq!((&record[0]["status"], &record[0]["error_code"]), (&json!("error"), &json!(code)));
        assert!(!record[0].to_string().contains(secret), "{}", record[0]);
    }
}

#[tokio::test]
async fn an_upstreams_own_error_comes_through_whole() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let raw = r#"{"code":-31234,"message":"no such thing","data":{"z":1e400,"a":[ ]}}"#;
    let failed = r#"{"content":[{"type":"text","text":"it failed"}],"isError":true}"#;
    for (name, era, form) in [
        ("one", Era::Handshake, Form::Json),
        ("two", Era::Modern, Form::Json),
        ("three", Era::Handshake, Form::Events),
        ("four", Era::Modern, Form::Events),
    ] {
        let tools = vec![
            Tool::writes("rpc").says(Say::RpcError(raw.to_owned())),
            Tool::writes("tool").returns(failed),
            Tool::writes("echo"),
        ];
        let upstream = Upstream::start(era, form, tools).await;
        tenant.add(name, &upstream).await;
        let client = Mcp::bare(&tenant.agent().await);
        let outcome = client.run("write", &format!("{name}:rpc"), &json!({})).await;
        assert!(outcome.answer.text.contains(&format!(r#""error":{raw}"#)), "{name}: {outcome:?}");
        let outcome = client.run("write", &format!("{name}:tool"), &json!({})).await;
        assert_eq!(outcome.raw(), failed, "{name}");
        client.run("write", &format!("{name}:echo"), &json!({})).await.ok();
        for (tool, status) in [("rpc", "upstream_error"), ("tool", "upstream_error"), ("echo", "success")] {
            let records = tenant.records(&format!("type=tool_call&server={name}&tool={tool}"), 1).await;
            assert_eq!(records[0]["status"], status, "{name} {tool}: {}", records[0]);
        }
    }
}

#[tokio::test]
async fn an_expired_session_is_opened_again_once() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    client.run("write", "up:echo", &json!({"ticket": "a"})).await.ok();
    let before = upstream.counts();
    upstream.expire_sessions();
    let calls = ["b", "c", "d", "e"].map(|ticket| {
        let client = Mcp::bare(&client.api);
        tokio::spawn(async move { client.run("write", "up:echo", &json!({"ticket": ticket})).await.code() })
    });
    for call in calls {
        assert_eq!(call.await.unwrap(), "ok");
    }
    let mut tickets = upstream.tickets();
    tickets.sort();
    assert_eq!(tickets, ["a", "b", "c", "d", "e"]);
    assert_eq!(upstream.counts().initializes, before.initializes + 1, "one new session for all");
}

#[tokio::test]
async fn one_bad_upstream_costs_only_its_own_callers() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let bad = Upstream::handshake(vec![Tool::writes("hang").says(Say::Hang)]).await;
    let good = Upstream::handshake(vec![Tool::writes("echo")]).await;
    tenant
        .add_with("bad", &bad, json!({"limits": {"concurrency": 2, "queue": 2, "call_timeout_s": 2}}))
        .await;
    tenant.add("good", &good).await;
    let agent = tenant.agent().await;
    let stuck: Vec<_> = (0..8)
        .map(|_| {
            let client = Mcp::bare(&agent);
            tokio::spawn(async move { client.run("write", "bad:hang", &json!({})).await.code() })
        })
        .collect();
    let began = std::time::Instant::now();
    for _ in 0..5 {
        Mcp::bare(&agent).run("write", "good:echo", &json!({})).await.ok();
    }
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    let mut codes = Vec::new();
    for call in stuck {
        codes.push(call.await.unwrap());
    }
    assert!(codes.iter().any(|code| code == "overloaded"), "{codes:?}");
    assert!(codes.iter().any(|code| code == "upstream_timeout"), "{codes:?}");
    assert!(bad.counts().calls <= 4, "{:?}", bad.counts());
    // a call whose turn did not come in time was not sent either
    let unsent =
        codes.iter().filter(|code| matches!(code.as_str(), "overloaded" | "server_unavailable")).count();
    tenant.records("type=tool_call&server=bad", 8).await;
    tenant.records("type=tool_call&server=bad&status=rejected", unsent).await;
}

#[tokio::test]
async fn a_servers_own_limits_only_tighten() {
    let stage = Stage::with(&[
        ("MCPPROXY__LIMITS__CALL_TIMEOUT_S", "1"),
        ("MCPPROXY__LIMITS__RESPONSE_BYTES_MAX", "100000"),
    ])
    .await;
    let tenant = stage.tenant("acme").await;
    let tools = vec![Tool::writes("hangs").says(Say::Hang), Tool::writes("large").says(Say::Large(300_000))];
    let upstream = Upstream::handshake(tools).await;
    let wide = json!({"call_timeout_s": 3600, "response_bytes_max": 10_000_000});
    let added = tenant.add_with("wide", &upstream, json!({"limits": wide})).await;
    assert_eq!(added["limits"], wide, "{added}");
    let client = Mcp::bare(&tenant.agent().await);
    let began = std::time::Instant::now();
    client.run("write", "wide:hangs", &json!({})).await.refused("upstream_timeout");
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(900) && took < Duration::from_secs(4), "{took:?}");
    client.run("write", "wide:large", &json!({})).await.refused("upstream_too_large");
    assert_eq!(upstream.counts().calls, 2);
}
