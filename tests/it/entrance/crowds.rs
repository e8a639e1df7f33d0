//! Idle connections of one address take nothing from others: neither a connection, nor a probe.

use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;

use super::{ANSWER_WAIT_MAX, address, alive, ask, connect, idle, open_many_files, status};
use crate::support::{ADMIN, Api, Stage, settle};

/// Idle connections stay for the whole test.
pub(super) const PATIENT: (&str, &str) = ("MCPPROXY__LIMITS__HEADER_READ_TIMEOUT_S", "120");
pub(super) const ROOM: &str = "MCPPROXY__LIMITS__CONNECTIONS_MAX";
pub(super) const PER_ADDRESS: &str = "MCPPROXY__LIMITS__CONNECTIONS_PER_ADDRESS_MAX";
const FLOOD: usize = 5_000;

/// A request with this caller's key.
pub(super) fn with_key(api: &Api) -> String {
    let key = api.key.as_deref().unwrap();
    format!("GET /api/v1/status HTTP/1.1\r\nHost: localhost\r\nX-API-Key: {key}\r\n\r\n")
}

pub(super) const PROBE: &str = "GET /readyz HTTP/1.1\r\nHost: kubelet\r\n\r\n";

/// Asks as a client and as two probes, each on a connection of its own; gives the slowest answer's time.
async fn ask_round(stage: &Stage, request: &str) -> Duration {
    let (target, admin) = (address(&stage.gateway.url), address(&stage.gateway.admin_url()));
    let mut worst = Duration::ZERO;
    for (target, request) in [(target, request), (target, PROBE), (admin, PROBE)] {
        let began = Instant::now();
        let answered = tokio::time::timeout(ANSWER_WAIT_MAX, async {
            let mut stream = connect("127.0.0.1", target).await.ok()?;
            ask(&mut stream, request).await
        });
        let answer = answered.await.ok().flatten();
        let took = began.elapsed();
        assert_eq!(status(answer.as_deref()), 200, "{target} {request:?}: {answer:?} after {took:?}");
        worst = worst.max(took);
    }
    worst
}

