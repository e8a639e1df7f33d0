use super::*;
use crate::domain::fuzz::{fuzz, shape};

/// Decoding and encoding are the inverse of each other: a cursor has one key, and a key one cursor.
#[test]
fn cursors() {
    let long = encode(&"k".repeat(CURSOR_BYTES_MAX * 3 / 4));
    let seeds = [encode("2026-11-22T10:00:00Z 01J"), encode("file:///é"), long, "YQ==".into(), "%".into()];
    fuzz(&seeds.each_ref().map(String::as_str), &["=", "AA", "_-", "\u{1f980}"], |input| {
        let text = String::from_utf8_lossy(input);
        let decoded = decode(&text);
        if let Ok(key) = &decoded {
            assert_eq!(encode(key), text, "two cursors for one key");
            assert!(!key.is_empty() && !key.contains('\0'));
        }
        let fits = text.len() * 4 < CURSOR_BYTES_MAX * 3 - 8;
        if fits && !text.is_empty() && !text.contains('\0') {
            assert_eq!(decode(&encode(&text)).ok().as_deref(), Some(&*text));
        }
        shape((decoded.ok().map(|key| key.len() / 8), text.len() / 64))
    });
}
