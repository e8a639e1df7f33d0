//! Finding the era, keeping the session, and noticing when either changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::Value;
use tokio::sync::Notify;

use super::super::*;
use super::fake::*;

fn initialized(seen: &Seen, version: &str) -> Say {
    result(seen, &format!(r#"{{"protocolVersion":"{version}","capabilities":{{}}}}"#))
}

/// Starts an old server that answers `server/discover` in its own way.
async fn old(discover: impl Fn(&Seen) -> Say + Send + Sync + 'static) -> Fake {
    Fake::start(move |seen| match seen.method() {
        "server/discover" => discover(seen),
        "initialize" => initialized(seen, "2025-03-26"),
        "notifications/initialized" => Say::Http(202, vec![], String::new()),
        _ => result(seen, r#"{"content":[]}"#),
    })
    .await
}

#[tokio::test]
async fn whatever_an_old_server_says_to_discover_it_is_found_out() {
    let silence = Arc::new(Notify::new());
    let fakes = [
        old(|seen| result(seen, "{}")).await,
        old(|seen| error(200, &seen.body["id"], -32601)).await,
        old(|seen| error(200, &seen.body["id"], -32602)).await,
        old(|_| error(400, &Value::Null, -32000)).await,
        old(|_| status(404, "not here")).await,
        old(|_| Say::Http(202, vec![], String::new())).await,
        old(|_| Say::Last(vec![])).await,
        old(|_| Say::Last(b"garbage\r\n\r\n".to_vec())).await,
        old(|_| Say::Http(200, vec![("content-type", "text/html".to_owned())], "<p>".to_owned())).await,
        old(move |_| Say::After(Arc::clone(&silence), Box::new(Say::Last(vec![])))).await,
    ];
    for (which, fake) in fakes.iter().enumerate() {
        let limits = Limits { call_timeout: Duration::from_millis(2000), ..limits() };
        let connection = pool().connection(&Target { limits, ..fake.target() });
        connection.ask(call("t")).await.unwrap_or_else(|e| panic!("{which}: {e:?}"));
        assert_eq!(connection.era(), Some(Era::Handshake), "{which}");
        let seen = fake.seen().pop().unwrap();
        assert_eq!(seen.header("mcp-protocol-version"), "2025-03-26");
        assert!(!seen.headers.contains_key("mcp-session-id"));
    }
}

#[tokio::test]
async fn a_remembered_era_is_not_asked_for() {
    let modern = Fake::modern(|seen| result(seen, "{}")).await;
    let target = Target { era: Some(Era::Modern), ..modern.target() };
    pool().connection(&target).ask(call("t")).await.unwrap();
    assert_eq!(modern.methods(), ["tools/call"]);

    let old = Fake::handshake(|seen| result(seen, "{}")).await;
    let target = Target { era: Some(Era::Handshake), ..old.target() };
    pool().connection(&target).ask(call("t")).await.unwrap();
    assert_eq!(old.methods(), ["initialize", "notifications/initialized", "tools/call"]);
}

#[tokio::test]
async fn a_wrong_era_is_noticed() {
    let old = Fake::handshake(|seen| match seen.header("mcp-session-id") {
        "" => error(400, &Value::Null, -32000),
        _ => result(seen, "{}"),
    })
    .await;
    let connection = pool().connection(&Target { era: Some(Era::Modern), ..old.target() });
    connection.ask(call("t")).await.unwrap();
    assert_eq!(connection.era(), Some(Era::Handshake));
    assert_eq!(old.methods().iter().filter(|m| *m == "tools/call").count(), 2);

    let modern = Fake::modern(|seen| match seen.method() {
        "tools/call" => result(seen, "{}"),
        _ => error(404, &seen.body["id"], -32601),
    })
    .await;
    let connection = pool().connection(&Target { era: Some(Era::Handshake), ..modern.target() });
    connection.ask(call("t")).await.unwrap();
    assert_eq!(connection.era(), Some(Era::Modern));
    assert_eq!(modern.methods(), ["initialize", "server/discover", "tools/call"]);
}

#[tokio::test]
async fn answers_are_not_sent_again_in_an_era_that_has_none() {
    let old = Fake::handshake(|seen| match seen.header("mcp-session-id") {
        "" => error(400, &Value::Null, -32000),
        _ => result(seen, "{}"),
    })
    .await;
    let connection = pool().connection(&Target { era: Some(Era::Modern), ..old.target() });
    let round = Round {
        members: vec![("inputResponses", Bytes::from_static(br#"{"who":{"action":"cancel"}}"#))],
        ..Round::default()
    };
    let answering = Request { round, ..call("t") };
    let sent = Arc::clone(&answering.sent);
    let failed = connection.ask(answering).await.unwrap_err();
    // refused unread the first time, and without its answers it would be another call
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::NoRounds, false));
    assert!(!sent.is_dispatched());
    assert_eq!(old.methods().iter().filter(|m| *m == "tools/call").count(), 1);
    // other requests go on in the era that was found
    connection.ask(call("t")).await.unwrap();
    assert_eq!(connection.era(), Some(Era::Handshake));
}

#[tokio::test]
async fn a_refusal_in_the_right_era_is_not_sent_again() {
    let fake = Fake::modern(|_| status(400, "no")).await;
    let failed = fake.connection().ask(call("t")).await.unwrap_err();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::Invalid, true));
    assert_eq!(fake.methods(), ["server/discover", "tools/call", "server/discover"]);
}

#[tokio::test]
async fn an_ended_session_is_opened_again_once() {
    let fake = Fake::handshake(|seen| match seen.header("mcp-session-id") {
        "s0" => error(404, &Value::Null, -32001),
        _ => result(seen, "{}"),
    })
    .await;
    let connection = fake.connection();
    connection.ask(call("t")).await.unwrap();
    connection.ask(call("t")).await.unwrap();
    let sessions: Vec<_> = fake
        .seen()
        .iter()
        .filter(|seen| seen.method() == "tools/call")
        .map(|seen| seen.header("mcp-session-id").to_owned())
        .collect();
    assert_eq!(sessions, ["s0", "s1", "s1"]);
}

#[tokio::test]
async fn a_server_that_knows_no_session_is_not_asked_for_ever() {
    let fake = Fake::handshake(|_| status(404, "")).await;
    let failed = fake.connection().ask(call("t")).await.unwrap_err();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::Invalid, true));
    assert_eq!(fake.methods().iter().filter(|m| *m == "tools/call").count(), 2);
}

