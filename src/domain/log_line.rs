//! Log lines of untrusted programs, made safe to store and show: one line of plain text without secrets.

use super::redact;

/// Longest part of a line that is read, as a multiple of the bytes that are kept.
const LOOK_FACTOR: usize = 4;

/// Shortest line of a multi-line secret that is searched for, in bytes.
const SECRET_LINE_BYTES_MIN: usize = 6;

/// Raw line, or the beginning of one.
#[derive(Clone, Copy, Debug)]
pub enum Raw<'a> {
    /// The whole line.
    Whole(&'a [u8]),
    /// The beginning of a line, cut perhaps in the middle of a secret.
    Beginning(&'a [u8]),
}

/// Returns a line that is safe to keep: UTF-8 without terminal sequences and control characters, secrets masked,
/// at most `bytes_max` long. `None` if nothing is left. `secrets` are masked wherever they stand, multi-line
/// ones line by line.
pub fn fit<'a>(raw: Raw<'_>, bytes_max: usize, secrets: impl Iterator<Item = &'a str>) -> Option<String> {
    let (Raw::Whole(bytes) | Raw::Beginning(bytes)) = raw;
    let looked_at = bytes.get(..bytes_max.saturating_mul(LOOK_FACTOR));
    let is_cut = looked_at.is_some_and(|part| part.len() < bytes.len()) || matches!(raw, Raw::Beginning(_));
    let mut text = plain(&String::from_utf8_lossy(looked_at.unwrap_or(bytes)));
    let values = values(secrets);
    if is_cut {
        drop_beginning(&mut text, &values);
    }
    for value in &values {
        if text.contains(value.as_str()) {
            text = text.replace(value.as_str(), redact::MASK);
        }
    }
    let text = redact::preview(text.trim_end(), bytes_max).text;
    (!text.trim().is_empty()).then_some(text)
}

/// Returns the lines of the secrets to search for. The longest are first, so that none leaves a rest of another.
fn values<'a>(secrets: impl Iterator<Item = &'a str>) -> Vec<String> {
    let lines = secrets.flat_map(|secret| {
        let least = if secret.contains(['\n', '\r']) { SECRET_LINE_BYTES_MIN } else { 1 };
        secret.split(['\n', '\r']).map(plain).filter(move |line| line.trim().len() >= least)
    });
    let mut values: Vec<String> = lines.collect();
    values.sort_unstable_by_key(|value| std::cmp::Reverse(value.len()));
    values
}

/// Removes the beginning of a secret from the end of `text`.
fn drop_beginning(text: &mut String, values: &[String]) {
    // half a character at the cut
    text.truncate(text.trim_end_matches(char::REPLACEMENT_CHARACTER).len());
    let begun = |value: &String| {
        let ends = value.char_indices().map(|(at, _)| at).rev();
        ends.filter(|at| *at > 0).find(|at| value.get(..*at).is_some_and(|part| text.ends_with(part)))
    };
    let longest = values.iter().filter_map(begun).max().unwrap_or_default();
    text.truncate(text.len() - longest);
}

/// Returns the text without terminal sequences, control characters and marks that change the direction of text.
pub(in crate::domain) fn plain(text: &str) -> String {
    let mut out = without_sequences(text);
    out.retain(|char| {
        let turns =
            matches!(char, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        !turns && !char.is_control()
    });
    out
}

/// Returns the text with terminal sequences cut down to the character that begins them, and with spaces for tabs.
pub(in crate::domain) fn without_sequences(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => {
                out.push(char);
                skip_sequence(&mut chars);
            }
            // the same as ESC [
            '\u{9b}' => {
                out.push(char);
                skip_parameters(&mut chars);
            }
            '\t' => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

type Chars<'a> = std::iter::Peekable<std::str::Chars<'a>>;

fn skip_sequence(chars: &mut Chars<'_>) {
    match chars.next() {
        Some('[') => skip_parameters(chars),
        // a text for the terminal, such as its title: to BEL or ESC \
        Some(']' | 'P' | 'X' | '^' | '_') => {
            while let Some(char) = chars.next() {
                if char == '\u{7}' || (char == '\u{1b}' && chars.next_if_eq(&'\\').is_some()) {
                    return;
                }
            }
        }
        // intermediate bytes of a short escape sequence, then its last character
        Some(' '..='/') => drop(chars.next()),
        _ => {}
    }
}

fn skip_parameters(chars: &mut Chars<'_>) {
    while chars.next_if(|char| matches!(char, ' '..='?')).is_some() {}
    chars.next_if(|char| matches!(char, '@'..='~'));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fitted(raw: &[u8]) -> Option<String> {
        fit(Raw::Whole(raw), 60, ["hunter2-plain"].into_iter())
    }

    #[test]
    fn what_is_left_of_a_line() {
        let table: &[(&[u8], Option<&str>)] = &[
            (b"plain text", Some("plain text")),
            (b"  kept\tapart  \r", Some("  kept apart")),
            (b"\x1b[1;31mred\x1b[0m", Some("red")),
            (b"\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b", Some("ab")),
            (b"\x1b(Ba\x1b=b\x1b", Some("ab")),
            (b"a\x00b\x08c\x7fd", Some("abcd")),
            ("a\u{202e}b\u{9b}2Jc".as_bytes(), Some("abc")),
            (b"\xff\xfe", Some("\u{fffd}\u{fffd}")),
            (b" \x1b[0m \r", None),
            (b"", None),
            (b"password=abcdefgh", Some("password=[redacted]")),
            (b"pass\x1b[1mword=abcdefgh", Some("password=[redacted]")),
            (b"it is hunter2-plain", Some("it is [redacted]")),
        ];
        for (raw, want) in table {
            assert_eq!(fitted(raw).as_deref(), *want, "{:?}", String::from_utf8_lossy(raw));
        }
    }

    #[test]
    fn secrets_leave_no_rest() {
        let secrets = ["hunter2", "hunter2-and-more", "-----BEGIN\nMIIEvQIBADAN\n}\nabcdef\r\n"];
        let masked = |raw: Raw<'_>| fit(raw, 200, secrets.into_iter()).unwrap_or_default();
        let table = [
            ("it is hunter2-and-more.", "it is [redacted]."),
            ("MIIEvQIBADAN", "[redacted]"),
            ("at } abcdef", "at } [redacted]"),
        ];
        for (raw, want) in table {
            assert_eq!(masked(Raw::Whole(raw.as_bytes())), want, "{raw}");
        }
        for cut in ["", "h", "hunter", "hunter2-a", "hunter2-and-mor", "MIIEvQ"] {
            let raw = format!("it is {cut}");
            assert_eq!(masked(Raw::Beginning(raw.as_bytes())), "it is", "{cut}");
        }
        let long = format!("{}hunter2-and-more", " ".repeat(800 - 7));
        assert_eq!(masked(Raw::Whole(long.as_bytes())), "");
        assert_eq!(fit(Raw::Beginning(b"it is \xc3"), 60, ["\u{e9}secret"].into_iter()).unwrap(), "it is");
    }

    proptest! {
        #[test]
        fn always_one_bounded_plain_line(raw in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Some(text) = fitted(&raw) {
                prop_assert!(text.len() <= 60 && !text.chars().any(char::is_control), "{:?}", text);
            }
        }
    }
}
