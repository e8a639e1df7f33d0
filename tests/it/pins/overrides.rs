//! What a person says of a tool counts wherever its server's word did.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Scene, decide, direct_code, listed};
use crate::support::{Answer, Mcp, Tool};

impl Scene {
    /// Overrides annotations of a tool, of its definition as it is.
    async fn says(&self, tool: &str, annotations: Value) -> Answer {
        let body = json!({"pin": self.pin(tool).await, "annotations": annotations});
        decide(&self.tenant.platform, Method::PUT, tool, "override", Some(&body)).await
    }
}

/// The entry of a search.
async fn entry(client: &Mcp, tool: &str) -> Value {
    let found = client.search(&json!({"query": tool, "server": "up"})).await;
    let tools = found["tools"].as_array().unwrap();
    tools.iter().find(|entry| entry["name"] == format!("up:{tool}")).cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_loosening_override_holds_for_its_pin_only() {
    let scene = Scene::with(vec![Tool::destroys("t")], json!({"auto_approve": true})).await;
    let agent = scene.tenant.agent().await;
    let reader = scene.tenant.agent_with(json!({"max_operation": "read"})).await;
    let (client, direct, reading) = (Mcp::bare(&agent), Mcp::direct(&agent), Mcp::direct(&reader));
    assert_eq!(client.run("read", "up:t", &json!({})).await.code(), "server_mismatch");
    assert!(listed(&reading).await.is_empty());
    let said = scene.says("t", json!({"readOnlyHint": true, "destructiveHint": false})).await.expect(200);
    assert_eq!((&said["tier"], &said["override"]["applies"]), (&json!("read"), &json!(true)));
    let expected = json!({"destructiveHint": false, "readOnlyHint": true});
    assert_eq!(said["annotations"], expected);
    assert_eq!(said["definition"]["annotations"], json!({"destructiveHint": true}), "its server's word");
    let entry = entry(&client, "t").await;
    assert_eq!((&entry["annotations"], &entry["call_with"]), (&expected, &json!("call_tool_read")));
    client.run("read", "up:t", &json!({})).await.ok();
    assert_eq!(listed(&reading).await, ["t"]);
    reading.call("up:t", &json!({})).await.ok();
    let tool = direct.tools().await.into_iter().find(|tool| tool["name"] == "up:t").unwrap();
    assert_eq!(tool["annotations"], expected);
    // another definition, taken at once by itself
    let other = Tool::annotated("t", r#"{"destructiveHint":true,"title":"Other"}"#);
    scene.offers(vec![other]).await;
    let lapsed = scene.tool("t").await;
    assert_eq!(
        (&lapsed["state"], &lapsed["tier"], &lapsed["override"]["applies"]),
        (&json!("approved"), &json!("destructive"), &json!(false))
    );
    assert_eq!(client.run("read", "up:t", &json!({})).await.code(), "server_mismatch");
    assert_eq!(direct_code(&reading.call("up:t", &json!({})).await), "-32602");
    assert!(listed(&reading).await.is_empty());
    // the one that was looked at
    scene.offers(vec![Tool::destroys("t")]).await;
    assert_eq!(scene.tool("t").await["override"]["applies"], true);
    client.run("read", "up:t", &json!({})).await.ok();
}

#[tokio::test]
async fn a_tightening_override_holds_on_until_it_is_taken_away() {
    let scene = Scene::with(vec![Tool::reads("t")], json!({"auto_approve": true})).await;
    let agent = scene.tenant.agent().await;
    let client = Mcp::modern(&agent);
    scene.says("t", json!({"destructiveHint": true})).await.expect(200);
    let refused = client.run("read", "up:t", &json!({})).await.refused("server_mismatch");
    let says = "Tool 'up:t' is marked destructive by your administrator, use call_tool_destructive";
    assert_eq!(refused["message"], says);
    assert_eq!(client.search(&json!({"query": "t", "exclude_destructive": true})).await["total"], 0);
    scene.offers(vec![Tool::annotated("t", r#"{"readOnlyHint":true,"title":"Other"}"#)]).await;
    assert_eq!(scene.tool("t").await["override"]["applies"], true);
    assert_eq!(client.run("write", "up:t", &json!({})).await.code(), "server_mismatch");
    client.run("destructive", "up:t", &json!({})).await.ok();
    let cleared = decide(&scene.tenant.platform, Method::DELETE, "t", "override", None).await.expect(200);
    assert_eq!((&cleared["override"], &cleared["tier"]), (&json!(null), &json!("read")));
    client.run("read", "up:t", &json!({})).await.ok();
    // another origin is another server: nothing that was said of this one holds
    scene.says("t", json!({"readOnlyHint": true})).await.expect(200);
    let elsewhere = scene.upstream.url.replace("127.0.0.1", "localhost");
    scene.tenant.platform.patch("/api/v1/servers/up", &json!({"url": elsewhere})).await.expect(200);
    assert_eq!(scene.tool("t").await["override"], json!(null));
}

/// Hints of the server and of its own invention beside them stay as they are written.
#[tokio::test]
async fn nothing_but_what_is_said_changes() {
    let annotations = r#"{"vendor/level":9007199254740993,"readOnlyHint":true, "destructiveHint":false,"idempotentHint":true,"openWorldHint":false,"title":"T\u00e9"}"#;
    let scene = Scene::with(vec![Tool::annotated("t", annotations)], json!({})).await;
    let agent = scene.tenant.agent().await;
    let texts = async || {
        let found = Mcp::bare(&agent).call("retrieve_tools", &json!({"query": "t"})).await;
        let shown = scene.tenant.platform.get("/api/v1/servers/up/tools").await;
        let mut texts = vec![found.raw().to_owned(), shown.text];
        for client in [Mcp::direct(&agent), Mcp::modern(&agent).at(crate::support::DIRECT)] {
            texts.push(client.request("tools/list", "{}").await.text);
        }
        texts
    };
    for text in texts().await {
        assert!(text.contains(annotations), "{text}");
    }
    scene.says("t", json!({"title": "Mine", "openWorldHint": true})).await.expect(200);
    let expected =
        annotations.replace(r#""T\u00e9""#, r#""Mine""#).replace("WorldHint\":false", "WorldHint\":true");
    for text in texts().await {
        assert!(text.contains(&expected), "{text}");
    }
}

#[tokio::test]
async fn an_override_is_of_a_definition_and_a_version() {
    let scene = Scene::with(vec![Tool::reads("t")], json!({})).await;
    let platform = &scene.tenant.platform;
    let pin = scene.pin("t").await;
    let put = async |body: Value| decide(platform, Method::PUT, "t", "override", Some(&body)).await;
    let worse = json!({"destructiveHint": true});
    let first = put(json!({"pin": pin, "annotations": worse, "version": 0})).await.expect(200);
    assert_eq!(first["override"]["version"], 1);
    put(json!({"pin": pin, "annotations": worse, "version": 0})).await.refused(409, "conflict");
    put(json!({"pin": pin, "annotations": worse, "version": 2})).await.refused(409, "conflict");
    let second = put(json!({"pin": pin, "annotations": worse, "version": 1})).await.expect(200);
    assert_eq!(second["override"]["version"], 2);
    decide(platform, Method::DELETE, "t", "override", None).await.expect(200);
    // versions are never given twice
    put(json!({"pin": pin, "annotations": worse, "version": 2})).await.refused(409, "conflict");
    let third = put(json!({"pin": pin, "annotations": worse, "version": 0})).await.expect(200);
    assert_eq!(third["override"]["version"], 3);
    scene.offers(vec![Tool::writes("t")]).await;
    put(json!({"pin": pin, "annotations": worse})).await.refused(409, "conflict");
    for (annotations, field) in [
        (json!({}), "annotations"),
        (json!({"readOnlyHint": "true"}), "annotations.readOnlyHint"),
        (json!({"title": 7}), "annotations.title"),
        (json!({"title": "x".repeat(201)}), "annotations.title"),
        (json!({"readonly": true}), "readonly"),
        (json!(true), "annotations"),
    ] {
        let answer = put(json!({"pin": pin, "annotations": annotations})).await;
        assert_eq!(answer.expect(400)["error"]["field"], field, "{answer:?}");
    }
    let acts = scene.tenant.records("type=admin&tool=tools.override", 13).await;
    let recorded = acts.last().unwrap()["arguments"].as_str().unwrap();
    assert!(recorded.contains(r#""annotations":{"destructiveHint":true}"#), "{recorded}");
}
