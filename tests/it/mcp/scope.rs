//! Check 7 and 8: what a key may see and run, and the state of servers and tools.

use serde_json::{Value, json};

use crate::support::{Mcp, Stage, Tool, Upstream, upstream};

/// The names a search of everything finds.
async fn found(client: &Mcp) -> Vec<String> {
    let answer = client.search(&json!({"query": "tool test server", "limit": 100})).await;
    let tools = answer["tools"].as_array().unwrap();
    assert_eq!(answer["total"], tools.len(), "{answer}");
    let mut names: Vec<String> = tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn the_ceiling_hides_refuses_and_does_not_list() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let all = ["read", "write", "destructive"];
    let cases = [
        ("read", "trust", vec!["zoo:reader"]),
        ("write", "trust", vec!["zoo:half", "zoo:mild", "zoo:plain", "zoo:reader", "zoo:writer"]),
        ("write", "distrust", vec!["zoo:mild", "zoo:reader", "zoo:writer"]),
        (
            "destructive",
            "distrust",
            vec!["zoo:half", "zoo:mild", "zoo:plain", "zoo:reader", "zoo:wiper", "zoo:writer"],
        ),
    ];
    for (ceiling, trust, visible) in cases {
        let settings = json!({"max_operation": ceiling, "unannotated_tools": trust});
        let client = Mcp::modern(&tenant.agent_with(settings).await);
        assert_eq!(found(&client).await, visible, "{ceiling} {trust}");
        let allowed = all.iter().position(|name| *name == ceiling).unwrap();
        let listed: Vec<String> =
            client.tools().await.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect();
        for (at, variant) in all.into_iter().enumerate() {
            let is_listed = listed.contains(&format!("call_tool_{variant}"));
            assert_eq!(is_listed, at <= allowed, "{ceiling}: {variant} in {listed:?}");
            if at > allowed {
                let outcome = client.run(variant, "zoo:reader", &json!({})).await;
                outcome.refused("operation_not_permitted");
            }
        }
        for tool in ["reader", "writer", "wiper", "half", "mild", "plain"] {
            let name = format!("zoo:{tool}");
            let outcome = client.run(ceiling, &name, &json!({})).await;
            let is_visible = visible.contains(&name.as_str());
            assert_eq!(outcome.code() == "not_found", !is_visible, "{ceiling} {trust} {tool}: {outcome:?}");
        }
    }
}

#[tokio::test]
async fn globs_and_tightest_limits_decide() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    tenant.add("ark", &upstream).await;
    let client = Mcp::bare(&tenant.agent_with(json!({"allowed_tools": ["zoo:r*", "ark:p*"]})).await);
    assert_eq!(found(&client).await, ["ark:plain", "zoo:reader"]);
    let existing = client.run("read", "zoo:wiper", &json!({})).await;
    let missing = client.run("read", "zoo:wipex", &json!({})).await;
    let normal = |outcome: &crate::support::Outcome, name: &str| outcome.raw().replace(name, "NAME");
    existing.refused("not_found");
    assert_eq!(
        normal(&existing, "zoo:wiper"),
        normal(&missing, "zoo:wipex"),
        "out of scope differs from missing"
    );
    // a tenant's list narrows a key's, it does not replace it
    tenant
        .platform
        .patch("/api/v1/settings", &json!({"allowed_tools": ["zoo:*"], "max_operation": "write"}))
        .await
        .expect(200);
    assert_eq!(found(&client).await, ["zoo:reader"]);
    let wide = Mcp::bare(&tenant.agent_with(json!({"max_operation": "destructive"})).await);
    assert!(!found(&wide).await.contains(&"zoo:wiper".to_owned()));
}

#[tokio::test]
async fn servers_that_are_off_or_gone_say_so() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let mut upstream = Upstream::handshake(upstream::zoo()).await;
    tenant.add("zoo", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    let run = async |variant: &str| client.run(variant, "zoo:writer", &json!({})).await.code();
    let verb = async |verb: &str| {
        tenant.platform.post(&format!("/api/v1/servers/zoo/{verb}"), &json!({})).await.expect(200);
    };
    assert_eq!(run("write").await, "ok");
    verb("disable").await;
    assert_eq!(run("write").await, "server_disabled");
    assert_eq!(found(&client).await, [""; 0]);
    verb("enable").await;
    assert_eq!(run("write").await, "ok");
    verb("quarantine").await;
    assert_eq!(run("write").await, "server_quarantined");
    assert_eq!(found(&client).await, [""; 0]);
    verb("disable").await;
    assert_eq!(run("write").await, "server_disabled", "disabled is said first");
    verb("enable").await;
    verb("unquarantine").await;
    assert_eq!(run("write").await, "ok");
    assert_eq!(found(&client).await.len(), 6);
    upstream.go_down().await;
    assert_eq!(run("read").await, "server_mismatch", "what the call itself is wrong about comes first");
    let gone = client.run("write", "zoo:writer", &json!({})).await.refused("server_unavailable");
    assert!(gone["message"].as_str().unwrap().contains("retry"), "{gone}");
    let refreshed = tenant.platform.post("/api/v1/servers/zoo/refresh", &json!({})).await.expect(200);
    assert!(refreshed["last_error"].is_string(), "{refreshed}");
    assert_eq!(found(&client).await, [""; 0], "a disconnected server's tools are still found");
    upstream.come_back().await;
    let refreshed = tenant.platform.post("/api/v1/servers/zoo/refresh", &json!({})).await.expect(200);
    assert_eq!((&refreshed["last_error"], &refreshed["connection"]), (&Value::Null, &json!("connected")));
    assert_eq!(run("write").await, "ok");
    tenant.platform.delete("/api/v1/servers/zoo").await.expect(204);
    assert_eq!(run("write").await, "not_found");
}

#[tokio::test]
async fn new_and_changed_tools_wait_for_approval() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::reads("old"), Tool::reads("gone")]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    assert_eq!(found(&client).await, ["up:gone", "up:old"]);
    upstream.set_tools(vec![
        Tool::annotated("old", r#"{"readOnlyHint":true,"openWorldHint":true}"#),
        Tool::reads("new"),
    ]);
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    assert_eq!(found(&client).await, [""; 0]);
    for (tool, code) in [("old", "tool_changed"), ("new", "tool_pending"), ("gone", "not_found")] {
        let outcome = client.run("read", &format!("up:{tool}"), &json!({})).await;
        assert_eq!(outcome.code(), code, "{tool}: {outcome:?}");
    }
    assert_eq!(upstream.counts().calls, 0);
    let narrow = Mcp::bare(&tenant.agent_with(json!({"allowed_tools": ["other:*"]})).await);
    let hidden = narrow.run("read", "up:old", &json!({})).await;
    assert_eq!(hidden.code(), "not_found", "the state of a tool out of scope is nobody's business");
}
