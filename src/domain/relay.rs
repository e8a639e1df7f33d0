//! Messages of servers to clients in the middle of a call, and which of them may pass.

use serde::Serialize;
use serde_json::{Map, Value};

use super::near;
use super::text_enum::text_enum;

text_enum! {
    /// Kind of a question of a server to a client, by its method.
    pub enum QuestionKind {
        /// A form, or a page to open, for a person.
        Elicitation = "elicitation/create",
        /// A completion by the client's model.
        Sampling = "sampling/createMessage",
        /// The folders that the client works on.
        Roots = "roots/list",
    }
}

text_enum! {
    /// Severity of a log message of a server, from the lowest to the highest (MCP, logging).
    #[derive(PartialOrd, Ord)]
    pub enum LogLevel {
        /// Detail for debugging.
        Debug = "debug",
        /// General information.
        Info = "info",
        /// Normal, but worth noting.
        Notice = "notice",
        /// Warning.
        Warning = "warning",
        /// Error.
        Error = "error",
        /// Critical condition.
        Critical = "critical",
        /// Action is needed at once.
        Alert = "alert",
        /// The system is unusable.
        Emergency = "emergency",
    }
}

/// Longest unknown name that an error repeats, in characters.
const NAME_SHOWN_CHARS_MAX: usize = 64;

/// Messages of a server that reach the client of a call, as its administrators allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Relay {
    /// Questions to a person.
    pub elicitation: bool,
    /// Questions to the client's model.
    pub sampling: bool,
    /// Questions about the folders that the client works on.
    pub roots: bool,
    /// Log messages.
    pub logging: bool,
}

impl Default for Relay {
    fn default() -> Relay {
        Relay { elicitation: true, ..Relay::NOTHING }
    }
}

/// Error: members that are no relay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayFault {
    /// Name of the member.
    pub name: String,
    /// Text for people.
    pub message: String,
}

impl Relay {
    /// Relay that lets nothing pass.
    pub const NOTHING: Relay = Relay { elicitation: false, sampling: false, roots: false, logging: false };
    /// Names of the members, in order.
    pub const NAMES: [&str; 4] = ["elicitation", "sampling", "roots", "logging"];

    fn member(&mut self, name: &str) -> Option<&mut bool> {
        match name {
            "elicitation" => Some(&mut self.elicitation),
            "sampling" => Some(&mut self.sampling),
            "roots" => Some(&mut self.roots),
            "logging" => Some(&mut self.logging),
            _ => None,
        }
    }

    /// Reads what an administrator gives; absent members have their defaults.
    ///
    /// # Errors
    /// [`RelayFault`] for an unknown name, or a value that is no boolean.
    pub fn read(members: &Map<String, Value>) -> Result<Relay, RelayFault> {
        let mut relay = Relay::default();
        for (name, value) in members {
            let shown: String = name.chars().take(NAME_SHOWN_CHARS_MAX).collect();
            let Some(member) = relay.member(name) else {
                let hint = match near::closest(name, Relay::NAMES.into_iter()) {
                    Some(meant) => format!("did you mean '{meant}'?"),
                    None => format!("known: {}", Relay::NAMES.join(", ")),
                };
                let message = format!("unknown member '{shown}' of relay; {hint}");
                return Err(RelayFault { name: shown, message });
            };
            let fault = || RelayFault { name: shown, message: format!("relay.{name} must be true or false") };
            *member = value.as_bool().ok_or_else(fault)?;
        }
        Ok(relay)
    }

    /// Returns the relay in a row. Rows of the release before have none; what cannot be read lets nothing pass.
    pub fn stored(value: Option<&Value>) -> Relay {
        let Some(value) = value else { return Relay::default() };
        let Some(members) = value.as_object() else { return Relay::NOTHING };
        let mut relay = Relay::default();
        for (name, value) in members {
            if let Some(member) = relay.member(name) {
                *member = value.as_bool().unwrap_or_default();
            }
        }
        relay
    }

