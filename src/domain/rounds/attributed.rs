//! Questions and log messages of servers with the server's name in them, so that none passes for the gateway's own.

use super::QuestionKind;
use crate::domain::{json, log_line};

/// Longest message of an elicitation that is shown, in characters.
const MESSAGE_CHARS_MAX: usize = 4000;
/// Longest name of a logger that is passed on, in characters.
const LOGGER_CHARS_MAX: usize = 200;
/// Member of `_meta` that names the server of a question to a model.
const SERVER: &str = "mcpproxy/server";

/// Returns the raw `params` of a question, with the server named: in the message to a person, or in `_meta` for a model.
/// Every other byte stays.
pub fn attributed(kind: QuestionKind, params: &str, server: &str) -> String {
    match kind {
        QuestionKind::Elicitation => with_value(params, "message", |said| {
            quoted(&asks(server, &said.and_then(text).unwrap_or_default()))
        }),
        QuestionKind::Sampling => with_value(params, "_meta", |meta| {
            let meta = meta.filter(|raw| raw.starts_with('{')).unwrap_or("{}");
            with_value(meta, SERVER, |_| quoted(server))
        }),
        QuestionKind::Roots => params.to_owned(),
    }
}

/// Returns the raw result of a server that requests input (MCP 2026-07-28), with the server named in each question. Every
/// other byte stays.
pub fn attributed_result(result: &str, server: &str) -> String {
    replaced(result, |name, requests| {
        (name == "inputRequests")
            .then(|| replaced(requests, |_, request| attributed_request(request, server)))
    })
}

fn attributed_request(request: &str, server: &str) -> Option<String> {
    let [method, params] = json::find_members(request, ["method", "params"]).ok()?;
    let kind = QuestionKind::parse(&text(method?)?)?;
    // an elicitation without a message would be asked in nobody's name
    let needs_params = kind == QuestionKind::Elicitation;
    let named = attributed(kind, params.or(needs_params.then_some("{}"))?, server);
    Some(with_value(request, "params", |_| named))
}

/// Returns the raw `params` of a log message, with the server in front of its logger.
pub fn attributed_log(params: &str, server: &str) -> String {
    with_value(params, "logger", |logger| {
        let logger = log_line::plain(&logger.and_then(text).unwrap_or_default());
        let logger: String = logger.chars().take(LOGGER_CHARS_MAX).collect();
        quoted(&if logger.is_empty() { server.to_owned() } else { format!("{server}/{logger}") })
    })
}

/// Returns the message of a server to a person: in plain text, without what would rearrange it, and cut.
fn asks(server: &str, message: &str) -> String {
    let mut out = format!("Server '{server}' asks:");
    let (mut left, mut is_first) = (MESSAGE_CHARS_MAX, true);
    // line by line: blank ones could push the beginning out of sight
    for line in message.split(['\n', '\r', '\u{2028}', '\u{2029}', '\u{85}']) {
        let line = log_line::plain(line);
        let line = line.trim();
        if line.is_empty() {
            continue;
        }
        out.push(if std::mem::take(&mut is_first) { ' ' } else { '\n' });
        if line.chars().count() > left {
            out.extend(line.chars().take(left));
            out.push('…');
            break;
        }
        left -= line.chars().count();
        out.push_str(line);
    }
    out
}

/// Returns the object with another value of one member, in its place; an absent member becomes the first one.
fn with_value(object: &str, name: &str, value: impl FnOnce(Option<&str>) -> String) -> String {
    let found = json::find_members(object, [name]).ok().and_then(|[found]| found);
    let Some(found) = found else { return json::with_member_first(object, name, &value(None)) };
    let new = value(Some(found));
    replaced(object, |member, _| (member == name).then(|| new.clone()))
}

/// Returns the object with other values in the place of those for which there are new ones.
fn replaced(object: &str, new: impl Fn(&str, &str) -> Option<String>) -> String {
    let (mut out, mut end) = (String::with_capacity(object.len()), 0);
    json::for_each_member(object, |member| {
        if let Some(value) = new(&member.name, member.value) {
            let range = member.value_range();
            out.push_str(object.get(end..range.start).unwrap_or_default());
            out.push_str(&value);
            end = range.end;
        }
    });
    out.push_str(object.get(end..).unwrap_or_default());
    out
}

