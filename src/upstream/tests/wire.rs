//! Connections: kept, closed by the other side, never given twice.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::Notify;

use super::super::*;
use super::fake::*;

#[tokio::test]
async fn one_connection_serves_many_calls() {
    let fake = Fake::modern(|seen| result(seen, "{}")).await;
    let pool = pool();
    let connection = pool.connection(&fake.target());
    for _ in 0..100 {
        connection.ask(call("t")).await.unwrap();
    }
    assert_eq!((fake.accepted(), pool.tcp_connects()), (1, 1));
}

#[tokio::test]
async fn error_answers_keep_the_connection() {
    let fake = Fake::modern(|_| status(503, "busy")).await;
    let connection = fake.connection();
    for _ in 0..5 {
        assert_eq!(connection.ask(call("t")).await.unwrap_err().kind, FailureKind::Invalid);
    }
    assert_eq!(fake.accepted(), 1);
}

#[tokio::test]
async fn a_connection_closed_while_idle_costs_nothing() {
    let fake = Fake::modern(|seen| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, seen.body["id"]);
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json";
        Say::Last(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes())
    })
    .await;
    let connection = pool().connection(&Target { era: Some(Era::Modern), ..fake.target() });
    for calls in 1..=5 {
        connection.ask(call("t")).await.unwrap();
        fake.until(|fake| fake.closed.load(Ordering::SeqCst) == calls).await;
    }
    assert_eq!(fake.methods().len(), 5);
    assert_eq!(fake.seen().last().unwrap().connection, 4);
}

#[tokio::test]
async fn a_request_that_may_have_been_seen_is_not_sent_again() {
    for said in [&b""[..], b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"]
    {
        let fake = Fake::modern(move |_| Say::Last(said.to_vec())).await;
        let failed = fake.connection().ask(call("t")).await.unwrap_err();
        assert_eq!((failed.kind, failed.dispatched), (FailureKind::Lost, true));
        assert_eq!(fake.methods().iter().filter(|m| *m == "tools/call").count(), 1);
    }
}

#[tokio::test]
async fn a_stream_that_ends_early_is_lost() {
    let fake = Fake::modern(|_| Say::Raw([stream(": nothing\n\n"), b"0\r\n\r\n".to_vec()].concat())).await;
    let failed = fake.connection().ask(call("t")).await.unwrap_err();
    assert_eq!((failed.kind, failed.dispatched), (FailureKind::Lost, true));
}

#[tokio::test]
async fn a_stream_that_ends_late_does_not_delay_its_answer() {
    let end = Arc::new(Notify::new());
    let signal = Arc::clone(&end);
    let fake = Fake::modern(move |seen| {
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{},"result":{{}}}}"#, seen.body["id"]);
        let first = Say::Raw(stream(&event(&answer)));
        Say::Then(Box::new(first), Arc::clone(&signal), Box::new(Say::Raw(b"0\r\n\r\n".to_vec())))
    })
    .await;
    let connection = fake.connection();
    connection.ask(call("t")).await.unwrap();
    assert_eq!(connection.probe().1.idle_count(), 0);
    end.notify_one();
    while connection.probe().1.idle_count() == 0 {
        tokio::task::yield_now().await;
    }
    connection.ask(call("t")).await.unwrap();
    assert_eq!(fake.accepted(), 1);
}

#[tokio::test]
async fn idle_connections_close_in_time() {
    let fake = Fake::modern(|seen| result(seen, "{}")).await;
    let limits = Limits { idle_timeout: Duration::from_millis(20), ..limits() };
    let connection = pool().connection(&Target { limits, ..fake.target() });
    connection.ask(call("t")).await.unwrap();
    fake.until(|fake| fake.closed.load(Ordering::SeqCst) == 1).await;
    assert_eq!(connection.probe().1.open_permits(), 16);
    connection.ask(call("t")).await.unwrap();
    assert_eq!(fake.accepted(), 2);
}

#[tokio::test]
async fn open_connections_are_capped() {
    let go = Arc::new(Notify::new());
    let signal = Arc::clone(&go);
    let fake = Fake::modern(move |seen| Say::After(Arc::clone(&signal), Box::new(result(seen, "{}")))).await;
    let limits = Limits { concurrency: 8, connections: 3, ..limits() };
    let connection = pool().connection(&Target { limits, era: Some(Era::Modern), ..fake.target() });
    let calls: Vec<_> = (0..6)
        .map(|_| {
            let connection = Arc::clone(&connection);
            tokio::spawn(async move { connection.ask(call("t")).await })
        })
        .collect();
    for done in 0..6 {
        fake.until(|fake| fake.seen().len() > done).await;
        go.notify_one();
    }
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert!(fake.accepted() <= 2, "{}", fake.accepted());
}
