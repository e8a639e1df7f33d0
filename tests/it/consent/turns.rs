//! The end of a turn, and what it reaches.

use serde_json::json;

use super::{asked, asking, decide, write};
use crate::support::{Api, Mcp};

/// Ends the turn of an agent, by its request to read.
async fn end_turn(agent: &Api, approver: &Api) {
    let refused = Mcp::bare(agent).run("read", "zoo:reader", &json!({})).await.refused("consent_pending");
    decide(approver, refused["consent_id"].as_str().unwrap(), "cancel_turn").await.expect(200);
}

#[tokio::test]
async fn a_fence_holds_for_calls_that_a_grant_allows_and_for_no_others() {
    let free = json!([{"id": "free", "effect": "allow", "match": {"tool": "zoo:mild"}}]);
    let (_stage, tenant, upstream) = asking(&[], free).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_always").await.expect(200);
    write(&agent, &json!({"n": 2})).await.ok();
    end_turn(&agent, &approver).await;
    write(&agent, &json!({"n": 3})).await.refused("turn_cancelled");
    Mcp::bare(&agent).run("write", "zoo:mild", &json!({})).await.ok();
    assert_eq!(upstream.counts().calls, 2);
    // where nobody would be asked without the grant, it does not count
    let platform = &tenant.platform;
    let version = platform.get("/api/v1/policy").await.expect(200)["version"].clone();
    let body = json!({"version": version, "mode": "observe", "rules": []});
    platform.ask(reqwest::Method::PUT, "/api/v1/policy", Some(&body)).await.expect(200);
    write(&agent, &json!({"n": 4})).await.ok();
}
