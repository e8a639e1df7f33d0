//! Quotas of tenants: the deployment's defaults, and the values that the platform operator sets for one tenant.

use serde_json::{Map, Value};

use super::redact;

/// Largest value of a quota.
pub const QUOTA_MAX: i64 = 1 << 50;

/// Names of the quotas, in the order in which they are shown.
pub const QUOTA_NAMES: [&str; 5] = ["servers", "tools", "definition_bytes", "keys", "streams"];

/// Quotas that apply to a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quotas {
    /// Upstream servers.
    pub servers: i64,
    /// Tools of all the tenant's servers together.
    pub tools: i64,
    /// Size of the definitions of all tools, prompts and resources together, in bytes.
    pub definition_bytes: i64,
    /// API keys that are not revoked.
    pub keys: i64,
    /// Streams that the tenant's keys hold open, on each replica.
    pub streams: i64,
}

/// Quotas that the platform operator set for one tenant; `None` is the deployment's default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnQuotas {
    /// Upstream servers; for the meaning of each field see [`Quotas`].
    pub servers: Option<i64>,
    /// Tools of all servers together.
    pub tools: Option<i64>,
    /// Size of all definitions, in bytes.
    pub definition_bytes: Option<i64>,
    /// API keys that are not revoked.
    pub keys: Option<i64>,
    /// Open streams on each replica.
    pub streams: Option<i64>,
}

/// Error for a quota that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuotaError {
    /// Path of the quota in the request, `quotas.` and its name.
    pub field: String,
    /// Sentence for the caller.
    pub message: String,
}

/// Reads the quotas in the database. A value that this version does not understand counts as 0: nothing more is admitted.
/// A name that only a newer release knows is ignored.
impl From<String> for OwnQuotas {
    fn from(stored: String) -> OwnQuotas {
        let stored: Value = serde_json::from_str(&stored).unwrap_or_default();
        let mut own = OwnQuotas::default();
        for name in QUOTA_NAMES {
            let bound = match stored.get(name) {
                None if stored.is_object() => None,
                Some(Value::Null) => None,
                Some(value) => value.as_i64().filter(|bound| (0..=QUOTA_MAX).contains(bound)).or(Some(0)),
                None => Some(0),
            };
            if let Some(own) = own.by_name(name) {
                *own = bound;
            }
        }
        own
    }
}

impl OwnQuotas {
    /// Applies a patch: an absent name keeps its quota, `null` resets it to the deployment's default.
    ///
    /// # Errors
    /// [`QuotaError`] for an unknown name, or a value that is no whole number from 0 to [`QUOTA_MAX`].
    pub fn patched(mut self, patch: &Map<String, Value>) -> Result<OwnQuotas, QuotaError> {
        for (name, value) in patch {
            let fault = |message| QuotaError { field: format!("quotas.{name}"), message };
            let known = || format!("unknown quota '{name}'; known: {}", QUOTA_NAMES.join(", "));
            let own = self.by_name(name).ok_or_else(|| fault(known()))?;
            *own = match value {
                Value::Null => None,
                value => {
                    let bound = value.as_i64().filter(|bound| (0..=QUOTA_MAX).contains(bound));
                    let text =
                        || format!("quotas.{name} must be a whole number from 0 to {QUOTA_MAX}, or null");
                    Some(bound.ok_or_else(|| fault(text()))?)
                }
            };
        }
        Ok(self)
    }

    /// Returns the quotas that apply to the tenant.
    pub fn resolve(&self, deployment: &Quotas) -> Quotas {
        Quotas {
            servers: self.servers.unwrap_or(deployment.servers),
            tools: self.tools.unwrap_or(deployment.tools),
            definition_bytes: self.definition_bytes.unwrap_or(deployment.definition_bytes),
            keys: self.keys.unwrap_or(deployment.keys),
            streams: self.streams.unwrap_or(deployment.streams),
        }
    }

    fn by_name(&mut self, name: &str) -> Option<&mut Option<i64>> {
        match name {
            "servers" => Some(&mut self.servers),
            "tools" => Some(&mut self.tools),
            "definition_bytes" => Some(&mut self.definition_bytes),
            "keys" => Some(&mut self.keys),
            "streams" => Some(&mut self.streams),
            _ => None,
        }
    }
}

/// Remainder of the quotas for the tools of one server's listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Tools that may still be added; below zero when the quota was lowered.
    pub tools: i64,
    /// Bytes of definitions that may still be added; below zero when the quota was lowered.
    pub bytes: i64,
}

impl Room {
    /// Returns the remainder beside this many tools of the other servers, with `bytes` of definitions.
    pub fn beside(quotas: &Quotas, tools: i64, bytes: i64) -> Room {
        Room {
            tools: quotas.tools.saturating_sub(tools),
            bytes: quotas.definition_bytes.saturating_sub(bytes),
        }
    }

