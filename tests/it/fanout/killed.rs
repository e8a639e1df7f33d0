//! Replicas that die in the middle of it: the one that watches the servers, and one that holds streams.

use std::time::Duration;

use serde_json::json;

use super::{ACT, NO_RELIST, ON, OWN, Scene, modern, names, session};
use crate::support::upstream::Era;
use crate::support::{DIRECT, Ear, Gateway, Mcp, Tool, Upstream, settle};

/// The lease of a dead replica is free after 10 s, and looked for every 2 s.
const TAKEN_OVER: Duration = Duration::from_secs(15);

#[tokio::test]
async fn streams_go_on_elsewhere_and_no_server_flickers() {
    let scene = Scene::set().await;
    let Scene { stage, other, tenant, .. } = scene;
    let (mut watcher, database) = (stage.gateway, stage.database);
    let third = Gateway::start(&database, &[ON, NO_RELIST]).await;
    let upstream = Upstream::announcing(Era::Handshake, vec![Tool::reads("alpha")]).await;
    tenant.add_with("up", &upstream, json!({"auto_approve": true})).await;
    settle(1, Duration::from_secs(10), || async { upstream.listeners() }).await;
    settle(true, OWN, || async { upstream.counts().lists >= 2 }).await;
    let agent = tenant.agent().await;
    let own = session(&agent).await;
    let held = [Ear::of(&own, None).await, Ear::of(&modern(&agent), None).await];
    let last = held[0].id().await;
    let elsewhere = Ear::of(&modern(&other.ask_as(&agent)), None).await;

    watcher.kill();
    for ear in &held {
        ear.ends(ACT).await;
    }
    // clients come back to any replica, in their session, with the id of what they were told last
    let there = third.ask_as(&agent);
    let back = Mcp::in_session(&there, own.session_id()).at(DIRECT);
    let back = [Ear::of(&back, Some(&last)).await, Ear::of(&modern(&there), None).await];
    assert_eq!(names(&modern(&there)).await, ["read_cache", "up:alpha"]);
    settle(1, TAKEN_OVER, || async { upstream.listeners() }).await;
    settle(true, OWN, || async { upstream.counts().lists >= 3 }).await;

    upstream.set_tools(vec![Tool::reads("beta")]);
    upstream.announce(1);
    // the first that they hear: neither the death nor the takeover was a change of anything
    for ear in back.iter().chain([&elsewhere]) {
        ear.hears(1, OWN).await;
    }
    for replica in [&other, &third] {
        assert_eq!(names(&modern(&replica.ask_as(&agent))).await, ["read_cache", "up:beta"]);
    }
    drop(database);
}
