//! Questions to handshake clients, as JSON-RPC requests on the answer of the call that they are about.
//!
//! Questions have the form of MCP 2026-07-28, in which servers ask. Older revisions get theirs.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;

use super::jsonrpc::notification;
use crate::domain::json;
use crate::domain::rounds::Capabilities;
use crate::faces::sse;
use crate::gateway::ClientQuestion;

/// Revision whose forms have choices with titles, and pages to open.
const TITLED: &str = "2025-11-25";
/// Revision that has no questions to a person.
const NO_ELICITATION: &str = "2025-03-26";

/// Kinds of questions, each with its bit in a session token and the capability that a client declares for it.
const KINDS: [(u8, &str, &str); 6] = [
    (1, "elicitation", "form"),
    (2, "elicitation", "url"),
    (4, "sampling", ""),
    (8, "sampling", "tools"),
    (16, "sampling", "context"),
    (32, "roots", ""),
];
const FORM: u8 = 1;

/// Kinds of questions that a client answers, as bits in its session token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Answerable(pub(super) u8);

impl Answerable {
    /// Reads what a client declares at its handshake, as far as its revision has it.
    pub(super) fn read(version: &str, capabilities: &str) -> Answerable {
        let mut bits = 0;
        for (bit, kind, part) in KINDS {
            let declared = member(capabilities, kind);
            let is_declared = match (kind, part) {
                (_, "") => declared.is_some(),
                // a client that names no mode means forms
                ("elicitation", "form") => declared.is_some_and(|raw| {
                    member(raw, "form").is_some() || json::top_level_members(raw).is_ok_and(|m| m.is_empty())
                }),
                _ => declared.is_some_and(|raw| member(raw, part).is_some()),
            };
            if is_declared {
                bits |= bit;
            }
        }
        Answerable(bits).of(version)
    }

    /// Returns what is known of a session whose token says only that the client can be asked.
    pub(super) fn of_older(version: &str, elicitation: bool) -> Answerable {
        Answerable(if elicitation { FORM } else { 0 }).of(version)
    }

    /// Keeps the kinds that a revision has.
    fn of(self, version: &str) -> Answerable {
        let has = |kind: &str, part: &str| match version {
            TITLED => true,
            NO_ELICITATION => kind != "elicitation" && part.is_empty(),
            _ => part.is_empty() || part == "form",
        };
        let kinds = KINDS.into_iter().filter(|(_, kind, part)| has(kind, part));
        Answerable(kinds.map(|(bit, ..)| bit & self.0).sum())
    }

    /// Returns the capabilities as servers are told of them; `None` if the client answers nothing.
    pub(super) fn capabilities(self) -> Option<Capabilities> {
        let kinds = ["elicitation", "sampling", "roots"].map(|kind| {
            let parts: Vec<&str> = KINDS
                .into_iter()
                .filter(|(bit, of, _)| *of == kind && self.0 & bit != 0)
                .map(|(.., part)| part)
                .collect();
            let inner: Vec<String> =
                parts.iter().filter(|part| !part.is_empty()).map(|part| format!("\"{part}\":{{}}")).collect();
            (!parts.is_empty()).then(|| format!("\"{kind}\":{{{}}}", inner.join(",")))
        });
        let kinds: Vec<String> = kinds.into_iter().flatten().collect();
        if kinds.is_empty() {
            return None;
        }
        Capabilities::read(&format!("{{{}}}", kinds.join(","))).ok()
    }
}

/// Returns the value of a member that is an object; `None` for any other.
fn member<'a>(object: &'a str, name: &str) -> Option<&'a str> {
    let [value] = json::find_members(object, [name]).ok()?;
    value.filter(|raw| raw.starts_with('{'))
}

