//! What passes, in both directions, on any replica.

use serde_json::{Value, json};

use super::{ANSWERS, FORMS, ON, Way, asking, asks_twice, client, named, open, question, shown, state_of};
use crate::support::upstream::{Era, Form, Say};
use crate::support::{Gateway, Mcp, Outcome, Stage, Tool, Upstream};

#[tokio::test]
async fn rounds_take_turns_on_two_replicas() {
    let stage = Stage::with(&[ON]).await;
    let other = Gateway::start(&stage.database, &[ON]).await;
    let tenant = open(&stage, "acme").await;
    let upstream = asking().await;
    tenant.add("up", &upstream).await;
    let wiper = Way { tool: "up:wiper", ..Way::DIRECT };
    for way in [Way::SEARCH, Way::DIRECT, wiper, Way { variant: Some("destructive"), ..wiper }] {
        let here = tenant.agent().await;
        let there = other.ask_as(&here);
        let first = way.go(client(&here), "").await;
        let given = state_of(&first);
        assert_eq!(first.raw(), shown(&format!("\"{given}\"")), "all but state and message, byte for byte");
        let second = way.again(client(&there), &given).await;
        let third = way.again(client(&here), &state_of(&second)).await;
        assert_eq!(third.ok()["content"][0]["text"], "done");

        let calls: Vec<_> = upstream.calls().split_off(upstream.counts().calls - 3);
        let sent: Vec<(&str, bool)> = calls
            .iter()
            .map(|call| {
                let state = [r#""requestState":"U-\u0031""#, r#""requestState":"U-2""#];
                let state = state.into_iter().find(|state| call.params.contains(state)).unwrap_or_default();
                assert_eq!(call.arguments, way.arguments);
                assert!(call.params.contains(&format!(r#"clientCapabilities":{FORMS}"#)), "{}", call.params);
                (state, call.params.contains(&format!(r#""inputResponses":{ANSWERS}"#)))
            })
            .collect();
        let expected =
            [("", false), (r#""requestState":"U-\u0031""#, true), (r#""requestState":"U-2""#, true)];
        assert_eq!(sent, expected, "{way:?}");

        let records = tenant.records(&format!("key={}", here.id), 3).await;
        let [third, second, first] = records.as_slice() else { panic!("{records:?}") };
        for (record, parent, warning) in [
            (first, &Value::Null, json!("asked for input")),
            (second, &first["id"], json!("asked for input")),
            (third, &first["id"], Value::Null),
        ] {
            assert_eq!((&record["status"], &record["parent_id"]), (&json!("success"), parent), "{record}");
            assert_eq!(record["warning"], warning, "{record}");
            let text = record.to_string();
            assert!(!text.contains("U-") && !text.contains(&given), "nobody is to read states: {text}");
            assert!(!text.contains("ana"), "what people answer is not kept: {text}");
        }
    }
}

#[tokio::test]
async fn without_a_state_nothing_is_added() {
    let stage = Stage::with(&[ON]).await;
    let tenant = open(&stage, "acme").await;
    let asks = r#"{"inputRequests":{"r":{"method":"roots/list"}},"resultType":"input_required"}"#;
    let state_only = r#"{"resultType":"input_required","requestState":""}"#;
    let upstream = Upstream::modern(vec![
        Tool::reads("stateless").returns(asks),
        Tool::reads("later").returns(state_only),
    ])
    .await;
    tenant.add("up", &upstream).await;
    tenant.platform.patch("/api/v1/servers/up", &json!({"relay": {"roots": true}})).await.expect(200);
    let agent = tenant.agent().await;
    let client = || Mcp::modern(&agent).declaring(r#"{"roots":{},"tools":{"x":1}}"#);
    let way = Way { tool: "up:stateless", ..Way::DIRECT };
    assert_eq!(way.go(client(), "").await.raw(), asks);
    let answers = r#","inputResponses":{"r":{"roots":[]}},"requestState":null"#;
    assert_eq!(way.go(client(), answers).await.raw(), asks);
    let params = upstream.calls().pop().unwrap().params;
    assert!(params.contains(r#""inputResponses":{"r":{"roots":[]}}"#), "{params}");
    assert!(!params.contains("requestState"), "{params}");
    assert!(params.contains(r#"clientCapabilities":{"roots":{}}"#), "of the others nothing: {params}");
    let way = Way { tool: "up:later", ..Way::SEARCH };
    let state = way.begin(client()).await;
    way.go(client(), &format!(r#","requestState":"{state}""#)).await;
    let params = upstream.calls().pop().unwrap().params;
    assert!(params.contains(r#""requestState":"""#) && !params.contains("inputResponses"), "{params}");
}

#[tokio::test]
async fn a_question_follows_progress() {
    let stage = Stage::with(&[ON]).await;
    let tenant = open(&stage, "acme").await;
    // a large one goes in pieces, which are not copied
    let large = format!("{{\n\"x\":\"{}\",{}", "x".repeat(100_000), question("\"U-9\"").split_at(1).1);
    let tools = vec![
        Tool::reads("steps").says(Say::Chatter(2, 5, Some(question("\"U-9\"")))),
        Tool::reads("large").says(Say::Chatter(2, 5, Some(large.clone()))),
        asks_twice(Tool::reads("reader")),
    ];
    let upstream = Upstream::start(Era::Modern, Form::Events, tools).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    for (tool, asked) in [("up:steps", question("\"U-9\"")), ("up:large", large)] {
        let way = Way { tool, ..Way::DIRECT };
        let params = format!(
            r#"{{"_meta":{{"progressToken":"mine"}},"name":"{tool}","arguments":{}}}"#,
            way.arguments
        );
        let answer = client(&agent).at(crate::support::DIRECT).request("tools/call", &params).await;
        let outcome = Outcome { answer };
        assert_eq!(outcome.events().len(), 2, "{outcome:?}");
        let state = state_of(&outcome);
        let expected = named(&asked).replace("\"U-9\"", &format!("\"{state}\"")).replace('\n', " ");
        assert_eq!(outcome.raw(), expected);
        way.again(client(&agent), &state).await;
        assert!(upstream.calls().pop().unwrap().params.contains(r#""requestState":"U-9""#));
    }
    // and without progress, in the upstream's stream
    let state = Way::DIRECT.begin(client(&agent)).await;
    state_of(&Way::DIRECT.again(client(&agent), &state).await);
}

#[tokio::test]
async fn a_client_that_lacks_what_the_server_needs_is_told_in_the_status_too() {
    let stage = Stage::with(&[ON]).await;
    let tenant = open(&stage, "acme").await;
    let error =
        r#"{"data":{"requiredCapabilities":{"sampling":{}}}, "code":-32021,"message":"needs sampling"}"#;
    let other = r#"{"code":-32600,"message":"other"}"#;
    let tools = vec![
        Tool::reads("needs").says(Say::RpcError(error.to_owned())),
        Tool::reads("other").says(Say::RpcError(other.to_owned())),
    ];
    let upstream = Upstream::modern(tools).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let needs = Way { tool: "up:needs", ..Way::DIRECT };
    for (way, client, status, expected) in [
        (needs, Mcp::modern(&agent), 400, error),
        (Way { variant: Some("read"), ..needs }, Mcp::modern(&agent), 400, error),
        (needs, Mcp::bare(&agent), 200, error),
        (Way { tool: "up:other", ..Way::DIRECT }, Mcp::modern(&agent), 200, other),
    ] {
        let outcome = way.go(client, "").await;
        assert_eq!(outcome.answer.status, status, "{way:?}");
        assert!(outcome.answer.text.contains(&format!(r#""error":{expected}"#)), "{outcome:?}");
    }
    // who asks for progress gets it in the same way as long as there is none
    let params = r#"{"_meta":{"progressToken":1},"name":"up:needs"}"#;
    let answer = Mcp::modern(&agent).at(crate::support::DIRECT).request("tools/call", params).await;
    assert_eq!((answer.status, answer.text.contains(error)), (400, true), "{answer:?}");
    for record in tenant.records(&format!("key={}&tool=needs", agent.id), 4).await {
        assert_eq!((&record["status"], &record["error_code"]), (&json!("upstream_error"), &json!("-32021")));
    }
}
