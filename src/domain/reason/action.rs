//! Action of a call: known shapes of tools and arguments, in a form that can be stored.

use super::key::ActionKey;
use super::{Language, form, one_line, texts};
use crate::domain::json;
use crate::domain::redact::MASK;
use crate::domain::risk::{Risk, RiskFacts, RiskSignal, words_of_name};

/// Longest value that an action shows, in bytes.
const VALUE_BYTES_MAX: usize = 400;
/// Most words of a tool's name that an action names as its object.
const OBJECT_WORDS_MAX: usize = 4;

const PATHS: [&str; 5] = ["path", "file_path", "filepath", "file", "filename"];
const COMMANDS: [&str; 4] = ["command", "cmd", "script", "commands"];
const STATEMENTS: [&str; 3] = ["sql", "query", "statement"];
const FROM: [&str; 5] = ["source", "from", "src", "old_path", "old_name"];
const TO: [&str; 6] = ["destination", "dest", "target", "to", "new_path", "new_name"];
/// Members that say where the object is.
const PLACES: [&str; 3] = ["repo", "repository", "project"];
/// Members that name the object, the most telling first.
const NAMES: [&str; 19] = [
    "number",
    "issue_number",
    "pull_number",
    "path",
    "source",
    "file",
    "branch",
    "tag",
    "table",
    "database",
    "email",
    "to",
    "recipient",
    "channel",
    "username",
    "url",
    "name",
    "title",
    "id",
];

/// Action of a call, with masked values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallAction {
    /// Shape.
    pub key: ActionKey,
    /// Values of the shape, in its order.
    pub values: Vec<String>,
    /// True if the action cannot be undone.
    pub is_irreversible: bool,
}

impl CallAction {
    /// Finds the action of a call.
    pub(super) fn of(facts: &RiskFacts<'_>, risk: Risk) -> CallAction {
        let (key, values) = shape(facts.name, &Values::read(facts.arguments));
        CallAction { key, values, is_irreversible: risk.signals.has(RiskSignal::Irreversible) }
    }

    /// Returns the action of a call that submits a form.
    pub(super) fn of_form(values: Vec<String>, risk: Risk) -> CallAction {
        CallAction {
            key: ActionKey::SubmitForm,
            values,
            is_irreversible: risk.signals.has(RiskSignal::Irreversible),
        }
    }

    /// Restores a stored action; `None` for a shape of another release.
    pub fn stored(key: &str, values: Vec<String>, is_irreversible: bool) -> Option<CallAction> {
        let key = ActionKey::parse(key)?;
        Some(CallAction { key, values, is_irreversible })
    }

    /// Returns the action in words.
    pub fn sentence(&self, language: Language) -> String {
        let value = |place: usize| self.values.get(place).map_or("", String::as_str);
        let values = [value(0), value(1), value(2), value(3)];
        let text = match self.key {
            ActionKey::SubmitForm => form::sentence(&self.values, language),
            key => texts::action(key, values, language),
        };
        if self.is_irreversible {
            return format!("{}. {}", text.trim_end_matches('.'), texts::IRREVERSIBLE.of(language));
        }
        text
    }
}

/// Returns the shape of a call with its values.
fn shape(canonical: &str, arguments: &Values<'_>) -> (ActionKey, Vec<String>) {
    let (server, name) = canonical.split_once(':').unwrap_or(("", canonical));
    let words: Vec<String> = words_of_name(canonical).map(str::to_lowercase).collect();
    let begins = |beginnings: &[&str]| beginnings.iter().any(|start| name.to_lowercase().starts_with(start));
    let has = |word: &str| words.iter().any(|own| own == word);
    if let Some(path) = arguments.first(&PATHS)
        && (begins(&["fs_read", "read_file", "readfile"]) || (has("read") && has("file")))
    {
        let key = if is_configuration(&path) { ActionKey::ReadConfiguration } else { ActionKey::ReadFile };
        return (key, vec![path]);
    }
    if let Some(path) = arguments.first(&PATHS)
        && (begins(&["fs_write", "write_file", "writefile"]) || (has("write") && has("file")))
    {
        return (ActionKey::WriteFile, vec![path]);
    }
    if let Some(command) = arguments.raw(&COMMANDS) {
        // in one text, for an option and its secret may stand in two
        let options = arguments.raw(&["args", "arguments", "argv"]).unwrap_or_default();
        return (
            ActionKey::Execute,
            vec![one_line(format!("{command} {options}").trim_end(), VALUE_BYTES_MAX)],
        );
    }
    if let Some(url) = arguments.first(&["url", "uri"])
        && (begins(&["http"]) || has("fetch") || has("request"))
    {
        let method =
            arguments.first(&["method"]).or_else(|| method(&words)).unwrap_or_else(|| "GET".to_owned());
        return (ActionKey::Request, vec![method.to_uppercase(), url]);
    }
    if let Some(statement) = arguments.first(&STATEMENTS)
        && (arguments.first(&["sql"]).is_some() || has("sql") || has("query"))
    {
        return (ActionKey::Sql, vec![without_passwords(&statement), one_line(server, VALUE_BYTES_MAX)]);
    }
    act(&words, arguments).map_or_else(
        || {
            let count = arguments.0.len().to_string();
            (ActionKey::Call, vec![one_line(name, VALUE_BYTES_MAX), one_line(server, VALUE_BYTES_MAX), count])
        },
        |values| (ActionKey::Act, values),
    )
}

