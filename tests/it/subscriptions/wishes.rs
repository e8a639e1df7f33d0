//! Wishes of sessions: what is stored, for how long, and what is refused.

use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Connection;
use tokio::time::timeout;

use super::{Scene, TOLD, ask, ear, session, subscribe};
use crate::support::upstream::{Era, Offers};
use crate::support::{Mcp, Tool, Upstream, settle};

pub(super) async fn rows(connection: &mut sqlx::PgConnection) -> Vec<(Option<String>, Vec<String>)> {
    sqlx::query_as("select log_level, uris from client_sessions order by seen_at")
        .fetch_all(connection)
        .await
        .unwrap()
}

pub(super) async fn set_level(client: &Mcp, level: Value) -> Value {
    client.request("logging/setLevel", &json!({ "level": level }).to_string()).await.json()
}

#[tokio::test]
async fn a_session_keeps_them_until_it_ends() {
    let scene = Scene::set(Era::Handshake).await;
    let mut connection = scene.stage.database.connect().await;
    let own = session(&scene.tenant.agent_with(json!({"rate_limit": 50_000})).await).await;
    for level in ["info", "emergency", "debug"] {
        assert_eq!(set_level(&scene.there(&own, 1), level.into()).await["result"], json!({}), "{level}");
    }
    subscribe(&own, "doc://b").await;
    subscribe(&scene.there(&own, 2), "doc://a").await;
    subscribe(&own, "doc://b").await;
    let uris = vec!["doc://b".to_owned(), "doc://a".to_owned()];
    assert_eq!(rows(&mut connection).await, [(Some("debug".to_owned()), uris.clone())]);
    for wrong in [json!("loud"), json!("INFO"), json!(7), Value::Null] {
        let error = set_level(&own, wrong.clone()).await["error"].clone();
        assert_eq!(error["code"], -32602, "{wrong}: {error}");
    }
    assert_eq!(rows(&mut connection).await.len(), 1);

    for none in ["doc://none", "doc://a\0", &"x".repeat(5000)] {
        assert_eq!(ask(&own, "resources/unsubscribe", none).await["result"], json!({}), "{none}");
    }
    for nowhere in ["doc://a\0", &format!("doc://{}", "x".repeat(5000))] {
        let error = ask(&own, "resources/subscribe", nowhere).await["error"]["code"].clone();
        assert_eq!(error, -32002, "{nowhere}");
    }

    // a session of `/mcp` has a level, and no resources
    let search = Mcp::session(&own.api).await;
    assert_eq!(set_level(&search, "error".into()).await["result"], json!({}));
    assert_eq!(ask(&search, "resources/subscribe", "doc://a").await["error"]["code"], -32601);
    let ended = own.api.send(search.http(Method::DELETE)).await;
    assert_eq!(ended.status, 204);
    assert_eq!(rows(&mut connection).await, [(Some("debug".to_owned()), uris)]);

    // the oldest sessions of a key give way, those without subscriptions first
    for _ in 0..55 {
        set_level(&session(&own.api).await, "info".into()).await;
    }
    let kept = rows(&mut connection).await;
    assert_eq!((kept.len(), kept.iter().filter(|(_, uris)| uris.len() == 2).count()), (50, 1));
    connection.close().await.unwrap();
}

#[tokio::test]
async fn what_nobody_wishes_any_more_is_watched_no_more() {
    let scene = Scene::set(Era::Handshake).await;
    let own = session(&scene.tenant.agent().await).await;
    for uri in ["doc://a", "doc://b"] {
        subscribe(&own, uri).await;
    }
    let _stream = ear(&scene.there(&own, 1)).await;
    let watched = || async { scene.upstream.subscribed() };
    settle(vec!["doc://a".to_owned(), "doc://b".to_owned()], TOLD, watched).await;
    assert_eq!(ask(&own, "resources/unsubscribe", "doc://b").await["result"], json!({}));
    settle(vec!["doc://a".to_owned()], TOLD, watched).await;
}

