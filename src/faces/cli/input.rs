//! Values given on the command line.

use std::io::Read;

use chrono::TimeDelta;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::failure::Failure;
use crate::domain::operation::Variant;

/// Largest text read from a file or standard input, in bytes: the default limit of the gateway's requests.
const INPUT_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Longest secret that is read from standard input, in bytes.
const SECRET_BYTES_MAX: u64 = 8 * 1024;

/// Example of a JSON object, for error messages.
const SUCH: &str = "such as '{\"path\": \"/tmp\"}'";

/// Reads a JSON object, unchanged: the argument itself, `@FILE`, or `-` for standard input.
///
/// # Errors
/// The text cannot be read, or is no JSON object.
pub(super) fn object(flag: &str, given: &str) -> Result<Box<RawValue>, Failure> {
    let text = text(flag, given)?;
    let raw = serde_json::from_str::<Box<RawValue>>(&text)
        .map_err(|error| Failure::Usage(format!("{flag} is not JSON: {error}; it needs an object {SUCH}")))?;
    if !raw.get().starts_with('{') {
        return Err(Failure::Usage(format!("{flag} must be a JSON object, {SUCH}")));
    }
    Ok(raw)
}

/// Reads a text: the argument itself, `@FILE`, or `-` for standard input.
///
/// # Errors
/// The text cannot be read, or is too large.
pub(super) fn text(flag: &str, given: &str) -> Result<String, Failure> {
    let read: Box<dyn Read> = match given.strip_prefix('@') {
        None if given != "-" => return Ok(given.to_owned()),
        None => Box::new(std::io::stdin()),
        Some(path) => Box::new(
            std::fs::File::open(path).map_err(|error| Failure::Usage(format!("{flag}: {path}: {error}")))?,
        ),
    };
    let mut text = String::new();
    let length = read
        .take(INPUT_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| Failure::Usage(format!("{flag}: {error}")))?;
    if length as u64 > INPUT_BYTES_MAX {
        return Err(Failure::Usage(format!("{flag} is larger than {INPUT_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Returns the value of an environment variable; `None` if it is empty or not set.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment of a client, which app/config knows nothing of"
)]
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Returns a span of time such as `30s`, `90m`, `12h` or `3d`; `None` for any other text.
pub(super) fn span(text: &str) -> Option<TimeDelta> {
    let (at, unit) = text.char_indices().next_back()?;
    let number = text.get(..at)?.parse().ok().filter(|number| *number >= 0)?;
    match unit {
        's' => TimeDelta::try_seconds(number),
        'm' => TimeDelta::try_minutes(number),
        'h' => TimeDelta::try_hours(number),
        'd' => TimeDelta::try_days(number),
        _ => None,
    }
}

/// Asks the person at the terminal for confirmation, unless `yes` is set.
///
/// # Errors
/// The answer is not `yes`, or there is no terminal to ask at.
pub(super) fn confirm(yes: bool, what: &str) -> Result<(), Failure> {
    use std::io::IsTerminal;
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        return Err(Failure::Usage(format!("nobody is here to confirm: --yes says to {what}")));
    }
    super::output::note(&format!("About to {what}. Type yes to go on:"));
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    match read.is_ok() && answer.trim() == "yes" {
        true => Ok(()),
        false => Err(Failure::Usage("not confirmed: nothing was done".to_owned())),
    }
}

/// Asks the person at the terminal for confirmation, unless `yes` is set. Without a terminal nobody is asked: scripts go on.
///
/// # Errors
/// The answer is not `yes`.
pub(super) fn confirm_if_somebody_is_here(yes: bool, what: &str) -> Result<(), Failure> {
    use std::io::IsTerminal;
    confirm(yes || !std::io::stdin().is_terminal(), what)
}

/// Variants, with all spellings of each; the first one is shown in help.
const VARIANTS: [(Variant, [&str; 3]); 3] = [
    (Variant::Read, ["read", "tool-read", "call_tool_read"]),
    (Variant::Write, ["write", "tool-write", "call_tool_write"]),
    (Variant::Destructive, ["destructive", "tool-destructive", "call_tool_destructive"]),
];

/// Returns the parser of a variant, for every flag that takes one.
pub(super) fn variant() -> impl TypedValueParser<Value = Variant> {
    let value =
        |(_, [word, aliases @ ..]): (Variant, [&'static str; 3])| PossibleValue::new(word).aliases(aliases);
    PossibleValuesParser::new(VARIANTS.map(value)).try_map(|word| {
        let named = VARIANTS.iter().find(|(_, spellings)| spellings.contains(&&*word));
        named.map(|(variant, _)| *variant).ok_or("no variant")
    })
}

/// Parses settings given as `NAME=VALUE`. A value that is JSON (a number, `true`, `null`, a list) is taken as JSON, any
/// other as a text.
///
/// # Errors
/// An argument has no `=`, or a setting is given twice.
pub(super) fn settings(given: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut settings = Map::new();
    for pair in given {
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Failure::Usage(format!("'{pair}' is no setting: it needs the form NAME=VALUE")));
        };
        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
        if settings.insert(name.trim().to_owned(), value).is_some() {
            return Err(Failure::Usage(format!("{} is set twice", name.trim())));
        }
    }
    Ok(settings)
}

/// Reads the values of a repeatable flag, NAME=VALUE or NAME=-.
pub(super) fn secrets(flag: &str, given: &[String]) -> Result<Map<String, Value>, Failure> {
    let mut secrets = Map::new();
    for pair in given {
        // the value may be a credential: it is not repeated
        let Some((name, value)) = pair.split_once('=') else {
            return Err(Failure::Usage(format!("a --{flag} needs the form NAME=VALUE or NAME=-")));
        };
        let value = if value == "-" { from_stdin(name)? } else { value.to_owned() };
        if secrets.insert(name.to_owned(), value.into()).is_some() {
            return Err(Failure::Usage(format!("the {flag} {name} is given twice")));
        }
    }
    Ok(secrets)
}

fn from_stdin(name: &str) -> Result<String, Failure> {
    let mut value = String::new();
    let read = std::io::stdin().take(SECRET_BYTES_MAX + 1).read_to_string(&mut value);
    read.map_err(|error| Failure::Usage(format!("the value of {name} cannot be read: {error}")))?;
    Ok(value.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_json_or_text() {
        let given = [
            "rate_limit=600",
            "max_operation=read",
            "allowed_tools=[\"a:*\"]",
            "strict_server_validation=null",
        ];
        let settings = settings(&given.map(str::to_owned)).unwrap();
        let want = json!({"rate_limit": 600, "max_operation": "read", "allowed_tools": ["a:*"],
            "strict_server_validation": null});
        assert_eq!(Value::Object(settings), want);
        for bad in [vec!["x"], vec!["a=1", "a=2"]] {
            let bad: Vec<String> = bad.into_iter().map(str::to_owned).collect();
            assert!(matches!(super::settings(&bad), Err(Failure::Usage(_))));
        }
    }

    #[test]
    fn a_variant_has_several_spellings() {
        let command =
            clap::Command::new("x").arg(clap::Arg::new("variant").long("variant").value_parser(variant()));
        let parsed = |word: &str| {
            let parsed = command.clone().try_get_matches_from(["x", "--variant", word]);
            parsed.ok().and_then(|parsed| parsed.get_one::<Variant>("variant").copied())
        };
        for known in Variant::ALL {
            let operation = known.operation().as_str();
            for word in [operation, known.as_str(), &format!("tool-{operation}")] {
                assert_eq!(parsed(word), Some(known), "{word}");
            }
        }
        for wrong in ["", "tool", "call_read", "tool-tool-read", "READ"] {
            assert_eq!(parsed(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn objects_are_taken_as_they_are_written() {
        assert_eq!(object("--args", r#"{"a": 1.50}"#).unwrap().get(), r#"{"a": 1.50}"#);
        for bad in ["", "[1]", "{", "1", "@/no/such/file"] {
            assert!(matches!(object("--args", bad), Err(Failure::Usage(_))), "{bad}");
        }
    }
}
