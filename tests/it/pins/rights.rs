//! Who may decide about a tool.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use sqlx::Connection;

use super::{Scene, decide};
use crate::support::{Tool, Upstream, settle};

#[tokio::test]
async fn an_operator_does_not_vouch_for_its_own_server() {
    let scene = Scene::with(Vec::new(), json!({"enabled": false})).await;
    let (own, other) = (scene.tenant.operator().await, scene.tenant.operator().await);
    scene.tenant.platform.delete("/api/v1/servers/up").await.expect(204);
    scene.upstream.set_tools(vec![Tool::destroys("t")]);
    let server = json!({"name": "up", "kind": "http", "url": scene.upstream.url});
    own.post("/api/v1/servers", &server).await.expect(201);
    let pin = scene.pin("t").await;
    let said = json!({"pin": pin, "annotations": {"readOnlyHint": true, "destructiveHint": false}});
    let approval = json!({"pin": pin});
    let acts = [
        (Method::POST, "approve", Some(&approval)),
        (Method::PUT, "override", Some(&said)),
        (Method::DELETE, "override", None),
        (Method::DELETE, "block", None),
    ];
    for (method, verb, body) in acts {
        let refused = decide(&own, method.clone(), "t", verb, body).await.refused(403, "forbidden");
        assert!(refused.contains("somebody else"), "{verb}: {refused}");
        decide(&other, method, "t", verb, body).await.expect(200);
    }
    // to make it worse is nobody's harm
    decide(&own, Method::POST, "t", "block", None).await.expect(200);
    decide(&own, Method::DELETE, "t", "block", None).await.refused(403, "forbidden");
    assert_eq!(scene.tool("t").await["state"], "blocked");
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_nobodys() {
    let scene = Scene::with(vec![Tool::reads("t")], json!({})).await;
    let admin = scene.tenant.admin().await;
    let said = json!({"pin": scene.pin("t").await, "annotations": {"readOnlyHint": true}});
    for tool in ["none", "a%00b"] {
        decide(&admin, Method::POST, tool, "block", None).await.refused(404, "not_found");
        decide(&admin, Method::DELETE, tool, "block", None).await.refused(404, "not_found");
        decide(&admin, Method::PUT, tool, "override", Some(&said)).await.refused(404, "not_found");
        decide(&admin, Method::DELETE, tool, "override", None).await.refused(404, "not_found");
    }
    scene.offers(Vec::new()).await;
    decide(&admin, Method::POST, "t", "block", None).await.refused(404, "not_found");
    decide(&admin, Method::PUT, "t", "override", Some(&said)).await.refused(404, "not_found");
}

/// What the release was allowed for is not what is released.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_moved_meanwhile_is_not_released() {
    let scene = Scene::with(vec![Tool::reads("t")], json!({})).await;
    let (database, platform) = (&scene.stage.database, &scene.tenant.platform);
    let elsewhere = Upstream::handshake(vec![Tool::destroys("evil")]).await;
    let waiting = async || {
        // those that change the server; what lists it, or looks how old its listing is, may wait as well
        let waiting = "select count(*) from pg_stat_activity where datname = current_database()
             and wait_event_type = 'Lock' and query like 'select from servers where tenant_id%'";
        database.count(waiting).await
    };
    for (verb, body) in [("unquarantine", json!({})), ("", json!({"auto_approve": true}))] {
        platform.delete("/api/v1/servers/up").await.expect(204);
        let server = json!({"name": "up", "kind": "http", "url": scene.upstream.url});
        platform.post("/api/v1/servers", &server).await.expect(201);
        // its first listing changes it
        settle(json!("connected"), Duration::from_secs(10), || async {
            platform.get("/api/v1/servers/up").await.expect(200)["connection"].clone()
        })
        .await;
        let (moving, acting) = (scene.tenant.operator().await, scene.tenant.operator().await);
        let mut connection = database.connect().await;
        let mut tx = connection.begin().await.unwrap();
        sqlx::query("select from servers where name = 'up' for update").execute(&mut *tx).await.unwrap();
        let url = json!({"url": elsewhere.url});
        let moved = tokio::spawn(async move { moving.patch("/api/v1/servers/up", &url).await.status });
        settle(1, Duration::from_secs(5), &waiting).await;
        // that it may is looked at while the server is where it was
        let acted = tokio::spawn(async move {
            match verb {
                "" => acting.patch("/api/v1/servers/up", &body).await.status,
                verb => acting.post(&format!("/api/v1/servers/up/{verb}"), &body).await.status,
            }
        });
        settle(2, Duration::from_secs(5), &waiting).await;
        tx.rollback().await.unwrap();
        assert_eq!((moved.await.unwrap(), acted.await.unwrap()), (200, 409), "{verb}");
        let server = platform.get("/api/v1/servers/up").await.expect(200);
        assert_eq!(
            (&server["quarantined"], &server["auto_approve"]),
            (&json!(true), &json!(false)),
            "{server}"
        );
    }
}
