use super::*;
use crate::domain::consent::ConsentState;
use crate::domain::pin::Pin;
use crate::store::ConsentRow;

pub(super) fn view(n: u128, state: ConsentState) -> Arc<ConsentView> {
    Arc::new(ConsentView::from(ConsentRow {
        id: Uuid::from_u128(n),
        state: state.into(),
        ..ConsentRow::example()
    }))
}

fn parsed(messages: &[String]) -> Vec<Value> {
    messages.iter().map(|message| serde_json::from_str(message).unwrap()).collect()
}

/// Returns a dialogue with an open session, and the id of that session.
pub(super) fn opened() -> (Dialogue, String) {
    let mut dialogue = Dialogue::new(Language::English);
    dialogue.hear(r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}"#);
    let turn = dialogue
        .hear(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}"#);
    assert_eq!(turn.acts, [AcpAct::Look]);
    let session = parsed(&turn.messages)[0]["result"]["sessionId"].as_str().unwrap().to_owned();
    (dialogue, session)
}

/// Returns the id of the request for permission among messages.
fn call_of(messages: &[String]) -> String {
    let messages = parsed(messages);
    let asked = messages.iter().find(|message| message["method"] == "session/request_permission");
    asked.unwrap_or_else(|| panic!("{messages:?}"))["id"].as_str().unwrap().to_owned()
}

fn answer(dialogue: &mut Dialogue, call: &str, result: &Value) -> Reaction {
    dialogue.hear(&json!({"jsonrpc": "2.0", "id": call, "result": result}).to_string())
}

fn selected(option: &str) -> Value {
    json!({"outcome": {"outcome": "selected", "optionId": option}})
}

