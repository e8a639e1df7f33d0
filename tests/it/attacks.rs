//! Every attack at once: schema bombs, arguments of many values, slow bodies, unknown keys, idle connections.
//!
//! The test of each attack says what that attack may cost by itself. The contract's bounds on the p99 of another tenant are held
//! by the benchmark of a release (`make bench`, "Another tenant while every attack runs").

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use crate::bulkheads::requests::{BODY_BYTES, send};
use crate::entrance::{address, idle, open_many_files};
use crate::hostile_schemas::{list, recipes, tool};
use crate::strangers::stranger;
use crate::support::{ADMIN, Api, Mcp, Stage, Tool, Upstream};

/// Time for which all attacks run.
const ATTACK: Duration = Duration::from_secs(15);
/// Bodies of 4 MiB at the same time that lack their last byte.
const BODIES: usize = 600;
const IDLE_CONNECTIONS: usize = 5000;
/// Connections that present unknown keys, and the keys that they present in a second: 3000 where the machine can.
const STRANGERS: usize = 16;
const KEYS_PER_S: usize = 3000;
/// Variants of the schema bomb: compiling each is tried once, so that each costs as much as the first.
const BOMBS: usize = 40;
/// Memory that a container of 512 MiB gives requests and answers.
const MEMORY: (&str, &str) = ("MCPPROXY__LIMITS__MEMORY_BYTES_MAX", "322122547");
/// Most memory of the replica, in MiB.
const MEMORY_MIB: usize = 512;
/// Bound on the p99 of another tenant. It is far looser than the contract's 1.3 times: this is a test build, and the attackers
/// and the servers run on the same processors. It finds an attack that holds others up for as long as it lasts.
const P99: Duration = Duration::from_secs(5);
/// Fewest calls of that tenant meanwhile: with fewer, a percentile says nothing.
const CALLS_MIN: usize = 20;

/// Calls the tools with bombs one after the other, without a pause.
async fn call_bombs(
    client: Mcp,
    bodies: Arc<Vec<(String, String)>>,
    offset: usize,
    answered: Arc<AtomicUsize>,
) {
    for (tool, arguments) in bodies.iter().cycle().skip(offset) {
        let arguments = format!(r#"{{"name":"bad:{tool}","args":{arguments}}}"#);
        client.call_raw("call_tool_read", &arguments).await;
        answered.fetch_add(1, Ordering::Relaxed);
    }
}

/// Presents unknown keys, each another one. Counts those that were refused.
async fn present_keys(anonymous: Api, refused: Arc<AtomicUsize>) {
    let mut pace = tokio::time::interval(Duration::from_secs(1) * STRANGERS as u32 / KEYS_PER_S as u32);
    loop {
        pace.tick().await;
        let status = anonymous.with_key(&stranger()).get("/api/v1/status").await.status;
        assert!(status == 401 || status == 503, "{status}");
        refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Sends a body without its end again and again.
async fn stall(api: Api, body: Arc<Vec<u8>>) {
    let mut pace = tokio::time::interval(Duration::from_millis(50));
    loop {
        pace.tick().await;
        send(&api, BODY_BYTES, &body, ATTACK).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_at_once_they_leave_other_tenants_their_calls_and_the_replica_its_memory() {
    open_many_files();
    let stage = Stage::with(&[ADMIN, MEMORY]).await;
    let (evil, good) = (stage.tenant("evil").await, stage.tenant("good").await);
    let (mut tools, mut bodies) = (Vec::new(), Vec::new());
    for (bomb, arguments, _) in recipes() {
        if bomb.name != "letters" {
            bodies.push((bomb.name.clone(), arguments));
            tools.push(bomb);
        }
    }
    for n in 0..BOMBS {
        let letters: serde_json::Map<_, _> =
            (0..500).map(|p| (format!("p{p}"), json!({"pattern": r"\p{L}{160}", "title": n}))).collect();
        let name = format!("letters{n}");
        tools.push(tool(&name, &json!({"type": "object", "properties": letters}).to_string()));
        bodies.push((name, format!(r#"{{"p0":"x","more":{}}}"#, list("0", 1000))));
    }
    let bad = Upstream::handshake(tools).await;
    evil.add("bad", &bad).await;
    let upstream = Upstream::handshake(vec![Tool::reads("look")]).await;
    good.add("up", &upstream).await;
    let client = Mcp::bare(&good.agent().await);
    client.run("read", "up:look", &json!({})).await.ok();

    let mut attacks = JoinSet::new();
    let bodies = Arc::new(bodies);
    let (answered, refused) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    for caller in 0..4 {
        let client = Mcp::bare(&evil.agent().await);
        attacks.spawn(call_bombs(
            client,
            Arc::clone(&bodies),
            caller * bodies.len() / 4,
            Arc::clone(&answered),
        ));
    }
    let slow = evil.agent().await;
    let body = Arc::new(vec![b' '; BODY_BYTES - 1]);
    for _ in 0..BODIES {
        attacks.spawn(stall(slow.clone(), Arc::clone(&body)));
    }
    for _ in 0..STRANGERS {
        attacks.spawn(present_keys(stage.gateway.anonymous(), Arc::clone(&refused)));
    }
    let target = address(&stage.gateway.url);
    let (opened, idle_are_open) = tokio::sync::oneshot::channel();
    attacks.spawn(async move {
        let idle = idle("127.0.0.2", target, IDLE_CONNECTIONS).await;
        opened.send(idle.len()).unwrap();
        std::future::pending::<()>().await;
    });

    let (began, mut times) = (Instant::now(), Vec::new());
    let mut idle_are_open = std::pin::pin!(idle_are_open);
    let mut idle_connections = 0;
    while began.elapsed() < ATTACK || idle_connections == 0 {
        let call = Instant::now();
        client.run("read", "up:look", &json!({})).await.ok();
        times.push(call.elapsed());
        stage.gateway.anonymous().get("/livez").await.expect(200);
        if idle_connections == 0
            && let std::task::Poll::Ready(opened) = futures_util::poll!(&mut idle_are_open)
        {
            idle_connections = opened.unwrap();
        }
        assert!(attacks.try_join_next().is_none(), "an attack ended");
    }
    drop(attacks);
    times.sort_unstable();
    let p99 = times[times.len() * 99 / 100 - 1];
    let peak = stage.gateway.memory_peak_mib();
    let refused = refused.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    let answered = answered.load(Ordering::Relaxed);
    let report = format!(
        "{answered} bombs answered, {} calls, p99 {p99:?}, {peak} MiB, {refused:.0} unknown keys a second, {idle_connections} idle connections",
        times.len()
    );
    assert!(answered > 4 && refused > 10.0 && idle_connections > IDLE_CONNECTIONS / 2, "{report}");
    assert!(times.len() >= CALLS_MIN && p99 < P99, "{report}");
    assert!(peak < MEMORY_MIB, "{report}");
}
