//! What a person blocked stays blocked until a person lifts it.

use reqwest::Method;
use serde_json::json;

use super::{Scene, decide, direct_code, found, listed};
use crate::support::{Mcp, Tool};

#[tokio::test]
async fn a_block_survives_automatic_approval() {
    let scene = Scene::with(vec![Tool::reads("t")], json!({"auto_approve": true})).await;
    let platform = &scene.tenant.platform;
    let agent = scene.tenant.agent().await;
    let (client, direct) = (Mcp::bare(&agent), Mcp::direct(&agent));
    let done = decide(platform, Method::POST, "t", "block", Some(&json!({}))).await.expect(200);
    assert_eq!((&done["state"], &done["pin"]), (&json!("blocked"), &scene.pin("t").await));
    // again, another definition, gone, and back
    decide(platform, Method::POST, "t", "block", None).await.expect(200);
    for tools in [vec![Tool::writes("t")], Vec::new(), vec![Tool::writes("t")]] {
        let offered = !tools.is_empty();
        scene.offers(tools).await;
        assert_eq!(
            client.run("write", "up:t", &json!({})).await.code(),
            if offered { "tool_blocked" } else { "not_found" }
        );
        assert!(found(&client).await.is_empty() && listed(&direct).await.is_empty());
    }
    assert_eq!(direct_code(&direct.call("up:t", &json!({})).await), "tool_blocked");
    let lifted = decide(platform, Method::DELETE, "t", "block", None).await.expect(200);
    assert_eq!(lifted["state"], "changed", "nothing was approved by that");
    scene.offers(vec![Tool::writes("t")]).await;
    assert_eq!(scene.tool("t").await["state"], "approved", "the server's own setting takes it");
    client.run("write", "up:t", &json!({})).await.ok();
    let acts = scene.tenant.records("type=admin&tool=tools.block", 2).await;
    assert!(acts.iter().all(|act| act["server"] == "up" && act["status"] == "success"), "{acts:?}");
    scene.tenant.records("type=admin&tool=tools.unblock", 1).await;
}

#[tokio::test]
async fn lifting_gives_back_what_was_approved_and_approving_lifts() {
    let scene = Scene::with(vec![Tool::reads("t")], json!({})).await;
    let platform = &scene.tenant.platform;
    let client = Mcp::bare(&scene.tenant.agent().await);
    decide(platform, Method::POST, "t", "block", None).await.expect(200);
    assert_eq!(scene.tool("t").await["blocked_by"], json!(null), "the platform's own key has no id");
    let lifted = decide(platform, Method::DELETE, "t", "block", None).await.expect(200);
    assert_eq!(lifted["state"], "approved");
    client.run("read", "up:t", &json!({})).await.ok();
    let admin = scene.tenant.admin().await;
    decide(&admin, Method::POST, "t", "block", None).await.expect(200);
    assert_eq!(scene.tool("t").await["blocked_by"], json!(admin.id));
    assert_eq!(client.run("read", "up:t", &json!({})).await.code(), "tool_blocked");
    scene.approve("t").await;
    client.run("read", "up:t", &json!({})).await.ok();
    // a lift of nothing changes nothing
    let lifted = decide(platform, Method::DELETE, "t", "block", None).await.expect(200);
    assert_eq!(lifted["state"], "approved");
    // another place is approved anew, and a block is not forgotten
    decide(platform, Method::POST, "t", "block", None).await.expect(200);
    let elsewhere = scene.upstream.url.replace("127.0.0.1", "localhost");
    platform.patch("/api/v1/servers/up", &json!({"url": elsewhere})).await.expect(200);
    assert_eq!(scene.tool("t").await["state"], "blocked");
}
