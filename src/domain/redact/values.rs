//! Masking of values whose name is that of a secret: members, fields, settings, headers, XML elements.

use super::names::{NAME_BYTES_MAX, NameKind, last_name};
use super::scan::Scan;

/// Authentication schemes that stay visible before the credential.
const SCHEMES: &[&[u8]] = &[
    b"bearer",
    b"basic",
    b"digest",
    b"token",
    b"apikey",
    b"negotiate",
    b"ntlm",
    b"dpop",
    b"hmac",
    b"aws4-hmac-sha256",
];

/// Values that are no secret whatever their name.
const CONSTANTS: &[&[u8]] = &[b"true", b"false", b"null", b"none", b"undefined"];

/// Quoting of a name.
#[derive(Debug, Clone, Copy)]
struct Quoting {
    /// Quote around the name and the strings next to it.
    quote: u8,
    /// Backslashes before each quote: 0 in JSON, 1 in JSON inside a JSON string, then 3, 7, …
    backslashes: usize,
    /// True if all of the name is between the quotes, as in JSON.
    whole: bool,
}

/// Quoting of a name without quotes.
const BARE: Quoting = Quoting { quote: b'"', backslashes: 0, whole: false };

/// Masks the value after the separator at `at` (`:`, `=` or `>`) if the name before it is that of a secret.
pub(super) fn named(scan: &mut Scan<'_>, at: usize) {
    if at < scan.closed_until {
        return;
    }
    let mut end = at;
    while matches!(scan.before(end, 1), b' ' | b'\t') {
        end -= 1;
    }
    let (end, quoting) = unquote_back(scan, end);
    let (start, kind) = judge_name(scan, end);
    if scan.at(at) == b'>' && scan.before(start, 1) != b'<' {
        return;
    }
    match kind {
        NameKind::Harmless => {}
        NameKind::Parameter if scan.at(at) != b'=' || !begins_parameter(scan, start) => {}
        NameKind::Pair => pair(scan, at, quoting),
        kind => {
            let opener = scan.before(start, 1);
            value(scan, at, kind, quoting, opener);
        }
    }
}

/// Steps back over closing quotes and brackets to the end of the name itself.
fn unquote_back(scan: &Scan<'_>, mut end: usize) -> (usize, Quoting) {
    let bracket = scan.before(end, 1) == b']';
    end -= usize::from(bracket);
    let quote = scan.before(end, 1);
    if !matches!(quote, b'"' | b'\'') {
        return (end, BARE);
    }
    end -= 1;
    let mut backslashes = 0;
    while scan.before(end, 1) == b'\\' {
        end -= 1;
        backslashes += 1;
    }
    (end, Quoting { quote, backslashes, whole: !bracket })
}

/// Reads and classifies the name that ends at `end`. After a backslash its first letters may belong to an escape
/// (`\npass`, `\u0026sig`), so it is classified without them too.
fn judge_name(scan: &Scan<'_>, end: usize) -> (usize, NameKind) {
    let (start, kind) = last_name(scan.bytes.get(..end).unwrap_or_default());
    if kind != NameKind::Harmless || scan.before(start, 1) != b'\\' {
        return (start, kind);
    }
    let escape = match scan.at(start) {
        b'u' => 5,
        b'n' | b'r' | b't' => 1,
        _ => return (start, kind),
    };
    let own = scan.bytes.get(start + escape..end).unwrap_or_default();
    (start, last_name(own).1)
}

