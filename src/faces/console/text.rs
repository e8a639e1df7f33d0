//! Texts of others on pages: bounded, and JSON in lines.

use super::marked::is_marked;
use crate::domain::brief;
use crate::domain::json::JsonFault;
use crate::domain::unseen::{is_unseen, with_marked_lookalikes};

/// Longest text that is shown whole, in bytes.
const LONG_BYTES_MAX: usize = 256 * 1024;
/// Deepest level of JSON that is indented further.
const LEVELS_MAX: usize = 20;

/// Text in a block of its own.
#[derive(Debug)]
pub(super) struct LongText {
    /// Text, or the beginning of a longer one.
    pub(super) text: String,
    /// Bytes that are left out; `None` if the text is whole.
    pub(super) left_out: Option<usize>,
}

impl LongText {
    /// Takes a text, and cuts it if it is longer than 256 KiB.
    pub(super) fn of(text: &str) -> LongText {
        LongText::within(text, LONG_BYTES_MAX)
    }

    /// Takes a text, and cuts it if it is longer than `bytes_max`.
    pub(super) fn within(text: &str, bytes_max: usize) -> LongText {
        let shown = text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default();
        let left_out = text.len() - shown.len();
        LongText { text: shown.to_owned(), left_out: (left_out > 0).then_some(left_out) }
    }
}

/// Returns the beginning of a text, with an ellipsis where more follows.
pub(super) fn short(text: &str, chars_max: usize) -> String {
    brief::short(text, chars_max).into_owned()
}

/// Returns the beginning of a call's action in words as [`short`] does; a quotation that is cut is closed.
pub(super) fn short_told(told: &str, chars_max: usize) -> String {
    let mut text = short(told, chars_max);
    let rest = told.get(text.len().saturating_sub('…'.len_utf8())..).unwrap_or_default();
    if text == told || ["\"", "“"].contains(&rest) {
        return told.to_owned();
    }
    // a mark with a backslash is one of the quotation
    let open = text.replace("\\\\", "").replace("\\\"", "").replace("\\“", "");
    let count = |c: char| open.matches(c).count();
    if count('"') % 2 == 1 {
        text.push('"');
    } else if count('„') > count('“') {
        text.push('“');
    }
    text
}

/// Returns JSON as a person reads it: with letters and digits in the place of their escapes, such as `\u00fc`, since some clients escape all that is
/// not ASCII, and with marks for letters that pass for Latin ones, and for escapes of characters that nobody sees. Others stay escaped, and so
/// does one that takes two escapes.
pub(super) fn readable(json: &str) -> String {
    let (mut out, mut words) = (String::with_capacity(json.len()), String::new());
    let mut rest = json;
    while let Some(at) = rest.find('\\') {
        let (before, escape) = rest.split_at(at);
        words.push_str(before);
        let digits = escape.strip_prefix("\\u").and_then(|code| code.get(..4));
        let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let is_shown = |c: &char| c.is_alphanumeric() && !c.is_ascii() && !is_unseen(*c);
        let length = match code {
            Some(_) => 6,
            // a backslash and what it escapes stay together
            None => 1 + escape.chars().nth(1).map_or(0, char::len_utf8),
        };
        match code.and_then(char::from_u32) {
            Some(letter) if is_shown(&letter) => words.push(letter),
            Some(unseen) if is_unseen(unseen) => words.push_str(&format!("<U+{:04X}>", u32::from(unseen))),
            _ => {
                // the letters of an escape are none of the word behind it
                out.push_str(&with_marked_lookalikes(&words));
                words.clear();
                out.push_str(escape.get(..length).unwrap_or_default());
            }
        }
        rest = escape.get(length..).unwrap_or_default();
    }
    words.push_str(rest);
    out.push_str(&with_marked_lookalikes(&words));
    out
}

/// Returns a number of bytes for reading, such as `16 MiB`; empty for less than 1 KiB.
pub(super) fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => String::new(),
        1024..1_048_576 => format!("{} KiB", tenths(bytes, 1024)),
        _ => format!("{} MiB", tenths(bytes, 1_048_576)),
    }
}

/// Returns a number of units with one digit behind the point, where there is one.
fn tenths(number: u64, unit: u64) -> String {
    let (whole, tenth) = (number / unit, number % unit * 10 / unit);
    if tenth == 0 { whole.to_string() } else { format!("{whole}.{tenth}") }
}

/// Returns JSON text with a line for each value. Names, strings and numbers stay as they are spelt.
pub(super) fn indented(json: &str) -> String {
    indented_within(json, usize::MAX).text
}

/// Returns JSON text as [`indented`] does, cut after about `bytes_max` bytes: no more of it is written.
pub(super) fn indented_within(json: &str, bytes_max: usize) -> LongText {
    let mut out = String::new();
    let (mut level, mut is_string, mut is_escaped) = (0_usize, false, false);
    let mut last = ' ';
    for (at, c) in json.char_indices() {
        if out.len() >= bytes_max {
            return LongText { text: out, left_out: Some(json.len() - at) };
        }
        if is_string {
            out.push(c);
            is_string = is_escaped || c != '"';
            is_escaped = c == '\\' && !is_escaped;
            continue;
        }
        match c {
            ' ' | '\t' | '\n' | '\r' => continue,
            '"' => is_string = true,
            '}' | ']' => level = level.saturating_sub(1),
            _ => {}
        }
        let opens = matches!(last, '{' | '[');
        let closes = matches!(c, '}' | ']');
        if (opens != closes && !out.is_empty()) || last == ',' {
            out.push('\n');
            out.push_str(&"  ".repeat(level.min(LEVELS_MAX)));
        }
        out.push(c);
        match c {
            '{' | '[' => level += 1,
            ':' => out.push(' '),
            _ => {}
        }
        last = c;
    }
    LongText { text: out, left_out: None }
}