    /// Returns what still passes once the server is at another place: nothing that had to be allowed.
    #[must_use]
    pub fn of_moved(self) -> Relay {
        Relay { elicitation: self.elicitation, ..Relay::NOTHING }
    }

    /// Returns whether questions of this kind pass.
    pub fn allows(self, kind: QuestionKind) -> bool {
        match kind {
            QuestionKind::Elicitation => self.elicitation,
            QuestionKind::Sampling => self.sampling,
            QuestionKind::Roots => self.roots,
        }
    }

    /// Returns the capabilities of a client that passes all of this on, as a raw JSON object of `initialize`
    /// (MCP 2025-11-25; earlier revisions ignore the modes).
    pub fn capabilities(self) -> String {
        let all = [
            (self.elicitation, r#""elicitation":{"form":{},"url":{}}"#),
            (self.sampling, r#""sampling":{}"#),
            (self.roots, r#""roots":{}"#),
        ];
        let members: Vec<&str> = all.into_iter().filter_map(|(passes, raw)| passes.then_some(raw)).collect();
        format!("{{{}}}", members.join(","))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(value: &Value) -> Result<Relay, String> {
        Relay::read(value.as_object().unwrap()).map_err(|fault| format!("{}: {}", fault.name, fault.message))
    }

    #[test]
    fn absent_members_have_their_defaults() {
        assert_eq!(read(&json!({})), Ok(Relay::default()));
        let given = json!({ "elicitation": false, "roots": true });
        assert_eq!(read(&given), Ok(Relay { roots: true, ..Relay::NOTHING }));
        let shown = json!({ "elicitation": true, "sampling": false, "roots": false, "logging": false });
        assert_eq!(serde_json::to_value(Relay::default()).unwrap(), shown);
    }

    #[test]
    fn wrong_members_are_named() {
        for (given, expected) in [
            (
                json!({ "samplin": true }),
                "samplin: unknown member 'samplin' of relay; did you mean 'sampling'?",
            ),
            (
                json!({ "everything": true }),
                "everything: unknown member 'everything' of relay; known: elicitation, sampling, roots, logging",
            ),
            (json!({ "roots": null }), "roots: relay.roots must be true or false"),
            (json!({ "logging": "yes" }), "logging: relay.logging must be true or false"),
        ] {
            assert_eq!(read(&given), Err(expected.to_owned()));
        }
        let long = Relay::read(json!({ "x".repeat(500): true }).as_object().unwrap()).unwrap_err();
        assert_eq!(long.name.len(), NAME_SHOWN_CHARS_MAX);
    }

    #[test]
    fn rows_that_cannot_be_read_let_nothing_pass() {
        for (row, expected) in [
            (None, Relay::default()),
            (Some(json!(7)), Relay::NOTHING),
            (Some(json!(null)), Relay::NOTHING),
            (Some(json!({ "sampling": true, "later": true })), Relay { sampling: true, ..Relay::default() }),
            (Some(json!({ "elicitation": "ask", "roots": 1 })), Relay::NOTHING),
        ] {
            assert_eq!(Relay::stored(row.as_ref()), expected, "{row:?}");
        }
        let all = Relay { elicitation: true, sampling: true, roots: true, logging: true };
        assert_eq!(Relay::stored(Some(&serde_json::to_value(all).unwrap())), all);
        assert_eq!((all.of_moved(), Relay::NOTHING.of_moved()), (Relay::default(), Relay::NOTHING));
    }

    #[test]
    fn what_passes_is_declared() {
        let parsed = |relay: Relay| serde_json::from_str::<Value>(&relay.capabilities()).unwrap();
        assert_eq!(parsed(Relay::NOTHING), json!({}));
        assert_eq!(parsed(Relay::default()), json!({ "elicitation": { "form": {}, "url": {} } }));
        let all = Relay { elicitation: true, sampling: true, roots: true, logging: true };
        let declared = json!({ "elicitation": { "form": {}, "url": {} }, "sampling": {}, "roots": {} });
        assert_eq!(parsed(all), declared);
        assert!(QuestionKind::ALL.into_iter().all(|kind| all.allows(kind) && !Relay::NOTHING.allows(kind)));
    }
}
