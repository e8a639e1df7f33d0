//! Both releases side by side, and the older one after a rollback.

use serde_json::json;

use super::scene::{SOON, Scene, code, item, last_header, offer_code, offers, patch, refresh, tenant};
use crate::support::upstream::Era;
use crate::support::{Api, Gateway, Tool, Upstream, settle};

/// Servers that were added while both releases ran, by the one or the other.
pub struct Mixed {
    by_old: Upstream,
    by_new: Upstream,
}

/// Approves or blocks a prompt through a replica of the new release.
pub async fn decide(api: &Api, server: &str, prompt: &str, verb: &str) {
    let pin = item(api, server, "prompts", prompt).await["pin"].clone();
    let body = if verb == "approve" { json!({ "pin": pin }) } else { json!({}) };
    api.post(&format!("/api/v1/servers/{server}/prompts/{prompt}/{verb}"), &body).await.expect(200);
}

async fn offer_ends(gateway: &Gateway, scene: &Scene, offer: &str, expected: &str) {
    let agent = gateway.ask_as(&scene.agent);
    settle(expected.to_owned(), SOON, || offer_code(&agent, offer)).await;
}

impl Mixed {
    /// Adds a server through each replica, and gives its credential anew through the other.
    pub async fn make(old: &Gateway, new: &Gateway, scene: &Scene) -> Mixed {
        let start = || Upstream::announcing(Era::Handshake, vec![Tool::writes("t")]);
        let mixed = Mixed { by_old: start().await, by_new: start().await };
        for (name, upstream, by, other) in
            [("by-old", &mixed.by_old, old, new), ("by-new", &mixed.by_new, new, old)]
        {
            upstream.set_offers(offers(name, 0));
            tenant(by).add_with(name, upstream, json!({"headers": {"X-Key": "first"}})).await;
            mixed.is_called_with(name, other, scene, "first").await;
            patch(&tenant(other).platform, name, json!({"headers": {"X-Key": "second"}})).await;
            mixed.is_called_with(name, by, scene, "second").await;
        }
        // what the older one lists has no pins: the first listing of the newer one is the baseline
        refresh(&tenant(new).platform, "by-old").await;
        for gateway in [old, new] {
            mixed.holds(gateway, scene).await;
        }
        mixed
    }

    async fn is_called_with(&self, name: &str, gateway: &Gateway, scene: &Scene, key: &str) {
        let (agent, tool) = (gateway.ask_as(&scene.agent), format!("{name}:t"));
        let upstream = if name == "by-old" { &self.by_old } else { &self.by_new };
        settle(("ok".to_owned(), key.to_owned()), SOON, || async {
            (code(&agent, "write", &tool).await, last_header(upstream, "x-key"))
        })
        .await;
    }

    /// Checks that both are called with their newest credentials.
    pub async fn is_called(&self, gateway: &Gateway, scene: &Scene) {
        for name in ["by-old", "by-new"] {
            self.is_called_with(name, gateway, scene, "second").await;
        }
    }

    /// Checks that both are called with their newest credentials, and give what they offer.
    pub async fn holds(&self, gateway: &Gateway, scene: &Scene) {
        self.is_called(gateway, scene).await;
        for name in ["by-old", "by-new"] {
            for offer in [format!("{name}:one"), format!("{name}://two"), format!("{name}-of://7")] {
                offer_ends(gateway, scene, &offer, "ok").await;
            }
        }
    }
}

