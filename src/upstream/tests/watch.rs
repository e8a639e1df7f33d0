//! Watching for announced changes, in both eras.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::*;
use super::fake::*;

const BOUND: Duration = Duration::from_secs(5);
const CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

/// Returns an acknowledgement of a subscription, or a notification on it.
pub(super) fn notice(seen: &Seen, method: &str, more: &Value) -> String {
    let mut params = json!({"_meta": {"io.modelcontextprotocol/subscriptionId": seen.body["id"]}});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    event(&json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string())
}

fn acknowledged(seen: &Seen) -> String {
    acknowledges(seen, &json!({"toolsListChanged": true}))
}

fn acknowledges(seen: &Seen, honoured: &Value) -> String {
    notice(seen, "notifications/subscriptions/acknowledged", &json!({"notifications": honoured}))
}

fn changed(seen: &Seen) -> String {
    notice(seen, "notifications/tools/list_changed", &json!({}))
}

/// Opens a stream with `first`, sends `then` at the signal, and hangs up at the next.
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
    pool().watch(&Target { era, ..fake.target() }, &[Announced::Tools]).await
}

#[tokio::test]
async fn a_change_is_announced_and_an_end_noticed() {
    for era in [Era::Modern, Era::Handshake] {
        let (signal, seen) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let fake = if era == Era::Modern { modern(&signal).await } else { handshake(&signal).await };
        let watcher = open(&fake, Some(era)).await.unwrap_or_else(|end| panic!("{era:?}: {end:?}"));
        let told = Arc::clone(&seen);
        let following = tokio::spawn(watcher.follow(move |_| told.notify_one()));
        signal.notify_one();
        tokio::time::timeout(BOUND, seen.notified()).await.unwrap();
        signal.notify_one();
        let end = tokio::time::timeout(BOUND, following).await.unwrap().unwrap();
        assert!(matches!(end, WatchEnd::Lost(_)), "{era:?}: {end:?}");
    }
}

const ALL: [Announced; 3] = [Announced::Tools, Announced::Prompts, Announced::Resources];
const METHODS: [&str; 3] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
];

/// Starts a server that announces all it can, `times` over, on a stream that acknowledges `honoured` only. It hangs
/// up at the signal.
async fn announcing(
    era: Era,
    capabilities: &'static str,
    (honoured, times): (Value, usize),
    signal: &Arc<Notify>,
) -> Fake {
    let signal = Arc::clone(signal);
    let says = move |messages: &str| {
        let said = Box::new(Say::Raw(stream(messages)));
        Say::Then(said, Arc::clone(&signal), Box::new(Say::Last(vec![])))
    };
    Fake::declaring(era, capabilities, move |seen| match (seen.verb.as_str(), seen.method()) {
        (_, "subscriptions/listen") => {
            let notices = METHODS.map(|method| notice(seen, method, &json!({}))).concat().repeat(times);
            says(&format!("{}{notices}", acknowledges(seen, &honoured)))
        }
        ("GET", _) => {
            let notices =
                METHODS.map(|method| event(&json!({"jsonrpc": "2.0", "method": method}).to_string()));
            says(&notices.concat().repeat(times))
        }
        ("DELETE", _) => Say::Http(204, vec![], String::new()),
        _ => result(seen, "{}"),
    })
    .await
}

/// Returns the number of changes heard on a stream, for each kind, and how it ended. Signals to hang up once the
/// `last` kind was heard.
async fn heard(watcher: Watcher, last: Announced, signal: &Notify) -> ([usize; 3], WatchEnd) {
    let counts = Mutex::new([0; 3]);
    let on_change = |what| {
        counts.lock().unwrap()[ALL.iter().position(|kind| *kind == what).unwrap()] += 1;
        if what == last {
            signal.notify_one();
        }
    };
    let end = tokio::time::timeout(BOUND, watcher.follow(on_change)).await.unwrap();
    (counts.into_inner().unwrap(), end)
}

