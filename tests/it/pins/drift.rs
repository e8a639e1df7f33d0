//! Hints that get worse are flagged, whoever took the change.

use serde_json::{Value, json};

use super::Scene;
use crate::support::Tool;

async fn flag(scene: &Scene, tool: &str) -> Value {
    let tool = scene.tool(tool).await;
    assert_eq!(tool["drift"].is_null(), tool["drifted_at"].is_null(), "{tool}");
    tool["drift"].clone()
}

#[tokio::test]
async fn drift_is_flagged_under_automatic_approval() {
    let scene =
        Scene::with(vec![Tool::reads("t"), Tool::writes("calm")], json!({"auto_approve": true})).await;
    let changed = vec![
        Tool::annotated("t", r#"{"destructiveHint":true,"readOnlyHint":true}"#),
        Tool::annotated("calm", r#"{"readOnlyHint":false,"destructiveHint":false,"title":"Calm"}"#),
        Tool::destroys("new"),
    ];
    scene.offers(changed).await;
    let tool = scene.tool("t").await;
    assert_eq!((&tool["state"], &tool["drift"]), (&json!("approved"), &json!("to_destructive")));
    assert_eq!((flag(&scene, "calm").await, flag(&scene, "new").await), (json!(null), json!(null)));
    let told = scene.tenant.records("type=system&server=up", 1).await.remove(0);
    assert_eq!((&told["tool"], &told["source"]), (&json!("t"), &json!("system")));
    assert!(told["warning"].as_str().unwrap().contains("not destructive and is now"), "{told}");
    // it stays until somebody has looked, and is not told again
    scene.offers(vec![Tool::destroys("t")]).await;
    scene.offers(vec![Tool::reads("t")]).await;
    scene.offers(vec![Tool::destroys("t")]).await;
    assert_eq!(flag(&scene, "t").await, "to_destructive");
    scene.approve("t").await;
    assert_eq!(flag(&scene, "t").await, json!(null));
    // what comes next is told: this is the sentinel for what was not
    scene.offers(vec![Tool::reads("t")]).await;
    scene.offers(vec![Tool::writes("t")]).await;
    assert_eq!(flag(&scene, "t").await, "from_read_only");
    scene.tenant.records("type=system&server=up", 2).await;
}

#[tokio::test]
async fn drift_is_flagged_before_approval_and_compares_with_what_was_approved() {
    let scene = Scene::with(vec![Tool::reads("t")], json!({})).await;
    scene.offers(vec![Tool::new("t")]).await;
    let tool = scene.tool("t").await;
    assert_eq!((&tool["state"], &tool["drift"]), (&json!("changed"), &json!("from_read_only")));
    // worse still
    scene.offers(vec![Tool::destroys("t")]).await;
    assert_eq!(flag(&scene, "t").await, "to_destructive");
    scene.tenant.records("type=system&server=up&tool=t", 2).await;
    scene.approve("t").await;
    assert_eq!(flag(&scene, "t").await, json!(null));
    scene.offers(vec![Tool::reads("t")]).await;
    assert_eq!(flag(&scene, "t").await, json!(null), "that is no drift");
}
