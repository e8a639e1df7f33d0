//! The one pass over a text, and the masks it collects.

use std::ops::Range;

use super::shapes::{self, Body};
use super::{cards, values};

/// Bytes at which something may have to be compared. Chosen to be rare in ordinary text: each kind of secret
/// has one of them in its marker, its prefix or next to its name.
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

/// A text being searched for secrets.
pub(super) struct Scan<'a> {
    /// The text searched.
    pub(super) bytes: &'a [u8],
    /// Whether the real text goes on behind `bytes`.
    pub(super) cut: bool,
    masks: Vec<Range<usize>>,
    /// End of what a quoted, bracketed or whole-line mask covers: names inside it need no look, which keeps
    /// nested ones from being read again and again.
    pub(super) closed_until: usize,
    /// The same for unquoted values.
    pub(super) bare_until: usize,
    /// End of the last key block.
    pub(super) pem_until: usize,
    /// End of the last run that was judged as what follows `Bearer`.
    pub(super) scheme_until: usize,
    /// End of the first part of the last JWT, real or not.
    pub(super) jwt_until: usize,
    /// The last run of each kind of token characters.
    pub(super) runs: [Range<usize>; Body::KINDS],
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str, cut: bool) -> Self {
        Self {
            bytes: text.as_bytes(),
            cut,
            masks: Vec::new(),
            closed_until: 0,
            bare_until: 0,
            pem_until: 0,
            scheme_until: 0,
            jwt_until: 0,
            runs: [const { 0..0 }; Body::KINDS],
        }
    }

    /// Searches the text: what to mask, sorted and disjoint.
    pub(super) fn masks(mut self) -> Vec<Range<usize>> {
        for (at, &byte) in self.bytes.iter().enumerate() {
            if !TRIGGERS.get(usize::from(byte)).is_some_and(|trigger| *trigger) {
                continue;
            }
            self.look(at, byte);
            if self.masks.last().is_some_and(|mask| mask.end >= self.bytes.len()) {
                break;
            }
        }
        self.merged()
    }

    fn look(&mut self, at: usize, byte: u8) {
        match byte {
            b':' => {
                if !shapes::url_user(self, at) {
                    values::named(self, at);
                }
            }
            b'=' | b'>' => values::named(self, at),
            b'J' => shapes::jwt(self, at),
            b'B' | b'b' => shapes::scheme(self, at),
            b'2'..=b'8' => cards::card(self, at),
            _ => shapes::token(self, at, byte),
        }
    }

    /// Notes that `range` is secret.
    pub(super) fn mask(&mut self, range: Range<usize>) {
        if range.start < range.end {
            self.masks.push(range);
        }
    }

    /// The byte at `at`; 0, which is part of nothing, outside the text.
    pub(super) fn at(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or_default()
    }

    /// The byte `back` positions before `at`, or 0.
    pub(super) fn before(&self, at: usize, back: usize) -> u8 {
        at.checked_sub(back).map_or(0, |at| self.at(at))
    }

    /// The bytes from `at` on.
    pub(super) fn from(&self, at: usize) -> &'a [u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    /// End of the run of bytes from `at` on that satisfy `belongs`.
    pub(super) fn run(&self, at: usize, belongs: impl Fn(u8) -> bool) -> usize {
        let rest = self.from(at);
        at + rest.iter().position(|&byte| !belongs(byte)).unwrap_or(rest.len())
    }

    fn merged(mut self) -> Vec<Range<usize>> {
        self.masks.sort_unstable_by_key(|mask| mask.start);
        self.masks.dedup_by(|next, kept| {
            let joins = next.start <= kept.end;
            if joins {
                kept.end = kept.end.max(next.end);
            }
            joins
        });
        self.masks
    }
}
