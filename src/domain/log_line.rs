//! Lines that strangers write, made fit to be stored and shown: one line of plain text without secrets.

use super::redact;

/// The longest piece of a line that is looked at, in bytes, for each byte that is kept.
const LOOK_FACTOR: usize = 4;

/// A line as it may be kept: UTF-8 without terminal sequences and control characters, secrets masked, at most
/// `bytes_max`. Nothing if nothing is left. `secrets` are masked wherever they stand.
pub fn fit<'a>(raw: &[u8], bytes_max: usize, secrets: impl Iterator<Item = &'a str>) -> Option<String> {
    let looked_at = raw.get(..bytes_max.saturating_mul(LOOK_FACTOR)).unwrap_or(raw);
    let mut text = plain(&String::from_utf8_lossy(looked_at));
    for secret in secrets.filter(|secret| !secret.is_empty()) {
        if text.contains(secret) {
            text = text.replace(secret, redact::MASK);
        }
    }
    let text = redact::preview(text.trim_end(), bytes_max).text;
    (!text.trim().is_empty()).then_some(text)
}

/// Without what terminals would act on, and without what changes the direction of text.
fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\u{1b}' => skip_sequence(&mut chars),
            // the same as ESC [
            '\u{9b}' => skip_parameters(&mut chars),
            '\t' => out.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            other if other.is_control() => {}
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
        // the rest has one more character, after those of a range that announces it
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
        fit(raw, 60, ["hunter2-plain"].into_iter())
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

    proptest! {
        #[test]
        fn always_one_bounded_plain_line(raw in prop::collection::vec(any::<u8>(), 0..400)) {
            if let Some(text) = fitted(&raw) {
                prop_assert!(text.len() <= 60 && !text.chars().any(char::is_control), "{:?}", text);
            }
        }
    }
}
