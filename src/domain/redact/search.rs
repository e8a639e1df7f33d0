//! Search for secrets in one pass over a text, from trigger bytes.

use std::ops::Range;

use super::scan::Scan;
use super::{cards, shapes, values};

/// Trigger bytes, at which the text is compared with secrets. They are rare in ordinary text; each kind of
/// secret has one in its marker, its prefix or next to its name.
const TRIGGERS: [bool; 256] = {
    let mut table = [false; 256];
    let mut rest: &[u8] = b":=>_-.JKSzBb234568";
    while let [byte, tail @ ..] = rest {
        if let Some((_, slots)) = table.split_at_mut_checked(*byte as usize)
            && let [slot, ..] = slots
        {
            *slot = true;
        }
        rest = tail;
    }
    table
};

/// Returns the ranges of `text` to mask, sorted and disjoint; `cut` is true if the real text goes on after it.
pub(super) fn masks(text: &str, cut: bool) -> Vec<Range<usize>> {
    let mut scan = Scan::new(text, cut);
    for (at, byte) in text.bytes().enumerate() {
        if !TRIGGERS.get(usize::from(byte)).is_some_and(|trigger| *trigger) {
            continue;
        }
        look(&mut scan, at, byte);
        if scan.is_masked_to_its_end() {
            break;
        }
    }
    scan.merged()
}

fn look(scan: &mut Scan<'_>, at: usize, byte: u8) {
    match byte {
        b':' => {
            if !shapes::url_user(scan, at) {
                values::named(scan, at);
            }
        }
        b'=' | b'>' => values::named(scan, at),
        b'J' => shapes::jwt(scan, at),
        b'B' | b'b' => shapes::scheme(scan, at),
        b'2'..=b'8' => cards::card(scan, at),
        _ => shapes::token(scan, at, byte),
    }
}