#[tokio::test]
async fn what_cannot_be_watched_is_refused() {
    let scene = Scene::set(Era::Handshake).await;
    let silent = Upstream::handshake(vec![Tool::reads("look")]).await;
    silent.set_offers(Offers::resources(&["mute://a"]));
    scene.tenant.add_with("mute", &silent, json!({"auto_approve": true})).await;
    let agent = scene.tenant.agent().await;
    let own = session(&agent).await;
    settle(-32602, TOLD, || async {
        ask(&own, "resources/subscribe", "mute://a").await["error"]["code"].as_i64().unwrap_or_default()
    })
    .await;
    let error = ask(&own, "resources/subscribe", "doc://none").await["error"].clone();
    assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32002), &json!("doc://none")));
    for method in ["resources/subscribe", "resources/unsubscribe"] {
        assert_eq!(own.request(method, "{}").await.json()["error"]["code"], -32602, "{method}");
        let bare = ask(&Mcp::direct(&agent), method, "doc://a").await;
        assert_eq!(bare["error"]["code"], -32600, "without a session: {bare}");
    }
    // modern clients name resources in `subscriptions/listen`
    let modern = Mcp::modern(&agent).at(crate::support::DIRECT);
    assert_eq!(ask(&modern, "resources/subscribe", "doc://a").await["error"]["code"], -32601);
    scene.tenant.platform.post("/api/v1/servers/docs/disable", &json!({})).await.expect(200);
    let error = ask(&own, "resources/subscribe", "doc://a").await["error"].clone();
    assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32603), &json!("server_disabled")));
}

#[tokio::test]
async fn a_session_has_so_many_and_no_more() {
    let scene = Scene::set(Era::Handshake).await;
    let uris: Vec<String> = (0..101).map(|n| format!("many://{n:03}")).collect();
    let upstream = Upstream::announcing(Era::Handshake, vec![Tool::reads("look")]).await;
    upstream.set_offers(Offers::subscribable(&uris.iter().map(String::as_str).collect::<Vec<_>>()));
    scene.tenant.add_with("many", &upstream, json!({"auto_approve": true})).await;
    let own = session(&scene.tenant.agent_with(json!({"rate_limit": 50_000})).await).await;
    settle(json!({}), TOLD, || async { ask(&own, "resources/subscribe", &uris[0]).await["result"].clone() })
        .await;
    for uri in &uris[1..100] {
        subscribe(&own, uri).await;
    }
    let error = ask(&own, "resources/subscribe", &uris[100]).await["error"].clone();
    assert_eq!(error["code"], -32602, "{error}");
    let stream = ear(&scene.there(&own, 1)).await;
    settle(100, TOLD * 2, || async { stream.updates().len() }).await;
    assert_eq!(upstream.subscribed(), uris[..100]);
}

#[tokio::test]
async fn a_session_whose_row_is_held_keeps_no_other_waiting() {
    let scene = Scene::set(Era::Handshake).await;
    let other = super::open(&scene.stage, "other").await;
    let (agent, stranger) = (scene.tenant.agent().await, other.agent().await);
    let (held, own, strange) = (session(&agent).await, session(&agent).await, session(&stranger).await);
    assert_eq!(set_level(&held, "info".into()).await["result"], json!({}));
    let mut slow = scene.stage.database.connect().await;
    sqlx::raw_sql("begin; select from client_sessions for update").execute(&mut slow).await.unwrap();
    let waiting: Vec<_> = (0..2)
        .map(|_| {
            let there = scene.there(&held, 0);
            tokio::spawn(async move { set_level(&there, "debug".into()).await })
        })
        .collect();
    let blocked = "select count(*) from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'";
    settle(1, TOLD, || scene.stage.database.count(blocked)).await;
    // neither another session of the key nor another tenant's, at the replica where the first one waits
    for session in [&strange, &own] {
        let stored = timeout(TOLD, set_level(session, "info".into())).await.expect("it is not kept waiting");
        assert_eq!(stored["result"], json!({}), "{stored}");
    }
    for refused in waiting {
        assert_eq!(refused.await.unwrap()["error"]["data"]["code"], "unavailable");
    }
    slow.close().await.unwrap();
    settle(json!({}), TOLD, || async { set_level(&held, "debug".into()).await["result"].clone() }).await;
}
