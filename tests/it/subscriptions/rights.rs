//! The rights of a stream are those of its key now: whoever may not read a resource does not hear of it.

use serde_json::json;

use super::{Scene, TOLD, ear, session, subscribe};
use crate::support::upstream::Era;
use crate::support::{Ear, settle};

#[tokio::test]
async fn what_may_not_be_read_is_not_told() {
    let scene = Scene::set(Era::Handshake).await;
    let (agent, other) = (scene.tenant.agent().await, scene.tenant.agent().await);
    let (own, witness) = (session(&agent).await, session(&other).await);
    for client in [&own, &witness] {
        subscribe(client, "doc://a").await;
    }
    let stream = ear(&scene.there(&own, 1)).await;
    let seen = ear(&scene.there(&witness, 1)).await;
    for ear in [&stream, &seen] {
        ear.hears_updates(&["doc://a"], TOLD).await;
    }
    let platform = &scene.tenant.platform;
    let settings = format!("/api/v1/keys/{}/settings", agent.id);
    platform.patch(&settings, &json!({"allowed_tools": ["docs:look"]})).await.expect(200);
    stream.hears_of("resources", 1, TOLD).await;
    scene.upstream.update("doc://a");
    seen.hears_updates(&["doc://a"; 2], TOLD).await;
    assert_eq!(stream.updates(), ["doc://a"]);
    // what happened meanwhile is told once it may be read again
    platform.patch(&settings, &json!({"allowed_tools": null})).await.expect(200);
    stream.hears_updates(&["doc://a"; 2], TOLD).await;

    for (act, back) in [("disable", "enable"), ("quarantine", "unquarantine")] {
        let before = seen.updates().len();
        platform.post(&format!("/api/v1/servers/docs/{act}"), &json!({})).await.expect(200);
        settle(0, TOLD, || async { scene.upstream.listeners() }).await;
        scene.upstream.update("doc://a");
        platform.post(&format!("/api/v1/servers/docs/{back}"), &json!({})).await.expect(200);
        for ear in [&stream, &seen] {
            ear.hears_updates(&vec!["doc://a"; before + 1], TOLD * 2).await;
        }
    }

    // a resource that is not approved
    let before = seen.updates().len();
    for verb in ["block", "unblock"] {
        let path = format!("/api/v1/servers/docs/resources/{verb}");
        platform.post(&path, &json!({"kind": "resource", "uri": "doc://a"})).await.expect(200);
        if verb == "block" {
            scene.is_watched(0).await;
            scene.upstream.update("doc://a");
        }
    }
    for ear in [&stream, &seen] {
        ear.hears_updates(&vec!["doc://a"; before + 1], TOLD * 2).await;
    }

    platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    stream.ends(TOLD).await;
    scene.upstream.update("doc://a");
    let before = stream.updates().len();
    seen.hears_updates(&vec!["doc://a"; seen_count(&seen) + 1], TOLD).await;
    assert_eq!(stream.updates().len(), before);
    // the endpoint is closed
    platform.patch("/api/v1/settings", &json!({"direct_endpoint": false})).await.expect(200);
    seen.ends(TOLD).await;
}

fn seen_count(ear: &Ear) -> usize {
    ear.updates().len()
}
