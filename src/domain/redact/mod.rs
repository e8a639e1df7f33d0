//! Masking of secrets in text before it is stored or shown.
//!
//! Masked are: members, form fields, settings and headers with the name of a secret (`names`); tokens of known
//! shape, JWTs, PEM private keys and the user part of URLs (`shapes`); payment card numbers (`cards`).
//! Text can be of any kind: JSON, JSON inside JSON strings, headers, queries, logs. In doubt more is masked,
//! not less. One pass searches for a few trigger bytes; only around those is anything compared. Regular expressions would
//! cost several times what a whole call may.

mod cards;
mod names;
mod scan;
mod search;
mod shapes;
mod values;

use std::borrow::Cow;
use std::ops::Range;

/// Text that replaces a secret.
pub const MASK: &str = "[redacted]";

/// Bytes that a preview reads beyond its cut, to recognize a secret that starts before the cut. A secret that is
/// longer (a long string, a key block) is masked to the end of this window.
const LOOKAHEAD_BYTES: usize = 1024;

/// Redacted beginning of a text, safe to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The redacted beginning.
    pub text: String,
    /// True if anything of the original text is left out at its end.
    pub truncated: bool,
    /// Length of what the masks hide that begin in the beginning, in bytes.
    pub masked: usize,
}

/// Returns the first `max_bytes` of `text`, cut between characters. Secrets are masked, and U+0000 becomes U+FFFD.
///
/// A secret across the cut is masked like one before it. The result never shows text from beyond `max_bytes`,
/// so it is shorter where long secrets were masked. The cost does not depend on the length of the text after
/// the cut.
pub fn preview(text: &str, max_bytes: usize) -> Preview {
    shown(text, &[], max_bytes)
}

/// Returns [`preview`] of a text in which characters that nobody sees stand as marks such as `<U+202E>`. Secrets are searched as if these
/// characters were not there, since they could stand in the middle of one. Within a masked secret there is no mark.
pub fn preview_marked(text: &str, is_unseen: fn(char) -> bool, max_bytes: usize) -> Preview {
    let mut seen = String::with_capacity(text.len());
    let mut marks = Vec::new();
    let mut is_full = false;
    for c in text.chars() {
        match is_unseen(c) {
            true if marks.len() <= max_bytes => marks.push((seen.len(), c)),
            true => is_full = true,
            false => seen.push(c),
        }
    }
    let preview = shown(&seen, &marks, max_bytes);
    // marks without a place must not be missed by whoever reads the rest
    Preview { truncated: preview.truncated || is_full, ..preview }
}

/// Returns the masked beginning of a text, with marks for the characters that stood at these places of it, in order.
fn shown(text: &str, marks: &[(usize, char)], max_bytes: usize) -> Preview {
    let window_end = text.floor_char_boundary(max_bytes.saturating_add(LOOKAHEAD_BYTES));
    let window = text.get(..window_end).unwrap_or_default();
    let shown = window.get(..window.floor_char_boundary(max_bytes)).unwrap_or_default();
    let masks = search::masks(window, window_end < text.len());
    let mut out = render(shown, &masks, marks);
    let fits = out.len() <= max_bytes;
    if !fits {
        out.truncate(out.floor_char_boundary(max_bytes));
    }
    let masks = masks.iter().filter(|mask| mask.start < shown.len());
    let hides = |mask: &Range<usize>| {
        let unseen = marks.iter().filter(|(place, _)| mask.start < *place && *place < mask.end);
        mask.end.min(window.len()) - mask.start + unseen.map(|(_, c)| c.len_utf8()).sum::<usize>()
    };
    let masked = masks.map(hides).sum();
    Preview { text: out, truncated: !fits || shown.len() < text.len(), masked }
}

/// Returns [`preview`] of raw bytes up to the first that is not UTF-8. The cost does not depend on the bytes after the cut.
pub fn preview_raw(raw: &[u8], max_bytes: usize) -> Preview {
    // enough for a character more than the preview looks at, which tells it that the text goes on
    let window = raw.get(..max_bytes.saturating_add(LOOKAHEAD_BYTES + 8)).unwrap_or(raw);
    let end = std::str::from_utf8(window).map_or_else(|error| error.valid_up_to(), str::len);
    preview(window.get(..end).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default(), max_bytes)
}

/// Returns [`preview`] of a value with a name: masked whole where the name is that of a secret.
pub fn preview_member(name: &str, value: &str, max_bytes: usize) -> String {
    let text = preview(value, max_bytes).text;
    let member = serde_json::json!({ name: &text }).to_string();
    // what is masked by its shape alone shows the rest
    match !text.contains(MASK) && redact(&member).contains(MASK) {
        true => MASK.to_owned(),
        false => text,
    }
}

/// Returns `text` with secrets masked and U+0000 replaced by U+FFFD. For short texts such as error messages, as
/// the whole text is scanned.
pub fn redact(text: &str) -> Cow<'_, str> {
    let masks = search::masks(text, false);
    if masks.is_empty() && !text.contains('\0') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(render(text, &masks, &[]))
}

/// Writes `shown` with `masks` (sorted, disjoint, possibly reaching beyond it) replaced, and with `marks` (sorted) between them.
fn render(shown: &str, masks: &[Range<usize>], marks: &[(usize, char)]) -> String {
    let mut out = String::with_capacity(shown.len());
    let mut marks = marks.iter().peekable();
    let mut at = 0;
    let within = masks.iter().take_while(|mask| mask.start < shown.len());
    // the end of the text ends its last piece as a mask does
    for mask in within.cloned().chain(std::iter::once(shown.len()..usize::MAX)) {
        while let Some((place, c)) = marks.next_if(|(place, _)| *place <= mask.start) {
            // those within the mask before are left out
            if *place >= at {
                out.push_str(shown.get(at..*place).unwrap_or_default());
                out.push_str(&format!("<U+{:04X}>", u32::from(*c)));
                at = *place;
            }
        }
        out.push_str(shown.get(at..mask.start).unwrap_or_default());
        if mask.end < usize::MAX {
            out.push_str(MASK);
            at = mask.end;
        }
    }
    if out.contains('\0') { out.replace('\0', "\u{fffd}") } else { out }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
