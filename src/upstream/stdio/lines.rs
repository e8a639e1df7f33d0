//! Splits the output of a program into lines, as it comes, each with a bound.

use bytes::{Buf, Bytes, BytesMut};

/// Bytes kept of either end of a line that is too long: enough to see which request it answers.
const EDGE_BYTES: usize = 1024;

/// Complete line of a program's output.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Line within the bound, without its line end.
    Whole(Bytes),
    /// Line over the bound: its beginning, its end, its length.
    Long(Edges),
}

/// Both ends of a line that was not kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Edges {
    pub(super) head: Vec<u8>,
    pub(super) tail: Vec<u8>,
    pub(super) len: usize,
}

impl Edges {
    /// Returns both ends of a line.
    pub(super) fn of(line: &[u8]) -> Self {
        let mut edges = Self::default();
        edges.add(line);
        edges
    }

    fn add(&mut self, bytes: &[u8]) {
        self.len = self.len.saturating_add(bytes.len());
        let room = EDGE_BYTES.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(bytes.get(..room).unwrap_or_default());
        let last = bytes.get(bytes.len().saturating_sub(EDGE_BYTES)..).unwrap_or_default();
        self.tail.extend_from_slice(last);
        let over = self.tail.len().saturating_sub(EDGE_BYTES);
        self.tail.drain(..over);
    }
}

/// Splitter that takes bytes and returns lines.
#[derive(Default)]
pub(super) struct Lines {
    /// Bytes that were read and are not returned yet.
    pub(super) input: BytesMut,
    /// Bytes at the start of `input` that are known to hold no line end.
    scanned: usize,
    /// Ends of the line that is being read, if that is not kept.
    long: Option<Edges>,
}

impl Lines {
    /// Returns the next complete line; `None` until more is read. A line over `bytes_max` is not kept while it is
    /// read.
    pub(super) fn next(&mut self, bytes_max: usize) -> Option<Line> {
        let unread = self.input.get(self.scanned..).unwrap_or_default();
        let Some(at) = unread.iter().position(|byte| *byte == b'\n') else {
            self.scanned = self.input.len();
            if self.long.is_some() || self.scanned > bytes_max {
                self.give_up();
            }
            return None;
        };
        let mut line = self.input.split_to(self.scanned + at);
        self.input.advance(1);
        self.scanned = 0;
        if let Some(mut long) = self.long.take() {
            long.add(&line);
            return Some(Line::Long(long));
        }
        if line.last() == Some(&b'\r') {
            line.truncate(line.len() - 1);
        }
        if line.len() > bytes_max {
            return Some(Line::Long(Edges::of(&line)));
        }
        Some(Line::Whole(line.freeze()))
    }

    /// Stops keeping the line that is being read, except for its ends.
    pub(super) fn give_up(&mut self) {
        let read = std::mem::take(&mut self.input);
        self.long.get_or_insert_default().add(&read);
        self.scanned = 0;
    }

    /// Returns the rest at the end of the input: a line without its line end.
    pub(super) fn rest(&mut self) -> Option<Line> {
        if let Some(long) = self.long.take() {
            return Some(Line::Long(long));
        }
        let rest = std::mem::take(&mut self.input).freeze();
        (!rest.is_empty()).then_some(Line::Whole(rest))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(pieces: &[&[u8]], bytes_max: usize) -> Vec<Line> {
        let mut lines = Lines::default();
        let mut found = Vec::new();
        for piece in pieces {
            lines.input.extend_from_slice(piece);
            while let Some(line) = lines.next(bytes_max) {
                found.push(line);
            }
            assert!(lines.input.len() <= bytes_max);
        }
        found
    }

    #[test]
    fn lines_come_whole() {
        let whole = |text: &'static str| Line::Whole(Bytes::from(text));
        assert_eq!(lines(&[b"a\nb", b"c\r", b"\n\nd"], 9), [whole("a"), whole("bc"), whole("")]);
    }

    #[test]
    fn a_line_without_end_is_not_kept() {
        let piece = [b'x'; 1000];
        let mut pieces: Vec<&[u8]> = vec![b"{\"id\":7,", &piece, &piece, &piece, &piece];
        pieces.push(b"end}\nnext\n");
        let found = lines(&pieces, 1500);
        let [Line::Long(long), Line::Whole(next)] = &found[..] else { panic!("{found:?}") };
        assert_eq!(long.len, 4012);
        assert!(long.head.starts_with(b"{\"id\":7,xx") && long.tail.ends_with(b"xend}"));
        assert!(long.head.len() <= EDGE_BYTES && long.tail.len() <= EDGE_BYTES);
        assert_eq!(next, "next");
    }

    proptest! {
        #[test]
        fn where_the_input_is_cut_changes_nothing(
            text in r"([a-c]{0,12}\n){0,6}[a-c]{0,3}",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = text.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.extend([0, bytes.len()]);
            at.sort_unstable();
            let mut parts = Lines::default();
            let mut found = Vec::new();
            for pair in at.windows(2) {
                parts.input.extend_from_slice(&bytes[pair[0]..pair[1]]);
                while let Some(line) = parts.next(8) {
                    found.push(line);
                }
            }
            let mut whole = Lines { input: bytes.into(), ..Lines::default() };
            let want: Vec<Line> = std::iter::from_fn(|| whole.next(8)).collect();
            prop_assert_eq!(found, want);
        }
    }
}
