//! Requests of callers that are no tool calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json as value};
use tokio::sync::{Notify, mpsc};

use super::super::*;
use super::fake::*;

const ERAS: [Era; 2] = [Era::Modern, Era::Handshake];

fn subjects() -> [(Subject, &'static str); 4] {
    [
        (Subject::Tool("t".to_owned()), "tools/call"),
        (Subject::Prompt("p".to_owned()), "prompts/get"),
        (Subject::Resource("x://r".to_owned()), "resources/read"),
        (Subject::Completion, "completion/complete"),
    ]
}

fn open(fake: &Fake, era: Era, limits: Limits) -> Arc<Connection> {
    pool().connection(&Target { era: Some(era), limits, ..fake.target() })
}

#[tokio::test]
async fn members_are_sent_as_they_are_and_meta_is_ours() {
    for era in ERAS {
        let fake = Fake::declaring(era, EVERYTHING, |seen| result(seen, "{}")).await;
        let connection = open(&fake, era, limits());
        for (subject, method) in subjects() {
            let name = match &subject {
                Subject::Tool(name) | Subject::Prompt(name) | Subject::Resource(name) => Some(name.clone()),
                Subject::Completion => None,
            };
            let raw = r#"{ "b":1.50 ,"a":"\u00e9"}"#;
            let hop = ("progressToken".to_owned(), Bytes::from_static(b"\"caller\""));
            let meta = vec![("traceparent".to_owned(), Bytes::from_static(br#""00-1""#)), hop];
            let members =
                vec![("arguments", Bytes::from_static(raw.as_bytes())), ("requestState", "\"U\"".into())];
            connection.ask(Request { members, meta, ..request(subject) }).await.unwrap();
            let seen = fake.seen().pop().unwrap();
            assert_eq!((seen.method(), seen.body["params"]["requestState"].as_str()), (method, Some("U")));
            assert!(seen.raw.contains(&format!(r#""arguments":{raw},"#)), "{}", seen.raw);
            let params = &seen.body["params"];
            assert_eq!(
                (&params["_meta"]["traceparent"], &params["_meta"]["progressToken"]),
                (&value!("00-1"), &Value::Null)
            );
            let own = params["name"].as_str().or(params["uri"].as_str());
            assert_eq!(own, name.as_deref(), "{}", seen.raw);
            let is_modern = era == Era::Modern;
            assert_eq!(seen.header("mcp-method"), if is_modern { method } else { "" });
            assert_eq!(seen.header("mcp-name"), name.filter(|_| is_modern).unwrap_or_default());
        }
    }
}

#[tokio::test]
async fn progress_errors_and_bounds_are_those_of_calls() {
    for era in ERAS {
        let never = Arc::new(Notify::new());
        let fake = Fake::declaring(era, EVERYTHING, move |seen| match seen.body["params"]["uri"].as_str() {
            Some("refused") => error(200, &seen.body["id"], -32002),
            Some("large") => json("x".repeat(limits().response_bytes_max * 2)),
            Some("silent") => Say::After(Arc::clone(&never), Box::new(Say::Last(vec![]))),
            _ => {
                let token = &seen.body["params"]["_meta"]["progressToken"];
                let progress = value!({"jsonrpc": "2.0", "method": "notifications/progress",
                    "params": {"progressToken": token, "progress": 1}});
                let answer = value!({"jsonrpc": "2.0", "id": seen.body["id"], "result": {"contents": []}});
                let events = [progress, answer].map(|message| event(&message.to_string())).concat();
                Say::Raw([stream(&events), b"0\r\n\r\n".to_vec()].concat())
            }
        })
        .await;
        let connection = open(&fake, era, limits());
        let read = |uri: &str| request(Subject::Resource(uri.to_owned()));
        let (progress, mut told) = mpsc::channel(8);
        let answer =
            connection.ask(Request { hears: Some(Hears::progress(progress)), ..read("x") }).await.unwrap();
        assert_eq!(answer, Answer::Result(r#"{"contents":[]}"#.into()), "{era:?}");
        assert!(told.try_recv().is_ok(), "{era:?}");
        assert!(matches!(connection.ask(read("refused")).await.unwrap(), Answer::Error { .. }), "{era:?}");
        assert_eq!(connection.ask(read("large")).await.unwrap_err().kind, FailureKind::TooLarge, "{era:?}");
        let short = Request { timeout: Duration::from_millis(50), ..read("silent") };
        let failed = connection.ask(short).await.unwrap_err();
        assert_eq!((failed.kind, failed.dispatched), (FailureKind::Timeout, true), "{era:?}");
    }
}

#[tokio::test]
async fn they_take_their_turn_and_are_cancelled_like_calls() {
    for era in ERAS {
        for (subject, method) in subjects() {
            let never = Arc::new(Notify::new());
            let fake = Fake::declaring(era, EVERYTHING, move |seen| match seen.method() {
                "notifications/cancelled" => Say::Http(202, vec![], String::new()),
                _ => Say::After(Arc::clone(&never), Box::new(Say::Last(vec![]))),
            })
            .await;
            let limits = Limits { concurrency: 1, queue: 0, ..limits() };
            let connection = open(&fake, era, limits);
            let (asking, sent) = (Arc::clone(&connection), request(subject.clone()));
            let running = tokio::spawn(async move { asking.ask(sent).await });
            fake.until(|fake| fake.methods().iter().any(|seen| seen == method)).await;
            assert_eq!(
                connection.ask(request(subject)).await.unwrap_err().kind,
                FailureKind::Overloaded,
                "{method}"
            );
            running.abort();
            assert!(running.await.unwrap_err().is_cancelled());
            match era {
                Era::Modern => fake.until(|fake| fake.closed.load(Ordering::SeqCst) == 1).await,
                Era::Handshake => {
                    fake.until(|fake| fake.methods().iter().any(|seen| seen == "notifications/cancelled"))
                        .await;
                    let seen = fake.seen();
                    let asked = seen.iter().find(|seen| seen.method() == method).unwrap();
                    let told = seen.iter().find(|seen| seen.method() == "notifications/cancelled").unwrap();
                    assert_eq!(told.body["params"]["requestId"], asked.body["id"]);
                }
            }
        }
    }
}
