//! Incremental parser of server-sent events. It keeps only what the protocol uses: the data of messages.

use bytes::{Bytes, BytesMut};

use crate::upstream::error::{FailureKind, UpstreamError};

/// Most bytes of a stream beyond the largest event: progress, comments, retries.
const OVERHEAD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest field name with its colon and space, on top of the data of a line.
const FIELD_BYTES_MAX: usize = 64;

/// Parser that takes the bytes of a stream as they come and returns the data of its events.
pub(in crate::upstream) struct Events {
    input: BytesMut,
    /// Bytes at the start of `input` that are known to hold no line end.
    scanned: usize,
    /// Whether the last line ended with a CR at the end of the input, so that an LF may follow.
    after_cr: bool,
    is_first_line: bool,
    data: Option<Data>,
    /// Whether the `event` field of the event being read names another type than `message`.
    is_other: bool,
    event_bytes_max: usize,
    left: usize,
}

enum Data {
    One(Bytes),
    Joined(BytesMut),
}

impl Data {
    fn len(&self) -> usize {
        match self {
            Self::One(line) => line.len(),
            Self::Joined(lines) => lines.len(),
        }
    }
}

impl Events {
    /// Creates a parser that accepts events of up to `event_bytes_max` bytes of data.
    pub(in crate::upstream) fn new(event_bytes_max: usize) -> Self {
        Self {
            input: BytesMut::new(),
            scanned: 0,
            after_cr: false,
            is_first_line: true,
            data: None,
            is_other: false,
            event_bytes_max,
            left: event_bytes_max.saturating_add(OVERHEAD_BYTES_MAX),
        }
    }

    /// Returns the number of bytes that the parser keeps.
    pub(in crate::upstream) fn held(&self) -> usize {
        self.input.len() + self.data.as_ref().map_or(0, Data::len)
    }

    /// Returns the number of bytes read and no longer kept: progress, comments, messages of other requests.
    pub(in crate::upstream) fn chatter(&self) -> usize {
        let all = self.event_bytes_max.saturating_add(OVERHEAD_BYTES_MAX);
        all.saturating_sub(self.left).saturating_sub(self.held())
    }

    /// Adds bytes that were read from the stream.
    ///
    ///
    /// # Errors
    /// [`FailureKind::TooLarge`] when the whole stream passes its bound.
    pub(in crate::upstream) fn push(&mut self, bytes: &[u8]) -> Result<(), UpstreamError> {
        self.left = self.left.checked_sub(bytes.len()).ok_or_else(too_large)?;
        self.input.extend_from_slice(bytes);
        Ok(())
    }

    /// Returns the data of the next complete event that carries any; `None` until more is read.
    ///
    ///
    /// # Errors
    /// [`FailureKind::TooLarge`] for a line or an event over its bound.
    pub(in crate::upstream) fn next(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        while let Some(line) = self.line()? {
            if !line.is_empty() {
                self.field(&line)?;
                continue;
            }
            let data = self.data.take();
            if std::mem::take(&mut self.is_other) {
                continue;
            }
            match data {
                Some(Data::One(line)) if !line.is_empty() => return Ok(Some(line)),
                Some(Data::Joined(lines)) => return Ok(Some(lines.freeze())),
                Some(Data::One(_)) | None => {}
            }
        }
        Ok(None)
    }

    /// Returns the next complete line, without its end (LF, CR or CR LF).
    fn line(&mut self) -> Result<Option<Bytes>, UpstreamError> {
        if self.after_cr && !self.input.is_empty() {
            self.after_cr = false;
            if self.input.first() == Some(&b'\n') {
                drop(self.input.split_to(1));
            }
        }
        let unread = self.input.get(self.scanned..).unwrap_or_default();
        let end = unread.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
        self.scanned += end.unwrap_or(unread.len());
        // the bound must not depend on how the stream was cut into pieces
        if self.scanned > self.event_bytes_max.saturating_add(FIELD_BYTES_MAX) {
            return Err(too_large());
        }
        if end.is_none() {
            return Ok(None);
        }
        let mut line = self.input.split_to(self.scanned).freeze();
        self.after_cr = self.input.split_to(1).first() == Some(&b'\r');
        self.scanned = 0;
        if std::mem::take(&mut self.is_first_line) && line.starts_with(b"\xef\xbb\xbf") {
            line = line.slice(3..);
        }
        Ok(Some(line))
    }

    fn field(&mut self, line: &Bytes) -> Result<(), UpstreamError> {
        if let Some(value) = value_of(line, b"data") {
            return self.add_data(value);
        }
        if let Some(value) = value_of(line, b"event") {
            self.is_other = !value.is_empty() && value != "message";
        }
        // Comments, ids and retry times: streams are not resumed.
        Ok(())
    }

