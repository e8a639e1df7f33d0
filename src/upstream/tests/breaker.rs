//! Circuit breaker: a failing upstream is left alone, probed with a ping, and found again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::super::*;
use super::fake::*;

const RULES: BreakerRules = BreakerRules {
    failures_max: 3,
    rest_min: Duration::from_millis(200),
    rest_max: Duration::from_millis(400),
};

fn guarded(fake: &Fake, pool: &Pool, limits: Limits) -> Arc<Connection> {
    pool.connection(&Target { limits: Limits { breaker: RULES, ..limits }, ..fake.target() })
}

/// Returns the failures of `n` calls in a row.
async fn kinds(connection: &Connection, n: usize) -> Vec<FailureKind> {
    let mut kinds = Vec::new();
    for _ in 0..n {
        kinds.push(connection.ask(call("t")).await.unwrap_err().kind);
    }
    kinds
}

fn is_resting(kind: FailureKind) -> bool {
    matches!(kind, FailureKind::Resting { retry_s: 1 })
}

/// Starts a modern server whose calls get this answer until the flag is set; other requests work.
async fn broken(answer: impl Fn() -> Say + Send + Sync + 'static) -> (Fake, Arc<AtomicBool>) {
    let mended = Arc::new(AtomicBool::new(false));
    let is_mended = Arc::clone(&mended);
    let fake = Fake::modern(move |seen| match seen.method() {
        "tools/call" if !is_mended.load(Ordering::SeqCst) => answer(),
        _ => result(seen, r#"{"tools":[]}"#),
    })
    .await;
    (fake, mended)
}

#[tokio::test]
async fn failures_in_a_row_keep_calls_away_and_a_ping_finds_it_again() {
    let (fake, mended) = broken(|| Say::Last(vec![])).await;
    let connection = guarded(&fake, &pool(), limits());
    assert_eq!(kinds(&connection, 3).await, [FailureKind::Lost; 3]);
    let sent = fake.seen().len();
    let resting = kinds(&connection, 20).await;
    assert!(resting.iter().all(|kind| is_resting(*kind)), "{resting:?}");
    assert_eq!(fake.seen().len(), sent, "nothing is sent while it rests");

    mended.store(true, Ordering::SeqCst);
    connection.rested().await;
    connection.ask(call("t")).await.unwrap();
    assert_eq!(fake.methods()[sent..], ["server/discover", "tools/call"]);
    connection.ask(call("t")).await.unwrap();
    assert_eq!(fake.seen().len(), sent + 3, "one probe");
}

#[tokio::test]
async fn after_a_ping_that_works_one_failing_call_is_enough() {
    let (fake, _) = broken(|| Say::Last(vec![])).await;
    let connection = guarded(&fake, &pool(), limits());
    kinds(&connection, 3).await;
    let calls = |fake: &Fake| fake.methods().iter().filter(|method| *method == "tools/call").count();
    for round in 1..=2 {
        connection.rested().await;
        let ended = kinds(&connection, 5).await;
        assert_eq!(ended[0], FailureKind::Lost);
        assert!(ended[1..].iter().all(|kind| is_resting(*kind)), "{ended:?}");
        assert_eq!(calls(&fake), 3 + round);
    }
}

#[tokio::test]
async fn callers_wait_for_the_one_probe_and_share_its_end() {
    let go = Arc::new(Notify::new());
    let (signal, mended) = (Arc::clone(&go), Arc::new(AtomicBool::new(false)));
    let (pings, is_mended) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&mended));
    let counted = Arc::clone(&pings);
    let fake = Fake::start(move |seen| match (seen.method(), is_mended.load(Ordering::SeqCst)) {
        ("tools/call", true) => result(seen, "{}"),
        ("tools/call", false) => Say::Last(vec![]),
        (_, false) => result(seen, r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#),
        (_, true) => {
            counted.fetch_add(1, Ordering::SeqCst);
            Say::After(Arc::clone(&signal), Box::new(result(seen, "{}")))
        }
    })
    .await;
    let connection = guarded(&fake, &pool(), Limits { queue: 2, ..limits() });
    kinds(&connection, 3).await;
    mended.store(true, Ordering::SeqCst);
    connection.rested().await;
    let spawn = || {
        let connection = Arc::clone(&connection);
        tokio::spawn(async move { connection.ask(call("t")).await })
    };
    // the caller that started the probe gives up: the others still learn its end
    let gone = spawn();
    fake.until(|_| pings.load(Ordering::SeqCst) == 1).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let waiting = [spawn(), spawn()];
    while connection.probe().0.waiting() < 2 {
        tokio::task::yield_now().await;
    }
    // callers that wait for the probe are in the queue, which is bounded
    assert_eq!(connection.ask(call("t")).await.unwrap_err().kind, FailureKind::Overloaded);
    go.notify_one();
    for call in waiting {
        call.await.unwrap().unwrap();
    }
    assert_eq!((pings.load(Ordering::SeqCst), connection.probe().0.waiting()), (1, 0));
}

