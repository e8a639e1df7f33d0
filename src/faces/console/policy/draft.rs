//! Rules in the form of the page, and how they are read.

use serde_json::{Map, Value};

use crate::domain::json;
use crate::domain::policy::{PolicyDocument, PolicyMode, RuleSet};
use crate::domain::yaml;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::{indented, with_escapes};
use crate::faces::query::params::one_of;
use crate::gateway::GatewayError;
use crate::store::PolicyVersion;

/// Longest rules that the form takes, in bytes. Percent-encoded, they fit into a form.
const EDITED_BYTES_MAX: usize = 64 * 1024;

/// Rules to begin with: what each does, and its text in YAML.
pub(super) const EXAMPLES: [(&str, &str); 4] = [
    (
        "Ask before destructive calls of one server",
        "- id: ask-before-github-deletes
  effect: ask
  match: {tool: \"github:*\", tier: destructive}
  ask: {assurance: approver}",
    ),
    (
        "Never run some tools",
        "- id: no-purges
  effect: deny
  match: {tool: \"*:*_purge\"}
  message: Purges go through the operations team.",
    ),
    (
        "Run some tools without asking",
        "- id: ci-may-deploy
  effect: allow
  match: {tool: \"deploy:staging_*\"}",
    ),
    (
        "Ask in mode observe too, where other rules are for the log alone",
        "- id: ask-before-drops
  effect: ask
  enforced: true
  match: {tool: \"pg:drop_*\"}",
    ),
];

/// Rules that a visitor sent, read.
struct RulesRead {
    /// Rules, a JSON list.
    rules: String,
    /// Mode that the text names beside the rules; `None` if it names none.
    mode: Option<String>,
}

/// Rules that a visitor sent.
#[derive(Clone, Debug, Default)]
pub(super) struct PolicyDraft {
    /// Version that the rules replace, as sent.
    version: String,
    /// Mode to set, as a word; empty to leave it alone.
    mode: String,
    /// Rules, as sent: JSON or YAML, a list or a file of `policy apply`.
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
        let read = self.read()?;
        let mode = match self.chosen_mode(&read) {
            "" => None,
            word => Some(one_of("mode", word, &PolicyMode::ALL)?),
        };
        let rules = RuleSet::parse(&read.rules);
        let rules = rules.map_err(|fault| GatewayError::invalid(fault.path.clone(), fault.to_string()))?;
        Ok(PolicyDocument { version: Some(version), mode, rules, rules_text: read.rules })
    }

    /// Returns the mode to set, as a word: that of the form, else that of the text; empty to leave it alone.
    fn chosen_mode<'a>(&'a self, read: &'a RulesRead) -> &'a str {
        let of_text = read.mode.as_deref().unwrap_or_default();
        if self.mode.is_empty() { of_text } else { &self.mode }
    }

    /// Reads the text. JSON that is a list stays as it is spelt.
    fn read(&self) -> Result<RulesRead, GatewayError> {
        let as_it_is = || RulesRead { rules: self.rules.clone(), mode: None };
        let is_json = self.rules.starts_with(['[', '{']);
        if is_json && self.rules.starts_with('[') && json::check(&self.rules).is_ok() {
            return Ok(as_it_is());
        }
        let mut file = match yaml::read(&self.rules) {
            Ok(Value::Array(rules)) => {
                return Ok(RulesRead { rules: Value::Array(rules).to_string(), mode: None });
            }
            Ok(Value::Object(file)) if file.contains_key("rules") => file,
            // the fault is named as one of JSON
            Ok(_) | Err(_) if is_json => return Ok(as_it_is()),
            Ok(_) => {
                let text = "rules must be a list, in JSON or YAML, such as the examples below the form";
                return Err(GatewayError::invalid("rules", text));
            }
            Err(fault) => return Err(GatewayError::invalid("rules", format!("rules: {fault}"))),
        };
        let rules = file.remove("rules").unwrap_or_default().to_string();
        // the version to replace is that of the page
        file.remove("version");
        let mode = match file.remove("mode") {
            Some(Value::String(mode)) => Some(mode),
            None | Some(Value::Null) => None,
            Some(_) => return Err(GatewayError::invalid("mode", "mode must be a text")),
        };
        match file.keys().next() {
            Some(name) => {
                Err(GatewayError::invalid(name, format!("{name} is an unknown key beside rules and mode")))
            }
            None => Ok(RulesRead { rules, mode }),
        }
    }

    /// Returns whether the draft has other rules than these, a JSON list, sets another mode, or cannot be read.
    pub(super) fn differs_from(&self, rules: &str, mode: PolicyMode) -> bool {
        let value = |text: &str| serde_json::from_str::<Value>(text).ok();
        self.read().ok().is_none_or(|read| {
            value(&read.rules) != value(rules) || !["", mode.as_str()].contains(&self.chosen_mode(&read))
        })
    }

    /// Returns the draft as a body of REST; `None` if it is none.
    pub(super) fn sent(&self) -> Option<Value> {
        let (mut body, read) = (Map::new(), self.read().ok()?);
        body.insert("version".to_owned(), self.version.parse::<i64>().ok()?.into());
        body.insert("rules".to_owned(), serde_json::from_str(&read.rules).ok()?);
        let mode = self.chosen_mode(&read);
        if !mode.is_empty() {
            body.insert("mode".to_owned(), mode.into());
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
            // YAML has no escapes outside of quotes
            (Some(draft), _) if json::check(&draft.rules).is_err() => (draft.mode, draft.rules, None),
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

    /// Returns whether the form sets a mode.
    pub(super) fn sets_mode(&self) -> bool {
        self.modes.iter().any(|mode| mode.is_chosen)
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
            (draft("1", "", ""), "rules must be a list"),
            (draft("1", "", "{}"), "rules must be a list"),
            (draft("1", "", r#"[],"mode":"by_risk""#), "rules is no JSON"),
            (draft("1", "", r#"[{"id":"a","effect":"den"}]"#), "rules[0].effect"),
        ] {
            let error = draft.document().unwrap_err().to_string();
            assert!(error.contains(says), "{draft:?}: {error}");
        }
    }

    #[test]
    fn yaml_is_read_as_files_of_policy_apply_are() {
        let draft = |mode: &str, rules: &str| PolicyDraft {
            version: "1".to_owned(),
            mode: mode.to_owned(),
            rules: rules.to_owned(),
        };
        for (does, text) in EXAMPLES {
            let document = draft("", text).document().unwrap_or_else(|error| panic!("{does}: {error}"));
            assert_eq!((document.rules.len(), document.mode), (1, None));
            let sent = draft("", text).sent().unwrap();
            assert_eq!(sent["rules"], serde_json::from_str::<Value>(&document.rules_text).unwrap());
        }
        let file = "mode: by_risk\nversion: 7\nrules:\n- {id: a, effect: deny}\n";
        let document = draft("", file).document().unwrap();
        assert_eq!((document.version, document.mode), (Some(1), Some(PolicyMode::ByRisk)));
        let document = draft("observe", file).document().unwrap();
        assert_eq!((document.mode, document.rules.len()), (Some(PolicyMode::Observe), 1));
        for (text, says) in [
            ("", "rules must be a list"),
            ("rules", "such as the examples below the form"),
            ("- id: [", "line 1, column"),
            ("rules: []\nwarning: 1\n", "warning is an unknown key"),
            ("mode: 1\nrules: []\n", "mode must be a text"),
            ("- {id: a, effect: den}\n", "rules[0].effect"),
        ] {
            let error = draft("", text).document().unwrap_err().to_string();
            assert!(error.contains(says), "{text:?}: {error}");
        }
        let text =
            Editor::of((1, PolicyMode::Observe, "[]"), Some(draft("", "- id: a\u{202e}")), None, false).text;
        assert_eq!(text.as_deref(), Some("- id: a\u{202e}"), "what was typed stays");
    }

    #[test]
    fn aliases_of_yaml_do_not_multiply() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for n in 1..12 {
            let items = vec![format!("*a{}", n - 1); 10].join(", ");
            text.push_str(&format!("a{n}: &a{n} [{items}]\n"));
        }
        text.push_str("rules: []\n");
        let draft = PolicyDraft { version: "1".to_owned(), mode: String::new(), rules: text };
        assert!(draft.document().is_err());
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
