//! Questions and log messages of handshake servers in the middle of a call, over HTTP.

use crate::upstream::protocol::events::ExchangeFor;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json as value};
use tokio::sync::{Notify, mpsc};

use super::super::*;
use super::fake::*;
use crate::domain::relay::{LogLevel, Relay};
use crate::domain::rounds::Capabilities;

const ALL: Relay = Relay { elicitation: true, sampling: true, roots: true, logging: true };
/// Capabilities of a server that sends log messages.
const LOGGING: &str = r#"{"tools":{},"logging":{}}"#;

/// Caller that can be asked everything and wants progress and log messages, with its queue.
fn caller() -> (Hears, mpsc::Receiver<CallEvent>) {
    let (events, heard) = mpsc::channel(8);
    let questions = Capabilities::read(r#"{"elicitation":{},"sampling":{},"roots":{}}"#).unwrap();
    (Hears { events, progress: true, log: Some(LogLevel::Info), questions: Some(questions) }, heard)
}

async fn question(heard: &mut mpsc::Receiver<CallEvent>) -> ServerQuestion {
    match heard.recv().await {
        Some(CallEvent::Question(question)) => question,
        other => panic!("no question: {other:?}"),
    }
}

fn connection(fake: &Fake, relay: Relay) -> Arc<Connection> {
    pool().connection(&Target { relay, ..fake.target() })
}

fn rpc(message: &Value) -> String {
    event(&message.to_string())
}

fn asks(id: &str, method: &str) -> String {
    rpc(&value!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"message": id}}))
}

/// Says the parts one after the other in one event stream, each but the first after its signal; ends with the answer.
fn in_turn(seen: &Seen, first: &str, rest: Vec<(Arc<Notify>, String)>) -> Say {
    let answer = rpc(&value!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {"ok": true}}));
    let count = rest.len();
    let mut parts: Vec<(Arc<Notify>, Vec<u8>)> =
        rest.into_iter().map(|(signal, part)| (signal, chunk(&part).into_bytes())).collect();
    let (_, last) = &mut parts[count - 1];
    last.extend(format!("{}0\r\n\r\n", chunk(&answer)).into_bytes());
    let mut say = None;
    for (signal, bytes) in parts.into_iter().rev() {
        let next = match say.take() {
            None => Say::Raw(bytes),
            Some(later) => with(Say::Raw(bytes), later),
        };
        say = Some((signal, next));
    }
    with(Say::Raw(stream(first)), say.unwrap())
}

fn with(first: Say, (signal, next): (Arc<Notify>, Say)) -> Say {
    Say::Then(Box::new(first), signal, Box::new(next))
}

/// Replies of the gateway to questions, as the server got them.
fn replies(fake: &Fake) -> Vec<Value> {
    fake.seen().into_iter().filter(|seen| seen.method().is_empty()).map(|seen| seen.body).collect()
}

fn accepted() -> Say {
    Say::Http(202, vec![], String::new())
}

