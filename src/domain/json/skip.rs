//! Stepping over values of a text that something else has checked, at the speed of memory.

use super::text::literal_end;

/// The end of the value that starts at `from`, or none when the text ends first.
pub(super) fn value_end(bytes: &[u8], from: usize) -> Option<usize> {
    match bytes.get(from)? {
        b'"' => string_end(bytes, from),
        b'{' | b'[' => container_end(bytes, from),
        _ => {
            let rest = bytes.get(from..)?;
            let scalar = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r'));
            Some(from + scalar.unwrap_or(rest.len())).filter(|end| *end > from)
        }
    }
}

/// The end of the literal whose opening quote is at `from`.
pub(super) fn string_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut at = from + 1;
    loop {
        at = literal_end(bytes, at);
        match bytes.get(at)? {
            b'"' => return Some(at + 1),
            _ => at += 2,
        }
    }
}

fn container_end(bytes: &[u8], from: usize) -> Option<usize> {
    let mut open = 0_usize;
    let mut at = from;
    loop {
        at += structural(bytes.get(at..)?)?;
        match bytes.get(at)? {
            b'"' => at = string_end(bytes, at)?,
            b'{' | b'[' => {
                open += 1;
                at += 1;
            }
            _ => {
                open -= 1;
                at += 1;
                if open == 0 {
                    return Some(at);
                }
            }
        }
    }
}

/// Distance to the next quote, bracket or brace.
fn structural(rest: &[u8]) -> Option<usize> {
    rest.iter().position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'))
}