/// Returns a question as an event, in the form of the client's revision.
pub(super) fn question_event(question: &ClientQuestion, version: &str) -> Bytes {
    let ClientQuestion { id, method, params } = question;
    let params = String::from_utf8_lossy(params);
    let params = if method == "elicitation/create" { in_revision(&params, id, version) } else { params };
    let mut text = String::from(r#"{"jsonrpc":"2.0","id":"#);
    text.push_str(id);
    text.push_str(r#","method":"#);
    json::escape_into(&mut text, method);
    text.push_str(r#","params":"#);
    text.push_str(&params);
    text.push('}');
    sse::event(&text)
}

/// Returns the event that a question needs no reply any more.
pub(super) fn withdraw_event(id: &str) -> Bytes {
    let params = format!(r#"{{"requestId":{id},"reason":"The answer is not needed any more"}}"#);
    sse::event(&notification("notifications/cancelled", &params))
}

/// Returns the `params` of an elicitation as a revision has them.
fn in_revision<'a>(params: &'a str, id: &str, version: &str) -> Cow<'a, str> {
    let Ok([mode, given, schema]) = json::find_members(params, ["mode", "elicitationId", "requestedSchema"])
    else {
        return Cow::Borrowed(params);
    };
    if version == TITLED {
        // the modern revision has no id of its own for a page
        return match (mode, given) {
            (Some("\"url\""), None) => json::with_member_first(params, "elicitationId", id).into(),
            _ => Cow::Borrowed(params),
        };
    }
    let Some(properties) = schema.and_then(|schema| member(schema, "properties")) else {
        return json::without_members(params, &["mode"]);
    };
    let properties = with_values(properties, |_, property| named_choices(property));
    let schema = schema.map(|schema| {
        with_values(schema, |name, value| match name {
            "properties" => Cow::Borrowed(&*properties),
            _ => Cow::Borrowed(value),
        })
    });
    let params = with_values(params, |name, value| match (name, &schema) {
        ("requestedSchema", Some(schema)) => Cow::Borrowed(schema),
        _ => Cow::Borrowed(value),
    });
    json::without_members(&params, &["mode"]).into_owned().into()
}

/// Returns an object with other values, its members in the same order.
fn with_values<'a>(object: &'a str, value: impl Fn(&str, &'a str) -> Cow<'a, str>) -> String {
    let mut out = String::from("{");
    for member in json::top_level_members(object).unwrap_or_default() {
        if out.len() > 1 {
            out.push(',');
        }
        json::escape_into(&mut out, &member.name);
        out.push(':');
        out.push_str(&value(&member.name, member.value));
    }
    out.push('}');
    out
}

/// Returns a property whose titled choices (`oneOf`) are `enum` and `enumNames`, as revision 2025-06-18 has them.
fn named_choices(property: &str) -> Cow<'_, str> {
    #[derive(Deserialize)]
    struct Choice {
        r#const: String,
        title: String,
    }
    let one_of = json::find_members(property, ["oneOf"]).ok().and_then(|[one_of]| one_of);
    let choices: Option<Vec<Choice>> = one_of.and_then(|raw| serde_json::from_str(raw).ok());
    let Some(choices) = choices else { return Cow::Borrowed(property) };
    let list = |text: fn(&Choice) -> &str| serde_json::json!(choices.iter().map(text).collect::<Vec<_>>());
    let rest = json::without_members(property, &["oneOf"]);
    let named = json::with_member_first(&rest, "enumNames", &list(|choice| &choice.title).to_string());
    json::with_member_first(&named, "enum", &list(|choice| &choice.r#const).to_string()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{"listChanged":true}}"#;

    fn declared(version: &str, raw: &str) -> String {
        Answerable::read(version, raw).capabilities().map_or(String::new(), |c| c.as_str().to_owned())
    }

    #[test]
    fn each_revision_has_its_kinds_of_questions() {
        let newest =
            r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{},"context":{}},"roots":{}}"#;
        assert_eq!(declared("2025-11-25", ALL), newest);
        assert_eq!(declared("2025-06-18", ALL), r#"{"elicitation":{"form":{}},"sampling":{},"roots":{}}"#);
        assert_eq!(declared("2025-03-26", ALL), r#"{"sampling":{},"roots":{}}"#);
        let form = r#"{"elicitation":{"form":{}}}"#;
        for (raw, expected) in [
            (r#"{"elicitation":{}}"#, form),
            (r#"{"elicitation":{"form":{}}}"#, form),
            (r#"{"elicitation":{"url":{}}}"#, r#"{"elicitation":{"url":{}}}"#),
            (r#"{"elicitation":{"later":{}}}"#, ""),
            (r#"{"elicitation":null,"sampling":true,"tools":{}}"#, ""),
            ("{}", ""),
            ("7", ""),
        ] {
            assert_eq!(declared("2025-11-25", raw), expected, "{raw}");
        }
        assert_eq!(Answerable::of_older("2025-06-18", true), Answerable(FORM));
        assert_eq!(Answerable::of_older("2025-03-26", true), Answerable(0));
        assert_eq!(Answerable::of_older("2025-11-25", false), Answerable(0));
    }

    fn asked(params: &'static str, version: &str) -> String {
        let (id, method) = ("\"a\"".to_owned(), "elicitation/create".to_owned());
        let event = question_event(&ClientQuestion { id, method, params: params.into() }, version);
        let text = String::from_utf8(event.to_vec()).unwrap();
        let text =
            text.strip_prefix("event: message\ndata: ").and_then(|text| text.strip_suffix("\n\n")).unwrap();
        let start = r#"{"jsonrpc":"2.0","id":"a","method":"elicitation/create","params":"#;
        text.strip_prefix(start).and_then(|text| text.strip_suffix('}')).unwrap().to_owned()
    }

    #[test]
    fn forms_are_those_of_the_revision() {
        let form = r#"{"mode":"form","message":"?","requestedSchema":{"type":"object","properties":{"b":{"type":"string","title":"B","oneOf":[{"const":"x","title":"X"},{"const":"y","title":"Y"}]},"a":{"type":"number"}},"required":["b"]}}"#;
        assert_eq!(asked(form, "2025-11-25"), form);
        let older = r#"{"message":"?","requestedSchema":{"type":"object","properties":{"b":{"enum":["x","y"],"enumNames":["X","Y"],"type":"string","title":"B"},"a":{"type":"number"}},"required":["b"]}}"#;
        assert_eq!(asked(form, "2025-06-18"), older);
        let odd = r#"{"message":"?","requestedSchema":{"properties":{"b":{"oneOf":[{"const":1}]},"c":7}}}"#;
        assert_eq!(asked(odd, "2025-06-18"), odd);
        assert_eq!(asked(r#"{"mode":"form","message":"?"}"#, "2025-06-18"), r#"{"message":"?"}"#);
    }

    #[test]
    fn pages_have_an_id_in_the_revision_that_needs_one() {
        let page = r#"{"mode":"url","message":"?","url":"https://x.example"}"#;
        let with_id = r#"{"elicitationId":"a","mode":"url","message":"?","url":"https://x.example"}"#;
        assert_eq!(asked(page, "2025-11-25"), with_id);
        assert_eq!(asked(with_id, "2025-11-25"), with_id);
    }

    #[test]
    fn withdrawals_name_the_question() {
        let event = withdraw_event("\"a\"");
        let text = String::from_utf8(event.to_vec()).unwrap();
        assert!(text.contains(r#""method":"notifications/cancelled","params":{"requestId":"a","#), "{text}");
    }
}
