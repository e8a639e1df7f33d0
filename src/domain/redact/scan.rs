//! The state of the one pass over a text: where it is, and the masks it collects.

use std::ops::Range;

/// Kinds of token characters whose runs are kept.
pub(super) const RUN_KINDS: usize = 7;

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
    pub(super) runs: [Range<usize>; RUN_KINDS],
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
            runs: [const { 0..0 }; RUN_KINDS],
        }
    }

    /// Notes that `range` is secret.
    pub(super) fn mask(&mut self, range: Range<usize>) {
        if range.start < range.end {
            self.masks.push(range);
        }
    }

    /// Whether the last mask reaches the end of the text.
    pub(super) fn is_masked_to_its_end(&self) -> bool {
        self.masks.last().is_some_and(|mask| mask.end >= self.bytes.len())
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

    /// Returns what to mask, sorted and disjoint.
    pub(super) fn merged(mut self) -> Vec<Range<usize>> {
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
