//! A client misses nothing when a replica or a server ends: what it may have missed is told as an update.

use super::{Scene, TOLD, ear, serve, session, subscribe};
use crate::support::upstream::Era;

#[tokio::test]
async fn with_its_replica_a_client_goes_on_at_another() {
    let mut scene = Scene::set(Era::Handshake).await;
    let own = session(&scene.tenant.agent().await).await;
    subscribe(&own, "doc://a").await;
    let stream = ear(&scene.there(&own, 2)).await;
    stream.hears_updates(&["doc://a"], TOLD).await;
    scene.others[1].kill();
    stream.ends(TOLD).await;
    let back = ear(&scene.there(&own, 1)).await;
    back.hears_updates(&["doc://a"], TOLD).await;
    scene.upstream.update("doc://a");
    back.hears_updates(&["doc://a"; 2], TOLD).await;
}

#[tokio::test]
async fn with_its_server_every_resource_counts_as_updated() {
    for era in [Era::Handshake, Era::Modern] {
        let mut scene = Scene::set(era).await;
        let own = session(&scene.tenant.agent().await).await;
        let stream = ear(&scene.there(&own, 1)).await;
        subscribe(&own, "doc://a").await;
        stream.hears_updates(&["doc://a"], TOLD).await;
        scene.upstream.go_down().await;
        scene.upstream.come_back().await;
        stream.hears_updates(&["doc://a"; 2], TOLD * 2).await;
        scene.upstream.update("doc://a");
        stream.hears_updates(&["doc://a"; 3], TOLD).await;
    }
}

#[tokio::test]
async fn with_notices_of_wishes_they_are_read_again() {
    let scene = Scene::set(Era::Handshake).await;
    let own = session(&scene.tenant.agent().await).await;
    subscribe(&own, "doc://a").await;
    let stream = ear(&scene.there(&own, 1)).await;
    stream.hears_updates(&["doc://a"], TOLD).await;
    // another replica stored it, and its notice never came
    let added = "update client_sessions set uris = array_append(uris, 'doc://b')";
    super::lose_notices(&scene.stage, added).await;
    stream.hears_updates(&["doc://a", "doc://b"], TOLD * 2).await;
}

#[tokio::test]
async fn with_one_server_a_resource_is_watched_at_the_other_that_has_it() {
    let scene = Scene::set(Era::Handshake).await;
    let twin = serve(&scene.tenant, Era::Handshake, "twin").await;
    let own = session(&scene.tenant.agent().await).await;
    subscribe(&own, "doc://a").await;
    let stream = ear(&scene.there(&own, 1)).await;
    stream.hears_updates(&["doc://a"], TOLD).await;
    scene.tenant.platform.delete("/api/v1/servers/docs").await.expect(204);
    stream.hears_updates(&["doc://a"; 2], TOLD * 2).await;
    twin.update("doc://a");
    stream.hears_updates(&["doc://a"; 3], TOLD).await;
}
