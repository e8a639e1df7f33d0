//! A suspended tenant is served nothing, and has everything when it is resumed.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::upstream::Era;
use crate::support::{Gateway, Mcp, Stage, Tool, Upstream, settle};

/// Within this it holds on every replica.
const SOON: Duration = Duration::from_secs(1);
/// Streams look once a second whether their key is still valid.
const ENDED: Duration = Duration::from_secs(3);
/// The same when every notice was lost: a few polls.
const UNTOLD: Duration = Duration::from_secs(6);
/// What looks after servers comes by every few seconds.
const LISTED: Duration = Duration::from_secs(15);
const SENTENCE: &str = "this tenant is suspended; ask the platform operator";

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_served_until_it_is_resumed() {
    let often = [("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")];
    let stage = Stage::with(&often).await;
    let other = Gateway::start(&stage.database, &often).await;
    let (tenant, neighbour) = (stage.tenant("acme").await, stage.tenant("zeta").await);
    let upstream = Upstream::announcing(Era::Modern, vec![Tool::reads("t")]).await;
    tenant.add("up", &upstream).await;
    let (admin, theirs) = (tenant.admin().await, neighbour.admin().await);
    let mut streams = Vec::new();
    for gateway in [&stage.gateway, &other] {
        let here = gateway.ask_as(&admin);
        settle("ok".to_owned(), ENDED, || async {
            Mcp::bare(&here).run("read", "up:t", &json!({})).await.code()
        })
        .await;
        let stream = here.request(reqwest::Method::GET, "/mcp").header("Accept", "text/event-stream");
        streams.push(stream.send().await.unwrap().error_for_status().unwrap());
    }
    settle(1, LISTED, || async { upstream.listeners() }).await;
    let platform = stage.platform();
    let suspend = "/api/v1/tenants/acme/suspend";
    let suspended = platform.post(suspend, &json!({})).await.expect(200);
    assert!(suspended["suspended_at"].is_string(), "{suspended}");
    // to say so twice changes nothing
    assert_eq!(
        platform.post(suspend, &json!({})).await.expect(200)["suspended_at"],
        suspended["suspended_at"]
    );

    for gateway in [&stage.gateway, &other] {
        let here = gateway.ask_as(&admin);
        settle(403, SOON, || async { here.get("/api/v1/status").await.status }).await;
        for answer in [here.get("/api/v1/servers").await, Mcp::bare(&here).request("tools/list", "{}").await]
        {
            answer.refused(403, "forbidden");
            assert_eq!(answer.json()["error"]["message"], SENTENCE, "{answer:?}");
        }
        gateway.ask_as(&theirs).get("/api/v1/status").await.expect(200);
    }
    let ended = futures_util::future::join_all(streams.into_iter().map(reqwest::Response::text));
    tokio::time::timeout(ENDED, ended).await.expect("streams that do not end");
    settle((0, 0), ENDED, || async { (upstream.listeners(), upstream.connections()) }).await;
    let asked = upstream.counts().requests;

    // the platform looks, and changes no server and calls no tool
    let acting = &tenant.platform;
    assert_eq!(acting.items("/api/v1/servers").await.len(), 1);
    assert_eq!(acting.items("/api/v1/keys").await.len(), 1);
    assert_eq!(acting.items("/api/v1/activity?type=tool_call").await.len(), 2);
    for (path, body) in [
        ("/api/v1/servers/up/refresh", json!({})),
        ("/api/v1/servers/up/enable", json!({})),
        ("/api/v1/tools/call", json!({"tool_variant": "call_tool_read", "name": "up:t"})),
    ] {
        let refused = acting.post(path, &body).await;
        refused.refused(403, "forbidden");
        assert_eq!(refused.json()["error"]["message"], SENTENCE, "{path}");
    }
    Mcp::bare(acting).request("tools/list", "{}").await.refused(403, "forbidden");
    // long enough for a few listings
    let neighbours = Upstream::handshake(vec![Tool::reads("t")]).await;
    neighbour.add("up", &neighbours).await;
    settle(true, LISTED, || async { neighbours.counts().lists >= 4 }).await;
    assert_eq!(upstream.counts().requests, asked, "somebody asked a suspended tenant's server");

    let resumed = platform.post("/api/v1/tenants/acme/resume", &json!({})).await.expect(200);
    assert_eq!(resumed["suspended_at"], Value::Null);
    for gateway in [&stage.gateway, &other] {
        let here = gateway.ask_as(&admin);
        settle("ok".to_owned(), LISTED, || async {
            Mcp::bare(&here).run("read", "up:t", &json!({})).await.code()
        })
        .await;
    }
    settle(1, LISTED, || async { upstream.listeners() }).await;
    let acts: Vec<Value> = platform
        .items("/api/v1/activity?type=admin")
        .await
        .into_iter()
        .map(|record| record["tool"].clone())
        .filter(|tool| matches!(tool.as_str(), Some("tenants.suspend" | "tenants.resume")))
        .collect();
    assert_eq!(acts, ["tenants.resume", "tenants.suspend", "tenants.suspend"]);
    platform.post("/api/v1/tenants/none/suspend", &json!({})).await.refused(404, "not_found");
}

#[tokio::test]
async fn a_suspended_tenant_stays_so_and_may_be_deleted() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    agent.get("/api/v1/status").await.expect(200);
    stage.platform().post("/api/v1/tenants/acme/suspend", &json!({})).await.expect(200);
    for _ in 0..3 {
        agent.get("/api/v1/status").await.refused(403, "forbidden");
    }
    // what is only counted is written when the gateway stops
    stage.gateway.terminate();
    stage.gateway.ended().await;
    let next = Gateway::start(&stage.database, &[]).await;
    next.ask_as(&agent).get("/api/v1/status").await.refused(403, "forbidden");
    let platform = next.platform();
    let counted = platform.as_tenant("acme").items("/api/v1/activity?type=auth_failure").await;
    assert_eq!(counted.len(), 1, "{counted:?}");
    let message = counted[0]["error_message"].as_str().unwrap();
    assert!(message.starts_with("3 requests") && message.contains("suspended"), "{counted:?}");
    platform.delete("/api/v1/tenants/acme").await.expect(204);
    assert_eq!(next.ask_as(&agent).get("/api/v1/status").await.status, 401);
}

/// The replica that lists a tenant's servers has none of its keys, and hears nothing.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_only_lists_lets_go_without_being_told() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")]).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let platform = other.platform();
    platform.post("/api/v1/tenants", &json!({"name": "acme"})).await.expect(201);
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    let body = json!({"name": "up", "kind": "http", "url": upstream.url});
    platform.as_tenant("acme").post("/api/v1/servers", &body).await.expect(201);
    let before = upstream.connections();
    settle(true, LISTED, || async { upstream.connections() > before }).await;
    let deaf = crate::replicas::without_notices(stage.database.url());
    platform.post("/api/v1/tenants/acme/suspend", &json!({})).await.expect(200);
    settle(0, UNTOLD, || async { upstream.connections() }).await;
    deaf.abort();
}
