//! What administrators do is recorded, refusals too, and unknown keys are counted.

use serde_json::json;

use crate::support::{Stage, Upstream, upstream};

#[tokio::test]
async fn acts_of_a_tenants_people() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(upstream::zoo()).await;
    let (admin, agent) = (tenant.admin().await, tenant.agent().await);
    let before = tenant.records("type=admin", 2).await.len();
    let made = admin.post("/api/v1/keys", &json!({"role": "agent", "owner": "ada"})).await.expect(201);
    admin
        .post("/api/v1/servers", &json!({"name": "zoo", "kind": "http", "url": upstream.url}))
        .await
        .expect(201);
    admin.post("/api/v1/servers/zoo/disable", &json!({})).await.expect(200);
    admin.patch("/api/v1/settings", &json!({"max_operation": "write"})).await.expect(200);
    admin.patch("/api/v1/settings", &json!({"max_operation": "nope"})).await.refused(400, "invalid_request");
    agent.post("/api/v1/servers/zoo/enable", &json!({})).await.refused(403, "forbidden");
    admin.delete(&format!("/api/v1/keys/{}", made["id"].as_str().unwrap())).await.expect(204);
    admin.delete("/api/v1/servers/zoo").await.expect(204);
    let acts = tenant.records("type=admin", before + 8).await;
    let with = |status: &str| acts.iter().filter(|act| act["status"] == status).count();
    assert_eq!((with("success"), with("blocked")), (before + 6, 2));
    assert!(acts.iter().all(|act| act["tool"].is_string()), "an act without a name");
    let secret = made["key"].as_str().unwrap();
    assert!(acts.iter().all(|act| !act.to_string().contains(secret)), "a key's secret is in the log");
    let by_agent = tenant.records(&format!("type=admin&key={}", agent.id), 1).await;
    assert_eq!(by_agent[0]["error_code"], "forbidden");
}
