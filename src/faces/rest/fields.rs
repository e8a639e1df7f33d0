//! Fields of a request's body: each known, each of the right type.

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::domain::json::Member;
use crate::gateway::GatewayError;

pub(super) use crate::faces::query::{clip, unknown};

/// Meaning of `null` in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nulls {
    /// `null` is the same as an absent field: when something is created.
    Absent,
    /// `null` is a value of its own: when something is changed.
    Kept,
}

/// Most values within one field, counted by the `,`, `[` and `{` before them. Each takes far more memory than its text.
const VALUES_MAX: usize = 50_000;

/// Fields of a body. Reading a field removes it.
#[derive(Debug)]
pub(super) struct Fields(Map<String, Value>);

impl Fields {
    /// Takes the members of a body, all of which must be in `allowed` when that is given.
    pub(super) fn read(
        members: &[Member<'_>],
        allowed: Option<&[&str]>,
        nulls: Nulls,
    ) -> Result<Fields, GatewayError> {
        let mut found = Map::new();
        for member in members {
            let name = clip(&member.name);
            if let Some(allowed) = allowed.filter(|allowed| !allowed.contains(&member.name.as_ref())) {
                return Err(unknown("field", &name, allowed));
            }
            let values = member.value.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count();
            if values > VALUES_MAX {
                let message = format!("{name} must have at most {VALUES_MAX} values");
                return Err(GatewayError::invalid(name, message));
            }
            let mut value: Value = serde_json::from_str(member.value).map_err(|_| {
                GatewayError::invalid(name.clone(), format!("the value of {name} cannot be read"))
            })?;
            spell_whole(&mut value);
            // the database cannot store U+0000, and no text that people type has it
            if has_nul(&value) {
                return Err(GatewayError::invalid(name.clone(), format!("{name} must not contain U+0000")));
            }
            if nulls == Nulls::Kept || !value.is_null() {
                found.insert(member.name.to_string(), value);
            }
        }
        Ok(Fields(found))
    }

    fn take<T>(
        &mut self,
        name: &str,
        kind: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Result<Option<T>, GatewayError> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        match read(value) {
            Some(value) => Ok(Some(value)),
            None => Err(GatewayError::invalid(name, format!("{name} must be {kind}"))),
        }
    }

    /// Reads a text; `None` if absent.
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, GatewayError> {
        self.take(name, "a string", |value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
    }

    /// Reads a text or `null`, which is the inner `None`.
    pub(super) fn nullable_text(&mut self, name: &str) -> Result<Option<Option<String>>, GatewayError> {
        self.take(name, "a string, or null", |value| match value {
            Value::Null => Some(None),
            Value::String(text) => Some(Some(text)),
            _ => None,
        })
    }

    /// Reads a list of values of any kind that must be present.
    pub(super) fn needed_list(&mut self, name: &str) -> Result<Vec<Value>, GatewayError> {
        let list = self.take(name, "a list", |value| match value {
            Value::Array(items) => Some(items),
            _ => None,
        })?;
        list.ok_or_else(|| GatewayError::invalid(name, format!("{name} is needed")))
    }

    /// Reads a text that must be present.
    pub(super) fn needed_text(&mut self, name: &str) -> Result<String, GatewayError> {
        self.text(name)?.ok_or_else(|| GatewayError::invalid(name, format!("{name} is needed")))
    }

    /// Reads a boolean; `None` if absent.
    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, GatewayError> {
        self.take(name, "true or false", |value| value.as_bool())
    }

    /// Reads a list of texts; `None` if absent.
    pub(super) fn texts(&mut self, name: &str) -> Result<Option<Vec<String>>, GatewayError> {
        self.take(name, "a list of strings", |value| {
            value.as_array()?.iter().map(|item| item.as_str().map(str::to_owned)).collect()
        })
    }

    /// Reads a list of texts or `null`, which is the inner `None`.
    pub(super) fn nullable_texts(&mut self, name: &str) -> Result<Option<Option<Vec<String>>>, GatewayError> {
        self.take(name, "a list of strings, or null", |value| match value {
            Value::Null => Some(None),
            other => other
                .as_array()?
                .iter()
                .map(|item| item.as_str().map(str::to_owned))
                .collect::<Option<_>>()
                .map(Some),
        })
    }

    /// Reads a word of a closed list; `None` if absent.
    pub(super) fn word<T>(
        &mut self,
        name: &str,
        words: &[&str],
        parse: fn(&str) -> Option<T>,
    ) -> Result<Option<T>, GatewayError> {
        self.take(name, &words.join(" or "), |value| parse(value.as_str()?))
    }

    /// Reads a list of words of a closed list, each at most once; `None` if absent.
    pub(super) fn words<T: PartialEq>(
        &mut self,
        name: &str,
        words: &[&str],
        parse: fn(&str) -> Option<T>,
    ) -> Result<Option<Vec<T>>, GatewayError> {
        let kind = format!("a list of {}, each at most once", words.join(", "));
        self.take(name, &kind, |value| {
            let mut found = Vec::new();
            for item in value.as_array()? {
                let word = parse(item.as_str()?).filter(|word| !found.contains(word))?;
                found.push(word);
            }
            Some(found)
        })
    }

    /// Reads an object; `None` if absent.
    pub(super) fn object(&mut self, name: &str) -> Result<Option<Map<String, Value>>, GatewayError> {
        self.take(name, "an object", |value| match value {
            Value::Object(object) => Some(object),
            _ => None,
        })
    }

    /// Reads an object or `null`, which is the inner `None`.
    pub(super) fn nullable_object(
        &mut self,
        name: &str,
    ) -> Result<Option<Option<Map<String, Value>>>, GatewayError> {
        self.take(name, "an object, or null", |value| match value {
            Value::Null => Some(None),
            Value::Object(object) => Some(Some(object)),
            _ => None,
        })
    }

    /// Reads the `version` that a change is based on; `None` if absent.
    pub(super) fn version(&mut self) -> Result<Option<i64>, GatewayError> {
        self.take("version", "the whole number that reading gave", |value| value.as_i64())
    }

    /// Reads a whole number from 1 to `max`; `None` if absent.
    pub(super) fn count(&mut self, name: &str, max: u32) -> Result<Option<u32>, GatewayError> {
        let kind = format!("a whole number from 1 to {max}");
        self.take(name, &kind, |value| {
            value.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=max).contains(n))
        })
    }

