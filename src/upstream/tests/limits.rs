//! Bounds: time, size, concurrency; and where connections may go.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use uuid::Uuid;

use super::super::*;
use super::fake::*;

#[tokio::test]
async fn a_large_answer_is_cut_off_while_reading() {
    let body = "x".repeat(200_000);
    let announced = body.clone();
    let plain = Fake::modern(move |_| json(announced.clone())).await;
    let whole = body.clone();
    let chunked = Fake::modern(move |_| {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
        Say::Raw(format!("{head}{}", chunk(&whole)).into_bytes())
    })
    .await;
    let streamed = Fake::modern(move |_| Say::Raw(stream(&format!("data: {body}")))).await;
    for fake in [plain, chunked, streamed] {
        let connection = fake.connection();
        let failed = connection.ask(call("t")).await.unwrap_err();
        assert_eq!((failed.kind, failed.dispatched), (FailureKind::TooLarge, true));
        // Such a connection is not used again.
        assert_eq!(connection.probe().1.idle_count(), 0);
    }
}

#[tokio::test]
async fn a_silent_upstream_times_out_and_the_connection_goes() {
    let never = Arc::new(Notify::new());
    let fake = Fake::modern(move |_| Say::After(Arc::clone(&never), Box::new(Say::Last(vec![])))).await;
    let connection = fake.connection();
    connection.ping().await.unwrap();
    let short = Request { timeout: Duration::from_millis(50), ..call("t") };
    let failed = connection.ask(short).await.unwrap_err();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::Timeout, true));
    fake.until(|fake| fake.closed.load(Ordering::SeqCst) == 1).await;
    let (gate, wires) = connection.probe();
    assert_eq!((gate.free(), wires.idle_count(), wires.open_permits()), (8, 0, 16));
}

#[tokio::test]
async fn an_upstream_that_is_silent_from_the_start_has_seen_nothing() {
    let never = Arc::new(Notify::new());
    let fake = Fake::start(move |_| Say::After(Arc::clone(&never), Box::new(Say::Last(vec![])))).await;
    let short = Request { timeout: Duration::from_millis(50), ..call("t") };
    let failed = fake.connection().ask(short).await.unwrap_err();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::Timeout, false));
}

#[tokio::test]
async fn the_queue_is_bounded_and_moves_on() {
    let go = Arc::new(Notify::new());
    let signal = Arc::clone(&go);
    let fake = Fake::modern(move |seen| Say::After(Arc::clone(&signal), Box::new(result(seen, "{}")))).await;
    let limits = Limits { concurrency: 2, queue: 1, ..limits() };
    let connection = pool().connection(&Target { limits, era: Some(Era::Modern), ..fake.target() });
    let spawn = || {
        let connection = Arc::clone(&connection);
        tokio::spawn(async move { connection.ask(call("t")).await })
    };
    let running = [spawn(), spawn()];
    fake.until(|fake| fake.seen().len() == 2).await;
    let waiting = spawn();
    while connection.probe().0.waiting() == 0 {
        tokio::task::yield_now().await;
    }
    let failed = connection.ask(call("t")).await.unwrap_err();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::Overloaded, false));
    assert_eq!(fake.seen().len(), 2);

    go.notify_one();
    fake.until(|fake| fake.seen().len() == 3).await;
    go.notify_waiters();
    go.notify_one();
    for call in running.into_iter().chain([waiting]) {
        call.await.unwrap().unwrap();
    }
    assert_eq!(connection.probe().0.free(), 2);
}

#[tokio::test]
async fn a_dropped_call_gives_everything_back() {
    let never = Arc::new(Notify::new());
    let fake = Fake::modern(move |seen| match seen.body["params"]["name"].as_str() {
        Some("slow") => Say::After(Arc::clone(&never), Box::new(Say::Last(vec![]))),
        Some("stream") => {
            let note = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;
            Say::Then(
                Box::new(Say::Raw(stream(&event(note)))),
                Arc::clone(&never),
                Box::new(Say::Last(vec![])),
            )
        }
        _ => result(seen, "{}"),
    })
    .await;
    let connection = fake.connection();
    for (number, name) in ["slow", "stream"].into_iter().enumerate() {
        let dropped = Arc::clone(&connection);
        let running = tokio::spawn(async move { dropped.ask(call(name)).await });
        fake.until(|fake| fake.seen().last().is_some_and(|seen| seen.body["params"]["name"] == name)).await;
        running.abort();
        assert!(running.await.unwrap_err().is_cancelled());
        // The modern era reads the end of the connection as cancellation.
        fake.until(|fake| fake.closed.load(Ordering::SeqCst) == number + 1).await;
        let (gate, wires) = connection.probe();
        assert_eq!((gate.free(), wires.idle_count(), wires.open_permits()), (8, 0, 16));
        connection.ask(call("t")).await.unwrap();
    }
}

