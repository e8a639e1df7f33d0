//! State of the pass over a text: progress of each detector, and the masks so far.

use std::ops::Range;

/// Kinds of token characters whose runs are kept.
pub(super) const RUN_KINDS: usize = 7;

/// Text that is searched for secrets, with the state of the search.
pub(super) struct Scan<'a> {
    /// Text that is searched.
    pub(super) bytes: &'a [u8],
    /// True if the real text goes on after `bytes`.
    pub(super) cut: bool,
    masks: Vec<Range<usize>>,
    /// End of the last quoted, bracketed or whole-line value that was masked. Names inside it are skipped, so that
    /// nested values are not read again and again.
    pub(super) closed_until: usize,
    /// End of the last unquoted value; values that start inside it are skipped.
    pub(super) bare_until: usize,
    /// End of the last key block.
    pub(super) pem_until: usize,
    /// End of the last run that was read as the credential after `Bearer` or `Basic`.
    pub(super) scheme_until: usize,
    /// End of the first part of the last JWT, real or not.
    pub(super) jwt_until: usize,
    /// Last run of each kind of token characters.
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

    /// Adds a mask for `range`.
    pub(super) fn mask(&mut self, range: Range<usize>) {
        if range.start < range.end {
            self.masks.push(range);
        }
    }

    /// Returns whether the last mask reaches the end of the text.
    pub(super) fn is_masked_to_its_end(&self) -> bool {
        self.masks.last().is_some_and(|mask| mask.end >= self.bytes.len())
    }

    /// Returns the byte at `at`; outside the text 0, which is part of no secret.
    pub(super) fn at(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or_default()
    }

    /// Returns the byte `back` positions before `at`, or 0.
    pub(super) fn before(&self, at: usize, back: usize) -> u8 {
        at.checked_sub(back).map_or(0, |at| self.at(at))
    }

    /// Returns the bytes from `at` on.
    pub(super) fn from(&self, at: usize) -> &'a [u8] {
        self.bytes.get(at..).unwrap_or_default()
    }

    /// Returns the end of the run of bytes from `at` on that satisfy `belongs`.
    pub(super) fn run(&self, at: usize, belongs: impl Fn(u8) -> bool) -> usize {
        let rest = self.from(at);
        at + rest.iter().position(|&byte| !belongs(byte)).unwrap_or(rest.len())
    }

    /// Returns the ranges to mask, sorted and disjoint.
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
