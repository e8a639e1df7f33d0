use super::tests::{opened, view};
use super::*;
use crate::domain::consent::ConsentState;
use crate::domain::fuzz::{fuzz, shape};

/// Answers and anything else from a client that was asked once: each reply is JSON, and a call is allowed only by the option
/// that was offered, or R4's word for it.
#[test]
fn messages() {
    let id = Uuid::from_u128(7);
    let (call, allow) = (format!("{id}.1"), format!("{id}.allow_once"));
    let answer =
        |outcome: &str| format!(r#"{{"jsonrpc":"2.0","id":"{call}","result":{{"outcome":{outcome}}}}}"#);
    let seeds = [
        answer(&format!(r#"{{"outcome":"selected","optionId":"{allow}"}}"#)),
        answer(r#"{"outcome":"cancelled"}"#),
        answer(r#""granted""#),
        r#"{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"cs_0"}}"#.to_owned(),
        r#"{"jsonrpc":"2.0","method":"session/cancel"}"#.to_owned(),
        r#"{"jsonrpc":"2.0","id":"\ud800","method":"initialize","params":{"protocolVersion":1,"clientInfo":{"name":"é"}}}"#.to_owned(),
    ];
    fuzz(
        &seeds.each_ref().map(String::as_str),
        &["selected", &allow, &call, r#""id":1,"#, "null"],
        |input| {
            let text = String::from_utf8_lossy(input);
            let (mut dialogue, _) = opened();
            dialogue.see(&view(7, ConsentState::Pending), true);
            let turn = dialogue.hear(&text);
            for message in &turn.messages {
                assert!(serde_json::from_str::<&RawValue>(message).is_ok(), "{message}");
            }
            let allows = turn.acts.contains(&AcpAct::Decide(id, ConsentDecision::AllowOnce));
            if allows {
                let read: Value = serde_json::from_str(&text).unwrap();
                let outcome = &read["result"]["outcome"];
                let is_chosen = outcome["outcome"] == "selected" && outcome["optionId"] == *allow;
                assert!(read["id"] == *call && (is_chosen || outcome == "granted"), "{text}");
            }
            shape((allows, turn.acts.len(), turn.messages.len(), turn.messages.first().map(String::len)))
        },
    );
}
