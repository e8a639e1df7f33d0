use super::*;
use crate::domain::fuzz::{fuzz, shape};

const SEEDS: &[&str] = &[
    r#"{"password":"hunter2","user":"bob","n":[1,2,{"token":null}]}"#,
    r#"{"body":"{\"token\": \"a\\\"b\",\"n\":1}"}"#,
    "Authorization: Bearer abc\r\nCookie: a=b; c=d\nHost: x",
    "https://u:p@h/?sig=a%3D&b=2 --password abc export DB_PASS='a b'",
    "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n4111 1111 1111 1111 x",
    "<password>abc</password> - name: API_TOKEN\n  value: abc",
];
const WORDS: &[&str] = &[
    "password",
    "\"",
    "\\\"",
    "'",
    ":",
    "=",
    "[redacted]",
    "Bearer ",
    "{",
    "}",
    "&",
    "eyJ",
    "ghp_",
    "\u{1f980}",
];
/// Tokens of known shape, between spaces: secrets in any context.
const PLANTED: &[&str] = &[
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "mcpk_0123456789abcdefghijABCDEFGHIJ0123456789abc",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jK9sLm0aBcDeFgHiJkLmNoPqRsTuVwX",
];

/// Checks that a planted token never shows, in a redacted text or in a preview cut anywhere. A second redaction shows no
/// new text.
#[test]
fn secrets() {
    fuzz(SEEDS, WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let once = redact(&text);
        // for a value inside another, a second pass may mask text next to the mask, but shows nothing new
        let twice = redact(&once);
        twice
            .split(MASK)
            .fold(&*once, |rest, shown| rest.split_once(shown).expect("what was shown before").1);
        let cut = text.floor_char_boundary(text.len() / 2);
        let (before, after) = text.split_at(cut);
        for planted in PLANTED {
            let whole = format!("{before} {planted} {after}");
            assert!(!redact(&whole).contains(planted), "{whole:?}");
            for max in [cut, cut + 8, cut + planted.len() + 1, whole.len()] {
                let preview = preview(&whole, max);
                assert!(preview.text.len() <= max);
                assert!(!preview.text.contains(planted.split_at(12).0), "{max} of {whole:?}: {preview:?}");
            }
        }
        shape((once.matches(MASK).count(), once.len() / 8))
    });
}
