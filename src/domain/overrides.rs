//! Overrides of tool annotations: values that an administrator sets in place of the server's.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::json::{self, escape_into};

/// Longest title, in characters.
pub const TITLE_CHARS_MAX: usize = 200;

/// Annotations that are overridden; `None` leaves the server's value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hints {
    /// The tool only reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// The tool may destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// A repeated call with the same arguments changes nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// The tool interacts with systems outside its server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
    /// Title of the tool, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
}

/// Override of a tool's annotations, made for the definition that was seen then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Override {
    /// Overridden annotations.
    pub hints: Hints,
    /// Pin of the definition that the override was made for.
    pub pin: String,
}

impl Hints {
    /// Names on the wire.
    pub const NAMES: [&'static str; 5] =
        ["readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint", "title"];

    /// Returns whether nothing is overridden.
    pub fn is_empty(&self) -> bool {
        *self == Hints::default()
    }

    /// Returns the hints as JSON, as kept and shown: equal hints are equal texts.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the hints that can never make a tool look more harmless, nor lower its tier. They hold for any definition.
    fn lasting(&self) -> Hints {
        Hints {
            read_only_hint: self.read_only_hint.filter(|reads| !reads),
            destructive_hint: self.destructive_hint.filter(|destroys| *destroys),
            idempotent_hint: self.idempotent_hint.filter(|same| !same),
            open_world_hint: self.open_world_hint.filter(|open| *open),
            title: self.title.clone(),
        }
    }

    /// Returns the overridden members of `annotations`: name and raw value.
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

    /// Returns the definition with these annotations in it; every other byte stays.
    fn over(&self, definition: &str) -> String {
        let said = json::find_members(definition, ["annotations"]).ok();
        let said = said.and_then(|[said]| said).filter(|raw| raw.starts_with('{')).unwrap_or("{}");
        let annotations =
            self.members().fold(said.to_owned(), |text, (name, value)| with_member(&text, name, &value));
        with_member(definition, "annotations", &annotations)
    }
}

impl Override {
    /// Applies the override to a definition with the pin `pin`; `None` where no hint holds. Hints that make a tool look
    /// more harmless hold for the definition with the override's pin only, all others for every definition.
    pub fn over(&self, definition: &str, pin: &str) -> Option<String> {
        if self.pin == pin {
            return Some(self.hints.over(definition));
        }
        let lasting = self.hints.lasting();
        (!lasting.is_empty()).then(|| lasting.over(definition))
    }

    /// Returns whether all hints hold for a definition with this pin.
    pub fn holds_wholly(&self, pin: &str) -> bool {
        self.pin == pin || self.hints.lasting() == self.hints
    }
}

/// Returns the object `text` with this member: in place of the member of that name, or as the last.
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
    use crate::domain::annotations::{Annotations, Unannotated};

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
        let all = |read_only, destructive, idempotent, open_world| Hints {
            read_only_hint: read_only,
            destructive_hint: destructive,
            idempotent_hint: idempotent,
            open_world_hint: open_world,
            title: None,
        };
        let (yes, no) = (Some(true), Some(false));
        for (said, lasting) in [
            (hints(yes, None), Hints::default()),
            (hints(yes, no), Hints::default()),
            (hints(None, no), Hints::default()),
            (hints(no, no), hints(no, None)),
            (hints(yes, yes), hints(None, yes)),
            // a hint that makes the tool look more harmless lapses; the others stay
            (all(no, yes, None, no), hints(no, yes)),
            (all(None, None, yes, yes), all(None, None, None, yes)),
            (all(None, None, no, no), all(None, None, no, None)),
        ] {
            let over = Override { hints: said.clone(), pin: "p".into() };
            for definition in ["{}", r#"{"annotations":{"readOnlyHint":true,"destructiveHint":true}}"#] {
                assert_eq!(over.over(definition, "p"), Some(said.over(definition)), "{said:?}");
                let expected = (!lasting.is_empty()).then(|| lasting.over(definition));
                assert_eq!(over.over(definition, "other"), expected, "{said:?}");
            }
            assert_eq!(over.holds_wholly("other"), said == lasting, "{said:?}");
            assert!(over.holds_wholly("p"));
        }
    }

    #[test]
    fn what_lasts_lowers_no_tier() {
        let flags = [None, Some(true), Some(false)];
        let shown = |flag: Option<bool>| flag.map_or("null".to_owned(), |flag| flag.to_string());
        for (read_only, destructive) in flags.iter().flat_map(|one| flags.map(|other| (*one, other))) {
            let definition = format!(
                r#"{{"annotations":{{"readOnlyHint":{},"destructiveHint":{}}}}}"#,
                shown(read_only),
                shown(destructive)
            );
            let tier = |definition: &str, unannotated| {
                let [raw] = json::find_members(definition, ["annotations"]).unwrap();
                Annotations::read(raw).tier(unannotated).operation()
            };
            for said in flags.iter().flat_map(|one| flags.map(|other| hints(*one, other).lasting())) {
                for unannotated in [Unannotated::Trust, Unannotated::Distrust] {
                    let over = said.over(&definition);
                    assert!(
                        tier(&over, unannotated) >= tier(&definition, unannotated),
                        "{said:?} {definition}"
                    );
                }
            }
        }
    }
}
