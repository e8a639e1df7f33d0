//! Policies on several replicas.

use std::time::Duration;

use serde_json::json;

use super::{code, put, set, zoo};
use crate::support::{Gateway, settle};

/// Within this a change made on one replica holds on the other.
const SOON: Duration = Duration::from_secs(1);

#[tokio::test]
async fn a_change_holds_on_every_replica() {
    let (stage, tenant, _upstream) = zoo(&[]).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let agent = tenant.agent().await;
    let there = other.ask_as(&agent);
    assert_eq!(code(&there, "write", "writer").await, "ok");
    set(&tenant, "by_risk", json!([{"id": "a", "effect": "deny", "match": {"tool": "zoo:writer"}}])).await;
    settle("policy_denied".to_owned(), SOON, || code(&there, "write", "writer")).await;
    set(&tenant, "by_risk", json!([])).await;
    settle("ok".to_owned(), SOON, || code(&there, "write", "writer")).await;
    let own = json!({"version": 0, "rules": [{"id": "b", "effect": "deny"}]});
    put(&tenant.platform, &format!("/keys/{}/policy", agent.id), &own).await.expect(200);
    settle("policy_denied".to_owned(), SOON, || code(&there, "write", "writer")).await;
    // the version that the other replica wrote is the one to name here
    let elsewhere = other.ask_as(&tenant.platform);
    put(&elsewhere, "/policy", &json!({"version": 1, "rules": []})).await.refused(409, "conflict");
    put(&elsewhere, "/policy", &json!({"version": 2, "mode": "deny_unless_allowed", "rules": []}))
        .await
        .expect(200);
    settle("policy_denied".to_owned(), SOON, || code(&agent, "write", "writer")).await;
}
