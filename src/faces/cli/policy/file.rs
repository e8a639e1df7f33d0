//! Files with policies: reading what people or this program wrote, and writing what the gateway has.

use std::path::Path;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::super::failure::Failure;
use super::super::input;
use super::super::output;
use crate::domain::policy::{PolicyDocument, read_file};
use crate::domain::yaml;

/// Members of an answer of the gateway that mean nothing in a file.
const IGNORED: [&str; 2] = ["warnings", "created_by"];
/// Member that only versions in the history have.
const OF_HISTORY: &str = "created_at";
/// Order in which members of a rule are written; unknown ones come last.
const ORDER: [&str; 8] = ["id", "effect", "match", "except", "when", "ask", "enforced", "message"];

/// Reads a file, and checks it as the gateway does. Returns the document as a tree, too. Answers of `policy show` and
/// entries of `policy history` are such files.
///
/// # Errors
/// The file cannot be read, or has a fault. The text names the file, and the path in it.
pub(super) fn read(file: &Path) -> Result<(Map<String, Value>, PolicyDocument), Failure> {
    let shown = name(file);
    let from = if file == Path::new("-") { "-".to_owned() } else { format!("@{shown}") };
    let text = input::text("FILE", &from)?;
    parse(&text).map_err(|fault| Failure::Usage(format!("{shown}: {fault}")))
}

/// Returns the name of a file as messages show it.
pub(super) fn name(file: &Path) -> String {
    if file == Path::new("-") { "standard input".to_owned() } else { file.display().to_string() }
}

fn parse(text: &str) -> Result<(Map<String, Value>, PolicyDocument), String> {
    let mut tree = read_file(text)?;
    for name in IGNORED {
        tree.remove(name);
    }
    if tree.remove(OF_HISTORY).is_some() {
        // the number that the version has, and not that of the one to be replaced
        tree.remove("version");
        // a version that left the mode alone
        if tree.get("mode").is_some_and(Value::is_null) {
            tree.remove("mode");
        }
    }
    let document = PolicyDocument::parse(&Value::Object(tree.clone()).to_string());
    Ok((tree, document.map_err(|fault| fault.to_string())?))
}

/// Content of a file with a policy.
#[derive(Serialize)]
struct PolicyFile<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'a str>,
    rules: Vec<InOrder<'a>>,
}

/// Rule whose members are written in [`ORDER`].
struct InOrder<'a>(&'a Value);

impl Serialize for InOrder<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Value::Object(members) = self.0 else { return self.0.serialize(to) };
        let known = ORDER.iter().filter_map(|name| members.get_key_value(*name));
        let others = members.iter().filter(|(name, _)| !ORDER.contains(&name.as_str()));
        let mut map = to.serialize_map(Some(members.len()))?;
        for (name, value) in known.chain(others) {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// Formats a policy as a file that `policy apply` takes, below these comments.
pub(super) fn write(comments: &[String], mode: Option<&str>, rules: &Value) -> String {
    let rules: Vec<&Value> = rules.as_array().into_iter().flatten().collect();
    let file = PolicyFile { mode, rules: rules.iter().map(|rule| InOrder(rule)).collect() };
    let is_plain = |text: &String| text.chars().all(|c| c == '\n' || !c.is_control());
    let is_same = |text: &String| yaml::read(text).ok() == serde_json::to_value(&file).ok();
    let text = serde_saphyr::to_string(&file).ok().filter(|text| is_plain(text) && is_same(text));
    let text = text.unwrap_or_else(|| spelled_out(&file));
    let comments: String =
        comments.iter().map(|comment| format!("# {}\n", output::one_line(comment))).collect();
    format!("{comments}{}", text.trim_end())
}

/// Formats a file as JSON, which is YAML as well, with control characters spelled out.
fn spelled_out(file: &PolicyFile<'_>) -> String {
    let json = serde_json::to_string_pretty(file).unwrap_or_default();
    let is_plain = |c: char| c == '\n' || !c.is_control();
    json.chars()
        .map(|c| if is_plain(c) { c.to_string() } else { format!("\\u{:04x}", u32::from(c)) })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fault(text: &str) -> String {
        parse(text).map(|_| ()).unwrap_err()
    }

    #[test]
    fn what_is_shown_is_a_file() {
        let rules = json!([
            {"id": "no-drop", "effect": "deny", "match": {"tool": ["pg:*", "yes", "1e3:*"], "risk": "high"},
             "when": "args.sql.matches(\"(?i)\\\\b(DROP|TRUNCATE)\\\\b\") && args.a != '#: no'", "enforced": true},
            {"id": "007", "effect": "ask", "message": "- 'Ask' \"them\": no # comment",
             "ask": {"ttl_s": 60, "remember": []}, "newer": null},
        ]);
        let shown = write(&["version 3\n- id: x".to_owned()], Some("by_risk"), &rules);
        let head = "# version 3\\n- id: x\nmode: by_risk\nrules:\n";
        assert!(shown.starts_with(head), "{shown}");
        let keys = ["id:", "effect:", "match:", "when:", "enforced:"].map(|key| shown.find(key).unwrap());
        assert!(keys.is_sorted(), "{shown}");
        let tree = yaml::read(&shown).unwrap();
        assert_eq!(tree, json!({"mode": "by_risk", "rules": rules}));
        // what a terminal would obey is spelled out
        let odd = json!([{"id": "a", "effect": "deny", "when": "args.a == '\u{1b}[2J\u{9b}'"}]);
        let shown = write(&[], None, &odd);
        assert!(!shown.chars().any(|c| c != '\n' && c.is_control()), "{shown:?}");
        assert_eq!(yaml::read(&shown), Ok(json!({ "rules": odd })));
        assert_eq!(parse(&write(&[], None, &json!([]))).unwrap().1.rules.len(), 0);
    }

    #[test]
    fn answers_of_the_gateway_are_files() {
        let (tree, document) =
            parse(r#"{"version": 3, "mode": "observe", "rules": [], "warnings": ["x"]}"#).unwrap();
        assert_eq!((document.version, tree.len()), (Some(3), 3));
        let entry = "version: 3\nmode: null\nrules: []\ncreated_by: null\ncreated_at: 2026-11-24T16:12:50Z\n";
        let (tree, document) = parse(entry).unwrap();
        assert_eq!((document.version, document.mode, tree.len()), (None, None, 1));
        assert_eq!(fault("version: 3\nmode: null\nrules: []\n"), "mode must be a text");
        assert!(fault("rules: []\nwarning: []\n").contains("warning is an unknown key"));
    }

    #[test]
    fn faults_name_the_path() {
        let when = "rules:\n- {id: a, effect: deny, when: \"args.a.matches('(a')\"}\n";
        assert_eq!(
            fault(when),
            "rules[0].when calls matches('(a'): a pattern does not compile: unclosed group"
        );
        assert!(fault("").starts_with("the file is empty"));
    }
}
