//! Watching for announced changes, in both eras.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::*;
use super::fake::*;

const BOUND: Duration = Duration::from_secs(5);
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// An acknowledgement of a subscription, or one of its notices.
fn notice(seen: &Seen, method: &str, more: &Value) -> String {
    let mut params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": seen.body["id"]}});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string())
}

fn acknowledged(seen: &Seen) -> String {
    let honoured = json!({"notifications": {"toolsListChanged": true}});
    notice(seen, "notifications/subscriptions/acknowledged", &honoured)
}

fn changed(seen: &Seen) -> String {
    notice(seen, "notifications/tools/list_changed", &json!({}))
}

/// Opens a stream with `first`, says `then` at the signal, and hangs up at the next.
fn streams(first: &str, then: &str, signal: &Arc<Notify>) -> Say {
    let (first, then) = (stream(first), chunk(then).into_bytes());
    let last = Say::Then(Box::new(Say::Raw(then)), Arc::clone(signal), Box::new(Say::Last(vec![])));
    Say::Then(Box::new(Say::Raw(first)), Arc::clone(signal), Box::new(last))
}

async fn modern(signal: &Arc<Notify>) -> Fake {
    let signal = Arc::clone(signal);
    Fake::modern(move |seen| match seen.method() {
        "subscriptions/listen" => streams(&acknowledged(seen), &changed(seen), &signal),
        _ => result(seen, "{}"),
    })
    .await
}

async fn handshake(signal: &Arc<Notify>) -> Fake {
    let signal = Arc::clone(signal);
    Fake::handshake(move |seen| match seen.verb.as_str() {
        "GET" => streams(": hello\n\n", &event(CHANGED), &signal),
        "DELETE" => Say::Http(204, vec![], String::new()),
        _ => result(seen, "{}"),
    })
    .await
}

async fn open(fake: &Fake, era: Option<Era>) -> Result<Watcher, WatchEnd> {
    pool().watch(&Target { era, ..fake.target() }).await
}

#[tokio::test]
async fn a_change_is_announced_and_an_end_noticed() {
    for era in [Era::Modern, Era::Handshake] {
        let (signal, seen) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let fake = if era == Era::Modern { modern(&signal).await } else { handshake(&signal).await };
        let watcher = open(&fake, Some(era)).await.unwrap_or_else(|end| panic!("{era:?}: {end:?}"));
        let told = Arc::clone(&seen);
        let following = tokio::spawn(watcher.follow(move || told.notify_one()));
        signal.notify_one();
        tokio::time::timeout(BOUND, seen.notified()).await.unwrap();
        signal.notify_one();
        let end = tokio::time::timeout(BOUND, following).await.unwrap().unwrap();
        assert!(matches!(end, WatchEnd::Lost(_)), "{era:?}: {end:?}");
    }
}

fn reason(end: &WatchEnd) -> String {
    match end {
        WatchEnd::Unsupported(reason) => (*reason).to_owned(),
        WatchEnd::Lost(error) => format!("{:?} {}", error.kind, error.detail),
    }
}

async fn refusal(fake: &Fake, era: Era) -> WatchEnd {
    match open(fake, Some(era)).await {
        Ok(_) => panic!("opened"),
        Err(end) => end,
    }
}

#[tokio::test]
async fn who_announces_nothing_is_told_from_who_is_lost() {
    let bare = |_: &Seen| Say::Http(405, vec![], String::new());
    let silent = Fake::start(move |seen| match seen.method() {
        "initialize" => result(
            seen,
            r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"f","version":"1"}}"#,
        ),
        "notifications/initialized" => Say::Http(202, vec![], String::new()),
        _ => bare(seen),
    })
    .await;
    let without_stream = Fake::handshake(bare).await;
    let without_session = Fake::start(move |seen| match seen.method() {
        "initialize" => result(seen, INITIALIZED),
        "notifications/initialized" => Say::Http(202, vec![], String::new()),
        _ => bare(seen),
    })
    .await;
    let refusing = Fake::modern(|seen| error(404, &seen.body["id"], -32601)).await;
    let empty = Fake::modern(|seen| {
        let nothing = json!({"notifications": {}});
        Say::Raw(stream(&notice(seen, "notifications/subscriptions/acknowledged", &nothing)))
    })
    .await;
    let broken = Fake::modern(|_| status(503, "secret")).await;
    let moved = Fake::handshake(|_| {
        Say::Http(307, vec![("location", "http://127.0.0.1:1/".to_owned())], String::new())
    });
    let moved = moved.await;
    let table = [
        (&silent, Era::Handshake, "it announces no changes of its tools"),
        (&without_stream, Era::Handshake, "it offers no stream"),
        (&without_session, Era::Handshake, "it keeps no sessions"),
        (&refusing, Era::Modern, "it refused to be listened to"),
        (&empty, Era::Modern, "it acknowledged nothing to listen to"),
        (&broken, Era::Modern, "Invalid HTTP status 503"),
        (&moved, Era::Handshake, "Invalid a redirect, which is never followed"),
    ];
    for (fake, era, expected) in table {
        assert_eq!(reason(&refusal(fake, era).await), expected);
    }
    // no stream is asked for where none would be of use
    assert!(silent.seen().iter().all(|seen| seen.verb == "POST"), "{:?}", silent.seen());
}