    /// Reads an id or `null`, which is the inner `None`.
    pub(super) fn id(&mut self, name: &str) -> Result<Option<Option<Uuid>>, GatewayError> {
        self.take(name, "a UUID, or null", |value| match value {
            Value::Null => Some(None),
            Value::String(text) => Uuid::try_parse(&text).ok().map(Some),
            _ => None,
        })
    }

    /// Reads a time or `null`, which is the inner `None`.
    pub(super) fn time(&mut self, name: &str) -> Result<Option<Option<DateTime<Utc>>>, GatewayError> {
        self.take(name, "an RFC 3339 time such as 2026-01-31T12:00:00Z, or null", |value| match value {
            Value::Null => Some(None),
            Value::String(text) => DateTime::parse_from_rfc3339(&text).ok().map(|time| Some(time.to_utc())),
            _ => None,
        })
    }

    /// Returns all fields that have not been read.
    pub(super) fn rest(self) -> Map<String, Value> {
        self.0
    }
}

/// Turns whole numbers such as `5.0` into integers: to JSON schemas, and to some programs, they are the same.
fn spell_whole(value: &mut Value) {
    /// Bound below which every whole number has a double of its own.
    const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let whole = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < EXACT_BELOW);
            if let Some(float) = whole {
                *value = Value::from(float as i64);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(spell_whole),
        Value::Object(members) => members.values_mut().for_each(spell_whole),
        _ => {}
    }
}