#[tokio::test]
async fn what_counts_as_a_failure() {
    let html = || Say::Http(200, vec![("content-type", "text/html".to_owned())], "<html>".to_owned());
    let garbage = || Say::Http(200, vec![("content-type", "application/json".to_owned())], "{".to_owned());
    let status = |code| move || Say::Http(code, vec![], String::new());
    let opens = [
        ("closes", broken(|| Say::Last(vec![])).await, FailureKind::Lost),
        ("is not HTTP", broken(|| Say::Last(b"SSH-2.0\r\n".to_vec())).await, FailureKind::Invalid),
        ("HTML", broken(html).await, FailureKind::Invalid),
        ("garbage", broken(garbage).await, FailureKind::Invalid),
        ("500", broken(status(500)).await, FailureKind::Invalid),
        ("429", broken(status(429)).await, FailureKind::Invalid),
        ("403", broken(status(403)).await, FailureKind::Invalid),
    ];
    for (name, (fake, _), kind) in opens {
        let connection = guarded(&fake, &pool(), limits());
        let ended = kinds(&connection, 4).await;
        assert_eq!(ended[..3], [kind; 3], "{name}");
        assert!(is_resting(ended[3]), "{name}: {ended:?}");
    }
    let large = || Say::Http(200, vec![("content-type", "application/json".to_owned())], " ".repeat(100_001));
    let stays = [
        ("413", broken(status(413)).await, FailureKind::Invalid),
        ("422", broken(status(422)).await, FailureKind::Invalid),
        ("large", broken(large).await, FailureKind::TooLarge),
    ];
    for (name, (fake, _), kind) in stays {
        let connection = guarded(&fake, &pool(), limits());
        assert_eq!(kinds(&connection, 6).await, [kind; 6], "{name}");
    }
}

#[tokio::test]
async fn errors_of_tools_and_answers_between_are_no_failures() {
    let turn = AtomicUsize::new(0);
    let fake = Fake::modern(move |seen| match turn.fetch_add(1, Ordering::SeqCst) % 3 {
        2 => error(200, &seen.body["id"], -32001),
        _ if seen.method() == "tools/call" => Say::Last(vec![]),
        _ => result(seen, "{}"),
    })
    .await;
    let connection = guarded(&fake, &pool(), limits());
    for _ in 0..12 {
        if let Err(error) = connection.ask(call("t")).await {
            assert_eq!(error.kind, FailureKind::Lost);
        }
    }
}

#[tokio::test]
async fn a_call_that_queued_meanwhile_is_not_sent() {
    let never = Arc::new(Notify::new());
    let (fake, _) = broken(move || Say::After(Arc::clone(&never), Box::new(Say::Last(vec![])))).await;
    let rules = BreakerRules { failures_max: 1, ..RULES };
    let limits = Limits { concurrency: 1, breaker: rules, ..limits() };
    let pool = pool();
    let connection = pool.connection(&Target { limits, ..fake.target() });
    connection.ping().await.unwrap();
    let sent = fake.seen().len();
    let first = Arc::clone(&connection);
    let first =
        tokio::spawn(
            async move { first.ask(Request { timeout: Duration::from_millis(100), ..call("t") }).await },
        );
    fake.until(|fake| fake.seen().len() == sent + 1).await;
    let second = connection.ask(call("t")).await.unwrap_err();
    assert_eq!(first.await.unwrap().unwrap_err().kind, FailureKind::Timeout);
    assert!(is_resting(second.kind) && !second.dispatched, "{second:?}");
    assert_eq!(fake.seen().len(), sent + 1);
}

#[tokio::test]
async fn waiting_for_a_turn_has_a_bound_of_its_own() {
    let never = Arc::new(Notify::new());
    let (fake, _) = broken(move || Say::After(Arc::clone(&never), Box::new(Say::Last(vec![])))).await;
    let limits = Limits { concurrency: 1, queue_wait: Duration::from_millis(50), ..limits() };
    let pool = pool();
    let connection = guarded(&fake, &pool, limits);
    let first = Arc::clone(&connection);
    let first = tokio::spawn(async move { first.ask(call("t")).await });
    fake.until(|fake| fake.methods().iter().any(|method| method == "tools/call")).await;
    let ended = connection.ask(call("t")).await.unwrap_err();
    assert_eq!((ended.kind, ended.dispatched), (FailureKind::Overloaded, false));
    // a listing waits for no caller
    assert!(connection.list(ListKind::Tools).await.unwrap().entries.is_empty());
    connection.ping().await.unwrap();
    first.abort();
}

#[tokio::test]
async fn a_listing_or_somebody_who_knows_better_closes_it() {
    let (fake, mended) = broken(|| Say::Last(vec![])).await;
    let pool = pool();
    let connection = guarded(&fake, &pool, limits());
    kinds(&connection, 3).await;
    mended.store(true, Ordering::SeqCst);
    assert!(is_resting(connection.ask(call("t")).await.unwrap_err().kind));
    connection.list(ListKind::Tools).await.unwrap();
    connection.ask(call("t")).await.unwrap();

    mended.store(false, Ordering::SeqCst);
    kinds(&connection, 3).await;
    mended.store(true, Ordering::SeqCst);
    assert!(is_resting(connection.ask(call("t")).await.unwrap_err().kind));
    pool.reset_breaker(fake.target().tenant, fake.target().server);
    connection.ask(call("t")).await.unwrap();
}

#[tokio::test]
async fn a_probe_that_fails_makes_the_rest_longer() {
    let down = Arc::new(AtomicBool::new(false));
    let is_down = Arc::clone(&down);
    let fake = Fake::start(move |seen| match seen.method() {
        _ if is_down.load(Ordering::SeqCst) => Say::Last(vec![]),
        "server/discover" => result(seen, r#"{"supportedVersions":["2026-07-28"],"capabilities":{}}"#),
        _ => result(seen, "{}"),
    })
    .await;
    let connection = guarded(&fake, &pool(), limits());
    connection.ask(call("t")).await.unwrap();
    down.store(true, Ordering::SeqCst);
    kinds(&connection, 3).await;
    let sent = fake.seen().len();
    for round in 1..=2 {
        connection.rested().await;
        let ended = kinds(&connection, 5).await;
        assert!(ended.iter().all(|kind| is_resting(*kind)), "{ended:?}");
        assert_eq!(fake.methods()[sent..], vec!["server/discover"; round]);
    }
    down.store(false, Ordering::SeqCst);
    connection.rested().await;
    connection.ask(call("t")).await.unwrap();
}