/// Asks while `flood` goes on, and ten times afterwards, with its connections still there: every answer comes in time.
async fn others_go_on(stage: &Stage, agent: &Api, flood: impl Future<Output = ()>) {
    let request = with_key(agent);
    let asking = async {
        loop {
            ask_round(stage, &request).await;
        }
    };
    tokio::select! {
        () = flood => {}
        () = asking => unreachable!("it asks without end"),
    }
    let mut worst = Duration::ZERO;
    for _ in 0..10 {
        worst = worst.max(ask_round(stage, &request).await);
    }
    assert!(worst < ANSWER_WAIT_MAX, "the slowest answer beside the crowd took {worst:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_room_closes_idle_connections_of_the_largest_crowd() {
    open_many_files();
    let settings = [ADMIN, PATIENT, (ROOM, "1000"), (PER_ADDRESS, "100000")];
    let stage = Stage::with(&settings).await;
    let agent = stage.tenant("acme").await.agent().await;
    let (target, request) = (address(&stage.gateway.url), with_key(&agent));
    // from the address of the flood as well: what presented a key is none of the crowd
    let mut kept = idle("127.0.0.1", target, 20).await;
    kept.extend(idle("127.0.0.2", target, 20).await);
    assert_eq!(alive(&mut kept, &request, 200).await, 40);
    let (mut crowd, mut quiet) = (Vec::new(), idle("127.0.0.3", target, 50).await);
    others_go_on(&stage, &agent, async { crowd = idle("127.0.0.2", target, FLOOD).await }).await;
    assert!(crowd.len() >= FLOOD - 100, "{} of {FLOOD} were made", crowd.len());
    assert_eq!(alive(&mut kept, &request, 200).await, 40, "connections that presented a key");
    assert_eq!(alive(&mut quiet, PROBE, 200).await, 50, "connections of a smaller crowd");
    let page = stage.gateway.scrape().await;
    assert!(page.sum("mcpproxy_client_connections", &[]) <= 1000.0);
    let closed = page.sum("mcpproxy_client_connections_closed_total", &[("reason", "full")]);
    assert!(closed >= (FLOOD - 1000) as f64 * 0.9, "{closed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_without_a_key_are_bounded_per_address() {
    open_many_files();
    let stage = Stage::with(&[ADMIN, PATIENT, (PER_ADDRESS, "200")]).await;
    let agent = stage.tenant("acme").await.agent().await;
    let (target, request) = (address(&stage.gateway.url), with_key(&agent));
    // more than the bound, each with a key
    let mut kept = Vec::new();
    for _ in 0..300 {
        kept.extend(idle("127.0.0.2", target, 1).await);
        assert_eq!(alive(kept.last_mut().map(std::slice::from_mut).unwrap(), &request, 200).await, 1);
    }
    let (mut crowd, mut refused) = (Vec::new(), idle("127.0.0.4", target, 150).await);
    // a request that was refused keeps a connection no better than none
    let wrong = request.replace("mcpk_", "mcpk_x");
    assert_eq!(alive(&mut refused, &wrong, 401).await, 150);
    others_go_on(&stage, &agent, async { crowd = idle("127.0.0.2", target, FLOOD).await }).await;
    let open = || async {
        stage.gateway.scrape().await.sum("mcpproxy_client_connections", &[]) <= 300.0 + 150.0 + 200.0 + 10.0
    };
    settle(true, Duration::from_secs(5), open).await;
    assert_eq!(alive(&mut kept, &request, 200).await, 300, "connections that presented a key");
    refused.extend(idle("127.0.0.4", target, 100).await);
    // connections are accepted in order: with this answer, all of the hundred are
    ask_round(&stage, &request).await;
    assert_eq!(alive(&mut refused, PROBE, 200).await, 200, "the newest are open");
    // who comes anew from that address is served at once
    let mut last = connect("127.0.0.2", target).await.unwrap();
    assert_eq!(status(ask(&mut last, &request).await.as_deref()), 200);
    let log = stage.gateway.log();
    assert!(log.contains("127.0.0.2") && log.contains("server.trusted_proxies"), "{log}");
}

#[tokio::test]
async fn every_crowded_address_is_named_once() {
    let stage = Stage::with(&[PATIENT, (PER_ADDRESS, "10")]).await;
    let target = address(&stage.gateway.url);
    let mut crowds = Vec::new();
    for source in ["127.0.0.2", "127.0.0.3", "127.0.0.2"] {
        crowds.push(idle(source, target, 20).await);
    }
    // connections are accepted in order: with this answer, all of the crowds are
    let mut last = connect("127.0.0.1", target).await.unwrap();
    assert_eq!(status(ask(&mut last, PROBE).await.as_deref()), 200);
    let named = |log: &str, source| {
        log.lines().filter(|line| line.contains("server.trusted_proxies") && line.contains(source)).count()
    };
    let log = || async {
        let log = stage.gateway.log();
        [named(&log, "127.0.0.2"), named(&log, "127.0.0.3")]
    };
    settle([1, 1], Duration::from_secs(5), log).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_keep_no_probe_from_the_admin_listener() {
    let stage = Stage::with(&[ADMIN]).await;
    let admin = address(&stage.gateway.admin_url());
    let _crowd = idle("127.0.0.2", admin, 300).await;
    for _ in 0..5 {
        let began = Instant::now();
        let mut probe = connect("127.0.0.1", admin).await.unwrap();
        assert_eq!(status(ask(&mut probe, PROBE).await.as_deref()), 200);
        assert!(began.elapsed() < ANSWER_WAIT_MAX, "{:?}", began.elapsed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_clients_may_come_at_once() {
    open_many_files();
    let stage = Stage::with(&[ADMIN]).await;
    let kernel = std::fs::read_to_string("/proc/sys/net/core/somaxconn").unwrap();
    assert!(kernel.trim().parse::<usize>().unwrap() >= 1024, "net.core.somaxconn is {kernel}");
    // it accepts nothing now: what connects is in its queue
    stage.gateway.freeze();
    for url in [stage.gateway.url.clone(), stage.gateway.admin_url()] {
        let target = address(&url);
        let all =
            (0..1000).map(|_| tokio::time::timeout(Duration::from_secs(10), connect("127.0.0.1", target)));
        let made = futures_util::future::join_all(all).await;
        let made: Vec<_> = made.into_iter().filter_map(|made| made.ok()?.ok()).collect();
        assert_eq!(made.len(), 1000, "{url}");
    }
    stage.gateway.wake();
    assert_eq!(stage.gateway.anonymous().get("/readyz").await.status, 200);
}

#[tokio::test]
async fn a_connection_without_a_request_ends() {
    let stage = Stage::with(&[("MCPPROXY__LIMITS__HEADER_READ_TIMEOUT_S", "1")]).await;
    let agent = stage.tenant("acme").await.agent().await;
    let mut kept = connect("127.0.0.1", address(&stage.gateway.url)).await.unwrap();
    assert_eq!(status(ask(&mut kept, &with_key(&agent)).await.as_deref()), 200);
    let mut rest = [0; 16];
    let ended = tokio::time::timeout(Duration::from_secs(10), kept.read(&mut rest)).await;
    assert!(matches!(ended, Ok(Ok(0))), "{ended:?}");
}