/// Resolver that returns its answers in order, then repeats the last.
struct Dns(Mutex<Vec<IpAddr>>);

impl Resolve for Dns {
    fn resolve<'a>(&'a self, _: &'a str) -> Resolving<'a> {
        let mut answers = self.0.lock().unwrap();
        let now = if answers.len() > 1 { answers.remove(0) } else { answers[0] };
        Box::pin(async move { Ok(vec![now]) })
    }
}

#[tokio::test]
async fn every_connect_is_guarded_after_dns() {
    let fake = Fake::modern(|seen| match seen.body["params"]["name"].as_str() {
        Some("last") => Say::Last(vec![]),
        _ => result(seen, "{}"),
    })
    .await;
    let dns = Dns(Mutex::new(vec!["127.0.0.1".parse().unwrap(), "127.0.0.2".parse().unwrap()]));
    let allow = vec!["127.0.0.1/32".parse().unwrap()];
    let pool = Pool::new(Arc::new(Egress::with_dns(allow, vec![], Arc::new(dns))), None);
    let url = format!("http://rebind.example:{}/mcp?k=v", fake.address.port());
    let connection = pool.connection(&fake.target().at(url));
    connection.ask(call("t")).await.unwrap();
    assert_eq!(fake.seen()[0].header("host"), format!("rebind.example:{}", fake.address.port()));
    // The connection ends; the name now leads elsewhere.
    assert_eq!(connection.ask(call("last")).await.unwrap_err().kind, FailureKind::Lost);
    let failed = connection.ask(call("t")).await.unwrap_err();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::EgressRefused, false));
    assert!(
        failed.detail.contains("rebind.example") && failed.detail.contains("loopback"),
        "{}",
        failed.detail
    );
    assert!(!failed.to_string().contains("rebind"), "{failed}");
    assert_eq!(pool.tcp_connects(), 1);
}

/// Resolver that never answers, and counts how often it was asked.
struct Tarpit(Arc<AtomicUsize>);

