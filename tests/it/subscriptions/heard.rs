//! Updates are heard by those who asked for them, and by nobody else.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Scene, TOLD, ask, ear, open, serve, session, subscribe};
use crate::support::upstream::Era;
use crate::support::{DIRECT, Ear, Mcp};

#[tokio::test]
async fn on_any_replica_by_one_session_alone() {
    for era in [Era::Handshake, Era::Modern] {
        let scene = Scene::set(era).await;
        let agent = scene.tenant.agent().await;
        let own = session(&agent).await;
        let stream = ear(&scene.there(&own, 2)).await;
        // another session of the key, another key, and another tenant with the same URI
        let neighbour = scene.tenant.agent().await;
        let foreign = open(&scene.stage, "globex").await;
        let theirs = serve(&foreign, era, "docs").await;
        let mut spared = Vec::new();
        for api in [&agent, &neighbour, &foreign.agent().await] {
            let other = session(api).await;
            spared.push(ear(&scene.there(&other, 2)).await);
        }
        let far = session(&foreign.agent().await).await;
        subscribe(&far, "doc://b").await;
        let far = ear(&scene.there(&far, 2)).await;
        far.hears_updates(&["doc://b"], TOLD).await;

        subscribe(&scene.there(&own, 1), "doc://a").await;
        // nobody heard what happened before the watch, so it counts as one update
        stream.hears_updates(&["doc://a"], TOLD).await;
        scene.is_watched(1).await;
        scene.upstream.update("doc://b");
        scene.upstream.update("doc://a");
        stream.hears_updates(&["doc://a"; 2], TOLD).await;
        theirs.update("doc://b");
        far.hears_updates(&["doc://b"; 2], TOLD).await;

        let left = ask(&own, "resources/unsubscribe", "doc://a").await;
        assert_eq!(left["result"], json!({}), "{left}");
        scene.is_watched(0).await;
        scene.upstream.update("doc://a");
        subscribe(&own, "doc://b").await;
        stream.hears_updates(&["doc://a", "doc://a", "doc://b"], TOLD).await;
        for ear in &spared {
            assert_eq!(ear.updates(), [""; 0], "{era:?}");
        }
        assert_eq!(far.updates(), ["doc://b"; 2], "{era:?}");
    }
}

#[tokio::test]
async fn two_streams_share_one_watch_and_what_comes_at_once_is_told_once() {
    for era in [Era::Handshake, Era::Modern] {
        let scene = Scene::set(era).await;
        let (one, two) =
            (session(&scene.tenant.agent().await).await, session(&scene.tenant.agent().await).await);
        subscribe(&one, "doc://a").await;
        subscribe(&two, "doc://b").await;
        let here = ear(&one).await;
        here.hears_updates(&["doc://a"], TOLD).await;
        // the second joins a watch that is open
        let beside = ear(&two).await;
        beside.hears_updates(&["doc://b"], TOLD).await;
        scene.is_watched(1).await;
        let began = Instant::now();
        for _ in 0..40 {
            scene.upstream.update("doc://a");
            // time passes between them, far less than that for which updates are merged
            one.request("ping", "{}").await;
        }
        scene.upstream.update("doc://b");
        beside.hears_updates(&["doc://b"; 2], TOLD).await;
        let (count, most) = (here.updates().len(), 3 + began.elapsed().as_millis() as usize / 200);
        assert!((2..=most).contains(&count), "{era:?}: {count} of 40 in {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn by_modern_clients_as_long_as_their_stream_lives() {
    let scene = Scene::set(Era::Modern).await;
    let agent = scene.replica(1).ask_as(&scene.tenant.agent().await);
    let modern = Mcp::modern(&agent).at(DIRECT);
    let wants =
        json!({"toolsListChanged": true, "resourceSubscriptions": ["doc://none", "doc://a", "doc://a"]});
    let stream = Ear::listen(&modern, &wants).await;
    let first = stream.messages().remove(0).json;
    let honoured = json!({"toolsListChanged": true, "resourceSubscriptions": ["doc://a"]});
    assert_eq!(first["params"]["notifications"], honoured, "{first}");
    stream.hears_updates(&["doc://a"], TOLD).await;
    scene.upstream.update("doc://a");
    stream.hears_updates(&["doc://a"; 2], TOLD).await;
    let last = stream.messages().pop().unwrap().json;
    assert_eq!(last["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "ear", "{last}");
    scene.is_watched(1).await;
    drop(stream);
    scene.is_watched(0).await;
    let search = Ear::listen(&Mcp::modern(&agent), &wants).await;
    assert_eq!(
        search.messages().remove(0).json["params"]["notifications"],
        json!({}),
        "on /mcp nothing is told"
    );
    drop(search);
    tokio::time::timeout(Duration::from_secs(1), scene.is_watched(0)).await.unwrap();
}
