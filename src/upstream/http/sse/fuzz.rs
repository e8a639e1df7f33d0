use super::*;
use crate::domain::fuzz::{fuzz, shape};

const EVENT_BYTES_MAX: usize = 200;
const SEEDS: &[&str] = &[
    "\u{feff}data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\r\n\r\n",
    ": keep-alive\n\nevent: message\nid: 7\nretry: 3\ndata: a\ndata: b\n\n",
    "event: ping\rdata: a\r\rdata:b\r\r",
    "data\ndata:\ndata: \n\ndata: unfinished\n",
];
const WORDS: &[&str] =
    &["\r\n", "\n\n", "\r", "data:", "data: ", "event:", "event: x", ":", "\u{feff}", "\0"];

/// Returns the events of a stream that is read in pieces of this length, and whether it broke a bound.
fn events(stream: &[u8], piece: usize) -> (Vec<Bytes>, bool) {
    let mut events = Events::new(EVENT_BYTES_MAX);
    let mut found = Vec::new();
    for piece in stream.chunks(piece) {
        if events.push(piece).is_err() {
            return (found, true);
        }
        loop {
            match events.next() {
                Ok(Some(event)) => found.push(event),
                Ok(None) => break,
                Err(_) => return (found, true),
            }
        }
        assert!(events.held() <= 2 * EVENT_BYTES_MAX + FIELD_BYTES_MAX, "{} bytes held", events.held());
    }
    (found, false)
}

/// Returns the events by the letter of the HTML standard, whole and without bounds.
fn by_the_standard(stream: &[u8]) -> Vec<Vec<u8>> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut bytes = stream.iter().peekable();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\r' => {
                bytes.next_if(|next| **next == b'\n');
                lines.push(std::mem::take(&mut line));
            }
            b'\n' => lines.push(std::mem::take(&mut line)),
            byte => line.push(*byte),
        }
    }
    let (mut found, mut data, mut kind) = (Vec::new(), Vec::new(), Vec::new());
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':').unwrap_or(line.len());
        let (name, value) = line.split_at(colon);
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"" if line.is_empty() => {
                data.pop();
                if !data.is_empty() && (kind.is_empty() || kind == b"message") {
                    found.push(std::mem::take(&mut data));
                }
                data.clear();
                kind.clear();
            }
            b"data" => data.extend(value.iter().chain(b"\n")),
            b"event" => kind = value.to_vec(),
            _ => {}
        }
    }
    found
}

/// Streams are read as the standard says, however they are cut, and what is kept of them is bounded.
#[test]
fn streams() {
    fuzz(SEEDS, WORDS, |input| {
        let (whole, is_too_large) = events(input, input.len().max(1));
        let expected = by_the_standard(input);
        assert!(
            whole.len() <= expected.len() && whole.iter().zip(&expected).all(|(a, b)| a == b),
            "{whole:?}"
        );
        assert!(is_too_large || whole.len() == expected.len(), "{} of {}", whole.len(), expected.len());
        for piece in [1, 2, 3, 7, 64] {
            assert_eq!(events(input, piece), (whole.clone(), is_too_large), "in pieces of {piece}");
        }
        shape((is_too_large, whole.iter().map(Bytes::len).collect::<Vec<_>>()))
    });
}
