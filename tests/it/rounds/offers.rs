//! Prompts and resources that take several rounds, on `/mcp/direct`.

use serde_json::{Value, json};

use super::{INVALID, ON, client, open, question, shown};
use crate::support::upstream::{Era, Offers};
use crate::support::{Api, DIRECT, Gateway, Mcp, Outcome, Stage, Tool, Upstream};

/// What a person answered.
const ANSWERS: &str = r#"{ "who":{"action":"decline"} }"#;
const PROMPT: (&str, &str) = ("prompts/get", r#""name":"up:greet","arguments":{"n":"1"}"#);
const RESOURCE: (&str, &str) = ("resources/read", r#""uri":"note://one""#);

async fn go(client: Mcp, (method, params): (&str, &str), more: &str) -> Outcome {
    Outcome { answer: client.at(DIRECT).request(method, &format!("{{{params}{more}}}")).await }
}

async fn again(api: &Api, request: (&str, &str), state: &str) -> Outcome {
    go(client(api), request, &format!(r#","inputResponses":{ANSWERS},"requestState":"{state}""#)).await
}

#[tokio::test]
async fn they_take_turns_and_are_bound_as_calls_are() {
    let stage = Stage::with(&[ON]).await;
    let other = Gateway::start(&stage.database, &[ON]).await;
    let tenant = open(&stage, "acme").await;
    let upstream =
        Upstream::start(Era::Modern, crate::support::upstream::Form::Json, vec![Tool::reads("tool")]).await;
    let offers = Offers::prompts(&["greet", "other"]);
    let asks_first = Some(question("\"U-7\""));
    upstream.set_offers(Offers {
        resources: Offers::resources(&["note://one", "note://two"]).resources,
        asks_first,
        ..offers
    });
    tenant.add("up", &upstream).await;
    let (here, other_key) = (tenant.agent().await, tenant.agent().await);
    let there = other.ask_as(&here);
    let others = [
        (PROMPT, ("prompts/get", r#""name":"up:greet","arguments":{"n":"2"}"#)),
        (PROMPT, ("prompts/get", r#""name":"up:greet""#)),
        (PROMPT, ("prompts/get", r#""name":"up:other","arguments":{"n":"1"}"#)),
        (PROMPT, RESOURCE),
        (RESOURCE, ("resources/read", r#""uri":"note://two""#)),
        (RESOURCE, PROMPT),
    ];
    for request in [PROMPT, RESOURCE] {
        let first = go(client(&here), request, "").await;
        let state = super::state_of(&first);
        assert_eq!(first.raw(), shown(&format!("\"{state}\"")));
        for other in others.iter().filter(|(of, _)| *of == request).map(|(_, other)| *other) {
            let refused = again(&here, other, &state).await;
            assert_eq!(refused.error(), json!({"code": -32602, "message": INVALID}), "{other:?}");
        }
        assert_eq!(again(&other_key, request, &state).await.error()["message"], INVALID);
        let done = again(&there, request, &state).await.ok();
        assert!(done["messages"].is_array() || done["contents"].is_array(), "{done}");
        // it may be listed meanwhile
        let asked = upstream.asked().into_iter().rfind(|(method, _)| method == request.0);
        let (_, params) = asked.unwrap();
        assert!(params.contains(&format!(r#""inputResponses":{ANSWERS},"requestState":"U-7""#)), "{params}");
        let plain = go(Mcp::modern(&here), request, "").await.error();
        assert_eq!(plain["data"]["code"], "upstream_needs_input", "{plain}");
        let old = go(Mcp::bare(&here), request, "").await.error();
        assert_eq!(old["data"]["code"], "upstream_needs_input", "{old}");
    }
    let records = tenant.records(&format!("key={}&type=direct_call", here.id), 14).await;
    let of = |parent: &Value| records.iter().filter(|record| record["parent_id"] == *parent).count();
    let asked: Vec<&Value> =
        records.iter().filter(|r| r["status"] == "success" && r["warning"] == "asked for input").collect();
    assert_eq!(asked.len(), 2, "{records:?}");
    for first in asked {
        assert_eq!((of(&first["id"]), first["response"].to_string().contains("U-7")), (1, false), "{first}");
    }
    let invalid = records.iter().filter(|record| record["error_code"] == "invalid_request_state");
    assert_eq!(invalid.filter(|record| record["status"] == "blocked").count(), 6, "{records:?}");
}