/// Returns whether a value contains U+0000. Bodies are nested at most [`crate::domain::json::DEPTH_MAX`] deep, so the
/// recursion is bounded.
fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(name, value)| name.contains('\0') || has_nul(value)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json;

    const ALLOWED: &[&str] = &["name", "on", "limits", "version", "at"];

    fn read(body: &str, nulls: Nulls) -> Result<Fields, GatewayError> {
        Fields::read(&json::members(body).unwrap(), Some(ALLOWED), nulls)
    }

    fn field<T: std::fmt::Debug>(result: Result<T, GatewayError>) -> String {
        match result.unwrap_err() {
            GatewayError::Invalid { field: Some(field), .. } => field,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fields_have_types() {
        let body =
            r#"{"name":"n","on":true,"limits":{"queue":1},"version":7,"at":"2026-01-31T14:00:00+02:00"}"#;
        let mut fields = read(body, Nulls::Kept).unwrap();
        assert_eq!(fields.needed_text("name").unwrap(), "n");
        assert_eq!(fields.flag("on").unwrap(), Some(true));
        assert_eq!(fields.object("limits").unwrap().unwrap().len(), 1);
        assert_eq!(fields.version().unwrap(), Some(7));
        assert_eq!(fields.time("at").unwrap().flatten().unwrap().timestamp(), 1_769_860_800);
        assert!(fields.rest().is_empty());
    }

    #[test]
    fn words_are_those_of_their_list() {
        const ONES: &[&str] = &["a", "b"];
        let parse = |word: &str| ONES.iter().position(|known| *known == word);
        let read = |body: &str| Fields::read(&json::members(body).unwrap(), None, Nulls::Kept).unwrap();
        assert_eq!(read(r#"{"w":["b","a"]}"#).words("w", ONES, parse).unwrap(), Some(vec![1, 0]));
        assert_eq!(read(r#"{"w":"b"}"#).word("w", ONES, parse).unwrap(), Some(1));
        assert_eq!(read(r#"{"w":["b"]}"#).texts("w").unwrap(), Some(vec!["b".to_owned()]));
        for bad in [r#"{"w":["a","a"]}"#, r#"{"w":["c"]}"#, r#"{"w":"a"}"#, r#"{"w":[1]}"#] {
            assert_eq!(field(read(bad).words("w", ONES, parse)), "w", "{bad}");
        }
        for bad in [r#"{"w":"c"}"#, r#"{"w":["a"]}"#, r#"{"w":null}"#] {
            assert_eq!(field(read(bad).word("w", ONES, parse)), "w", "{bad}");
        }
        assert_eq!(field(read(r#"{"w":[1]}"#).texts("w")), "w");
    }

    #[test]
    fn wrong_types_are_named() {
        let wrong = r#"{"name":7,"on":"yes","limits":[],"version":1.5,"at":"tomorrow"}"#;
        let mut fields = read(wrong, Nulls::Kept).unwrap();
        assert_eq!(field(fields.text("name")), "name");
        assert_eq!(field(fields.flag("on")), "on");
        assert_eq!(field(fields.object("limits")), "limits");
        assert_eq!(field(fields.version()), "version");
        assert_eq!(field(fields.time("at")), "at");
        assert_eq!(field(read("{}", Nulls::Kept).unwrap().needed_text("name")), "name");
    }

    #[test]
    fn whole_numbers_may_have_a_point() {
        let mut fields =
            read(r#"{"version":7.0,"limits":{"queue":[2033.0,1e3,0.5,1e300]}}"#, Nulls::Kept).unwrap();
        assert_eq!(fields.version().unwrap(), Some(7));
        let limits = fields.object("limits").unwrap().unwrap();
        assert_eq!(limits["queue"], serde_json::json!([2033, 1000, 0.5, 1e300]));
    }

    #[test]
    fn null_depends() {
        let mut made = read(r#"{"name":null,"at":null}"#, Nulls::Absent).unwrap();
        assert_eq!((made.text("name").unwrap(), made.time("at").unwrap()), (None, None));
        let mut changed = read(r#"{"name":null,"at":null}"#, Nulls::Kept).unwrap();
        assert_eq!(field(changed.text("name")), "name");
        assert_eq!(changed.time("at").unwrap(), Some(None));
    }

    #[test]
    fn unknown_and_unusable_values_are_refused() {
        for (body, expected) in [
            (r#"{"nope":1}"#, "nope"),
            (r#"{"name":"a\u0000b"}"#, "name"),
            (r#"{"limits":{"x":["\u0000"]}}"#, "limits"),
            (r#"{"limits":{"\u0000":1}}"#, "limits"),
            (r#"{"version":1e999}"#, "version"),
        ] {
            assert_eq!(field(read(body, Nulls::Absent)), expected, "{body}");
        }
        let free = Fields::read(&json::members(r#"{"nope":1}"#).unwrap(), None, Nulls::Kept).unwrap();
        assert_eq!(free.rest().len(), 1);
    }

    #[test]
    fn repeated_texts_are_short() {
        assert_eq!(clip("short"), "short");
        assert_eq!(clip(&"é".repeat(65)), format!("{}…", "é".repeat(64)));
    }
}
