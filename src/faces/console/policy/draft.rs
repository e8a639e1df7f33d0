//! Rules in the form of the page, and how they are read.

use serde_json::{Map, Value};

use crate::domain::policy::{PolicyDocument, PolicyMode, RuleSet};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::{indented, with_escapes};
use crate::faces::query::params::one_of;
use crate::gateway::GatewayError;
use crate::store::PolicyVersion;

/// Longest rules that the form takes, in bytes. Percent-encoded, they fit into a form.
const EDITED_BYTES_MAX: usize = 64 * 1024;

/// Rules that a visitor sent.
#[derive(Clone, Debug, Default)]
pub(super) struct PolicyDraft {
    /// Version that the rules replace, as sent.
    version: String,
    /// Mode to set, as a word; empty to leave it alone.
    mode: String,
    /// Rules, as sent.
    rules: String,
}

impl PolicyDraft {
    /// Takes the rules of the form.
    pub(super) fn of(visit: &PageVisit) -> PolicyDraft {
        let [version, mode] = ["version", "mode"].map(|name| visit.field(name).trim().to_owned());
        // browsers send line ends of two characters
        PolicyDraft { version, mode, rules: visit.field("rules").replace("\r\n", "\n").trim().to_owned() }
    }

    /// Returns the fields for the record of a change.
    pub(super) fn fields(&self) -> Vec<(&'static str, String)> {
        let PolicyDraft { version, mode, rules } = self.clone();
        vec![("version", version), ("mode", mode), ("rules", rules)]
    }

    /// Reads the document that the form stands for.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] names the place of the fault.
    pub(super) fn document(&self) -> Result<PolicyDocument, GatewayError> {
        let version = self.version.parse();
        let version =
            version.map_err(|_| GatewayError::invalid("version", "version must be a whole number"))?;
        let mode = match self.mode.as_str() {
            "" => None,
            word => Some(one_of("mode", word, &PolicyMode::ALL)?),
        };
        let rules = RuleSet::parse(&self.rules);
        let rules = rules.map_err(|fault| GatewayError::invalid(fault.path.clone(), fault.to_string()))?;
        Ok(PolicyDocument { version: Some(version), mode, rules, rules_text: self.rules.clone() })
    }
}

impl PolicyDraft {
    /// Returns the draft as a body of REST; `None` if it is none.
    pub(super) fn sent(&self) -> Option<Value> {
        let mut body = Map::new();
        body.insert("version".to_owned(), self.version.parse::<i64>().ok()?.into());
        body.insert("rules".to_owned(), serde_json::from_str(&self.rules).ok()?);
        if !self.mode.is_empty() {
            body.insert("mode".to_owned(), self.mode.clone().into());
        }
        Some(Value::Object(body))
    }
}

/// Mode to choose.
pub(super) struct ModeOption {
    /// Mode as a word.
    pub(super) word: &'static str,
    /// True if it is the one chosen.
    pub(super) is_chosen: bool,
}

/// Form for other rules.
pub(super) struct Editor {
    /// Version that the form replaces.
    pub(super) version: i64,
    /// Mode that holds now.
    pub(super) mode: &'static str,
    /// Modes to choose.
    pub(super) modes: Vec<ModeOption>,
    /// Rules to begin with, as JSON; `None` if they are too long for the form.
    pub(super) text: Option<String>,
    /// Earlier version from which the rules come; `None` for those in force, and those that the visitor wrote.
    pub(super) earlier: Option<i64>,
}

impl Editor {
    /// Creates the form for a policy in force. It begins with what the visitor wrote, else with an earlier version, else with
    /// the rules in force.
    /// A draft goes on replacing the version that it was begun with, unless the visitor has just been shown a newer one.
    pub(super) fn of(
        (version, mode, rules): (i64, PolicyMode, &str),
        draft: Option<PolicyDraft>,
        earlier: Option<&PolicyVersion>,
        has_seen_newer: bool,
    ) -> Editor {
        let begun = draft.as_ref().and_then(|draft| draft.version.parse().ok());
        let replaces = begun.filter(|_| !has_seen_newer).unwrap_or(version);
        let (chosen, text, earlier) = match (draft, earlier) {
            (Some(draft), _) => (draft.mode, with_escapes(&draft.rules), None),
            (None, Some(row)) => {
                let mode = row.mode.clone().unwrap_or_default();
                (mode, with_escapes(&indented(&row.rules)), Some(row.version))
            }
            (None, None) => (String::new(), with_escapes(&indented(rules)), None),
        };
        let option =
            |mode: PolicyMode| ModeOption { word: mode.as_str(), is_chosen: mode.as_str() == chosen };
        Editor {
            version: replaces,
            mode: mode.as_str(),
            modes: PolicyMode::ALL.map(option).into(),
            text: Some(text).filter(|text| text.len() <= EDITED_BYTES_MAX),
            earlier,
        }
    }

    /// Returns whether the rules are too long for the form.
    pub(super) fn is_too_long(&self) -> bool {
        self.text.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_draft_is_read_as_a_document_and_faults_name_their_place() {
        let draft = |version: &str, mode: &str, rules: &str| PolicyDraft {
            version: version.to_owned(),
            mode: mode.to_owned(),
            rules: rules.to_owned(),
        };
        let rules = r#"[{"id":"a","effect":"deny"}]"#;
        let document = draft("3", "by_risk", rules).document().unwrap();
        assert_eq!((document.version, document.mode), (Some(3), Some(PolicyMode::ByRisk)));
        assert_eq!((document.rules.len(), document.rules_text.as_str()), (1, rules));
        assert_eq!(draft("0", "", "[]").document().unwrap().mode, None);
        for (draft, says) in [
            (draft("", "", "[]"), "version must be a whole number"),
            (draft("1", "odd", "[]"), "mode must be one of"),
            (draft("1", "", ""), "rules is no JSON"),
            (draft("1", "", "{}"), "rules must be a list"),
            (draft("1", "", r#"[],"mode":"by_risk""#), "rules is no JSON"),
            (draft("1", "", r#"[{"id":"a","effect":"den"}]"#), "rules[0].effect"),
        ] {
            let error = draft.document().unwrap_err().to_string();
            assert!(error.contains(says), "{draft:?}: {error}");
        }
    }

    #[test]
    fn long_rules_are_not_edited_here() {
        let rules = format!(r#"[{{"id":"a","effect":"deny","message":"{}"}}]"#, "x".repeat(EDITED_BYTES_MAX));
        assert!(Editor::of((1, PolicyMode::Observe, &rules), None, None, false).is_too_long());
        let shown = Editor::of((1, PolicyMode::Observe, "[]"), None, None, false);
        assert_eq!(
            (shown.text.as_deref(), shown.modes.iter().any(|mode| mode.is_chosen)),
            (Some("[]"), false)
        );
    }
}
