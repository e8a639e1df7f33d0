//! Counting and cutting of the characters of a string literal, in its escaped form. An escape is one character, and so
//! is the pair of escapes beyond U+FFFF. A body is the text between the quotes of a checked literal.

use super::text::{decode_escape, literal_end};

/// Returns the number of characters of a literal's body.
pub fn literal_characters(body: &str) -> usize {
    walk(body, usize::MAX).0
}

/// Splits a literal's body after its first `count` characters, both parts as spelled.
pub fn literal_split(body: &str, count: usize) -> (&str, &str) {
    body.split_at_checked(walk(body, count).1).unwrap_or((body, ""))
}

/// Returns the text that a literal's body spells; `None` when it has a lone surrogate, which no text can hold.
pub fn literal_text(body: &str) -> Option<String> {
    let mut out = String::with_capacity(body.len());
    let mut rest = body;
    while let Some((plain, tail)) = rest.split_once('\\') {
        out.push_str(plain);
        let (decoded, length) = decode_escape(tail);
        out.push(decoded?);
        rest = tail.get(length..).unwrap_or_default();
    }
    out.push_str(rest);
    Some(out)
}

/// Steps over at most `max` characters. Returns their number and the offset behind them, in bytes.
fn walk(body: &str, max: usize) -> (usize, usize) {
    let (mut seen, mut at) = (0, 0);
    while seen < max {
        let end = literal_end(body.as_bytes(), at);
        let run = body.get(at..end).unwrap_or_default();
        let (characters, bytes) = run_prefix(run, max - seen);
        seen += characters;
        at += bytes;
        if at < end || at >= body.len() || seen == max {
            break;
        }
        let (_, length) = decode_escape(body.get(at + 1..).unwrap_or_default());
        seen += 1;
        at += 1 + length;
    }
    (seen, at.min(body.len()))
}

/// Returns the number of characters among the first `max` of a text without escapes, and their bytes.
fn run_prefix(run: &str, max: usize) -> (usize, usize) {
    if run.len() > max
        && let Some((bytes, _)) = run.char_indices().nth(max)
    {
        return (max, bytes);
    }
    (run.chars().count(), run.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::domain::json::escape_into;

    #[test]
    fn an_escape_is_one_character() {
        for (body, characters) in [
            ("", 0),
            ("abc", 3),
            (r"a\n\u00e9é", 4),
            (r"\ud83d\ude00😀", 2),
            (r"\ud83dx\ude00", 3),
            (r"\\\\", 2),
        ] {
            assert_eq!(literal_characters(body), characters, "{body}");
        }
        assert_eq!(literal_split(r"a\ud83d\ude00b", 2), (r"a\ud83d\ude00", "b"));
        assert_eq!(literal_split(r"ab", 9), ("ab", ""));
        assert_eq!(literal_text(r"a\ud83d\ude00\n").as_deref(), Some("a😀\n"));
        assert_eq!(literal_text(r"a\ud83d"), None);
    }

    proptest! {
        #[test]
        fn characters_are_those_of_the_text(text in "(?s)[a-c\"\\\\/\\n\u{1}é😀]{0,60}", at in 0..70_usize) {
            let mut quoted = String::new();
            escape_into(&mut quoted, &text);
            for spelled in [quoted, serde_json::to_string(&text).unwrap().replace('😀', "\\uD83D\\ude00")] {
                let body = spelled.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap();
                prop_assert_eq!(literal_characters(body), text.chars().count());
                let (first, rest) = literal_split(body, at);
                prop_assert_eq!(literal_text(first).unwrap(), text.chars().take(at).collect::<String>());
                prop_assert_eq!([first, rest].concat(), body);
            }
        }
    }
}