#[tokio::test]
async fn a_session_refused_with_400_is_left_for_the_next_call() {
    let fake = Fake::handshake(|seen| match seen.header("mcp-session-id") {
        "s0" => error(400, &Value::Null, -32000),
        _ => result(seen, "{}"),
    })
    .await;
    let connection = fake.connection();
    assert_eq!(connection.ask(call("t")).await.unwrap_err().kind, FailureKind::Invalid);
    assert_eq!(fake.methods().iter().filter(|m| *m == "tools/call").count(), 1);
    connection.ask(call("t")).await.unwrap();
}

#[tokio::test]
async fn callers_share_one_handshake() {
    let fake = Arc::new(Fake::handshake(|seen| result(seen, "{}")).await);
    let connection = fake.connection();
    let calls = (0..8).map(|_| {
        let connection = Arc::clone(&connection);
        tokio::spawn(async move { connection.ask(call("t")).await.unwrap() })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(fake.methods().iter().filter(|m| *m == "initialize").count(), 1);
    assert_eq!(fake.methods().iter().filter(|m| *m == "tools/call").count(), 8);
}

#[tokio::test]
async fn callers_share_one_failure_and_the_next_tries_again() {
    let (is_broken, tries) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (go, broken, count) = (Arc::new(Notify::new()), Arc::clone(&is_broken), Arc::clone(&tries));
    let release = Arc::clone(&go);
    let fake = Fake::start(move |seen| match seen.method() {
        "initialize" if broken.load(Ordering::SeqCst) => {
            count.fetch_add(1, Ordering::SeqCst);
            Say::After(Arc::clone(&go), Box::new(status(500, "")))
        }
        "initialize" => initialized(seen, "2025-11-25"),
        "notifications/initialized" => Say::Http(202, vec![], String::new()),
        "server/discover" => result(seen, "{}"),
        _ => result(seen, "{}"),
    })
    .await;
    let connection = fake.connection();
    let calls: Vec<_> = (0..4)
        .map(|_| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.ask(call("t")).await.unwrap_err() })
        })
        .collect();
    fake.until(|fake| fake.methods().contains(&"initialize".to_owned())).await;
    release.notify_one();
    for call in calls {
        let failed = call.await.unwrap();
        assert_eq!((failed.kind, failed.dispatched), (FailureKind::Invalid, false));
    }
    assert_eq!(tries.load(Ordering::SeqCst), 1);
    is_broken.store(false, Ordering::SeqCst);
    connection.ask(call("t")).await.unwrap();
}

#[tokio::test]
async fn a_handshake_must_settle_on_a_known_version() {
    for version in ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", "2026-07-28", ""] {
        let fake = Fake::start(move |seen| match seen.method() {
            "initialize" => initialized(seen, version),
            "notifications/initialized" => Say::Http(202, vec![], String::new()),
            "server/discover" => result(seen, "{}"),
            _ => result(seen, "{}"),
        })
        .await;
        let is_known = version.starts_with("2025");
        assert_eq!(fake.connection().ask(call("t")).await.is_ok(), is_known, "{version}");
    }
}
