//! More sessions of one key than are kept: those with a stream stay.

use serde_json::json;

use super::wishes::{rows, set_level};
use super::{Scene, TOLD, ask, ear, session};
use crate::support::settle;
use crate::support::upstream::Era;

#[tokio::test]
async fn a_session_with_a_stream_gives_way_to_nobody() {
    let scene = Scene::set(Era::Handshake).await;
    let mut connection = scene.stage.database.connect().await;
    let live = async || {
        let mut connection = scene.stage.database.connect().await;
        let live = "select count(*) from client_sessions where live_until > now()";
        sqlx::query_scalar::<_, i64>(live).fetch_one(&mut connection).await.unwrap()
    };
    let agent = scene.tenant.agent_with(json!({"rate_limit": 50_000})).await;
    let own = session(&agent).await;
    // a stream that is older than the wish, at another replica
    let stream = ear(&scene.there(&own, 1)).await;
    set_level(&own, "debug".into()).await;
    settle(1, TOLD * 3, &live).await;
    for _ in 0..55 {
        set_level(&session(&agent).await, "info".into()).await;
    }
    let kept = rows(&mut connection).await;
    let debug = kept.iter().filter(|(level, _)| level.as_deref() == Some("debug")).count();
    assert_eq!((kept.len(), debug), (50, 1));

    // as if all of them had streams
    let all = "update client_sessions set live_until = now() + interval '1 hour'";
    sqlx::query(all).execute(&mut connection).await.unwrap();
    let newcomer = session(&agent).await;
    let refused = [
        set_level(&newcomer, "info".into()).await["error"].clone(),
        ask(&newcomer, "resources/subscribe", "doc://a").await["error"].clone(),
    ];
    for error in refused {
        assert_eq!((&error["code"], &error["data"]["code"]), (&json!(-32603), &json!("overloaded")));
        assert!(error["message"].as_str().unwrap().contains("has 50 other sessions"), "{error}");
    }
    assert_eq!(ask(&newcomer, "resources/unsubscribe", "doc://a").await["result"], json!({}));
    assert_eq!(set_level(&own, "error".into()).await["result"], json!({}), "it has its place");
    assert_eq!(rows(&mut connection).await.len(), 50);

    drop(stream);
    settle(49, TOLD * 3, &live).await;
    assert_eq!(set_level(&newcomer, "info".into()).await["result"], json!({}));
    let kept = rows(&mut connection).await;
    assert!(kept.len() == 50 && kept.iter().all(|(level, _)| level.as_deref() == Some("info")), "{kept:?}");
}
