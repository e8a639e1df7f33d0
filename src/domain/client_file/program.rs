//! Text that offers a program to tenants, for the gateway's own file.

use std::collections::BTreeMap;

use crate::domain::redact::{self, MASK};
use crate::domain::server_url::masked;

/// Note for entries with something that the gateway does not fill in.
const TO_FILL_IN: &str =
    "# the gateway takes values as they are: put the real ones in place of [redacted] and ${…}\n";

/// Flags with a secret whose names do not say so.
const SECRET_FLAGS: [&str; 4] = ["k", "key", "p", "pat"];
/// Values of variables that are no secret: switches and log levels.
const HARMLESS: [&str; 18] = [
    "all", "critical", "debug", "error", "false", "fatal", "info", "no", "none", "notice", "off", "on",
    "silent", "trace", "true", "verbose", "warn", "warning",
];

/// Returns the entry of `stdio.commands` for a program. Words that look like secrets are masked, and all values of variables
/// but those that are surely none.
pub fn entry(name: &str, argv: &[String], env: &BTreeMap<String, String>, tenant: &str) -> String {
    let before = std::iter::once("").chain(argv.iter().map(String::as_str));
    let argv: Vec<String> = argv.iter().zip(before).map(|(word, before)| shown(word, before)).collect();
    let env: Vec<String> = env
        .iter()
        .map(|(name, value)| format!("{} = {}", key(name), text(&shown_value(name, value))))
        .collect();
    let mut out = format!("[stdio.commands.{name}]\nargv = [{}]\n", texts(&argv));
    if !env.is_empty() {
        out.push_str(&format!("env = {{ {} }}\n", env.join(", ")));
    }
    out.push_str(&format!("tenants = [{}]\n", text(tenant)));
    let is_open = ["[redacted]", "${"].iter().any(|sign| out.contains(sign));
    if is_open { format!("{TO_FILL_IN}{out}") } else { out }
}

/// Returns a word of a command line. A secret is known by its own form, or by the flag before it.
fn shown(word: &str, before: &str) -> String {
    match before.strip_prefix('-').filter(|_| !word.starts_with('-')) {
        Some(flag) if is_secret_flag(flag) => MASK.to_owned(),
        Some(flag) => redact::preview_member(flag.trim_start_matches('-'), word, word.len()),
        None => {
            match word.split_once('=').filter(|(flag, _)| flag.starts_with('-') && is_secret_flag(flag)) {
                Some((flag, _)) => format!("{flag}={MASK}"),
                None => redact::redact(word).into_owned(),
            }
        }
    }
}

fn is_secret_flag(flag: &str) -> bool {
    SECRET_FLAGS.contains(&&*flag.trim_start_matches('-').to_ascii_lowercase())
}

/// Returns the value of a variable, masked unless it is surely no secret.
fn shown_value(name: &str, value: &str) -> String {
    match is_harmless(value) {
        true => redact::preview_member(name, value, value.len()),
        false => MASK.to_owned(),
    }
}

/// Returns whether a value is a switch, a log level, a number, a path, a URL without user and query, or a reference.
fn is_harmless(value: &str) -> bool {
    let has_only = |text: &str, others: &str| {
        text.chars().all(|c| c.is_ascii_alphanumeric() || others.contains(c)) && !text.is_empty()
    };
    let is_reference = || {
        let name = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        name.is_some_and(|name| !name.contains(":-") && has_only(name, "_-:"))
    };
    let is_path =
        || ["/", "~/", "./", "../"].iter().any(|start| value.starts_with(start)) && has_only(value, "/._-~ ");
    let is_url = || {
        let rest = value.split_once("://").map(|(scheme, rest)| (has_only(scheme, "+"), rest));
        rest.is_some_and(|(is_scheme, rest)| is_scheme && has_only(rest, "/._-~:[]%"))
            && masked(value) == value
    };
    value.is_empty()
        || HARMLESS.contains(&&*value.to_ascii_lowercase())
        || value.parse::<f64>().is_ok()
        || is_reference()
        || is_path()
        || is_url()
}

fn texts(all: &[String]) -> String {
    all.iter().map(|one| text(one)).collect::<Vec<_>>().join(", ")
}

/// Returns a text as TOML, whose escapes are those of JSON.
fn text(text: &str) -> String {
    // a terminal takes these for commands, and the escapes of the output are not TOML's
    let escaped = |c: char| match c {
        '\u{7f}'..='\u{9f}' => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    serde_json::Value::from(text).to_string().chars().map(escaped).collect()
}

fn key(name: &str) -> String {
    let is_bare =
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if is_bare { name.to_owned() } else { text(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_toml_and_shows_no_secret() {
        let words = |all: &[&str]| all.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let env =
            |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let plain = entry(
            "files",
            &words(&["npx", "-y", "a \"b\"\\c", "é\u{9b}"]),
            &env(&[("LEVEL", "debug"), ("a.b", "/srv/a")]),
            "acme",
        );
        assert_eq!(
            plain,
            "[stdio.commands.files]\nargv = [\"npx\", \"-y\", \"a \\\"b\\\"\\\\c\", \"é\\u009b\"]\n\
             env = { LEVEL = \"debug\", \"a.b\" = \"/srv/a\" }\ntenants = [\"acme\"]\n"
        );
        let secret = entry(
            "db",
            &words(&[
                "db",
                "--api-key",
                "s3cret-one",
                "--token=s3cret-two",
                "-p",
                "s3cret-five",
                "--key=s3cret-six",
                "--pat",
                "s3cret-seven",
                "postgres://u:s3cret-three@h/db",
            ]),
            &env(&[("API_TOKEN", "s3cret-four"), ("OTHER", "${env:OTHER}")]),
            "acme",
        );
        assert!(!secret.contains("s3cret") && secret.contains("${env:OTHER}"), "{secret}");
        assert!(secret.contains(r#"argv = ["db", "--api-key", "[redacted]", "--token="#), "{secret}");
        assert!(secret.starts_with(TO_FILL_IN), "{secret}");
        assert!(
            secret.contains(r#""-p", "[redacted]", "--key=[redacted]", "--pat", "[redacted]""#),
            "{secret}"
        );
        for text in [plain, secret] {
            let tree: serde_json::Value = toml_edit::de::from_str(&text).unwrap();
            assert_eq!(tree["stdio"]["commands"].as_object().unwrap().len(), 1);
        }
    }

    #[test]
    fn values_are_shown_that_are_surely_no_secret() {
        for shown in [
            "",
            "true",
            "WARN",
            "8080",
            "-1.5",
            "/srv/a b",
            "~/x",
            "${env:A}",
            "http://h.example:80/a",
            "redis://h",
        ] {
            assert_eq!(shown_value("VALUE", shown), shown);
        }
        for hidden in [
            "correct horse",
            "p4ss",
            "https://u:p@h",
            "https://h/?k=x",
            "https://h/#x",
            "${A:-x}",
            "x${A}",
            "/a+b=",
            "a.b.c",
            "-----BEGIN",
        ] {
            assert_eq!(shown_value("VALUE", hidden), MASK, "{hidden}");
        }
        assert_eq!(shown_value("DB_PASSWORD", "123456"), MASK);
    }
}
