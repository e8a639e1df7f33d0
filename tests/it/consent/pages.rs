//! Pages that a server asks a person to open, in the middle of a call.

use serde_json::{Value, json};

use super::held::{Held, reply, result};
use crate::support::upstream::Say;
use crate::support::{Mcp, Stage, Tool, Upstream};

const PAGE: &str =
    r#"{"mode":"url","message":"Sign in","url":"https://x.example/sign-in","elicitationId":"own"}"#;
const DONE: &str = r#"{"elicitationId":"own"}"#;
const FOREIGN: &str = r#"{"elicitationId":"foreign"}"#;

/// The methods and params of what comes before the answer, and the answer.
async fn rest(mut held: Held) -> (Vec<(Value, Value)>, Value) {
    let mut told = Vec::new();
    loop {
        let message = held.next().await.expect("an answer");
        if message.get("result").is_some() {
            return (told, message["result"].clone());
        }
        told.push((message["method"].clone(), message["params"].clone()));
    }
}

#[tokio::test]
async fn the_session_that_was_asked_hears_that_a_page_is_done() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tools = vec![
        Tool::writes("opener").says(Say::Opens(PAGE, vec![FOREIGN, DONE, DONE])),
        Tool::writes("liar").says(Say::Opens("{\"message\":\"a form\"}", vec![DONE, FOREIGN])),
    ];
    let upstream = Upstream::handshake(tools).await;
    tenant.add("zoo", &upstream).await;
    let agent = tenant.agent().await;
    let pages = Mcp::bare(&agent).declaring(r#"{"elicitation":{"form":{},"url":{}}}"#);
    let client = pages.shake_hands("2025-11-25").await;
    let mut held = Held::call(&client, "7", "opener", "{}").await;
    let (question, page) = held.question().await;
    assert_eq!((&page["elicitationId"], &page["mode"]), (&json!("own"), &json!("url")), "{page}");
    reply(&client, &question, &result(r#"{"action":"accept"}"#)).await;
    let (told, answer) = rest(held).await;
    assert_eq!(told, [(json!("notifications/elicitation/complete"), json!({"elicitationId": "own"}))]);
    assert_ne!(answer["isError"], true, "{answer}");

    // another call asked for no page, so none of it is done
    let mut held = Held::call(&client, "8", "liar", "{}").await;
    let (question, _) = held.question().await;
    reply(&client, &question, &result(r#"{"action":"accept","content":{}}"#)).await;
    assert_eq!(rest(held).await.0, []);

    // nor does a client hear of it that opened nothing
    let forms = Mcp::bare(&agent).declaring(r#"{"elicitation":{"form":{}}}"#).shake_hands("2025-11-25").await;
    let (told, answer) = rest(Held::call(&forms, "9", "opener", "{}").await).await;
    assert_eq!(told, []);
    assert!(answer["content"][0]["text"].as_str().unwrap().contains("-32601"), "{answer}");
}
