//! Masking of credentials in previews of upstream answers: some upstreams repeat the headers they were sent.

use std::borrow::Cow;

use super::named::BYTES_MAX;
use crate::domain::redact::MASK;

/// Shortest value that is masked, in bytes: shorter ones are ordinary words.
const VALUE_BYTES_MIN: usize = 8;

/// Returns the beginning of `text` with `secrets` masked. If nothing is masked, it is long enough for a preview of
/// `preview_bytes`.
pub(in crate::gateway) fn veil<'a>(secrets: &[&str], text: &'a str, preview_bytes: usize) -> Cow<'a, str> {
    let values = spellings(secrets);
    if values.is_empty() {
        return Cow::Borrowed(text);
    }
    // a secret that begins within the preview ends within the window
    let end = text.floor_char_boundary(preview_bytes.saturating_add(4 * BYTES_MAX));
    let mut window = text.get(..end).unwrap_or_default().to_owned();
    for value in &values {
        if window.contains(value.as_str()) {
            window = window.replace(value.as_str(), MASK);
        }
    }
    if end < text.len() {
        // a secret that the window cuts off is not recognised, so the end of the window is dropped
        let longest = values.iter().map(String::len).max().unwrap_or_default();
        window.truncate(window.floor_char_boundary(window.len().saturating_sub(longest)));
    }
    Cow::Owned(window)
}

/// Returns every spelling in which a value may be repeated: with or without its scheme (`Bearer `), plain, JSON-escaped
/// once, or escaped twice. Longest first, so that no part remains after masking.
fn spellings(secrets: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for value in secrets.iter().copied() {
        let bare = value.split_once(' ').map(|(_, rest)| rest.trim_start());
        for plain in [Some(value), bare].into_iter().flatten().filter(|part| part.len() >= VALUE_BYTES_MIN) {
            let once = escaped(plain);
            let twice = escaped(&once);
            found.extend([plain.to_owned(), once, twice]);
        }
    }
    found.sort_unstable_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
    found.dedup();
    found
}

fn escaped(plain: &str) -> String {
    let quoted = serde_json::to_string(plain).unwrap_or_default();
    quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_masked_in_every_spelling() {
        let sent = [r#"Bearer se"cr\et-value"#];
        let bare = r#"se"cr\et-value"#;
        let once = serde_json::to_string(bare).unwrap();
        let twice = serde_json::to_string(&once).unwrap();
        for text in
            [format!("a Bearer {bare} b"), format!("a {bare} b"), format!("[{once}]"), format!("[{twice}]")]
        {
            let veiled = veil(&sent, &text, 100);
            assert!(
                veiled.contains(MASK) && !veiled.contains("cr") && !veiled.contains("et-value"),
                "{veiled}"
            );
        }
        assert!(matches!(veil(&[], "text", 10), Cow::Borrowed("text")));
        assert_eq!(veil(&["prod"], "on prod", 10), "on prod");
    }

    #[test]
    fn what_the_window_cuts_off_is_not_shown() {
        let secret = "0123456789".repeat(BYTES_MAX / 10);
        let sent = [secret.as_str()];
        for before in (0..40).map(|n| n * 1000) {
            let text = format!("{}{}", "é".repeat(before / 2), secret.repeat(6));
            let veiled = veil(&sent, &text, 4096);
            assert!(!veiled.contains("0123456789"), "{before}: {}", veiled.len());
        }
    }
}
