//! Content of string literals: finding the end, writing and reading escapes.

const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGHS: u64 = ONES << 7;
/// Bytes of a literal that are looked at word by word, before whole blocks are.
const SHORT: usize = 16;

/// Returns the first offset at or after `from` that ends a plain run inside a literal: a quote, a backslash, a
/// control character, or the end of `bytes`.
pub(in crate::domain) fn plain_end(bytes: &[u8], from: usize) -> usize {
    find_by(bytes, from, ends_plain, |word| {
        zero_bytes(word ^ (ONES * b'"' as u64))
            | zero_bytes(word ^ (ONES * b'\\' as u64))
            | (word.wrapping_sub(ONES * 0x20) & !word & HIGHS)
    })
}

/// Works as [`plain_end`] for text already known to be JSON: only a quote or a backslash ends the run.
pub(super) fn literal_end(bytes: &[u8], from: usize) -> usize {
    // most literals are names and short words
    let near = from.saturating_add(SHORT).min(bytes.len());
    let mut at = find_by(bytes.get(..near).unwrap_or_default(), from, ends_literal, ends_literal_in);
    if at < near {
        return at;
    }
    // whole blocks: this test becomes a few vector instructions
    let (blocks, _) = bytes.get(at..).unwrap_or_default().as_chunks::<32>();
    for block in blocks {
        if block.iter().fold(false, |hit, &byte| hit | (byte == b'"') | (byte == b'\\')) {
            break;
        }
        at += block.len();
    }
    find_by(bytes, at, ends_literal, ends_literal_in)
}

fn ends_literal(byte: u8) -> bool {
    matches!(byte, b'"' | b'\\')
}

fn ends_literal_in(word: u64) -> u64 {
    zero_bytes(word ^ (ONES * b'"' as u64)) | zero_bytes(word ^ (ONES * b'\\' as u64))
}

fn ends_plain(byte: u8) -> bool {
    byte < 0x20 || matches!(byte, b'"' | b'\\')
}

/// Returns the high bit of each zero byte of `word`. Bits above the lowest one set may be wrong (borrow), so
/// only the lowest counts.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & HIGHS
}

/// Finds the first byte that satisfies `one`, eight at a time by `eight`, which marks high bits.
#[inline]
fn find_by(bytes: &[u8], from: usize, one: impl Fn(u8) -> bool, eight: impl Fn(u64) -> u64) -> usize {
    let (words, tail) = bytes.get(from..).unwrap_or_default().as_chunks::<8>();
    let mut at = from;
    for word in words {
        let marks = eight(u64::from_le_bytes(*word));
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    at + tail.iter().position(|&byte| one(byte)).unwrap_or(tail.len())
}

/// Destination of JSON text.
pub trait JsonOut {
    /// Appends `text`.
    fn put(&mut self, text: &str);
}

impl JsonOut for String {
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }
}

impl JsonOut for Vec<u8> {
    fn put(&mut self, text: &str) {
        self.extend_from_slice(text.as_bytes());
    }
}

/// Writes `text` as a JSON string literal, quotes included, with the fewest escapes.
pub fn escape_into(out: &mut impl JsonOut, text: &str) {
    out.put("\"");
    escape_body_into(out, text);
    out.put("\"");
}

/// Writes `text` as [`escape_into`] does, without the quotes.
pub(in crate::domain) fn escape_body_into(out: &mut impl JsonOut, text: &str) {
    let bytes = text.as_bytes();
    let mut from = 0;
    loop {
        let end = plain_end(bytes, from);
        out.put(text.get(from..end).unwrap_or_default());
        let Some(&byte) = bytes.get(end) else { return };
        match byte {
            b'"' => out.put("\\\""),
            b'\\' => out.put("\\\\"),
            0x08 => out.put("\\b"),
            0x09 => out.put("\\t"),
            0x0a => out.put("\\n"),
            0x0c => out.put("\\f"),
            0x0d => out.put("\\r"),
            control => out.put(&format!("\\u{control:04x}")),
        }
        from = end + 1;
    }
}

/// Reads one escape of a checked literal, given the text after its backslash: the character, or none for a
/// lone surrogate, and the length read in bytes.
pub(in crate::domain) fn decode_escape(tail: &str) -> (Option<char>, usize) {
    let simple = match tail.as_bytes().first() {
        Some(b'u') => return decode_unicode(tail),
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(&other) => char::from(other),
        None => return (None, 0),
    };
    (Some(simple), 1)
}

fn decode_unicode(tail: &str) -> (Option<char>, usize) {
    let Some(first) = hex4(tail, 1) else { return (None, tail.len()) };
    let low = tail.get(5..7).filter(|mark| *mark == "\\u").and_then(|_| hex4(tail, 7));
    match (first, low) {
        (0xd800..=0xdbff, Some(low @ 0xdc00..=0xdfff)) => {
            (char::from_u32(0x1_0000 + ((first - 0xd800) << 10) + (low - 0xdc00)), 11)
        }
        _ => (char::from_u32(first), 5),
    }
}

fn hex4(text: &str, at: usize) -> Option<u32> {
    u32::from_str_radix(text.get(at..at + 4)?, 16).ok()
}
