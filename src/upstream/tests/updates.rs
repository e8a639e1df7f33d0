//! Watching single resources for updates, in both eras.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::super::*;
use super::fake::*;
use super::watch::{notice, reason};

const BOUND: Duration = Duration::from_secs(5);
const UPDATED: &str = "notifications/resources/updated";

fn updated(uri: &str) -> String {
    event(&json!({"jsonrpc": "2.0", "method": UPDATED, "params": {"uri": uri}}).to_string())
}

/// Starts a server that announces updates of these resources to everybody, whatever they asked for, and hangs up at the
/// signal. In the modern era it acknowledges all that it is asked for.
async fn announcing(era: Era, uris: &'static [&'static str], signal: &Arc<Notify>) -> Fake {
    let signal = Arc::clone(signal);
    let says = move |messages: &str| {
        let said = Box::new(Say::Raw(stream(messages)));
        Say::Then(said, Arc::clone(&signal), Box::new(Say::Last(vec![])))
    };
    Fake::declaring(era, EVERYTHING, move |seen| match (seen.verb.as_str(), seen.method()) {
        (_, "subscriptions/listen") => {
            let asked = json!({"notifications": seen.body["params"]["notifications"]});
            let first = notice(seen, "notifications/subscriptions/acknowledged", &asked);
            let news: String = uris.iter().map(|uri| notice(seen, UPDATED, &json!({ "uri": uri }))).collect();
            says(&format!("{first}{news}"))
        }
        ("GET", _) => {
            let news: String = uris.iter().map(|uri| updated(uri)).collect();
            says(&format!(": hello\n\n{news}"))
        }
        ("DELETE", _) => Say::Http(204, vec![], String::new()),
        (_, "resources/subscribe") if seen.raw.contains("refused://") => error(200, &seen.body["id"], -32002),
        _ => result(seen, "{}"),
    })
    .await
}

fn uris(uris: &[&str]) -> Vec<String> {
    uris.iter().map(|uri| (*uri).to_owned()).collect()
}

async fn open(fake: &Fake, era: Era, watched: &[&str]) -> Result<ResourceWatcher, WatchEnd> {
    pool().watch_resources(&Target { era: Some(era), ..fake.target() }, &uris(watched)).await
}

async fn next(watcher: &mut ResourceWatcher) -> Result<String, String> {
    let next = tokio::time::timeout(BOUND, watcher.next()).await.unwrap();
    next.map_err(|end| reason(&end))
}

/// Returns the resources of each request of this method so far.
fn asked(fake: &Fake, method: &str) -> Vec<Value> {
    let seen = fake.seen().into_iter().filter(|seen| seen.method() == method);
    seen.map(|seen| match method {
        "subscriptions/listen" => seen.body["params"]["notifications"]["resourceSubscriptions"].clone(),
        _ => seen.body["params"]["uri"].clone(),
    })
    .collect()
}

#[tokio::test]
async fn updates_are_heard_of_what_was_asked_for() {
    for era in [Era::Handshake, Era::Modern] {
        let signal = Arc::new(Notify::new());
        let fake = announcing(era, &["a://other", "a://1"], &signal).await;
        let mut watcher = open(&fake, era, &["a://1"]).await.unwrap_or_else(|end| panic!("{era:?}: {end:?}"));
        assert_eq!(next(&mut watcher).await.as_deref(), Ok("a://1"), "{era:?}");
        signal.notify_one();
        let end = next(&mut watcher).await.unwrap_err();
        assert!(end.starts_with("Lost"), "{era:?}: {end}");
    }
}

#[tokio::test]
async fn what_is_watched_changes_without_a_gap() {
    let signal = Arc::new(Notify::new());
    let fake = announcing(Era::Handshake, &[], &signal).await;
    let mut watcher = open(&fake, Era::Handshake, &["a://1", "refused://x"]).await.unwrap();
    assert_eq!(asked(&fake, "resources/subscribe").len(), 2, "a refusal says nothing of the others");
    watcher.watch(&uris(&["a://1", "a://2"])).await.unwrap();
    watcher.watch(&uris(&["a://2", "a://1"])).await.unwrap();
    assert_eq!(asked(&fake, "resources/subscribe")[2..], [json!("a://2")]);
    assert_eq!(asked(&fake, "resources/unsubscribe"), [json!("refused://x")]);

    let fake = announcing(Era::Modern, &["a://1"], &signal).await;
    let mut watcher = open(&fake, Era::Modern, &["a://1"]).await.unwrap();
    watcher.watch(&uris(&["a://1", "a://2"])).await.unwrap();
    assert_eq!(asked(&fake, "subscriptions/listen"), [json!(["a://1"]), json!(["a://1", "a://2"])]);
    // of both streams
    for _ in 0..2 {
        assert_eq!(next(&mut watcher).await.as_deref(), Ok("a://1"));
    }
}

#[tokio::test]
async fn who_announces_no_updates_is_told_from_who_is_lost() {
    for era in [Era::Handshake, Era::Modern] {
        let fake = Fake::declaring(era, TOOLS_ANNOUNCED, |seen| result(seen, "{}")).await;
        let Err(end) = open(&fake, era, &["a://1"]).await else { panic!("opened") };
        assert_eq!(reason(&end), "it announces no updates of resources", "{era:?}");
        let broken = Fake::declaring(era, EVERYTHING, |_| status(503, "secret")).await;
        let Err(end) = open(&broken, era, &["a://1"]).await else { panic!("opened") };
        assert_eq!(reason(&end), "Invalid HTTP status 503", "{era:?}");
    }
}
