//! Fast stepping over the values of a text that was already checked.

use super::text::literal_end;

/// Returns the end of the value that starts at `from`; `None` when the text ends first.
pub(super) fn value_end(bytes: &[u8], from: usize) -> Option<usize> {
    value_end_counted(bytes, from, &mut 0)
}

/// Returns the end of a value as [`value_end`] does, and adds the work to `work`, in bytes inspected one by one. The bytes
/// of a string count a sixteenth. Each string, bracket and brace adds eight.
pub(in crate::domain) fn value_end_counted(bytes: &[u8], from: usize, work: &mut usize) -> Option<usize> {
    match bytes.get(from)? {
        b'"' => {
            let end = string_end(bytes, from);
            *work += 8 + end.unwrap_or(bytes.len()).saturating_sub(from) / 16;
            end
        }
        b'{' | b'[' => container_end(bytes, from, work),
        _ => {
            let rest = bytes.get(from..)?;
            let scalar = rest
                .iter()
                .position(|byte| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\t' | b'\r'));
            let length = scalar.unwrap_or(rest.len());
            *work += length;
            Some(from + length).filter(|end| *end > from)
        }
    }
}

/// Returns the end of the string literal whose opening quote is at `from`; `None` when the text ends first.
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

fn container_end(bytes: &[u8], from: usize, work: &mut usize) -> Option<usize> {
    let mut open = 0_usize;
    let mut at = from;
    loop {
        let plain = structural(bytes.get(at..)?)?;
        *work += 8 + plain;
        at += plain;
        match bytes.get(at)? {
            b'"' => {
                let end = string_end(bytes, at)?;
                *work += (end - at) / 16;
                at = end;
            }
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

/// Returns the distance to the next quote, bracket or brace.
fn structural(rest: &[u8]) -> Option<usize> {
    rest.iter().position(|byte| matches!(byte, b'"' | b'{' | b'}' | b'[' | b']'))
}
