//! Questions of handshake servers as modern clients get them, and the answers of these.

use super::{HELD_KEY, QuestionKind};
use crate::domain::json;

/// Returns the result with the question of a handshake server, as a modern client gets it. `params` are a raw JSON object, and
/// `state` needs no escapes.
pub fn held_question(kind: QuestionKind, params: &str, state: &str) -> String {
    let method = kind.as_str();
    // a request without parameters has no such member in the schema of MCP 2026-07-28
    let params = match kind == QuestionKind::Roots && params == "{}" {
        true => String::new(),
        false => format!(r#","params":{params}"#),
    };
    format!(
        r#"{{"resultType":"input_required","inputRequests":{{"{HELD_KEY}":{{"method":"{method}"{params}}}}},"requestState":"{state}"}}"#
    )
}

/// Returns whether a raw value is the answer to a question of this kind, as far as a server relies on its form.
pub fn is_answer(kind: QuestionKind, raw: &str) -> bool {
    let members = match kind {
        QuestionKind::Elicitation => ["action", "content"],
        QuestionKind::Sampling => ["role", "content"],
        QuestionKind::Roots => ["roots", "_meta"],
    };
    if !raw.starts_with('{') || json::check(raw).is_err() {
        return false;
    }
    let Ok([first, second]) = json::find_members(raw, members) else { return false };
    match kind {
        QuestionKind::Elicitation => {
            let is_known = matches!(first, Some(r#""accept""# | r#""decline""# | r#""cancel""#));
            is_known && second.is_none_or(|raw| raw.starts_with('{') || raw == "null")
        }
        QuestionKind::Sampling => {
            first.is_some_and(|raw| raw.starts_with('"'))
                && second.is_some_and(|raw| raw.starts_with(['{', '[']))
        }
        QuestionKind::Roots => first.is_some_and(|raw| raw.starts_with('[')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::rounds::{Asked, Capabilities};

    #[test]
    fn a_question_is_one_that_may_be_asked() {
        let all = Capabilities::read(r#"{"elicitation":{},"sampling":{},"roots":{}}"#).unwrap();
        for kind in QuestionKind::ALL {
            for params in ["{}", r#"{"message":"?","n":1e400}"#] {
                let raw = held_question(kind, params, "sealed");
                let state = Asked::read(&raw, &all).unwrap().state.unwrap();
                assert_eq!(raw.get(state), Some(r#""sealed""#));
                assert_eq!(raw.contains("params"), kind != QuestionKind::Roots || params != "{}", "{raw}");
            }
        }
    }

    #[test]
    fn answers_have_a_form() {
        use QuestionKind::{Elicitation, Roots, Sampling};
        for (kind, raw, expected) in [
            (Elicitation, r#"{"action":"accept","content":{"a":1e400}}"#, true),
            (Elicitation, r#"{"action":"decline"}"#, true),
            (Elicitation, r#"{"action":"cancel","content":null}"#, true),
            (Elicitation, r#"{"action":"maybe"}"#, false),
            (Elicitation, r#"{"action":"accept","content":7}"#, false),
            (Elicitation, r#"{"content":{}}"#, false),
            (Elicitation, r#"{"action":"accept","action":"cancel"}"#, false),
            (Elicitation, "[]", false),
            (Elicitation, "\"accept\"", false),
            (Sampling, r#"{"role":"assistant","content":{"type":"text","text":"t"},"model":"m"}"#, true),
            (Sampling, r#"{"role":"assistant"}"#, false),
            (Sampling, r#"{"action":"accept"}"#, false),
            (Roots, r#"{"roots":[]}"#, true),
            (Roots, r#"{"roots":{}}"#, false),
            (Roots, "{}", false),
        ] {
            assert_eq!(is_answer(kind, raw), expected, "{kind:?} {raw}");
        }
    }
}