/// Returns whether the name at `start` is that of a parameter in the query, path or fragment of a URL, as URLs, HTML or JSON
/// write it.
fn begins_parameter(scan: &Scan<'_>, start: usize) -> bool {
    match scan.before(start, 1) {
        b'?' | b'&' | b';' | b'#' => true,
        b'\\' => scan.from(start).starts_with(b"u0026"),
        _ => false,
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.')
}

/// Masks the value after the separator at `at`. `opener` is the byte before the name.
fn value(scan: &mut Scan<'_>, at: usize, kind: NameKind, quoting: Quoting, opener: u8) {
    let mut start = at + 1;
    if scan.at(at) != b'>' {
        start = scan.run(start, |byte| matches!(byte, b'=' | b'>'));
    }
    start = skip_space(scan, start, quoting);
    if matches!(scan.at(start), b'b' | b'r' | b'f' | b'u' | b'@' | b'$')
        && matches!(scan.at(start + 1), b'"' | b'\'')
    {
        start += 1;
    }
    let open = scan.run(start, |byte| byte == b'\\');
    match scan.at(open) {
        quote @ (b'"' | b'\'') => {
            let end = quoted_end(scan, open + 1, quote, open - start);
            mask_credential(scan, open + 1, end);
            scan.closed_until = end;
        }
        _ if kind == NameKind::Weak && scan.at(at) != b'=' => {}
        b'[' | b'{' if kind != NameKind::Line || quoting.whole => {
            let mut end = container_end(scan, start, quoting);
            if !quoting.whole {
                end = bare_end(scan, end, quoting);
            }
            scan.mask(start..end);
            scan.closed_until = end;
        }
        _ if kind == NameKind::Line => {
            let end = line_end(scan, start, if opener == b'\'' { opener } else { 0 });
            mask_credential(scan, start, end);
            scan.closed_until = end;
        }
        _ => bare(scan, start, quoting),
    }
}

/// Masks the value of a `{"name": …, "value": …}` pair whose name is after the separator at `at`.
fn pair(scan: &mut Scan<'_>, at: usize, quoting: Quoting) {
    let start = scan.run(skip_space(scan, at + 1, quoting), |byte| matches!(byte, b'\\' | b'"' | b'\''));
    let end = start
        + scan.from(start).iter().take(NAME_BYTES_MAX).position(|byte| !is_name(*byte)).unwrap_or_default();
    let (_, kind) = judge_name(scan, end);
    if !matches!(kind, NameKind::Secret | NameKind::Line | NameKind::Weak) {
        return;
    }
    let mut next = end;
    // quotes, commas, white space and its escapes
    while next < end + NAME_BYTES_MAX && !scan.from(next).starts_with(b"value") {
        let byte = scan.at(next);
        if !(byte.is_ascii_whitespace() || matches!(byte, b'"' | b'\'' | b',' | b'\\' | b'n' | b'r' | b't')) {
            return;
        }
        next += 1;
    }
    let separator = scan.run(next + 5, |byte| matches!(byte, b'\\' | b'"' | b'\'' | b' '));
    if matches!(scan.at(separator), b':' | b'=') {
        value(scan, separator, kind, quoting, 0);
    }
}

/// Masks the value of a command-line flag whose leading dashes end at `at` (`--password x`, `["--token","x"]`).
/// A value after `=` is found by its separator instead.
pub(super) fn flag(scan: &mut Scan<'_>, at: usize) {
    if !scan.at(at + 1).is_ascii_alphabetic() {
        return;
    }
    let end =
        at + 1 + scan.from(at + 1).iter().take(NAME_BYTES_MAX).take_while(|byte| is_name(**byte)).count();
    let start = scan.run(end, |byte| matches!(byte, b'"' | b'\'' | b'\\' | b',' | b' '));
    if start > end
        && matches!(judge_name(scan, end).1, NameKind::Secret | NameKind::Line)
        && scan.at(start) != b'-'
    {
        bare(scan, start, BARE);
    }
}

/// Skips the white space before a value: on the same line for a bare name, any (also escaped) for a quoted one.
fn skip_space(scan: &Scan<'_>, mut at: usize, quoting: Quoting) -> usize {
    loop {
        at = scan
            .run(at, |byte| matches!(byte, b' ' | b'\t') || (quoting.whole && matches!(byte, b'\n' | b'\r')));
        let letter = scan.run(at, |byte| byte == b'\\');
        let escaped = letter > at && matches!(scan.at(letter), b'n' | b'r' | b't');
        if !escaped || !quoting.whole || quoting.backslashes == 0 {
            return at;
        }
        at = letter + 1;
    }
}

/// Masks an unquoted value.
fn bare(scan: &mut Scan<'_>, start: usize, quoting: Quoting) {
    if start < scan.bare_until {
        return;
    }
    let mut from = start;
    let mut end = bare_end(scan, start, quoting);
    let mut word = scan.bytes.get(start..end).unwrap_or_default();
    if is_any(SCHEMES, word) && scan.at(end) == b' ' {
        from = end + 1;
        end = bare_end(scan, from, quoting);
        word = scan.bytes.get(from..end).unwrap_or_default();
    }
    if !is_any(CONSTANTS, word) {
        scan.mask(from..end);
    }
    scan.bare_until = end;
}

/// Masks `start..end` except for an authentication scheme at its start.
fn mask_credential(scan: &mut Scan<'_>, start: usize, end: usize) {
    let text = scan.bytes.get(start..end).unwrap_or_default();
    let word = text.iter().position(|byte| *byte == b' ').unwrap_or_default();
    let scheme = is_any(SCHEMES, text.get(..word).unwrap_or_default());
    scan.mask(if scheme { start + word + 1 } else { start }..end);
}

fn is_any(words: &[&[u8]], word: &[u8]) -> bool {
    words.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Returns the end of a string that was opened by `quote` after `backslashes`: where its own level or one around it
/// ends.
fn quoted_end(scan: &Scan<'_>, start: usize, quote: u8, backslashes: usize) -> usize {
    let mut at = start;
    loop {
        at = scan.run(at, |byte| byte != quote && byte != b'\\');
        let run = at;
        at = scan.run(at, |byte| byte == b'\\');
        if at >= scan.bytes.len() {
            return at;
        }
        if scan.at(at) == quote {
            // inside the string, each level of nesting doubles the backslashes
            if (at - run) % (2 * backslashes + 2) != 2 * backslashes + 1 {
                return run.max(at.saturating_sub(backslashes));
            }
            at += 1;
        }
    }
}

/// Returns the end of the array or object that starts at `start`, with strings quoted as its name is.
fn container_end(scan: &Scan<'_>, start: usize, quoting: Quoting) -> usize {
    let mut open = 0_usize;
    let mut at = start;
    loop {
        at = scan.run(at, |byte| byte != quoting.quote && !matches!(byte, b'[' | b']' | b'{' | b'}'));
        match scan.at(at) {
            quote if quote == quoting.quote => {
                let end = quoted_end(scan, at + 1, quote, quoting.backslashes);
                at = scan.run(end, |byte| byte == b'\\') + 1;
            }
            b'[' | b'{' => {
                open += 1;
                at += 1;
            }
            b']' | b'}' => {
                open = open.saturating_sub(1);
                at += 1;
                if open == 0 {
                    return at;
                }
            }
            _ => return scan.bytes.len(),
        }
        if at >= scan.bytes.len() {
            return scan.bytes.len();
        }
    }
}

/// Returns the end of an unquoted value: white space, real or escaped, a quote, or the end of a field.
fn bare_end(scan: &Scan<'_>, start: usize, quoting: Quoting) -> usize {
    let mut at = start;
    loop {
        at = scan.run(at, |byte| {
            let ends = byte.is_ascii_whitespace() || matches!(byte, b'&' | b'"' | b'\\' | b'<' | b'>');
            !(ends || (quoting.whole && matches!(byte, b',' | b'}' | b']')))
        });
        if scan.at(at) != b'\\' {
            return at;
        }
        let run = at;
        at = scan.run(at, |byte| byte == b'\\');
        let ends = match scan.at(at) {
            b'"' | 0 => true,
            b'n' | b'r' | b't' => (at - run) % 2 == 1,
            b'u' => matches!(
                scan.from(at + 1).get(..4),
                Some(b"0026" | b"003c" | b"003C" | b"003e" | b"003E" | b"0022" | b"0020" | b"000a" | b"000A")
            ),
            _ => false,
        };
        if ends {
            return run;
        }
    }
}

/// Returns the end of a header's line: a line end, real or escaped, or the quote that encloses the header. A quote
/// after `=` does not count. `closer` is one more byte that ends the line, or 0.
fn line_end(scan: &Scan<'_>, start: usize, closer: u8) -> usize {
    let mut at = start;
    loop {
        at = scan
            .run(at, |byte| !matches!(byte, b'\n' | b'\r' | b'"' | b'\\') && (byte != closer || closer == 0));
        let run = at;
        at = scan.run(at, |byte| byte == b'\\');
        match scan.at(at) {
            b'"' if scan.before(run, 1) == b'=' && run > start => {
                let end = quoted_end(scan, at + 1, b'"', at - run);
                at = scan.run(end, |byte| byte == b'\\') + 1;
            }
            b'n' | b'r' | b'"' | b'\n' | b'\r' => return run,
            _ if at == run => return at.min(scan.bytes.len()),
            _ => {}
        }
    }
}
