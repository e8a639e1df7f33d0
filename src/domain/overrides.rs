//! What a person says of a tool instead of its server: annotations laid over those of its definition.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::annotations::{Annotations, Tier, Unannotated};
use super::json::{self, escape_into};

/// Longest title, in characters.
pub const TITLE_CHARS_MAX: usize = 200;

/// The annotations that are said anew; what is `None` stays as the server says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hints {
    /// It only reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// It may destroy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// The same call again changes nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// It reaches out into the world.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
    /// How people see it called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// Annotations of a tool that a person has said anew, for the definition that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// What is said.
    pub hints: Hints,
    /// The pin of the definition that it was said of.
    pub pin: String,
}

impl Hints {
    /// The names on the wire.
    pub const NAMES: [&'static str; 5] =
        ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "title"];

    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Hints::default()
    }

    /// As kept and shown: equal hints are equal texts.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// The members of `annotations` that they are.
    fn members(&self) -> impl Iterator<Item = (&'static str, String)> {
        let flags = [self.read_only_hint, self.destructive_hint, self.idempotent_hint, self.open_world_hint];
        let flags = flags.map(|flag| flag.map(|flag| flag.to_string()));
        let title = self.title.as_ref().map(|title| {
            let mut text = String::new();
            escape_into(&mut text, title);
            text
        });
        Hints::NAMES
            .into_iter()
            .zip(flags.into_iter().chain([title]))
            .filter_map(|(name, value)| Some((name, value?)))
    }

    /// The definition with these annotations in it; every other byte stays.
    fn over(&self, definition: &str) -> String {
        let said = json::find_members(definition, ["annotations"]).ok();
        let said = said.and_then(|[said]| said).filter(|raw| raw.starts_with('{')).unwrap_or("{}");
        let annotations =
            self.members().fold(said.to_owned(), |text, (name, value)| with_member(&text, name, &value));
        with_member(definition, "annotations", &annotations)
    }
}

impl Override {
    /// The definition, whose pin is `pin`, as this says it is; `None` where it does not hold: what makes a tool look more
    /// harmless was said of one definition only.
    pub fn over(&self, definition: &str, pin: &str) -> Option<String> {
        let text = self.hints.over(definition);
        let holds = self.pin == pin || !Said::read(&text).is_looser_than(&Said::read(definition));
        holds.then_some(text)
    }
}

/// The hints of a definition, as far as they make a tool look harmless.
struct Said {
    annotations: Annotations,
    is_idempotent: bool,
    is_closed: bool,
}

impl Said {
    fn read(definition: &str) -> Said {
        let [raw] = json::find_members(definition, ["annotations"]).unwrap_or_default();
        let hints = raw.and_then(|raw| json::find_members(raw, ["idempotentHint", "openWorldHint"]).ok());
        let [idempotent, open] = hints.unwrap_or_default();
        Said {
            annotations: Annotations::read(raw.filter(|raw| raw.starts_with('{'))),
            is_idempotent: idempotent == Some("true"),
            is_closed: open == Some("false"),
        }
    }

    fn is_looser_than(&self, other: &Said) -> bool {
        let is_lower = |unannotated| {
            let weight = |said: &Said| weight(said.annotations.tier(unannotated));
            weight(self) < weight(other)
        };
        is_lower(Unannotated::Trust)
            || is_lower(Unannotated::Distrust)
            || (self.is_idempotent && !other.is_idempotent)
            || (self.is_closed && !other.is_closed)
    }
}

/// How much a tool of this tier is held back. What is not said is called as a read as well, so it weighs less than a write.
fn weight(tier: Tier) -> u8 {
    match tier {
        Tier::Read => 0,
        Tier::Unknown => 1,
        Tier::Write => 2,
        Tier::Destructive => 3,
    }
}

/// The object `text` with this member: in the place of the one of that name, or as the last.
fn with_member(text: &str, name: &str, value: &str) -> String {
    let members = json::top_level_members(text).unwrap_or_default();
    if let Some(member) = members.iter().find(|member| member.name == name) {
        let Range { start, end } = member.span.end.saturating_sub(member.value.len())..member.span.end;
        let (before, after) = (text.get(..start).unwrap_or_default(), text.get(end..).unwrap_or_default());
        return [before, value, after].concat();
    }
    let mut out = text.trim_end().strip_suffix('}').unwrap_or_default().to_owned();
    if !members.is_empty() {
        out.push(',');
    }
    escape_into(&mut out, name);
    out.push(':');
    out.push_str(value);
    out.push('}');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(read_only: Option<bool>, destructive: Option<bool>) -> Hints {
        Hints { read_only_hint: read_only, destructive_hint: destructive, ..Hints::default() }
    }

    #[test]
    fn only_what_is_said_changes() {
        let title = Hints { title: Some("A\"b".into()), ..Hints::default() };
        for (hints, definition, expected) in [
            (
                hints(Some(false), None),
                r#"{ "name":"t","annotations" : {"x":1e400, "readOnlyHint": true } ,"z":[ ]}"#,
                r#"{ "name":"t","annotations" : {"x":1e400, "readOnlyHint": false } ,"z":[ ]}"#,
            ),
            (
                hints(Some(true), Some(false)),
                r#"{"annotations":{"x":1}, "name":"t"}"#,
                r#"{"annotations":{"x":1,"readOnlyHint":true,"destructiveHint":false}, "name":"t"}"#,
            ),
            (title, r#"{"name":"t" } "#, r#"{"name":"t" ,"annotations":{"title":"A\"b"}}"#),
            (
                hints(None, Some(true)),
                r#"{"annotations":[7]}"#,
                r#"{"annotations":{"destructiveHint":true}}"#,
            ),
            (
                hints(None, Some(true)),
                r#"{"annotations":{"destr\u0075ctiveHint":"no"}}"#,
                r#"{"annotations":{"destr\u0075ctiveHint":true}}"#,
            ),
        ] {
            let over = hints.over(definition);
            assert_eq!(over, expected);
            json::check(&over).expect("one reading");
        }
    }

    #[test]
    fn what_loosens_holds_for_its_pin_and_what_tightens_holds_on() {
        let of = |hints| Override { hints, pin: "p".into() };
        let definition = |read_only: &str, destructive: &str| {
            format!(r#"{{"annotations":{{"readOnlyHint":{read_only},"destructiveHint":{destructive}}}}}"#)
        };
        let idempotent = |flag| Hints { idempotent_hint: Some(flag), ..Hints::default() };
        let open_world = |flag| Hints { open_world_hint: Some(flag), ..Hints::default() };
        let title = Hints { title: Some("T".into()), ..Hints::default() };
        for (hints, definition, holds) in [
            (hints(Some(true), None), definition("false", "false"), false),
            (hints(Some(true), Some(false)), definition("null", "true"), false),
            (hints(None, Some(false)), definition("null", "null"), false),
            (hints(Some(false), None), definition("true", "false"), true),
            (hints(None, Some(true)), definition("true", "false"), true),
            // it tightened what it was said of, and would loosen this one
            (hints(Some(false), Some(false)), definition("true", "true"), false),
            (hints(Some(false), Some(false)), definition("true", "null"), true),
            (idempotent(true), definition("true", "null"), false),
            (idempotent(false), definition("true", "null"), true),
            (open_world(false), definition("true", "null"), false),
            (open_world(true), definition("true", "null"), true),
            (title, definition("true", "true"), true),
        ] {
            let over = of(hints.clone());
            assert!(over.over(&definition, "p").is_some(), "{hints:?} {definition}");
            assert_eq!(over.over(&definition, "other").is_some(), holds, "{hints:?} {definition}");
        }
    }
}
