//! Every state on every way to a tool.

use reqwest::Method;
use serde_json::json;

use super::{Scene, decide, direct_code, found, listed};
use crate::support::{Mcp, Tool};

#[tokio::test]
async fn only_what_is_approved_is_listed_found_and_run() {
    let tools = ["approved", "changed", "blocked"].map(Tool::reads);
    let scene = Scene::with(tools.to_vec(), json!({})).await;
    scene
        .offers(vec![
            Tool::reads("approved"),
            Tool::annotated("changed", r#"{"readOnlyHint":true,"title":"Other"}"#),
            Tool::reads("blocked"),
            Tool::reads("pending"),
        ])
        .await;
    decide(&scene.tenant.platform, Method::POST, "blocked", "block", None).await.expect(200);
    let agent = scene.tenant.agent().await;
    let direct = Mcp::direct(&agent);
    for client in [Mcp::bare(&agent), Mcp::modern(&agent)] {
        assert_eq!(found(&client).await, ["approved"]);
        for (name, code) in [
            ("approved", "ok"),
            ("changed", "tool_changed"),
            ("pending", "tool_pending"),
            ("blocked", "tool_blocked"),
        ] {
            assert_eq!(scene.tool(name).await["state"], name);
            assert_eq!(client.run("read", &format!("up:{name}"), &json!({})).await.code(), code, "{name}");
            let called = direct.call(&format!("up:{name}"), &json!({})).await;
            assert_eq!(direct_code(&called), code, "{name}");
        }
    }
    assert_eq!(listed(&direct).await, ["approved"]);
    let ran = scene.upstream.calls().iter().filter(|call| call.tool != "approved").count();
    assert_eq!(ran, 0, "nothing else was run");
}

/// A key that saw a tool is told what became of it, though it may not use what it became.
#[tokio::test]
async fn a_changed_tool_is_in_the_scope_of_its_old_definition_too() {
    let scene = Scene::with(vec![Tool::reads("worse"), Tool::destroys("better")], json!({})).await;
    let reader = scene.tenant.agent_with(json!({"max_operation": "read"})).await;
    let (client, direct) = (Mcp::bare(&reader), Mcp::direct(&reader));
    scene.offers(vec![Tool::destroys("worse"), Tool::reads("better")]).await;
    for name in ["up:worse", "up:better"] {
        assert_eq!(client.run("read", name, &json!({})).await.code(), "tool_changed", "{name}");
        assert_eq!(direct_code(&direct.call(name, &json!({})).await), "tool_changed", "{name}");
    }
    for name in ["worse", "better"] {
        scene.approve(name).await;
    }
    assert_eq!(client.run("read", "up:worse", &json!({})).await.code(), "not_found");
    assert_eq!(direct_code(&direct.call("up:worse", &json!({})).await), "-32602");
    assert_eq!(listed(&direct).await, ["better"]);
    client.run("read", "up:better", &json!({})).await.ok();
}

#[tokio::test]
async fn the_difference_is_shown_as_it_is_written() {
    let raw = |description: &str, number: &str| {
        Tool::raw(
            "t",
            &format!(
                r#"{{"name":"t","description":"{description}","inputSchema":{{"type":"object","x/y":{number}}}}}"#
            ),
        )
    };
    let scene = Scene::with(vec![raw("a", "1e400"), Tool::reads("same")], json!({})).await;
    scene.offers(vec![raw("b", "1e401"), Tool::reads("same"), Tool::reads("new")]).await;
    let auditor = scene.tenant.auditor().await;
    let answer = decide(&auditor, Method::GET, "t", "diff", None).await;
    let expected = r#""changes":[{"path":"/description","before":"a","after":"b"},{"path":"/inputSchema/x~1y","before":1e400,"after":1e401}],"truncated":false"#;
    assert!(answer.text.contains(expected), "{answer:?}");
    let same = decide(&auditor, Method::GET, "same", "diff", None).await.expect(200);
    assert_eq!((&same["changes"], &same["state"]), (&json!([]), &json!("approved")));
    let new = decide(&auditor, Method::GET, "new", "diff", None).await.expect(200);
    assert_eq!((&new["approved_pin"], &new["approved_definition"]), (&json!(null), &json!(null)));
    decide(&auditor, Method::GET, "none", "diff", None).await.refused(404, "not_found");
}
