use super::*;
use crate::domain::fuzz::{fuzz, shape};

/// Templates and URIs, separated by U+0000.
const SEEDS: &[&str] = &[
    "note://{id}/text\0note://7/text",
    "file:///{+path}\0file:///a/b/../c",
    "db://{table}{?limit,offset}\0db://users?limit=1&offset=2",
    "{+a}aaaa{+b}aaaa\0aaaaaaaaaaaaaaaaaaaaaa",
    "x://{a}-{b}{/c*}\0x://h/public/%2e%2e/private",
];
const WORDS: &[&str] =
    &["{a}", "{+a}", "{?a}", "%2e%2E", "%2f", "%5c", "/../", "\\..\\", "//", ":", "aaaaaaaaaaaaaaaa"];

/// Checks that a template matches its own expansion, and that a straight URI has no `..` segment. The latter
/// holds also after percent-decoding.
#[test]
fn templates() {
    fuzz(SEEDS, WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let (template, uri) = text.split_once('\0').unwrap_or((&text, ""));
        if is_straight(uri) {
            let decoded =
                uri.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "\\");
            assert!(!decoded.contains("/../") && !decoded.ends_with("/.."), "{uri:?}");
        }
        let Some(parsed) = UriTemplate::parse(template) else { return shape((0, is_straight(uri))) };
        let made = expand(template);
        assert!(parsed.matches(&made), "{template:?} makes {made:?}");
        shape((parsed.pieces(), parsed.matches(uri), is_straight(uri)))
    });
}

/// Expands a template with `v` for every expression.
fn expand(template: &str) -> String {
    let mut made = String::new();
    let mut rest = template;
    while let Some((literal, after)) = rest.split_once('{') {
        made.push_str(literal);
        made.push('v');
        rest = after.split_once('}').expect("an end").1;
    }
    made + rest
}
