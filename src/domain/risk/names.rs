//! Signals in the name of a tool.

use super::{RiskSignal, Signals};
use crate::domain::annotations::Tier;

/// Verbs whose effect cannot be undone.
const IRREVERSIBLE: [&str; 9] =
    ["delete", "drop", "purge", "destroy", "wipe", "erase", "truncate", "transfer", "pay"];
/// Further verbs of high risk.
const HOSTILE: [&str; 7] = ["revoke", "send", "publish", "deploy", "exec", "execute", "grant"];
/// Verbs of high risk where the server does not say what the tool is.
const SUSPECT: [&str; 13] = [
    "remove",
    "rm",
    "uninstall",
    "overwrite",
    "reset",
    "kill",
    "terminate",
    "shutdown",
    "reboot",
    "run",
    "eval",
    "shell",
    "bash",
];
/// Verbs of tools that read, where the server does not say.
const READING: [&str; 4] = ["get", "list", "search", "read"];
/// Beginnings of the names of tools that run commands.
const RUNNING: [&str; 6] = ["terminal", "exec", "shell", "bash", "run_command", "command"];

/// Returns the part of a canonical name after the server's.
fn own_name(canonical: &str) -> &str {
    canonical.split_once(':').map_or(canonical, |(_, own)| own)
}

/// Returns the words of a tool's own name: `deleteRepo` and `delete_repo` are two.
pub(in crate::domain) fn words(canonical: &str) -> impl Iterator<Item = &str> {
    own_name(canonical).split(|c: char| !c.is_alphanumeric()).flat_map(camel).filter(|word| !word.is_empty())
}

/// Splits a word where a capital follows a letter that is none.
fn camel(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(word);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut before = false;
        let at = text.char_indices().find_map(|(at, char)| {
            let is_border = before && char.is_uppercase();
            before = !char.is_uppercase();
            is_border.then_some(at)
        });
        let (word, after) = text.split_at_checked(at.unwrap_or(text.len())).unwrap_or((text, ""));
        rest = at.map(|_| after);
        Some(word)
    })
}

fn is_any(word: &str, of: &[&str]) -> bool {
    of.iter().any(|known| known.eq_ignore_ascii_case(word))
}

fn begins(name: &str, with: &str) -> bool {
    name.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with))
}

/// Returns whether the strings of a tool's arguments are commands, by its name.
pub(super) fn runs_commands(canonical: &str) -> bool {
    RUNNING.iter().any(|beginning| begins(own_name(canonical), beginning))
}

/// Returns the signals of a name. A tool of tier read is believed unless its first word is a verb of high risk.
pub(super) fn signals(canonical: &str, tier: Tier) -> Signals {
    let own = own_name(canonical);
    let mut signals = Signals::default();
    for (beginning, signal) in [
        ("terminal", RiskSignal::Terminal),
        ("http", RiskSignal::Http),
        ("fs_write", RiskSignal::WritesFiles),
    ] {
        if begins(own, beginning) {
            signals.add(signal);
        }
    }
    let is_reading =
        tier == Tier::Unknown && words(canonical).next().is_some_and(|word| is_any(word, &READING));
    if tier != Tier::Read && !is_reading && !(tier == Tier::Unknown && begins(own, "fs_read")) {
        signals.add(RiskSignal::Writes);
    }
    let looked_at = if tier == Tier::Read { 1 } else { usize::MAX };
    for word in words(canonical).take(looked_at) {
        let is_irreversible = is_any(word, &IRREVERSIBLE);
        if is_irreversible {
            signals.add(RiskSignal::Irreversible);
        }
        let is_suspect = tier == Tier::Unknown && !is_reading && is_any(word, &SUSPECT);
        if is_irreversible || is_suspect || is_any(word, &HOSTILE) {
            signals.add(RiskSignal::Verb);
        }
    }
    signals
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_words() {
        for (name, expected) in [
            ("gh:delete_repo", "delete repo"),
            ("gh:deleteRepo-now", "delete Repo now"),
            ("HTTPGet", "HTTPGet"),
            ("a:b:c.d", "b c d"),
            ("x:__", ""),
        ] {
            assert_eq!(words(name).collect::<Vec<_>>().join(" "), expected, "{name}");
        }
    }
}