/// Returns why a text is not a JSON object, for the person who typed it, without a full stop.
pub(super) fn not_an_object(text: &str, fault: &JsonFault) -> String {
    match fault {
        JsonFault::Syntax { offset } => {
            let before = text.get(..text.floor_char_boundary(*offset)).unwrap_or_default();
            format!("this is not JSON (at character {})", before.chars().count() + 1)
        }
        JsonFault::NotAnObject => r#"must be an object, such as {"path": "/a"}"#.to_owned(),
        fault => fault.to_string(),
    }
}

/// Returns JSON text with escapes for characters in strings that nobody sees. Its value is as it was.
pub(super) fn with_escapes(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        if !is_marked(c) {
            out.push(c);
            continue;
        }
        for unit in c.encode_utf16(&mut [0; 2]) {
            out.push_str(&format!("\\u{unit:04x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unseen_characters_of_json_are_escaped() {
        let json = "[\"a\u{202e}b\u{e0041}é\"]";
        let escaped = with_escapes(json);
        assert_eq!(escaped, "[\"a\\u202eb\\udb40\\udc41é\"]");
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(value(&escaped), value(json));
    }

    #[test]
    fn json_is_shown_as_a_person_reads_it() {
        for (json, expected) in [
            (r#"{"a":"Gr\u00fc\u00df\n\u202e\u0041\"}"#, r#"{"a":"Grüß\n<U+202E>\u0041\"}"#),
            (r#""\\u00fc \u00f"#, r#""\\u00fc \u00f"#),
            (r#""\ud83d\ude00 \u3164""#, r#""\ud83d\ude00 <U+3164>""#),
            ("\\", "\\"),
            // words of one script stay words, also behind an escape
            ("\"привет\\nпривет\\t\\\"привет\"", "\"привет\\nпривет\\t\\\"привет\""),
            (r#""\u00ab\u041e\u0442\u0447\u00bb""#, "\"\\u00abОтч\\u00bb\""),
            ("\"\\nп\u{430}ypal\"", "\"\\n<U+043F><U+0430>ypal\""),
            (r#""\u0430dmin@example.com""#, "\"<U+0430>dmin@example.com\""),
        ] {
            assert_eq!(readable(json), expected, "{json}");
        }
    }

    #[test]
    fn quotations_that_are_cut_are_closed() {
        assert_eq!(short_told("Move \"a b\"", 8), "Move \"a …\"");
        assert_eq!(short_told("„a b“ bewegen", 3), "„a …“");
        assert_eq!(short_told("Run 'a\"b'", 80), "Run 'a\"b'");
        assert_eq!(short_told("\"a\" is", 5), "\"a\" i…");
    }

    #[test]
    fn faults_of_json_are_counted_in_characters() {
        let says = |text: &str| not_an_object(text, &crate::domain::json::members_of_text(text).unwrap_err());
        assert_eq!(says("{\"é\": x}"), "this is not JSON (at character 7)");
        assert_eq!(says(""), "this is not JSON (at character 1)");
        assert_eq!(says("[1]"), "must be an object, such as {\"path\": \"/a\"}");
        assert_eq!(says("{\"a\":1,\"a\":2}"), "duplicate member name 'a'");
    }

    #[test]
    fn no_more_of_json_is_written_than_is_shown() {
        let deep = format!("{}{}", "[".repeat(30), "0,".repeat(1_000_000));
        let cut = indented_within(&deep, 1000);
        assert!(cut.text.len() < 1100 && cut.left_out.is_some_and(|left| left > 1_900_000));
        assert_eq!(indented_within("[1]", 1000).left_out, None);
    }

    #[test]
    fn sizes_are_for_reading() {
        let sizes = [1023, 1024, 1600, 16 << 20, 256 << 20].map(size);
        assert_eq!(sizes, ["", "1 KiB", "1.5 KiB", "16 MiB", "256 MiB"]);
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let whole = LongText::within("aé", 3);
        assert_eq!((whole.text.as_str(), whole.left_out), ("aé", None));
        let cut = LongText::within("aéb", 2);
        assert_eq!((cut.text.as_str(), cut.left_out), ("a", Some(3)));
    }

    #[test]
    fn json_gets_lines_and_keeps_its_spelling() {
        let raw = r#"{"a":1e400, "b" : ["{\"x\\\",[" ,{}],"c":[],"d":{"e":true}}"#;
        let lines = [
            "{",
            r#"  "a": 1e400,"#,
            r#"  "b": ["#,
            r#"    "{\"x\\\",[","#,
            "    {}",
            "  ],",
            r#"  "c": [],"#,
            r#"  "d": {"#,
            r#"    "e": true"#,
            "  }",
            "}",
        ];
        assert_eq!(indented(raw), lines.join("\n"));
    }

    #[test]
    fn deep_json_stays_small() {
        let deep = "[".repeat(10_000);
        assert!(indented(&deep).len() < 10_000 * (LEVELS_MAX * 2 + 3));
        assert_eq!(indented("]]} junk"), "]\n]\n}junk");
    }
}
