//! How long calls to a healthy server take while others misbehave.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::{Api, Hostile, Mcp, Stage, Tool, Upstream, Vice};

const ROUNDS: usize = 8;
const CALLS: usize = 100;
/// How often a machine that is busy with other things may spoil the measurement.
const ATTEMPTS: usize = 4;
/// What a p99 of a few calls varies by anyhow on two processors that also run the load and other tests. A queue
/// or a connection that were shared with the bad ones would show as seconds.
const NOISE: Duration = Duration::from_millis(25);
/// They hold their callers, and cost next to nothing: the processors are not what is shared here.
const QUIET: [(&str, Vice); 4] = [
    ("slow", Vice::Slow(30)),
    ("silent", Vice::Silent),
    ("dribbling", Vice::Dribbling),
    ("dribbling-body", Vice::DribblingBody),
];

/// The 99th percentile of a round of calls.
async fn p99(client: &Mcp) -> Duration {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let began = Instant::now();
        client.run("read", "good:look", &json!({})).await.ok();
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[CALLS * 99 / 100 - 1]
}

fn median(mut rounds: Vec<Duration>) -> Duration {
    rounds.sort_unstable();
    rounds[rounds.len() / 2]
}

/// Keeps every bad server's places and queue full.
fn load(agent: &Api) -> JoinSet<()> {
    let mut load = JoinSet::new();
    for (name, _) in QUIET {
        for _ in 0..6 {
            let client = Mcp::bare(agent);
            load.spawn(async move {
                loop {
                    client.run("read", &format!("{name}:act"), &json!({})).await;
                    // what is refused at once is not asked again at once
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            });
        }
    }
    load
}

#[tokio::test(flavor = "multi_thread")]
async fn the_p99_of_a_healthy_server_does_not_show_the_bad_ones() {
    let stage = Stage::start().await;
    let (tenant, other) = (stage.tenant("acme").await, stage.tenant("other").await);
    let good = Upstream::handshake(vec![Tool::reads("look")]).await;
    tenant.add("good", &good).await;
    other.add("good", &good).await;
    let mut servers = Vec::new();
    for (name, vice) in QUIET {
        let server = Hostile::start(vice).await;
        let limits = json!({"limits": {"concurrency": 3, "queue": 3, "call_timeout_s": 5}});
        tenant.add_url(name, &server.url, limits).await;
        servers.push(server);
    }
    let agent = tenant.agent().await;
    let (same, elsewhere) = (Mcp::bare(&agent), Mcp::bare(&other.agent().await));
    p99(&same).await;
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let client = if round % 2 == 0 { &same } else { &elsewhere };
            alone.push(p99(client).await);
            let bad = load(&agent);
            beside.push(p99(client).await);
            drop(bad);
        }
        let (alone, beside) = (median(alone), median(beside));
        if beside <= alone + alone / 10 + NOISE {
            assert!(servers.iter().all(|server| server.calls() > 0));
            return;
        }
        seen.push((alone, beside));
    }
    panic!("p99 alone and beside bad servers: {seen:?}");
}
