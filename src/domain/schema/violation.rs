//! Sentences about broken rules, with path and rule, and never a value of the arguments.

use super::arena::{Arena, Id};

/// Longest part of a name in a sentence, in characters.
const NAME_SHOWN_CHARS_MAX: usize = 64;
/// Longest path in a sentence, in bytes; the middle of longer ones is left out.
const PATH_BYTES_MAX: usize = 150;

/// Most bytes of known names in a sentence.
const KNOWN_BYTES_MAX: usize = 400;

/// Part of a path.
#[derive(Clone, Copy, Debug)]
pub(super) enum PathPart<'s> {
    Word(&'static str),
    Text(&'s str),
    Position(usize),
    /// Name of a member of the arguments.
    Value(Id),
}

/// Returns the sentence about a broken rule.
pub(super) fn sentence(
    arena: &Arena<'_>,
    at: &[PathPart<'_>],
    text: &str,
    through: &[PathPart<'_>],
) -> String {
    let path = match at {
        [] => "the arguments".to_owned(),
        at => pointer(arena, at),
    };
    format!("{path}: {text} (rule {})", pointer(arena, through))
}

/// Returns the first [`NAME_SHOWN_CHARS_MAX`] characters of a name, escaped.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(NAME_SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect()
}

/// Returns the end of a sentence that lists known names, and how many more there are; empty without any.
pub(super) fn known<'n>(names: impl Iterator<Item = &'n str>) -> String {
    let (mut out, mut left_out) = (String::new(), 0_usize);
    for name in names {
        if out.len() > KNOWN_BYTES_MAX {
            left_out += 1;
            continue;
        }
        out.push_str(if out.is_empty() { "; known: " } else { ", " });
        out.push_str(&shown(name));
    }
    if left_out > 0 {
        out.push_str(&format!(" and {left_out} more"));
    }
    out
}

/// Returns a path as a JSON pointer; a long one is cut in the middle.
fn pointer(arena: &Arena<'_>, parts: &[PathPart<'_>]) -> String {
    let mut pointer = String::new();
    for (at, part) in parts.iter().enumerate() {
        // the end of a path says more than its middle
        if pointer.len() > PATH_BYTES_MAX && at + 2 < parts.len() {
            continue;
        }
        if pointer.len() > PATH_BYTES_MAX && at + 2 == parts.len() {
            pointer.push_str("/…");
        }
        pointer.push('/');
        match part {
            PathPart::Word(word) => pointer.push_str(word),
            PathPart::Text(text) => pointer.push_str(&token(text)),
            PathPart::Position(at) => pointer.push_str(&at.to_string()),
            PathPart::Value(name) => pointer.push_str(&token(&arena.string(*name))),
        }
    }
    pointer
}

fn token(name: &str) -> String {
    shown(name).replace('~', "~0").replace('/', "~1")
}