    /// Counts a definition of `bytes` that was listed before, even beyond the quota.
    pub fn keep(&mut self, bytes: usize) {
        self.tools -= 1;
        self.bytes = self.bytes.saturating_sub(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Counts a new or changed definition of `bytes` if the quotas allow it.
    ///
    /// # Errors
    /// The name of the quota that is used up; then nothing is counted.
    pub fn take(&mut self, bytes: usize) -> Result<(), &'static str> {
        if self.tools < 1 {
            return Err("tools");
        }
        if i64::try_from(bytes).unwrap_or(i64::MAX) > self.bytes {
            return Err("definition_bytes");
        }
        self.keep(bytes);
        Ok(())
    }
}

/// Longest note about tools that were left out, in bytes.
const NOTE_BYTES_MAX: usize = 500;

/// Returns the note about tools that were left out, each with the quota that is used up; `None` if there are none.
pub fn left_out(tools: &[(&str, &'static str)], quotas: &Quotas) -> Option<String> {
    let (_, first) = tools.first()?;
    let bound = if *first == "tools" { quotas.tools } else { quotas.definition_bytes };
    let which = if tools.len() == 1 { "1 tool is".to_owned() } else { format!("{} tools are", tools.len()) };
    let names: Vec<&str> = tools.iter().map(|(name, _)| *name).collect();
    let text = format!(
        "{which} left out: the tenant's quota of {first} ({bound}) is used up; ask the platform operator. Left out: {}",
        names.join(", ")
    );
    Some(redact::preview(&text, NOTE_BYTES_MAX).text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DEPLOYMENT: Quotas = Quotas { servers: 1, tools: 2, definition_bytes: 3, keys: 4, streams: 5 };

    fn patched(own: OwnQuotas, patch: &Value) -> Result<OwnQuotas, String> {
        own.patched(patch.as_object().unwrap()).map_err(|error| error.field)
    }

    #[test]
    fn a_patch_says_what_is_other_than_the_deployments() {
        let own = patched(OwnQuotas::default(), &json!({"tools": 0, "keys": 7})).unwrap();
        assert_eq!(own.resolve(&DEPLOYMENT), Quotas { tools: 0, keys: 7, ..DEPLOYMENT });
        let own = patched(own, &json!({"tools": null})).unwrap();
        assert_eq!(own.resolve(&DEPLOYMENT), Quotas { keys: 7, ..DEPLOYMENT });
        for name in QUOTA_NAMES {
            assert!(patched(own, &json!({ name: 9 })).is_ok(), "{name}");
            for bad in [json!(-1), json!(1.5), json!("7"), json!(QUOTA_MAX + 1), json!({})] {
                assert_eq!(patched(own, &json!({ name: bad })), Err(format!("quotas.{name}")));
            }
        }
        assert_eq!(patched(own, &json!({"tool": 1})), Err("quotas.tool".to_owned()));
    }

    #[test]
    fn what_is_stored_and_not_understood_is_nothing_more() {
        let read = |stored: &str| OwnQuotas::from(stored.to_owned());
        assert_eq!(read("{}"), OwnQuotas::default());
        let own = OwnQuotas { keys: Some(7), tools: Some(0), ..OwnQuotas::default() };
        assert_eq!(read(r#"{"keys": 7, "tools": "many", "streams": null, "later": 1}"#), own);
        let none = Quotas { servers: 0, tools: 0, definition_bytes: 0, keys: 0, streams: 0 };
        for stored in ["[]", "1", "{\"keys\": 1e999}"] {
            assert_eq!(read(stored).resolve(&DEPLOYMENT), none, "{stored}");
        }
    }

    #[test]
    fn what_was_left_out_is_named() {
        assert_eq!(left_out(&[], &DEPLOYMENT), None);
        let one = left_out(&[("a", "tools")], &DEPLOYMENT).unwrap();
        assert!(one.starts_with("1 tool is left out: the tenant's quota of tools (2) is used up"), "{one}");
        let two = left_out(&[("a", "definition_bytes"), ("b", "tools")], &DEPLOYMENT).unwrap();
        assert!(two.contains("of definition_bytes (3)") && two.ends_with(": a, b"), "{two}");
        let long = "x".repeat(10_000);
        assert!(left_out(&[(&long, "tools")], &DEPLOYMENT).unwrap().len() <= 2 * NOTE_BYTES_MAX);
    }

    #[test]
    fn room_ends_at_either_quota() {
        let mut room = Room::beside(&Quotas { tools: 5, definition_bytes: 100, ..DEPLOYMENT }, 2, 40);
        assert_eq!(room.take(61), Err("definition_bytes"));
        assert_eq!(room.take(60), Ok(()));
        assert_eq!((room.take(1), room.take(0), room.take(0)), (Err("definition_bytes"), Ok(()), Ok(())));
        assert_eq!(room.take(0), Err("tools"));
        room.keep(10);
        assert_eq!(room, Room { tools: -1, bytes: -10 });
    }
}
