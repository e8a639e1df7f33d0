use std::collections::HashMap;
use std::sync::Arc;

use super::super::*;
use super::fake::*;
use crate::domain::measure::Seen as Durations;

/// Returns the number of requests of this method for each error, code and revision.
fn counted(pool: &Pool, method: &str) -> HashMap<(&'static str, &'static str, &'static str), u64> {
    let all = pool.measures().operations.all();
    let of_it = all.into_iter().filter(|(key, _)| key.method == method);
    let text = Option::unwrap_or_default;
    of_it
        .map(|(key, took)| ((text(key.error), text(key.code), text(key.between.version)), took.seen().count))
        .collect()
}

fn sessions(pool: &Pool) -> u64 {
    pool.measures()
        .sessions
        .all()
        .iter()
        .map(|(_, lasted)| lasted.seen())
        .map(|Durations { count, .. }| count)
        .sum()
}

#[tokio::test]
async fn a_session_that_never_opened_did_not_last() {
    let fake = Fake::start(|seen| match seen.method() {
        "initialize" => result(seen, &hello("{}")),
        "notifications/initialized" => status(500, ""),
        _ => error(200, &seen.body["id"], -32601),
    })
    .await;
    let pool = pool();
    let connection = pool.connection(&fake.target());
    for _ in 0..2 {
        connection.ask(call("t")).await.unwrap_err();
    }
    drop(connection);
    assert_eq!(sessions(&pool), 0);
    assert_eq!(counted(&pool, "initialize"), HashMap::from([(("", "", "2025-06-18"), 2)]));
}

#[tokio::test]
async fn what_is_sent_again_is_told_as_it_went_out_last() {
    let old = Fake::handshake(|seen| match seen.header("mcp-session-id") {
        "" => error(400, &serde_json::Value::Null, -32000),
        _ => result(seen, r#"{"content":[]}"#),
    })
    .await;
    let pool = pool();
    let connection = pool.connection(&Target { era: Some(Era::Modern), ..old.target() });
    let call = call("t");
    let sent = Arc::clone(&call.sent);
    connection.ask(call).await.unwrap();
    let ids: Vec<u64> = old
        .seen()
        .iter()
        .filter(|seen| seen.method() == "tools/call")
        .map(|seen| seen.body["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids.len(), 2);
    let (id, version) = sent.sent_as().unwrap();
    assert_eq!(id, ids[1]);
    assert!(version.starts_with("2025-"), "{version}");
    assert_eq!(sent.took().unwrap().1.version, Some(version));
    assert!(sent.is_dispatched() && sent.settled().is_some());
}

#[tokio::test]
async fn a_list_that_ends_its_session_is_told_in_the_revision_it_went_out_in() {
    let fake = Fake::handshake(|seen| match seen.method() {
        "tools/list" => status(400, ""),
        _ => result(seen, "{}"),
    })
    .await;
    let pool = pool();
    pool.connection(&fake.target()).list(ListKind::Tools).await.unwrap_err();
    let counted = counted(&pool, "tools/list");
    let [((error, code, version), 1)] = counted.into_iter().collect::<Vec<_>>()[..] else { panic!() };
    assert_eq!((error, code), ("invalid", ""));
    assert!(version.starts_with("2025-"), "{version}");
}
