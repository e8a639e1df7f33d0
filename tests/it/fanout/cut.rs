//! A replica that is cut off from the database for ten seconds: it says so, goes on with what it knows, and has caught
//! up two seconds after it can reach it again.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{ACT, ON, OWN, modern, names, open, session};
use crate::support::{Database, Ear, Gateway, Line, Stage, Tool, Upstream, Way, settle};

/// How long the line is cut.
const CUT: Duration = Duration::from_secs(10);
/// By then a replica that confirms nothing says so.
const DEGRADED: Duration = Duration::from_secs(8);

async fn cut(way: Way) {
    let database = Database::migrated().await;
    let line = Line::to(database.port()).await;
    let away = line.url(&database.url());
    let away = Gateway::start(&database, &[ON, ("MCPPROXY__DATABASE__URL", &away)]).await;
    let stage = Stage { gateway: Gateway::start(&database, &[ON]).await, database };
    let tenant = open(&stage, "acme").await;
    let (zoo, lab) = (
        Upstream::handshake(vec![Tool::reads("reader")]).await,
        Upstream::handshake(vec![Tool::reads("measure")]).await,
    );
    tenant.add("zoo", &zoo).await;
    tenant.add("lab", &lab).await;
    let agent = tenant.agent().await;
    let there = modern(&away.ask_as(&agent));
    let all = ["lab:measure", "read_cache", "zoo:reader"];
    let seen = async || {
        let mut names = names(&there).await;
        names.sort();
        names
    };
    assert_eq!(seen().await, all);
    let ears = [Ear::of(&there, None).await, Ear::of(&session(&away.ask_as(&agent)).await, None).await];

    line.turn(way).await;
    let began = Instant::now();
    tenant.platform.post("/api/v1/servers/zoo/disable", &json!({})).await.expect(200);
    tenant
        .platform
        .patch("/api/v1/settings", &json!({"allowed_tools": ["zoo:*", "lab:*"]}))
        .await
        .expect(200);
    let readiness = async || {
        let ready = away.anonymous().get("/readyz").await;
        (ready.status, ready.text.trim().to_owned())
    };
    settle((200, "degraded".to_owned()), DEGRADED, readiness).await;
    assert_eq!(seen().await, all, "lists go on");
    tenant.platform.post("/api/v1/servers/lab/quarantine", &json!({})).await.expect(200);
    settle(true, CUT, || async { began.elapsed() >= CUT }).await;
    assert_eq!(seen().await, all, "lists go on");
    assert!(ears.iter().all(|ear| ear.notices().is_empty()), "told of what it cannot know");

    line.turn(Way::Open).await;
    let mended = Instant::now();
    for ear in &ears {
        ear.hears(1, OWN).await;
    }
    assert_eq!(seen().await, ["read_cache"]);
    assert!(mended.elapsed() < OWN, "{:?}", mended.elapsed());
    settle((200, "ready".to_owned()), OWN, readiness).await;
    // the next change, be it by notice or by poll
    tenant.platform.post("/api/v1/servers/zoo/enable", &json!({})).await.expect(200);
    for ear in &ears {
        ear.hears(2, OWN + ACT).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused() {
    cut(Way::Refuses).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent() {
    cut(Way::Hangs).await;
}