    fn add_data(&mut self, value: Bytes) -> Result<(), UpstreamError> {
        let before = self.data.as_ref().map_or(0, Data::len);
        if before.saturating_add(value.len()) > self.event_bytes_max {
            return Err(too_large());
        }
        self.data = Some(match self.data.take() {
            None => Data::One(value),
            Some(Data::One(first)) => Data::Joined(joined(BytesMut::from(first), &value)),
            Some(Data::Joined(lines)) => Data::Joined(joined(lines, &value)),
        });
        Ok(())
    }
}

fn joined(mut lines: BytesMut, line: &[u8]) -> BytesMut {
    lines.extend_from_slice(b"\n");
    lines.extend_from_slice(line);
    lines
}

/// Returns the value of a line of the field `name`; `None` for any other line.
fn value_of(line: &Bytes, name: &[u8]) -> Option<Bytes> {
    let rest = line.strip_prefix(name)?;
    let value = match rest {
        [] => rest,
        [b':', b' ', value @ ..] | [b':', value @ ..] => value,
        _ => return None,
    };
    Some(line.slice_ref(value))
}

fn too_large() -> UpstreamError {
    UpstreamError::sent(FailureKind::TooLarge, "")
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(pieces: &[&[u8]]) -> Vec<String> {
        let mut events = Events::new(1000);
        let mut found = Vec::new();
        for piece in pieces {
            events.push(piece).unwrap();
            while let Some(data) = events.next().unwrap() {
                found.push(String::from_utf8(data.to_vec()).unwrap());
            }
        }
        found
    }

    #[test]
    fn streams_become_data() {
        let table: &[(&str, &[&str])] = &[
            ("data: a\n\n", &["a"]),
            ("data:a\r\n\r\n", &["a"]),
            ("data:a\r\rdata:b\r\r", &["a", "b"]),
            ("data:  a\n\n", &[" a"]),
            ("\u{feff}data: a\n\n", &["a"]),
            (": keep-alive\n\nevent: message\nid: 7\nretry: 3\ndata: a\n\n", &["a"]),
            ("event: ping\ndata: a\n\ndata: b\n\n", &["b"]),
            ("id: 1\ndata: \n\ndata: b\n\n", &["b"]),
            ("data: a\ndata: b\ndata: c\n\n", &["a\nb\nc"]),
            ("data\ndata: b\n\n", &["\nb"]),
            ("database: a\n\n", &[]),
            ("data: unfinished\n", &[]),
            ("\n\n\n", &[]),
        ];
        for (stream, want) in table {
            assert_eq!(parse(&[stream.as_bytes()]), *want, "{stream:?}");
        }
    }

    #[test]
    fn bounds_hold_while_reading() {
        let mut events = Events::new(10);
        events.push(b"data: 0123456789\n\n").unwrap();
        assert_eq!(events.next().unwrap().unwrap(), "0123456789");
        events.push(b"data: 0123456789a\n\n").unwrap();
        assert_eq!(events.next().unwrap_err().kind, FailureKind::TooLarge);

        let mut endless = Events::new(10);
        endless.push(&[b'x'; FIELD_BYTES_MAX + 11]).unwrap();
        assert_eq!(endless.next().unwrap_err().kind, FailureKind::TooLarge);

        let mut whole = Events::new(10);
        whole.push(&[&[b':'; FIELD_BYTES_MAX + 11][..], b"\n"].concat()).unwrap();
        assert_eq!(whole.next().unwrap_err().kind, FailureKind::TooLarge);

        let mut many_lines = Events::new(10);
        many_lines.push(b"data: 01234\ndata: 56789a\n\n").unwrap();
        assert_eq!(many_lines.next().unwrap_err().kind, FailureKind::TooLarge);

        let mut chatter = Events::new(0);
        chatter.push(&vec![b'\n'; OVERHEAD_BYTES_MAX]).unwrap();
        assert_eq!(chatter.push(b"\n").unwrap_err().kind, FailureKind::TooLarge);
    }

    proptest! {
        #[test]
        fn where_the_stream_is_cut_changes_nothing(
            stream in r"(data: ?[a-c]{0,3}|event: [a-c]?|:x|id|)((\r\n|\n|\r){1,2}(data: ?[a-c]{0,3}|event: m|:x|)){0,8}(\n\n)?",
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        ) {
            let bytes = stream.as_bytes();
            let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            at.push(0);
            at.push(bytes.len());
            at.sort_unstable();
            let pieces: Vec<&[u8]> = at.windows(2).map(|w| &bytes[w[0]..w[1]]).collect();
            prop_assert_eq!(parse(&pieces), parse(&[bytes]));
        }

        #[test]
        fn no_bytes_make_it_panic(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8)) {
            let mut events = Events::new(20);
            for piece in &pieces {
                if events.push(piece).is_err() {
                    break;
                }
                while let Ok(Some(data)) = events.next() {
                    prop_assert!(data.len() <= 20 + 40);
                }
            }
        }
    }
}