#[tokio::test]
async fn what_is_heard_is_what_is_wanted_declared_and_acknowledged() {
    let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    let two = json!({"toolsListChanged": true, "resourcesListChanged": true});
    let partly = r#"{"tools":{},"prompts":{"listChanged":true},"resources":{"listChanged":true}}"#;
    let table = [
        (EVERYTHING, &all, &ALL[..], &ALL[..]),
        (EVERYTHING, &json!({"toolsListChanged": true}), &ALL[..1], &ALL[..1]),
        (EVERYTHING, &json!({"promptsListChanged": true}), &ALL[1..2], &ALL[1..2]),
        (partly, &json!({"promptsListChanged": true, "resourcesListChanged": true}), &ALL[..], &ALL[1..]),
        (EVERYTHING, &two, &ALL[..], &[Announced::Tools, Announced::Resources]),
    ];
    for era in [Era::Modern, Era::Handshake] {
        for (capabilities, honoured, wanted, hears) in table {
            // a session acknowledges nothing
            let hears = if era == Era::Handshake && honoured == &two { &ALL[..] } else { hears };
            let signal = Arc::new(Notify::new());
            let fake = announcing(era, capabilities, (honoured.clone(), 1), &signal).await;
            let watcher = pool().watch(&Target { era: Some(era), ..fake.target() }, wanted).await;
            let watcher = watcher.unwrap_or_else(|end| panic!("{era:?} {honoured}: {end:?}"));
            assert_eq!(watcher.hears(), hears, "{era:?} {honoured}");
            let (counts, end) = heard(watcher, *hears.last().unwrap(), &signal).await;
            let want = ALL.map(|what| usize::from(hears.contains(&what)));
            assert_eq!(counts, want, "{era:?} {honoured}: {end:?}");
            assert_eq!(reason(&end).split(' ').next(), Some("Lost"), "{era:?} {honoured}: {end:?}");
            let asked = fake.seen().into_iter().find(|seen| seen.method() == "subscriptions/listen");
            let filter = asked.map(|seen| seen.body["params"]["notifications"].as_object().unwrap().len());
            assert!(filter.is_none_or(|filter| filter <= wanted.len()), "{era:?} {honoured}: {filter:?}");
        }
    }
    let silent = r#"{"tools":{"listChanged":true},"prompts":{}}"#;
    let nothing = announcing(Era::Modern, silent, (json!({}), 1), &Arc::default()).await;
    let refused = pool().watch(&Target { era: Some(Era::Modern), ..nothing.target() }, &ALL[1..]).await;
    let Err(end) = refused else { panic!("opened") };
    assert_eq!(reason(&end), "it announces no changes");
}

#[tokio::test]
async fn a_flood_of_announcements_loses_no_kind() {
    let all = json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
    for era in [Era::Modern, Era::Handshake] {
        let signal = Arc::new(Notify::new());
        let fake = announcing(era, EVERYTHING, (all.clone(), 15), &signal).await;
        let watcher = pool().watch(&Target { era: Some(era), ..fake.target() }, &ALL).await;
        let watcher = watcher.unwrap_or_else(|end| panic!("{era:?}: {end:?}"));
        let (counts, end) = heard(watcher, Announced::Resources, &signal).await;
        assert!(counts.iter().all(|count| (1..=15).contains(count)), "{era:?}: {counts:?} {end:?}");
    }
}

pub(super) fn reason(end: &WatchEnd) -> String {
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
        "initialize" => result(seen, &hello(r#"{"tools":{},"prompts":{"listChanged":true}}"#)),
        "notifications/initialized" => Say::Http(202, vec![], String::new()),
        _ => bare(seen),
    })
    .await;
    let without_stream = Fake::handshake(bare).await;
    let without_session = Fake::start(move |seen| match seen.method() {
        "initialize" => result(seen, &hello(TOOLS_ANNOUNCED)),
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
        (&silent, Era::Handshake, "it announces no changes"),
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
    // no stream is asked for where it would be of no use
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
            let following = tokio::spawn(watcher.follow(|_| {}));
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
        let Err(WatchEnd::Lost(error)) =
            guarded.watch(&Target { era, ..fake.target() }, &[Announced::Tools]).await
        else {
            panic!("opened")
        };
        assert_eq!(error.kind, FailureKind::EgressRefused);
    }
    assert_eq!(fake.accepted(), 0);
}

#[tokio::test]
async fn nothing_is_sent_without_a_credential_that_does_not_open() {
    let fake = Fake::modern(|_| panic!("nothing may arrive")).await;
    let target = fake.target().with(Credential::Locked).with_headers(vec![]);
    let Err(WatchEnd::Lost(error)) = pool().watch(&target, &[Announced::Tools]).await else {
        panic!("opened")
    };
    assert_eq!((error.kind, fake.accepted()), (FailureKind::Locked, 0));
}
