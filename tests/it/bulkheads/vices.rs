//! Whatever an upstream does, its callers get an answer in time, and nobody else notices.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Hostile, Mcp, Stage, Tool, Upstream, Vice, eventually};

/// Calls to a bad server at the same time.
const CALLS: usize = 6;
/// How much more memory there may be at any time: one tenant's share of answers is set to 64 MiB, a body that
/// grows is copied, and what was answered before is not given back at once.
const GROWTH_MIB_MAX: usize = 250;

/// With how long a call may take, in seconds: those that are quiet end by that.
const VICES: [(&str, Vice, &str, u64); 17] = [
    ("slow", Vice::Slow(30), "upstream_timeout", 1),
    ("silent", Vice::Silent, "upstream_timeout", 1),
    ("dribbling", Vice::Dribbling, "upstream_timeout", 1),
    ("dribbling-body", Vice::DribblingBody, "upstream_timeout", 1),
    ("huge", Vice::Huge, "upstream_too_large", 60),
    ("announcing", Vice::Announcing, "upstream_too_large", 60),
    ("flooding", Vice::Flooding, "upstream_timeout", 1),
    ("interim", Vice::Interim, "upstream_invalid", 60),
    ("headers", Vice::Headers, "upstream_invalid", 60),
    ("asking", Vice::Asking, "upstream_invalid", 60),
    ("wrong-id", Vice::WrongId, "upstream_invalid", 60),
    ("html", Vice::Html, "upstream_invalid", 60),
    ("garbage", Vice::Garbage, "upstream_invalid", 60),
    ("long", Vice::Long, "upstream_invalid", 60),
    ("deep", Vice::Deep, "upstream_invalid", 60),
    ("short", Vice::Short, "upstream_lost", 60),
    ("closing", Vice::Closing, "upstream_lost", 60),
];

#[tokio::test(flavor = "multi_thread")]
async fn every_vice_has_its_code_and_its_bounds() {
    let stage = Stage::with(&[
        ("MCPPROXY__LIMITS__TENANT_ANSWERS_BYTES_MAX", "67108864"),
        // every call is to meet the vice: none is kept from it because others have
        ("MCPPROXY__LIMITS__UPSTREAM_FAILURES_MAX", "100"),
    ])
    .await;
    let (tenant, other) = (stage.tenant("acme").await, stage.tenant("other").await);
    let good = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("good", &good).await;
    other.add("good", &good).await;
    let (agent, elsewhere) = (tenant.agent().await, other.agent().await);
    let before_mib = stage.gateway.memory_peak_mib();
    for (name, vice, code, seconds) in VICES {
        let server = Hostile::start(vice).await;
        tenant.add_url(name, &server.url, json!({"limits": {"call_timeout_s": seconds}})).await;
        let calls: Vec<_> = (0..CALLS)
            .map(|_| {
                let client = Mcp::bare(&agent);
                tokio::spawn(async move { client.run("read", &format!("{name}:act"), &json!({})).await })
            })
            .collect();
        for api in [&agent, &elsewhere] {
            Mcp::bare(api).run("read", "good:look", &json!({})).await.ok();
        }
        for call in calls {
            let refused = call.await.unwrap().refused(code);
            assert!(refused["message"].as_str().unwrap().contains("may have run"), "{name}: {refused}");
        }
        assert_eq!(server.calls(), CALLS, "{name}: dispatched once each, never again");
        let growth_mib = stage.gateway.memory_peak_mib() - before_mib;
        assert!(growth_mib < GROWTH_MIB_MAX, "{name}: {growth_mib} MiB more than {before_mib} MiB");
    }
    tenant.records("type=tool_call&server=good", VICES.len()).await;
    tenant.records("type=tool_call&status=error", VICES.len() * CALLS).await;
}

#[tokio::test]
async fn a_server_that_fails_is_left_alone_and_found_again() {
    let stage = Stage::with(&[
        ("MCPPROXY__LIMITS__UPSTREAM_REST_MIN_MS", "2000"),
        ("MCPPROXY__LIMITS__UPSTREAM_REST_MAX_MS", "2000"),
    ])
    .await;
    let tenant = stage.tenant("acme").await;
    let mut upstream = Upstream::handshake(vec![Tool::writes("act"), Tool::reads("look")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let client = Mcp::bare(&agent);
    client.run("write", "up:act", &json!({})).await.ok();
    upstream.go_down().await;
    // the listing notices too, sooner or later: until then calls find out for themselves
    let refused = eventually("the breaker to open", Duration::from_secs(5), || async {
        let refused = client.run("write", "up:act", &json!({})).await.refused("server_unavailable");
        refused["message"].as_str().unwrap().contains("tried again").then_some(refused)
    })
    .await;
    let message = refused["message"].as_str().unwrap();
    assert!(message.contains("nothing was run; it is tried again in about"), "{message}");
    let seconds = message.split_whitespace().rev().nth(1).and_then(|n| n.parse::<u32>().ok());
    assert!(seconds.is_some_and(|s| (1..=2).contains(&s)), "{message}");
    upstream.come_back().await;
    let counts = upstream.counts();
    // while it rests nothing of its callers' gets through, although it is there again
    client.run("read", "up:look", &json!({})).await.refused("server_unavailable");
    assert_eq!(upstream.counts().calls, counts.calls);
    // whoever asks for it has it tried at once
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    client.run("write", "up:act", &json!({})).await.ok();

    upstream.go_down().await;
    for _ in 0..6 {
        client.run("read", "up:look", &json!({})).await.refused("server_unavailable");
    }
    upstream.come_back().await;
    // by itself: a ping after the rest, or the next listing
    eventually("it to be found again", Duration::from_secs(10), || async {
        (client.run("read", "up:look", &json!({})).await.code() == "ok").then_some(())
    })
    .await;
    let rejected = tenant.platform.items("/api/v1/activity?type=tool_call&status=rejected").await;
    assert!(rejected.iter().all(|record| record["error_code"] == "server_unavailable"), "{rejected:?}");
}

#[tokio::test]
async fn a_turn_that_does_not_come_is_refused_in_time() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let silent = Hostile::start(Vice::Silent).await;
    let limits = json!({"limits": {"concurrency": 1, "queue_wait_s": 1, "call_timeout_s": 20}});
    tenant.add_url("silent", &silent.url, limits).await;
    let agent = tenant.agent().await;
    let stuck = Mcp::bare(&agent);
    let stuck = tokio::spawn(async move { stuck.run("read", "silent:act", &json!({})).await.code() });
    eventually("the first call to arrive", Duration::from_secs(5), || async {
        (silent.calls() == 1).then_some(())
    })
    .await;
    let began = Instant::now();
    let refused = Mcp::bare(&agent).run("read", "silent:act", &json!({})).await.refused("overloaded");
    assert!(refused["message"].as_str().unwrap().contains("try again"), "{refused}");
    assert!((900..3000).contains(&began.elapsed().as_millis()), "{:?}", began.elapsed());
    // nor does a listing wait for callers
    let listed = tenant.platform.post("/api/v1/servers/silent/refresh", &json!({})).await.expect(200);
    assert_eq!((&listed["connection"], silent.calls()), (&json!("connected"), 1), "{listed}");
    stuck.abort();
}