/// Checks what the releases promise about one another's decisions while both run.
pub async fn decisions(old: &Gateway, new: &Gateway, scene: &Scene) {
    // who added a server through the older one is known by the key
    let adder = new.ask_as(&tenant(old).operator().await);
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    let body = json!({"name": "theirs", "kind": "http", "url": upstream.url});
    old.ask_as(&adder).post("/api/v1/servers", &body).await.expect(201);
    let release = "/api/v1/servers/theirs/unquarantine";
    settle(403, SOON, || {
        let asked = adder.post(release, &json!({}));
        async { asked.await.status }
    })
    .await;
    new.ask_as(&scene.operator).post(release, &json!({})).await.expect(200);
    let agent = old.ask_as(&scene.agent);
    settle("ok".to_owned(), SOON, || code(&agent, "write", "theirs:t")).await;
    tenant(new).platform.delete("/api/v1/servers/theirs").await.expect(204);

    // the newer one knows persons; it finds them in what the older one writes
    let key = json!({"role": "operator", "owner": "ana"});
    let (adder, other) = (tenant(old).key(&key).await, tenant(new).key(&key).await);
    let body = json!({"name": "hers", "kind": "http", "url": upstream.url});
    old.ask_as(&adder).post("/api/v1/servers", &body).await.expect(201);
    let release = "/api/v1/servers/hers/unquarantine";
    settle(403, SOON, || {
        let asked = new.ask_as(&other).post(release, &json!({}));
        async { asked.await.status }
    })
    .await;
    tenant(new).platform.delete("/api/v1/servers/hers").await.expect(204);

    // a prompt that changes: the older one, which lists it, has no pins of prompts
    let (by_old, by_new) = (&tenant(old).platform, &tenant(new).platform);
    scene.up.set_offers(offers("up", 1));
    refresh(by_old, "up").await;
    offer_ends(new, scene, "up:two", "tool_changed").await;
    offer_ends(new, scene, "up://two", "tool_changed").await;
    offer_ends(old, scene, "up:two", "ok").await;
    decide(by_new, "up", "two", "approve").await;
    let pin = item(by_new, "up", "resources", "up://two").await["pin"].clone();
    let body = json!({"uri": "up://two", "pin": pin});
    by_new.post("/api/v1/servers/up/resources/approve", &body).await.expect(200);
    offer_ends(new, scene, "up:two", "ok").await;
    offer_ends(new, scene, "up://two", "ok").await;

    // a block stays, whatever the older one writes
    decide(by_new, "modern", "two", "block").await;
    refresh(by_old, "modern").await;
    offer_ends(new, scene, "modern:two", "tool_blocked").await;
    offer_ends(old, scene, "modern:two", "ok").await;
    by_new.delete("/api/v1/servers/modern/prompts/two/block").await.expect(200);
    offer_ends(new, scene, "modern:two", "ok").await;
}

/// A server that the older release moves to another path of its host.
pub struct Stray(Upstream);

impl Stray {
    /// Adds one through a replica of the older release, and moves it.
    pub async fn make(old: &Gateway) -> Stray {
        let stray = Stray(Upstream::handshake(vec![Tool::writes("t")]).await);
        let tenant = tenant(old);
        tenant.add_with("stray", &stray.0, json!({"headers": {"X-Key": "stray-0"}})).await;
        patch(&tenant.platform, "stray", json!({"url": stray.0.url.replace("/mcp", "/other")})).await;
        stray
    }

    /// Checks that its credential is forgotten and that it is called without one by nobody.
    pub async fn holds(&self, agent: &Api) {
        settle("server_unavailable".to_owned(), SOON, || code(agent, "write", "stray:t")).await;
        let (paths, keys) = (self.0.sent(":path"), self.0.sent("x-key"));
        let leaked = paths.iter().zip(&keys).any(|(path, key)| path == "/other" && !key.is_empty());
        assert!(!leaked, "{paths:?} {keys:?}");
        // a call that a replica had begun before it heard of the move went where the credential belongs
        let bare: Vec<_> =
            self.0.calls().into_iter().filter(|call| !call.headers.contains_key("x-key")).collect();
        assert!(bare.is_empty(), "called without its credential: {bare:?}");
    }
}

/// Checks what is otherwise after a rollback: there are no pins of prompts and resources, and separation of duties goes
/// by key alone.
pub async fn rolled_back(old: &Gateway, scene: &Scene) {
    offer_ends(old, scene, "up:three", "ok").await;
    scene.up.set_offers(offers("up", 2));
    refresh(&tenant(old).platform, "up").await;
    offer_ends(old, scene, "up:two", "ok").await;
    patch(&tenant(old).platform, "up", json!({"headers": {"X-Key": "up-2"}})).await;
    let tenant = tenant(old);
    let key = json!({"role": "operator", "owner": "ana"});
    let (adder, other) = (tenant.key(&key).await, tenant.key(&key).await);
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    let body = json!({"name": "hers", "kind": "http", "url": upstream.url});
    adder.post("/api/v1/servers", &body).await.expect(201);
    let release = "/api/v1/servers/hers/unquarantine";
    adder.post(release, &json!({})).await.expect(403);
    other.post(release, &json!({})).await.expect(200);
}