impl Resolve for Tarpit {
    fn resolve<'a>(&'a self, _: &'a str) -> Resolving<'a> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn look_ups_that_hang_are_not_repeated_by_every_caller() {
    let asked = Arc::new(AtomicUsize::new(0));
    let dns = Arc::new(Tarpit(Arc::clone(&asked)));
    let pool = Pool::new(Arc::new(Egress::with_dns(vec![], vec![], dns)), None);
    let fake = Fake::start(|_| panic!("nothing may arrive")).await;
    let limits = Limits { connect_timeout: Duration::from_millis(30), ..limits() };
    let url = "http://tarpit.example/mcp".to_owned();
    let target = Target { limits, era: Some(Era::Modern), ..fake.target().at(url) };
    let connection = pool.connection(&target);
    for _ in 0..3 {
        let calls = (0..8).map(|_| connection.ask(call("t")));
        for ended in futures_util::future::join_all(calls).await {
            assert!(!ended.unwrap_err().dispatched);
        }
        connection.reset_breaker();
    }
    assert_eq!(asked.load(Ordering::SeqCst), 2, "each look-up occupies a thread until it ends");
    // another upstream is not held up by it
    let other = pool.connection(&Target { server: Uuid::from_u128(77), ..target });
    assert_eq!(other.ask(call("t")).await.unwrap_err().kind, FailureKind::Unreachable);
    assert_eq!(asked.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn large_answers_of_a_tenant_take_turns() {
    let fake = Fake::modern(|seen| result(seen, &format!(r#"{{"x":"{}"}}"#, "y".repeat(700_000)))).await;
    let pool = pool().with_memory(MemoryLimits { tenant_bytes_max: 1024 * 1024, ..MemoryLimits::default() });
    let limits = Limits { response_bytes_max: 1_000_000, ..limits() };
    let connection = pool.connection(&Target { limits, era: Some(Era::Modern), ..fake.target() });
    let Answer::Result(first) = connection.ask(call("t")).await.unwrap() else { panic!("no result") };
    let mut second = std::pin::pin!(connection.ask(call("t")));
    let waited = tokio::time::timeout(Duration::from_millis(100), &mut second).await;
    assert!(waited.is_err(), "read while the first is still in use");
    drop(first);
    second.await.unwrap();
}

#[tokio::test]
async fn a_refused_url_fails_every_request_unsent() {
    let fake = Fake::modern(|_| panic!("nothing may arrive")).await;
    let guarded = Pool::new(Arc::new(Egress::new(vec![], vec![])), None);
    let failed = guarded.connection(&fake.target()).ask(call("t")).await.unwrap_err();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::EgressRefused, false));
    let ftp = fake.target().at("ftp://example.com/".to_owned());
    assert_eq!(
        pool().connection(&ftp).list(ListKind::Tools).await.unwrap_err().kind,
        FailureKind::EgressRefused
    );
    assert_eq!(fake.accepted(), 0);
}

#[tokio::test]
async fn the_pool_keeps_one_connection_per_server_version_credential_and_tenant() {
    let fake = Fake::modern(|seen| result(seen, "{}")).await;
    let (pool, target) = (pool(), fake.target());
    let first = pool.connection(&target);
    assert!(Arc::ptr_eq(&first, &pool.connection(&target)));
    let other_tenant = Target { tenant: Uuid::from_u128(9), ..target.clone() };
    assert!(!Arc::ptr_eq(&first, &pool.connection(&other_tenant)));
    assert!(Arc::ptr_eq(&first, &pool.connection(&target)));
    let changed = pool.connection(&Target { version: 2, ..target.clone() });
    assert!(!Arc::ptr_eq(&first, &changed));
    let moved = Target { version: 2, ..target.clone().at(format!("{}x", target.http().url)) };
    assert!(!Arc::ptr_eq(&changed, &pool.connection(&moved)));
    pool.forget(target.tenant, target.server);
    let before = pool.connection(&target);
    let other = target.clone().with(Credential::Is(Uuid::from_u128(4)));
    assert!(!Arc::ptr_eq(&before, &pool.connection(&other)));
    let locked = pool.connection(&target.clone().with(Credential::Locked));
    let failed = locked.ask(call("t")).await.unwrap_err();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::Locked, false));

    first.ask(call("t")).await.unwrap();
    pool.forget(target.tenant, target.server);
    assert!(!Arc::ptr_eq(&first, &pool.connection(&target)));
    // What was handed out still works, and closes with its last user.
    first.ask(call("t")).await.unwrap();
    assert_eq!(fake.accepted(), 1);
    drop(first);
    fake.until(|fake| fake.closed.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn an_older_version_never_replaces_a_newer() {
    let fake = Fake::modern(|seen| result(seen, "{}")).await;
    let (pool, old) = (pool(), fake.target());
    let credential = Credential::Is(Uuid::from_u128(4));
    let url = format!("{}&new", old.http().url);
    let new = Target { version: 2, ..old.clone().at(url).with(credential) };
    pool.connection(&old);
    let newer = pool.connection(&new);
    assert!(
        Arc::ptr_eq(&newer, &pool.connection(&old)),
        "the same place: whoever is late calls as it is now"
    );
    for url in
        [format!("http://localhost:{}/mcp", fake.address.port()), format!("http://{}/other", fake.address)]
    {
        let elsewhere = old.clone().at(url);
        let failed = pool.connection(&elsewhere).ask(call("t")).await.unwrap_err();
        assert_eq!((failed.kind, failed.dispatched), (FailureKind::Unreachable, false));
    }
    assert_eq!(fake.accepted(), 0);
    assert!(Arc::ptr_eq(&newer, &pool.connection(&new)));
}

#[tokio::test]
async fn https_without_roots_or_without_tls_is_unreachable() {
    let fake = Fake::modern(|_| panic!("nothing may arrive")).await;
    let target = fake.target().at(format!("https://{}/mcp", fake.address));
    let without = pool().connection(&target).ask(call("t")).await.unwrap_err();
    assert_eq!((without.kind, without.dispatched), (FailureKind::Unreachable, false));
    assert_eq!(fake.accepted(), 0);

    // Something that closes instead of shaking hands.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = fake.target().at(format!("https://{}/", listener.local_addr().unwrap()));
    let closer = tokio::spawn(async move { drop(listener.accept().await.unwrap()) });
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let egress = Egress::new(vec!["127.0.0.0/8".parse().unwrap()], vec![]);
    let pool = Pool::new(Arc::new(egress), Some(Arc::new(tls)));
    let failed = pool.connection(&target).ask(call("t")).await.unwrap_err();
    closer.await.unwrap();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::Unreachable, false));
    assert!(failed.detail.starts_with("TLS failed"), "{}", failed.detail);
}