/// Returns the text of a JSON string; `None` for any other value.
fn text(raw: &str) -> Option<String> {
    serde_json::from_str(raw).ok()
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    json::escape_into(&mut out, text);
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn asked(params: &Value) -> Value {
        serde_json::from_str(&attributed(QuestionKind::Elicitation, &params.to_string(), "gh")).unwrap()
    }

    #[test]
    fn messages_begin_with_their_server() {
        for (message, shown) in [
            ("Which one?", "Server 'gh' asks: Which one?"),
            ("  a\r\n\r\n\n b\u{85}c", "Server 'gh' asks: a\nb\nc"),
            ("\u{202e}evil\u{2066} \u{1b}[31mred\u{7}", "Server 'gh' asks: evil red"),
            ("", "Server 'gh' asks:"),
            ("\n\n\n", "Server 'gh' asks:"),
        ] {
            assert_eq!(asked(&json!({ "message": message }))["message"], shown, "{message:?}");
        }
        assert_eq!(asked(&json!({ "message": 7 }))["message"], "Server 'gh' asks:");
        let long = asked(&json!({ "message": "x".repeat(MESSAGE_CHARS_MAX + 1) }));
        let shown = long["message"].as_str().unwrap();
        assert_eq!(shown.chars().count(), "Server 'gh' asks: ".len() + MESSAGE_CHARS_MAX + 1);
        assert!(shown.ends_with('…'));
    }

    #[test]
    fn everything_else_of_a_question_stays() {
        let url =
            json!({ "mode": "url", "url": "https://x.example/a?b#c", "elicitationId": "e", "message": "m" });
        let mut expected = url.clone();
        expected["message"] = "Server 'gh' asks: m".into();
        assert_eq!(asked(&url), expected);

        let sampling = json!({ "messages": [{ "role": "user", "content": { "type": "text", "text": "\u{202e}t" } }],
            "systemPrompt": "be\nbrief", "maxTokens": 3, "metadata": { "user_id": "u" },
            "_meta": { "a": 1, "mcpproxy/server": "another" } });
        let named = attributed(QuestionKind::Sampling, &sampling.to_string(), "gh");
        let mut expected = sampling;
        expected["_meta"]["mcpproxy/server"] = "gh".into();
        assert_eq!(serde_json::from_str::<Value>(&named).unwrap(), expected);
        assert_eq!(attributed(QuestionKind::Roots, "{ }", "gh"), "{ }");
    }

    #[test]
    fn questions_of_modern_servers_are_named_as_well() {
        let result = json!({ "resultType": "input_required", "requestState": "s", "inputRequests": {
            "a": { "method": "elicitation/create", "params": { "message": "m" } },
            "b": { "method": "sampling/createMessage", "params": { "messages": [] } },
            "c": { "method": "roots/list" },
            "d": { "method": "elicitation/create" },
        } });
        let named: Value = serde_json::from_str(&attributed_result(&result.to_string(), "gh")).unwrap();
        assert_eq!(named["inputRequests"]["a"]["params"], json!({ "message": "Server 'gh' asks: m" }));
        let meta = json!({ "messages": [], "_meta": { "mcpproxy/server": "gh" } });
        assert_eq!(named["inputRequests"]["b"]["params"], meta);
        assert_eq!(named["inputRequests"]["c"], json!({ "method": "roots/list" }));
        assert_eq!(named["inputRequests"]["d"]["params"], json!({ "message": "Server 'gh' asks:" }));
        assert_eq!((&named["resultType"], &named["requestState"]), (&json!("input_required"), &json!("s")));
        let odd = r#"{ "x":1e400 ,"inputRequests" : {"a":{"params":{"message" : "m" },"method":"elicitation/create"}} }"#;
        let expected = odd.replace(r#""m""#, r#""Server 'gh' asks: m""#);
        assert_eq!(attributed_result(odd, "gh"), expected, "every other byte stays");
        assert_eq!(attributed_result(r#"{"requestState":"s"}"#, "gh"), r#"{"requestState":"s"}"#);
    }

    #[test]
    fn loggers_are_below_their_server() {
        for (params, logger) in [
            (json!({ "level": "info", "data": 1 }), "gh"),
            (json!({ "level": "info", "logger": "db\u{202e}", "data": 1 }), "gh/db"),
            (json!({ "level": "info", "logger": 7, "data": 1 }), "gh"),
        ] {
            let named: Value = serde_json::from_str(&attributed_log(&params.to_string(), "gh")).unwrap();
            assert_eq!((&named["logger"], &named["data"]), (&json!(logger), &json!(1)), "{params}");
        }
    }

    proptest! {
        #[test]
        fn no_message_hides_its_server(message in ".{0,200}") {
            let shown = asked(&json!({ "message": message }))["message"].as_str().unwrap().to_owned();
            prop_assert!(shown.starts_with("Server 'gh' asks:"));
            prop_assert!(!shown.chars().any(|char| char.is_control() && char != '\n'));
        }
    }
}
