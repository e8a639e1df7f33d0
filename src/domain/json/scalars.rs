//! Values that are JSON (RFC 8259), but that some readers of JSON refuse.

use std::iter;

use super::skip::value_end;
use super::text::decode_escape;

/// Longest number that counts as readable, in bytes; some readers refuse an integer above 4300 digits.
const NUMBER_BYTES_MAX: usize = 300;

/// Returns the literals, member names, numbers and words of a text that passed [`super::check`], in their order.
fn scalars(text: &str) -> impl Iterator<Item = &str> {
    let bytes = text.as_bytes();
    let mut at = 0;
    iter::from_fn(move || {
        let is_between = |byte: &u8| b"{}[]:, \n\t\r".contains(byte);
        at += bytes.get(at..)?.iter().position(|byte| !is_between(byte))?;
        let end = value_end(bytes, at)?;
        let scalar = text.get(at..end);
        at = end;
        scalar
    })
}

/// Returns whether no literal has a lone surrogate, and no number is longer than [`NUMBER_BYTES_MAX`]. Some readers fail
/// on the message as a whole for one of those.
pub fn is_widely_readable(text: &str) -> bool {
    scalars(text).all(|scalar| match scalar.as_bytes().first() {
        Some(b'"') => !has_lone_surrogate(scalar),
        _ => scalar.len() <= NUMBER_BYTES_MAX,
    })
}

/// Returns whether there is a number that is infinite to readers with floating point, as `1e400` is.
pub fn has_infinite_number(text: &str) -> bool {
    scalars(text).any(|scalar| scalar.parse::<f64>().is_ok_and(f64::is_infinite))
}

pub(super) fn has_lone_surrogate(literal: &str) -> bool {
    let mut rest = literal;
    while let Some((_, tail)) = rest.split_once('\\') {
        let (decoded, bytes) = decode_escape(tail);
        if decoded.is_none() {
            return true;
        }
        rest = tail.get(bytes..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_and_long_numbers_are_not_for_every_reader() {
        let digits = "9".repeat(NUMBER_BYTES_MAX);
        for (text, expected) in [
            (r#"{"a":[1,-2.5e3,true,null,"x"]}"#.to_owned(), true),
            (r#"{"\ud83d\ude00":"\\ud800 \u0000"}"#.to_owned(), true),
            (r#"{"a":1e400}"#.to_owned(), true),
            (format!("[{digits}]"), true),
            (format!("[{digits}9]"), false),
            (format!(r#"["{digits}9"]"#), true),
            (r#"{"a":"\ud800"}"#.to_owned(), false),
            (r#"{"a":"\uDE00\ud83d"}"#.to_owned(), false),
            (r#"{"\ud800x":1}"#.to_owned(), false),
            (r#"["\\\ud800"]"#.to_owned(), false),
        ] {
            assert_eq!(is_widely_readable(&text), expected, "{text}");
        }
    }

    #[test]
    fn infinite_numbers() {
        for (text, expected) in [
            (r#"{"a":[1e308,{"b":18446744073709551617}]}"#, false),
            (r#"{"1e400":"1e400"}"#, false),
            (r#"{"a":[1e400]}"#, true),
            (r#"{"a":{"b":-1E+309 }}"#, true),
            (r#"{"a":1e-400}"#, false),
        ] {
            assert_eq!(has_infinite_number(text), expected, "{text}");
        }
    }
}