/// Returns verb, object, its name and its place, where the name begins with a verb that has a text.
fn act(words: &[String], arguments: &Values<'_>) -> Option<Vec<String>> {
    let (verb, object) = words.split_first().filter(|(verb, _)| texts::has_verb(verb))?;
    let object = object.get(..object.len().min(OBJECT_WORDS_MAX)).unwrap_or_default().join(" ");
    let place = match (arguments.first(&["owner", "org", "organization"]), arguments.first(&PLACES)) {
        (Some(owner), Some(place)) if !place.contains('/') => Some(format!("{owner}/{place}")),
        (_, place) => place,
    };
    // `create_repo` has its own name in `name`, and `delete_repo` its own place
    let name = arguments.first(&NAMES);
    let (name, place) = match (name, place) {
        (_, Some(place)) if matches!(object.as_str(), "repo" | "repository" | "project") => {
            (place, String::new())
        }
        (Some(name), place) => (name, place.unwrap_or_default()),
        (None, Some(place)) => (String::new(), place),
        (None, None) if object.is_empty() => return None,
        (None, None) => (String::new(), String::new()),
    };
    // where it goes may be all that is dangerous in it
    let name = match arguments.first(&TO).filter(|_| texts::MOVES.contains(&verb.as_str())) {
        // an arrow of the caller is none of the sentence
        Some(to) => {
            [arguments.first(&FROM).unwrap_or(name), to].map(|end| end.replace('→', "->")).join(texts::ARROW)
        }
        None => name,
    };
    Some(vec![verb.clone(), object, name, place])
}

fn method(words: &[String]) -> Option<String> {
    words
        .iter()
        .find(|word| matches!(word.as_str(), "get" | "post" | "put" | "patch" | "delete" | "head"))
        .cloned()
}

fn is_configuration(path: &str) -> bool {
    let name = path.rsplit(['/', '\\']).next().unwrap_or_default().to_lowercase();
    let ends = [".toml", ".yaml", ".yml", ".ini", ".conf", ".cfg", ".env"];
    ends.iter().any(|end| name.ends_with(end)) || name.contains("config")
}

/// Masks the texts of a statement that sets a password.
fn without_passwords(statement: &str) -> String {
    let lower = statement.to_lowercase();
    if !lower.contains("password") && !lower.contains("identified") {
        return statement.to_owned();
    }
    let parts = statement.split('\'').enumerate();
    let parts: Vec<&str> = parts.map(|(place, part)| if place % 2 == 1 { MASK } else { part }).collect();
    parts.join("'")
}

/// Top level of the arguments.
struct Values<'a>(Vec<json::Member<'a>>);

impl<'a> Values<'a> {
    fn read(arguments: &'a str) -> Values<'a> {
        Values(json::top_level_members(arguments).unwrap_or_default())
    }

    /// Returns the first of these members that has a text, a number, or a list of texts, in one masked line.
    fn first(&self, names: &[&str]) -> Option<String> {
        self.raw(names).map(|value| one_line(&value, VALUE_BYTES_MAX))
    }

    /// Returns the same as written by the caller, not masked.
    fn raw(&self, names: &[&str]) -> Option<String> {
        let member = |name: &&str| self.0.iter().find(|member| member.name.eq_ignore_ascii_case(name));
        names
            .iter()
            .filter_map(member)
            .find_map(|member| scalar(member.value))
            .filter(|value| !value.is_empty())
    }
}

fn scalar(raw: &str) -> Option<String> {
    match raw.as_bytes().first()? {
        b'"' => serde_json::from_str(raw).ok(),
        b'[' => serde_json::from_str::<Vec<String>>(raw).ok().map(|texts| texts.join(" ")),
        b'-' | b'0'..=b'9' => Some(raw.to_owned()),
        _ => None,
    }
}