#[tokio::test]
async fn a_stream_carries_the_credentials_and_is_given_back() {
    let fake = handshake(&Arc::new(Notify::new())).await;
    let watcher = open(&fake, None).await.unwrap_or_else(|end| panic!("{end:?}"));
    drop(watcher);
    fake.until(|fake| fake.seen().iter().any(|seen| seen.verb == "DELETE")).await;
    for seen in fake.seen() {
        assert_eq!(seen.header("authorization"), "Bearer upstream-secret", "{seen:?}");
        let in_session = seen.verb != "POST" || seen.method() == "notifications/initialized";
        assert_eq!(seen.header("mcp-session-id"), if in_session { "s0" } else { "" }, "{seen:?}");
    }
    let stream = fake.seen().into_iter().find(|seen| seen.verb == "GET").unwrap();
    assert_eq!(stream.header("accept"), "text/event-stream");
    assert_eq!(stream.header("mcp-protocol-version"), "2025-06-18");
}

#[tokio::test]
async fn requests_of_the_upstream_are_answered_but_nothing_was_offered() {
    let signal = Arc::new(Notify::new());
    let held = Arc::clone(&signal);
    let fake = Fake::handshake(move |seen| match seen.verb.as_str() {
        "GET" => {
            let asks = [("p", "ping"), ("r", "roots/list"), ("e", "elicitation/create"), ("x", "vendor/x")]
                .map(|(id, method)| {
                    event(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {}}).to_string())
                })
                .concat();
            Say::Then(Box::new(Say::Raw(stream(&asks))), Arc::clone(&held), Box::new(Say::Last(vec![])))
        }
        _ => Say::Http(202, vec![], String::new()),
    })
    .await;
    let _watcher = open(&fake, Some(Era::Handshake)).await.unwrap_or_else(|end| panic!("{end:?}"));
    let answers =
        |fake: &Fake| fake.seen().into_iter().filter(|seen| seen.body["id"].is_string()).collect::<Vec<_>>();
    fake.until(|fake| answers(fake).len() == 4).await;
    for seen in answers(&fake) {
        let code = &seen.body["error"]["code"];
        assert_eq!(*code, if seen.body["id"] == "p" { Value::Null } else { json!(-32601) }, "{}", seen.raw);
    }
}

#[tokio::test]
async fn what_is_no_protocol_ends_the_stream() {
    let large = format!("data: {}\n\n", "x".repeat(2 << 20));
    let table = [(event("secret nonsense"), "Invalid"), (event("[]"), "Invalid"), (large, "TooLarge")];
    for era in [Era::Modern, Era::Handshake] {
        for (garbage, kind) in &table {
            let signal = Arc::new(Notify::new());
            let (held, garbage) = (Arc::clone(&signal), garbage.clone());
            let says = move |first: &str| {
                let then = Box::new(Say::Raw(chunk(&garbage).into_bytes()));
                Say::Then(Box::new(Say::Raw(stream(first))), Arc::clone(&held), then)
            };
            let fake = match era {
                Era::Modern => Fake::modern(move |seen| says(&acknowledged(seen))).await,
                Era::Handshake => Fake::handshake(move |_| says(": hello\n\n")).await,
            };
            let watcher = open(&fake, Some(era)).await.unwrap_or_else(|end| panic!("{end:?}"));
            let following = tokio::spawn(watcher.follow(|| {}));
            signal.notify_one();
            let end = tokio::time::timeout(BOUND, following).await.unwrap().unwrap();
            assert!(reason(&end).starts_with(kind), "{era:?}: {end:?}");
            assert!(!format!("{end:?}").contains("secret"), "{end:?}");
        }
    }
}

#[tokio::test]
async fn a_stream_is_guarded_like_everything_else() {
    let fake = Fake::modern(|_| panic!("nothing may arrive")).await;
    let guarded = Pool::new(Arc::new(Egress::new(vec![], vec![])), None);
    for era in [None, Some(Era::Modern), Some(Era::Handshake)] {
        let Err(WatchEnd::Lost(error)) = guarded.watch(&Target { era, ..fake.target() }).await else {
            panic!("opened")
        };
        assert_eq!(error.kind, Kind::EgressRefused);
    }
    assert_eq!(fake.accepted(), 0);
}

#[tokio::test]
async fn nothing_is_sent_without_a_credential_that_does_not_open() {
    let fake = Fake::modern(|_| panic!("nothing may arrive")).await;
    let target = Target { credential: Credential::Locked, headers: vec![], ..fake.target() };
    let Err(WatchEnd::Lost(error)) = pool().watch(&target).await else { panic!("opened") };
    assert_eq!((error.kind, fake.accepted()), (Kind::Locked, 0));
}