#[tokio::test]
async fn questions_are_answered_while_the_stream_goes_on() {
    let (asked, answered) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (on, done) = (Arc::clone(&asked), Arc::clone(&answered));
    let fake = Fake::handshake(move |seen| match seen.method() {
        "tools/call" => {
            let token = &seen.body["params"]["_meta"]["progressToken"];
            let progress = value!({"jsonrpc": "2.0", "method": "notifications/progress",
                "params": {"progressToken": token, "progress": 1}});
            let both = [asks("a", "elicitation/create"), asks("b", "roots/list")].concat();
            let rest = vec![(Arc::clone(&on), rpc(&progress)), (Arc::clone(&done), String::from(":\n\n"))];
            in_turn(seen, &both, rest)
        }
        _ => accepted(),
    })
    .await;
    let connection = connection(&fake, ALL);
    let (hears, mut heard) = caller();
    let call = connection.ask(Request { hears: Some(hears), ..call("t") });
    let client = async {
        let (first, second) = (question(&mut heard).await, question(&mut heard).await);
        assert_eq!((first.kind.as_str(), second.kind.as_str()), ("elicitation/create", "roots/list"));
        assert_eq!(first.params, r#"{"message":"a"}"#);
        // progress is not held up by questions that are open
        asked.notify_one();
        progress_in(heard.recv().await);
        second.reply.send(QuestionReply::Result(r#"{ "roots":[] }"#.into())).unwrap();
        fake.until(|fake| replies(fake).len() == 1).await;
        let refused = QuestionReply::Refused { code: -1, message: "\"no\"".to_owned() };
        first.reply.send(refused).unwrap();
        fake.until(|fake| replies(fake).len() == 2).await;
        answered.notify_one();
    };
    let (answer, ()) = tokio::join!(call, client);
    assert_eq!(answer.unwrap(), Answer::Result(r#"{"ok":true}"#.into()));
    let expected = [
        value!({"jsonrpc": "2.0", "id": "b", "result": {"roots": []}}),
        value!({"jsonrpc": "2.0", "id": "a", "error": {"code": -1, "message": "\"no\""}}),
    ];
    assert_eq!(replies(&fake), expected);
    let sent = fake.seen().into_iter().find(|seen| seen.method().is_empty()).unwrap();
    assert_eq!(sent.header("mcp-session-id"), "s0", "in the session of the call");
}

#[tokio::test]
async fn nobody_is_asked_what_may_not_pass() {
    let (all, _heard) = caller();
    let without = Hears { questions: None, ..all.clone() };
    let sampling = Relay { sampling: true, ..Relay::NOTHING };
    for (relay, hears) in [(sampling, Some(all)), (ALL, Some(without)), (ALL, None)] {
        let refused = Arc::new(Notify::new());
        let on = Arc::clone(&refused);
        let fake = Fake::handshake(move |seen| match seen.method() {
            "tools/call" => {
                in_turn(seen, &asks("a", "elicitation/create"), vec![(Arc::clone(&on), ":\n\n".to_owned())])
            }
            "" => {
                on.notify_one();
                accepted()
            }
            _ => accepted(),
        })
        .await;
        let connection = connection(&fake, relay);
        connection.ask(Request { hears, ..call("t") }).await.unwrap();
        let error = value!({"code": -32601, "message": "Method not found"});
        assert_eq!(replies(&fake), [value!({"jsonrpc": "2.0", "id": "a", "error": error})], "{relay:?}");
    }
}

#[tokio::test]
async fn the_handshake_declares_what_may_pass() {
    let form = value!({"form": {}, "url": {}});
    for (relay, declared) in [
        (Relay::NOTHING, value!({})),
        (Relay::default(), value!({"elicitation": form})),
        (ALL, value!({"elicitation": form, "sampling": {}, "roots": {}})),
    ] {
        let fake = Fake::declaring(Era::Handshake, LOGGING, |seen| match seen.method() {
            "tools/call" => result(seen, r#"{"content":[]}"#),
            _ => result(seen, "{}"),
        })
        .await;
        connection(&fake, relay).ask(call("t")).await.unwrap();
        let initialize = fake.seen().into_iter().find(|seen| seen.method() == "initialize").unwrap();
        assert_eq!(initialize.body["params"]["capabilities"], declared);
        // log messages are asked for once, where they may pass
        if relay.logging {
            fake.until(|fake| fake.methods().iter().any(|method| method == "logging/setLevel")).await;
        }
        let levels: Vec<Value> = fake
            .seen()
            .into_iter()
            .filter(|seen| seen.method() == "logging/setLevel")
            .map(|seen| seen.body["params"].clone())
            .collect();
        let expected = if relay.logging { vec![value!({"level": "debug"})] } else { vec![] };
        assert_eq!(levels, expected, "{relay:?}");
    }
}

#[tokio::test]
async fn log_messages_of_the_call_pass_where_they_may() {
    let log = |level: &str| {
        let params = value!({"level": level, "logger": "db", "data": level});
        rpc(&value!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}))
    };
    for era in [Era::Handshake, Era::Modern] {
        for (relay, said) in [(ALL, vec!["info", "error"]), (Relay::default(), vec![])] {
            let fake = Fake::declaring(era, LOGGING, move |seen| match seen.method() {
                "tools/call" => {
                    let answer = value!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {"ok": true}});
                    let events = [log("debug"), log("info"), log("error"), rpc(&answer)].concat();
                    Say::Raw([stream(&events), b"0\r\n\r\n".to_vec()].concat())
                }
                _ => result(seen, "{}"),
            })
            .await;
            let (hears, mut heard) = caller();
            connection(&fake, relay).ask(Request { hears: Some(hears), ..call("t") }).await.unwrap();
            let mut found = Vec::new();
            while let Some(CallEvent::Log(params)) = heard.recv().await {
                found.push(serde_json::from_slice::<Value>(&params).unwrap()["data"].clone());
            }
            assert_eq!(found, said, "{era:?} {relay:?}");
            let call = fake.seen().into_iter().find(|seen| seen.method() == "tools/call").unwrap();
            let level = &call.body["params"]["_meta"]["io.modelcontextprotocol/logLevel"];
            let is_wanted = era == Era::Modern && relay.logging;
            assert_eq!(*level, if is_wanted { value!("info") } else { Value::Null }, "{era:?} {relay:?}");
        }
    }
}

#[tokio::test]
async fn an_open_question_ends_with_its_call_or_when_it_is_taken_back() {
    let taken_back = Arc::new(Notify::new());
    let on = Arc::clone(&taken_back);
    let fake = Fake::handshake(move |seen| match seen.method() {
        "tools/call" => {
            let both = [asks("a", "roots/list"), asks("b", "roots/list")].concat();
            let cancelled = value!({"jsonrpc": "2.0", "method": "notifications/cancelled",
                "params": {"requestId": "a"}});
            let never = Arc::new(Notify::new());
            in_turn(seen, &both, vec![(Arc::clone(&on), rpc(&cancelled)), (never, String::new())])
        }
        _ => accepted(),
    })
    .await;
    let connection = connection(&fake, ALL);
    let (hears, mut heard) = caller();
    let call = connection.ask(Request { hears: Some(hears), ..call("t") });
    let client = async {
        let (mut first, second) = (question(&mut heard).await, question(&mut heard).await);
        taken_back.notify_one();
        first.reply.closed().await;
        assert!(!second.reply.is_closed());
        second
    };
    let mut second = tokio::select! {
        second = client => second,
        ended = call => panic!("{ended:?}"),
    };
    // the call was given up above
    second.reply.closed().await;
    assert_eq!(replies(&fake), Vec::<Value>::new());
}

#[tokio::test]
async fn questions_reach_the_call_on_whose_stream_they_are() {
    let fake = Fake::handshake(move |seen| match seen.body["params"]["name"].as_str() {
        Some("asks") => in_turn(seen, &asks("a", "roots/list"), vec![(Arc::default(), String::new())]),
        Some("silent") => Say::After(Arc::default(), Box::new(accepted())),
        _ => accepted(),
    })
    .await;
    let connection = connection(&fake, ALL);
    let ((one, mut asked), (two, mut other)) = (caller(), caller());
    let asks = connection.ask(Request { hears: Some(one), ..call("asks") });
    let silent = connection.ask(Request { hears: Some(two), ..call("silent") });
    tokio::select! {
        question = question(&mut asked) => assert_eq!(question.params, r#"{"message":"a"}"#),
        ended = asks => panic!("{ended:?}"),
        ended = silent => panic!("{ended:?}"),
    }
    assert!(other.try_recv().is_err());
}

#[tokio::test]
async fn time_of_people_is_not_time_of_the_server() {
    let fake = Fake::handshake(|_| accepted()).await;
    let connection = connection(&fake, ALL);
    let (short, long) = (Duration::from_millis(200), Duration::from_millis(600));
    let within = async |is_asked: bool| {
        let sent = Sent::default();
        let work = || async {
            sent.begins(crate::domain::measure::Transport::Tcp);
            let asking = is_asked.then(|| sent.asks());
            tokio::time::sleep(long).await;
            drop(asking);
            sent.settles();
            Ok(())
        };
        let ended =
            connection.within(short, (&sent, ExchangeFor::Newest), work).await.map_err(|error| error.kind);
        (ended, sent.took().unwrap().0)
    };
    let (ended, took) = within(true).await;
    assert_eq!(ended, Ok(()));
    assert!(took < short, "{took:?}");
    assert_eq!(within(false).await.0, Err(FailureKind::Timeout));
}