#[test]
fn a_request_is_put_as_the_protocol_has_it() {
    let (mut dialogue, session) = opened();
    let messages = dialogue.see(&view(7, ConsentState::Pending), true);
    let id = Uuid::from_u128(7).to_string();
    let (title, text) = (
        "Delete the repository acme/demo. This cannot be undone.",
        |text: &str| json!({"type": "content", "content": {"type": "text", "text": text}}),
    );
    let mut call = json!({
        "toolCallId": id,
        "title": title,
        "name": "github:delete_repo",
        "kind": "delete",
        "status": "pending",
        "content": [
            text("Risk: critical. Tool 'delete_repo' of server 'github'. The effect cannot be undone."),
            text("The agent says: \"cleanup\""),
        ],
        "rawInput": serde_json::from_str::<Value>(&view(7, ConsentState::Pending).row.arguments).unwrap(),
    });
    let asked = json!({
        "jsonrpc": "2.0",
        "id": format!("{id}.1"),
        "method": "session/request_permission",
        "params": {
            "sessionId": session,
            "toolCall": call,
            "options": [
                {"optionId": format!("{id}.allow_once"), "name": "Allow this one call", "kind": "allow_once"},
                {"optionId": format!("{id}.reject_once"), "name": "Refuse this call", "kind": "reject_once"},
                {"optionId": format!("{id}.cancel_turn"), "name": "Stop everything in this turn", "kind": "reject_once"},
            ],
            "_meta": {
                "sessionId": session,
                "toolCallId": id,
                "toolName": "github:delete_repo",
                "reason": title,
                "risk": "critical",
                "expiresAt": "2026-11-24T13:10:00Z",
            },
        },
    });
    call["sessionUpdate"] = json!("tool_call");
    let announced = json!({"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": session, "update": call}});
    assert_eq!(parsed(&messages), [announced, asked]);
    let raw = view(7, ConsentState::Pending).row.arguments.clone();
    assert!(messages.iter().all(|message| message.contains(&format!(r#""rawInput":{raw}"#))), "{messages:?}");
}

#[test]
fn only_what_was_offered_is_a_decision() {
    let id = Uuid::from_u128(7);
    let other = Uuid::from_u128(8);
    for (result, expected) in [
        (selected(&format!("{id}.allow_once")), Some(ConsentDecision::AllowOnce)),
        (selected(&format!("{id}.reject_once")), Some(ConsentDecision::RejectOnce)),
        (selected(&format!("{id}.cancel_turn")), Some(ConsentDecision::CancelTurn)),
        (json!({"outcome": {"outcome": "cancelled"}}), Some(ConsentDecision::CancelTurn)),
        (json!({"outcome": "granted"}), Some(ConsentDecision::AllowOnce)),
        (json!({"outcome": "denied"}), Some(ConsentDecision::RejectOnce)),
        (json!({"outcome": "cancelled"}), Some(ConsentDecision::CancelTurn)),
        (selected(&format!("{id}.allow_always")), None),
        (selected(&format!("{other}.allow_once")), None),
        (selected("allow_once"), None),
        (selected(""), None),
        (json!({"outcome": {"outcome": "selected"}}), None),
        (json!({"outcome": {"outcome": "allowed", "optionId": format!("{id}.allow_once")}}), None),
        (json!({"outcome": {"outcome": "cancelled", "optionId": format!("{id}.allow_once")}}), None),
        (json!({"outcome": "yes"}), None),
        (json!({"outcome": true}), None),
        (json!({}), None),
        (json!(null), None),
        (json!([]), None),
    ] {
        let (mut dialogue, _) = opened();
        let call = call_of(&dialogue.see(&view(7, ConsentState::Pending), true));
        let turn = answer(&mut dialogue, &call, &result);
        let decided: Vec<AcpAct> =
            expected.into_iter().map(|decision| AcpAct::Decide(id, decision)).collect();
        assert_eq!(turn.acts, decided, "{result}");
        // a null result is no response at all, and the request stays open
        let is_asked_again = expected.is_none() && !result.is_null();
        assert_eq!(
            is_asked_again,
            turn.messages.iter().any(|text| text.contains("request_permission")),
            "{result}"
        );
    }
}

#[test]
fn after_two_answers_that_were_not_offered_a_client_is_left_alone() {
    let (mut dialogue, _) = opened();
    let first = call_of(&dialogue.see(&view(7, ConsentState::Pending), true));
    let again = call_of(&answer(&mut dialogue, &first, &selected("forged")).messages);
    assert_ne!(first, again);
    // the first request is not open any more
    let id = Uuid::from_u128(7);
    assert!(answer(&mut dialogue, &first, &selected(&format!("{id}.allow_once"))).acts.is_empty());
    let turn = answer(&mut dialogue, &again, &json!({"outcome": "yes"}));
    let told = parsed(&turn.messages);
    assert_eq!(told[0]["params"]["update"]["status"], "pending", "{told:?}");
    assert!(turn.messages[0].contains("consent_malformed"));
    assert!(answer(&mut dialogue, &again, &selected(&format!("{id}.allow_once"))).acts.is_empty());
    assert!(dialogue.see(&view(7, ConsentState::Pending), true).is_empty());
    // how it goes on is told all the same
    assert_eq!(
        parsed(&dialogue.see(&view(7, ConsentState::Denied), true))[0]["params"]["update"]["status"],
        "failed"
    );
}

#[test]
fn an_answer_counts_once_and_the_rest_is_told() {
    let (mut dialogue, _) = opened();
    let id = Uuid::from_u128(7);
    let call = call_of(&dialogue.see(&view(7, ConsentState::Pending), true));
    let allow = selected(&format!("{id}.allow_once"));
    assert_eq!(answer(&mut dialogue, &call, &allow).acts, [AcpAct::Decide(id, ConsentDecision::AllowOnce)]);
    assert!(answer(&mut dialogue, &call, &allow).acts.is_empty());
    let statuses = |messages: Vec<String>| -> Vec<Value> {
        parsed(&messages).iter().map(|message| message["params"]["update"]["status"].clone()).collect()
    };
    assert_eq!(statuses(dialogue.see(&view(7, ConsentState::Granted), false)), ["in_progress"]);
    assert_eq!(statuses(dialogue.see(&view(7, ConsentState::Consumed), false)), [Value::Null; 0]);
    assert_eq!(statuses(dialogue.see(&view(7, ConsentState::Succeeded), false)), ["completed"]);
    assert_eq!(statuses(dialogue.see(&view(7, ConsentState::Succeeded), false)), [Value::Null; 0]);
    assert_eq!(dialogue.known().count(), 0);
}

#[test]
fn a_loser_is_cancelled() {
    let (mut dialogue, _) = opened();
    let call = call_of(&dialogue.see(&view(7, ConsentState::Pending), true));
    let told = parsed(&dialogue.see(&view(7, ConsentState::Denied), true));
    assert_eq!(
        (&told[0]["method"], &told[0]["params"]["requestId"]),
        (&json!("$/cancel_request"), &json!(call))
    );
    assert_eq!(told[1]["params"]["update"]["status"], "failed");
    assert_eq!(told[1]["params"]["update"]["_meta"]["state"], "denied");
    // a client that answers it as cancelled has ended no turn
    assert!(answer(&mut dialogue, &call, &json!({"outcome": {"outcome": "cancelled"}})).acts.is_empty());
}

#[test]
fn only_those_that_are_put_to_it_reach_a_client_and_only_so_many() {
    let (mut dialogue, _) = opened();
    assert!(dialogue.see(&view(1, ConsentState::Pending), false).is_empty());
    assert!(dialogue.see(&view(1, ConsentState::Granted), true).is_empty());
    for n in 0..REQUESTS_MAX as u128 {
        assert_eq!(dialogue.see(&view(n, ConsentState::Pending), true).len(), 2);
    }
    assert!(!dialogue.wants_more(), "none was left out");
    assert!(dialogue.see(&view(1000, ConsentState::Pending), true).is_empty());
    assert!(!dialogue.wants_more(), "there is no room yet");
    // one that is decided makes room, also while its call has yet to run
    dialogue.see(&view(3, ConsentState::Granted), true);
    assert!(dialogue.wants_more() && !dialogue.wants_more());
    assert_eq!(dialogue.see(&view(1000, ConsentState::Pending), true).len(), 2);
    // so does one that the client is left alone with
    let id = Uuid::from_u128(4);
    dialogue.missed(id);
    assert!(!dialogue.has_room());
    dialogue.missed(id);
    assert_eq!(dialogue.see(&view(1001, ConsentState::Pending), true).len(), 2);
}

#[test]
fn what_was_decided_is_not_kept_without_end() {
    let (mut dialogue, _) = opened();
    let many = TOLD_MAX as u128 + 50;
    for n in 0..many {
        assert_eq!(dialogue.see(&view(n, ConsentState::Pending), true).len(), 2);
        dialogue.see(&view(n, ConsentState::Granted), true);
    }
    let mut known: Vec<u128> = dialogue.known().map(|id| id.as_u128()).collect();
    known.sort_unstable();
    assert_eq!(known, (many - TOLD_MAX as u128..many).collect::<Vec<_>>(), "the newest");
}

#[test]
fn a_session_that_is_loaded_is_asked_anew() {
    let (mut dialogue, session) = opened();
    let call = call_of(&dialogue.see(&view(7, ConsentState::Pending), true));
    let load = |session: &str| {
        json!({"jsonrpc": "2.0", "id": 2, "method": "session/load", "params": {"sessionId": session, "cwd": "/", "mcpServers": []}}).to_string()
    };
    let turn = dialogue.hear(&load(&session));
    assert_eq!(turn.acts, [AcpAct::Look]);
    let told = parsed(&turn.messages);
    assert_eq!(told[0], json!({"jsonrpc": "2.0", "id": 2, "result": {}}));
    assert_eq!(told[1]["params"]["requestId"], call);
    assert_ne!(call_of(&dialogue.see(&view(7, ConsentState::Pending), true)), call);
    for strange in ["", "cs_", "sess_1", "cs_zz"] {
        let refused = parsed(&dialogue.hear(&load(strange)).messages);
        assert_eq!(refused[0]["error"]["code"], -32602, "{strange}");
    }
    for _ in 0..2 * SESSIONS_MAX {
        dialogue.hear(&load(&session));
    }
    assert_eq!(parsed(&dialogue.hear(&load(&session)).messages)[0]["error"]["code"], -32600);
}

#[test]
fn a_prompt_lists_what_waits() {
    let (mut dialogue, session) = opened();
    let prompt = json!({"jsonrpc": "2.0", "id": "p", "method": "session/prompt", "params": {"sessionId": session, "prompt": []}}).to_string();
    let says = |dialogue: &mut Dialogue| {
        let told = parsed(&dialogue.hear(&prompt).messages);
        assert_eq!(told[1], json!({"jsonrpc": "2.0", "id": "p", "result": {"stopReason": "end_turn"}}));
        told[0]["params"]["update"]["content"]["text"].as_str().unwrap().to_owned()
    };
    assert_eq!(says(&mut dialogue), "No permission request waits for an answer.");
    dialogue.see(&view(7, ConsentState::Pending), true);
    let id = Uuid::from_u128(7);
    let line = "- Delete the repository acme/demo. This cannot be undone. Request ";
    assert_eq!(says(&mut dialogue), format!("{line}{id}, until 2026-11-24T13:10:00Z.\n"));
    dialogue.see(&view(7, ConsentState::Granted), true);
    assert_eq!(says(&mut dialogue), "No permission request waits for an answer.");
}

#[test]
fn a_client_that_stops_ends_what_it_was_asked() {
    let stop = r#"{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"any"}}"#;
    assert!(Dialogue::new(Language::English).hear(stop).acts.is_empty());
    let (mut dialogue, _) = opened();
    let call = call_of(&dialogue.see(&view(7, ConsentState::Pending), true));
    let end = AcpAct::Decide(Uuid::from_u128(7), ConsentDecision::CancelTurn);
    assert_eq!(dialogue.hear(stop).acts, [end, AcpAct::EndTurn]);
    assert!(answer(&mut dialogue, &call, &json!({"outcome": {"outcome": "cancelled"}})).acts.is_empty());
    assert_eq!(dialogue.hear(stop).acts, [AcpAct::EndTurn]);
}

#[test]
fn what_is_no_message_is_an_error_and_changes_nothing() {
    let (mut dialogue, _) = opened();
    dialogue.see(&view(7, ConsentState::Pending), true);
    for (text, code, id) in [
        ("", -32700, json!(null)),
        ("{", -32700, json!(null)),
        ("[]", -32600, json!(null)),
        (r#"["2.0",1,"session/new",{},null,null]"#, -32600, json!(null)),
        (r#"{"jsonrpc":"2.0"}"#, -32600, json!(null)),
        (r#"{"jsonrpc":"1.0","id":1,"method":"a"}"#, -32600, json!(null)),
        (r#"{"jsonrpc":"2.0","id":{},"method":"a"}"#, -32600, json!(null)),
        (r#"{"jsonrpc":"2.0","id":1,"id":2,"method":"a"}"#, -32600, json!(null)),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, -32600, json!(1)),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/list"}"#, -32601, json!(1)),
        (
            r#"{"jsonrpc":"2.0","id":1.5e3,"method":"authenticate","params":{"methodId":"x"}}"#,
            -32602,
            json!(1.5e3),
        ),
        (r#"{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":[]}"#, -32602, json!(1)),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"one"}}"#,
            -32602,
            json!(1),
        ),
    ] {
        let turn = dialogue.hear(text);
        assert!(turn.acts.is_empty(), "{text}");
        let [told] = &parsed(&turn.messages)[..] else { panic!("{text}: {turn:?}") };
        assert_eq!((&told["error"]["code"], &told["id"]), (&json!(code), &id), "{text}");
    }
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}1{}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(dialogue.hear(&deep).messages.len(), 1);
    for unheard in [
        r#"{"jsonrpc":"2.0","method":"session/other"}"#,
        r#"{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"x"}}"#,
        r#"{"jsonrpc":"2.0","id":"x","result":{"outcome":{"outcome":"cancelled"}}}"#,
        r#"{"jsonrpc":"2.0","id":7,"result":{"outcome":{"outcome":"cancelled"}}}"#,
    ] {
        let turn = dialogue.hear(unheard);
        assert!(turn.acts.is_empty() && turn.messages.is_empty(), "{unheard}: {turn:?}");
    }
    let mut early = Dialogue::new(Language::English);
    let turn = early.hear(r#"{"jsonrpc":"2.0","id":1,"method":"session/new","params":{}}"#);
    assert_eq!(parsed(&turn.messages)[0]["error"]["code"], -32600);
    assert!(early.see(&view(7, ConsentState::Pending), true).is_empty());
}

#[test]
fn a_decision_that_failed_is_asked_again_or_counts_as_a_miss() {
    let (mut dialogue, _) = opened();
    let (id, pending) = (Uuid::from_u128(7), view(7, ConsentState::Pending));
    dialogue.see(&pending, true);
    dialogue.forget(id);
    assert_eq!(dialogue.see(&pending, true).len(), 2);
    call_of(&dialogue.missed(id));
    assert!(dialogue.missed(id)[0].contains("consent_malformed"));
}

#[test]
fn an_answer_that_a_limit_or_a_right_stops_is_no_malformed_one() {
    let (mut dialogue, _) = opened();
    let (id, pending) = (Uuid::from_u128(7), view(7, ConsentState::Pending));
    let mut call = call_of(&dialogue.see(&pending, true));
    for _ in 0..5 {
        let turn = answer(&mut dialogue, &call, &selected(&format!("{id}.allow_once")));
        assert_eq!(turn.acts, [AcpAct::Decide(id, ConsentDecision::AllowOnce)]);
        let told = dialogue.refused(id, "the limit of this deployment is reached");
        assert!(told.len() == 1 && told[0].contains("the limit of this deployment is reached"), "{told:?}");
        assert_eq!(parsed(&told)[0]["params"]["update"]["status"], "pending");
        assert!(dialogue.see(&pending, false).is_empty(), "it may not be asked now");
        call = call_of(&dialogue.see(&pending, true));
        assert!(dialogue.see(&pending, true).is_empty(), "it is asked once");
    }
    // they count for nothing: the first malformed answer is asked about once more
    call_of(&answer(&mut dialogue, &call, &selected("forged")).messages);
}

#[test]
fn a_client_that_cannot_ask_is_left_alone_without_a_fault() {
    let (mut dialogue, _) = opened();
    let (id, pending) = (Uuid::from_u128(7), view(7, ConsentState::Pending));
    let call = call_of(&dialogue.see(&pending, true));
    let error =
        json!({"jsonrpc": "2.0", "id": call, "error": {"code": -32601, "message": "Method not found"}});
    let turn = dialogue.hear(&error.to_string());
    assert!(turn.acts.is_empty() && !turn.messages[0].contains("consent_malformed"), "{turn:?}");
    assert_eq!(parsed(&turn.messages)[0]["params"]["update"]["status"], "pending");
    assert!(dialogue.see(&pending, true).is_empty());
    assert!(answer(&mut dialogue, &call, &selected(&format!("{id}.allow_once"))).acts.is_empty());
}

/// The crates of the protocol switch `serde_json` to the order of insertion, and more digits than the gateway keeps.
#[test]
fn json_is_read_and_written_as_without_this_protocol() {
    let text = r#"{"b":1,"a":{"d":12345678901234567890123,"c":1.10}}"#;
    let read: Value = serde_json::from_str(text).unwrap();
    assert_eq!(read.to_string(), r#"{"a":{"c":1.1,"d":1.2345678901234568e+22},"b":1}"#);
    let own = json!({"b": 1, "a": 2}).to_string();
    assert_eq!(own, r#"{"a":2,"b":1}"#);
    let pin = "v1:d3626ac30a87e6f7a6428233b3c68299976865fa5508e4267c5415c76af7a772";
    assert_eq!(Pin::of(&own).unwrap().as_str(), pin);
}
