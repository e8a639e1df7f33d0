//! Masks secrets in text before it is stored or shown.
//!
//! Masked are: members, form fields, settings and headers whose name says secret (`names`); tokens of known
//! shape, JWTs, PEM private keys and the user part of URLs (`shapes`); payment card numbers (`cards`).
//! Text is taken as it comes: JSON, JSON inside JSON strings, headers, queries, logs. In doubt more is masked,
//! not less. One pass looks for a few trigger bytes; only around those is anything compared.

mod cards;
mod names;
mod scan;
mod search;
mod shapes;
mod values;

use std::borrow::Cow;
use std::ops::Range;

/// What stands in a text where a secret stood.
pub const MASK: &str = "[redacted]";

/// How far beyond the cut a preview looks, in bytes: a secret that starts before the cut must show what it is
/// within this. What needs more (a long string, a key block) is masked to the end of the window.
const LOOKAHEAD_BYTES: usize = 1024;

/// The beginning of a text, fit to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preview {
    /// The redacted beginning.
    pub text: String,
    /// Whether anything of the original text is left out at its end.
    pub truncated: bool,
}

/// The first `max_bytes` of `text` with secrets masked and U+0000 replaced by U+FFFD, cut between characters.
///
/// A secret that the cut runs through is masked like one that stands before it. The result never shows text
/// from beyond `max_bytes`, so where long secrets were masked it is shorter than that. The cost does not
/// depend on how much text follows.
pub fn preview(text: &str, max_bytes: usize) -> Preview {
    let window_end = text.floor_char_boundary(max_bytes.saturating_add(LOOKAHEAD_BYTES));
    let window = text.get(..window_end).unwrap_or_default();
    let shown = window.get(..window.floor_char_boundary(max_bytes)).unwrap_or_default();
    let masks = search::masks(window, window_end < text.len());
    let mut out = render(shown, &masks);
    let fits = out.len() <= max_bytes;
    if !fits {
        out.truncate(out.floor_char_boundary(max_bytes));
    }
    Preview { text: out, truncated: !fits || shown.len() < text.len() }
}

/// `text` with secrets masked and U+0000 replaced by U+FFFD. For short texts such as error messages: all of
/// it is scanned.
pub fn redact(text: &str) -> Cow<'_, str> {
    let masks = search::masks(text, false);
    if masks.is_empty() && !text.contains('\0') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(render(text, &masks))
}

/// Writes `shown` with `masks` (sorted, disjoint, possibly reaching beyond it) replaced.
fn render(shown: &str, masks: &[Range<usize>]) -> String {
    let mut out = String::with_capacity(shown.len());
    let mut at = 0;
    for mask in masks.iter().take_while(|mask| mask.start < shown.len()) {
        out.push_str(shown.get(at..mask.start).unwrap_or_default());
        out.push_str(MASK);
        at = mask.end;
    }
    out.push_str(shown.get(at..).unwrap_or_default());
    if out.contains('\0') { out.replace('\0', "\u{fffd}") } else { out }
}

#[cfg(test)]
mod fuzz;
#[cfg(test)]
mod tests;
