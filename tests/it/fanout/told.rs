//! Whoever's list has changed is told in time, on every replica; nobody else is told anything.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{ACT, OWN, Scene, ears, modern, names, open, session};
use crate::support::upstream::Era;
use crate::support::{Ear, Mcp, Stage, Tool, Upstream, settle};

#[tokio::test]
async fn of_every_act_and_nobody_else_is() {
    let mut scene = Scene::set().await;
    scene.add("zoo", &["reader"]).await;
    scene.add("lab", &["measure"]).await;
    let agent = scene.tenant.agent().await;
    let elsewhere = scene.tenant.agent_with(json!({"allowed_tools": ["lab:*"]})).await;
    let foreign = open(&scene.stage, "globex").await;
    foreign.add("zoo", &scene.upstreams[0]).await;
    let stranger = foreign.agent().await;

    let mut told = Vec::from(ears(&agent).await);
    told.extend(ears(&scene.there(&agent)).await);
    let mut spared = Vec::from(ears(&elsewhere).await);
    spared.extend(ears(&scene.there(&elsewhere)).await);
    spared.extend(ears(&stranger).await);
    spared.extend(ears(&scene.there(&stranger)).await);

    let there = modern(&scene.there(&agent));
    let acts = [
        ("disable", vec!["lab:measure", "read_cache"]),
        ("enable", vec!["lab:measure", "read_cache", "zoo:reader"]),
        ("quarantine", vec!["lab:measure", "read_cache"]),
        ("unquarantine", vec!["lab:measure", "read_cache", "zoo:reader"]),
    ];
    for (round, (act, seen)) in acts.into_iter().enumerate() {
        let began = Instant::now();
        scene.act("zoo", act).await;
        for ear in &told {
            let heard = ear.hears(round + 1, ACT).await;
            assert!(heard - began < ACT, "{act}: {:?}", heard - began);
        }
        let mut listed = names(&there).await;
        listed.sort();
        assert_eq!(listed, seen, "{act}");
    }
    scene.tenant.platform.delete("/api/v1/servers/zoo").await.expect(204);
    for ear in &told {
        ear.hears(5, ACT).await;
    }

    // a change of their own, which comes after all that must not have been heard
    scene.act("lab", "disable").await;
    foreign.platform.post("/api/v1/servers/zoo/disable", &json!({})).await.expect(200);
    for ear in &spared {
        ear.hears(1, ACT).await;
    }
    for ear in &told {
        ear.hears(6, ACT).await;
    }
}

#[tokio::test]
async fn of_what_an_upstream_announces() {
    let scene = Scene::set().await;
    for era in [Era::Handshake, Era::Modern] {
        let name = format!("{era:?}").to_lowercase();
        // one that has not listed before: what that was served was not of now
        let agent = scene.tenant.agent().await;
        let upstream = Upstream::announcing(era, vec![Tool::reads("alpha")]).await;
        scene.tenant.add_with(&name, &upstream, json!({"auto_approve": true})).await;
        settle(1, Duration::from_secs(10), || async { upstream.listeners() }).await;
        // the listing that follows the opening: what changed before was announced to nobody
        settle(true, OWN, || async { upstream.counts().lists >= 2 }).await;
        let (here, there) = (ears(&agent).await, ears(&scene.there(&agent)).await);
        let began = Instant::now();
        upstream.set_tools(vec![Tool::reads("beta")]);
        upstream.announce(1);
        for ear in here.iter().chain(&there) {
            let heard = ear.hears(1, OWN).await;
            assert!(heard - began < OWN, "{era:?}: {:?}", heard - began);
        }
        for gateway in [&scene.stage.gateway, &scene.other] {
            let seen = names(&modern(&gateway.ask_as(&agent))).await;
            assert!(seen.contains(&format!("{name}:beta")), "{seen:?}");
            assert!(!seen.contains(&format!("{name}:alpha")), "{seen:?}");
        }
    }
}

#[tokio::test]
async fn what_is_promised_is_what_is_told() {
    let scene = Scene::set().await;
    let agent = scene.tenant.agent().await;
    let acknowledged = async |client: &Mcp, wants: serde_json::Value| {
        let ear = Ear::listen(client, &wants).await;
        let first = ear.messages().remove(0).json;
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"], "ear");
        first["params"]["notifications"].clone()
    };
    let direct = modern(&agent);
    let tools = json!({"toolsListChanged": true});
    let wants = json!({"toolsListChanged": true, "resourceSubscriptions": ["x://1"], "else": true});
    assert_eq!(acknowledged(&direct, wants).await, tools);
    for nothing in [json!({}), json!({"toolsListChanged": false}), json!({"toolsListChanged": "true"})] {
        assert_eq!(acknowledged(&direct, nothing).await, json!({}));
    }
    assert_eq!(acknowledged(&Mcp::modern(&agent), tools).await, json!({}), "on /mcp nothing is told");
    for wrong in ["{}", r#"{"notifications":7}"#, r#"{"notifications":[true]}"#] {
        let answer = direct.request("subscriptions/listen", wrong).await;
        assert_eq!(answer.expect(200)["error"]["code"], -32602, "{wrong}");
    }

    for (path, is_told) in [("/mcp", false), (crate::support::DIRECT, true)] {
        let discovered = Mcp::modern(&agent).at(path).request("server/discover", "{}").await;
        let hello = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}});
        let greeted = Mcp::bare(&agent).at(path).request("initialize", &hello.to_string()).await;
        for answer in [discovered, greeted] {
            let said = &answer.expect(200)["result"]["capabilities"]["tools"]["listChanged"];
            assert_eq!(said, is_told, "{path}");
        }
    }
}

/// Streams of a replica that goes end, so that clients come back elsewhere; modern ones with a result.
#[tokio::test]
async fn streams_end_with_their_replica() {
    let scene = Scene::set().await;
    let agent = scene.tenant.agent().await;
    let Scene { stage, mut other, .. } = scene;
    let [get, listen] = ears(&other.ask_as(&agent)).await;
    other.terminate();
    get.ends(ACT).await;
    listen.ends(ACT).await;
    let last = listen.messages().pop().unwrap().json;
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!("ear"), &json!("complete")), "{last}");
    assert!(get.messages().is_empty(), "{:?}", get.messages());
    other.ended().await;
    drop(session(&stage.gateway.ask_as(&agent)).await);
}

/// Told behind a pooler as well.
#[tokio::test]
async fn through_a_pooler() {
    let mut scene = Scene::set().await;
    let Stage { database, .. } = &scene.stage;
    let bouncer = crate::support::PgBouncer::start(database).await;
    let pooled = super::pooled(database, &bouncer).await;
    scene.add("zoo", &["reader"]).await;
    let agent = scene.tenant.agent().await;
    let ears = ears(&pooled.ask_as(&agent)).await;
    scene.act("zoo", "disable").await;
    for ear in &ears {
        ear.hears(1, ACT).await;
    }
}
