//! Detection of secrets by their shape: tokens with known prefixes, JWTs, PEM keys, users of URLs.

use super::{scan::Scan, values};

/// Kind of the bytes after a token's prefix.
#[derive(Debug, Clone, Copy)]
pub(super) enum Body {
    Alnum,
    Word,
    Dashed,
    Dotted,
    Base64,
    Upper,
    Hex,
}

impl Body {
    /// Returns the end of the run of such bytes from `at` on. A run is read once, however many tokens start in it.
    fn run(self, scan: &mut Scan<'_>, at: usize) -> usize {
        if let Some(known) = scan.runs.get(self as usize).filter(|run| run.contains(&at)) {
            return known.end;
        }
        let end = scan.run(at, |byte| self.has(byte));
        if let Some(slot) = scan.runs.get_mut(self as usize) {
            *slot = at..end;
        }
        end
    }

    fn has(self, byte: u8) -> bool {
        match self {
            Self::Alnum => byte.is_ascii_alphanumeric(),
            Self::Word => byte.is_ascii_alphanumeric() || byte == b'_',
            Self::Dashed => is_base64url(byte),
            Self::Dotted => is_base64url(byte) || byte == b'.',
            Self::Base64 => is_base64url(byte) || matches!(byte, b'+' | b'/' | b'='),
            Self::Upper => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
            Self::Hex => byte.is_ascii_hexdigit(),
        }
    }
}

/// Positions at which a prefix counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    Anywhere,
    /// Only where a word starts, and only if the body has a digit or a capital: `sk-` ends `task-`.
    Word,
}

struct Shape {
    prefix: &'static [u8],
    /// Index of the trigger byte in `prefix`.
    anchor: usize,
    body: Body,
    /// Shortest body, in bytes.
    min: usize,
    start: Start,
}

const fn shape(prefix: &'static str, body: Body, min: usize) -> Shape {
    Shape { prefix: prefix.as_bytes(), anchor: prefix.len() - 1, body, min, start: Start::Anywhere }
}

const fn anchored(prefix: &'static str, anchor: usize, body: Body, min: usize) -> Shape {
    Shape { prefix: prefix.as_bytes(), anchor, body, min, start: Start::Anywhere }
}

static PK_: &[Shape] = &[shape("mcpk_", Body::Dashed, 8), shape("gsk_", Body::Alnum, 20)];
static GHP_: &[Shape] = &[shape("ghp_", Body::Word, 16)];
static GHO_: &[Shape] = &[shape("gho_", Body::Word, 16)];
static GHU_: &[Shape] = &[shape("ghu_", Body::Word, 16)];
static GHS_: &[Shape] = &[shape("ghs_", Body::Dotted, 16)];
static GHR_: &[Shape] = &[shape("ghr_", Body::Word, 16)];
static T_: &[Shape] = &[
    shape("github_pat_", Body::Word, 16),
    shape("dckr_pat_", Body::Dashed, 16),
    shape("shpat_", Body::Alnum, 16),
    shape("sk_test_", Body::Alnum, 10),
    shape("rk_test_", Body::Alnum, 10),
];
static E_: &[Shape] = &[shape("sk_live_", Body::Alnum, 10), shape("rk_live_", Body::Alnum, 10)];
static M_: &[Shape] = &[shape("npm_", Body::Alnum, 30)];
static F_: &[Shape] = &[shape("hf_", Body::Alnum, 20)];
static C_: &[Shape] = &[shape("whsec_", Body::Base64, 16)];
static A_: &[Shape] = &[shape("glsa_", Body::Word, 20)];
static ONE_: &[Shape] = &[
    shape("dop_v1_", Body::Alnum, 20),
    shape("doo_v1_", Body::Alnum, 20),
    shape("dor_v1_", Body::Alnum, 20),
];
static T_DASH: &[Shape] = &[
    shape("glpat-", Body::Dotted, 16),
    shape("gldt-", Body::Dotted, 16),
    shape("glrt-", Body::Dotted, 16),
    shape("glptt-", Body::Dotted, 16),
    shape("glcbt-", Body::Dotted, 16),
];
static K_DASH: &[Shape] =
    &[Shape { prefix: b"sk-", anchor: 2, body: Body::Dashed, min: 20, start: Start::Word }];
static I_DASH: &[Shape] = &[shape("pypi-", Body::Dashed, 16)];
static P_DASH: &[Shape] = &[shape("xapp-", Body::Dashed, 10)];
static G_DOT: &[Shape] = &[shape("SG.", Body::Dotted, 32)];
static S_DOT: &[Shape] = &[shape("hvs.", Body::Dashed, 20)];
static NINE_DOT: &[Shape] = &[shape("ya29.", Body::Dotted, 20)];
static A_K: &[Shape] = &[anchored("AKIA", 1, Body::Upper, 16)];
static A_S: &[Shape] = &[anchored("ASIA", 1, Body::Upper, 16)];
static S_K: &[Shape] = &[anchored("SK", 1, Body::Hex, 32)];
static I_Z: &[Shape] = &[anchored("AIza", 2, Body::Dashed, 30)];

/// Returns the shapes whose trigger byte is `byte` with `previous` before it.
fn shapes(previous: u8, byte: u8) -> &'static [Shape] {
    match [previous, byte] {
        [b'k', b'_'] => PK_,
        [b'p', b'_'] => GHP_,
        [b'o', b'_'] => GHO_,
        [b'u', b'_'] => GHU_,
        [b's', b'_'] => GHS_,
        [b'r', b'_'] => GHR_,
        [b't', b'_'] => T_,
        [b'e', b'_'] => E_,
        [b'm', b'_'] => M_,
        [b'f', b'_'] => F_,
        [b'c', b'_'] => C_,
        [b'a', b'_'] => A_,
        [b'1', b'_'] => ONE_,
        [b't', b'-'] => T_DASH,
        [b'k', b'-'] => K_DASH,
        [b'i', b'-'] => I_DASH,
        [b'p', b'-'] => P_DASH,
        [b'G', b'.'] => G_DOT,
        [b's', b'.'] => S_DOT,
        [b'9', b'.'] => NINE_DOT,
        [b'A', b'K'] => A_K,
        [b'A', b'S'] => A_S,
        [b'S', b'K'] => S_K,
        [b'I', b'z'] => I_Z,
        _ => &[],
    }
}

/// Bytes of a body that are read to see whether it is plain words, without digits and capitals.
const WORD_BYTES_MAX: usize = 64;

/// Masks a token of known shape, or a PEM private key, whose trigger byte is at `at`.
pub(super) fn token(scan: &mut Scan<'_>, at: usize, byte: u8) {
    let previous = scan.before(at, 1);
    if previous == b'-' && byte == b'-' {
        return if scan.at(at + 1) == b'B' { pem(scan, at) } else { values::flag(scan, at) };
    }
    if byte == b'-' && scan.before(at, 4) == b'x' && scan.before(at, 3) == b'o' && scan.before(at, 2) == b'x'
    {
        return slack(scan, at);
    }
    for shape in shapes(previous, byte) {
        let Some(start) = at.checked_sub(shape.anchor) else { continue };
        if !scan.from(start).starts_with(shape.prefix) {
            continue;
        }
        if shape.start == Start::Word && !starts_word(scan, start) {
            continue;
        }
        let body = start + shape.prefix.len();
        let end = shape.body.run(scan, body);
        let random = scan.bytes.get(body..end).unwrap_or_default();
        let word = shape.start == Start::Word
            && random.iter().take(WORD_BYTES_MAX).all(|b| b.is_ascii_lowercase() || *b == b'-');
        if random.len() >= shape.min && !word {
            scan.mask(start..end);
        }
    }
}

/// Masks a Slack token whose prefix ends at `at`: `xoxb-`, `xoxp-` and every letter to come.
fn slack(scan: &mut Scan<'_>, at: usize) {
    const BODY_MIN: usize = 10;
    let end = Body::Dashed.run(scan, at + 1);
    if end - at > BODY_MIN {
        scan.mask(at - 4..end);
    }
}

/// Returns whether a word starts at `start`: no letter or digit before it, except as the end of an escape (`\n`,
/// `\u003d`, `%3D`).
fn starts_word(scan: &Scan<'_>, start: usize) -> bool {
    !scan.before(start, 1).is_ascii_alphanumeric()
        || scan.before(start, 2) == b'\\'
        || scan.before(start, 3) == b'%'
        || (scan.before(start, 6) == b'\\' && scan.before(start, 5) == b'u')
}

/// Masks a JWT (or JWE) whose `eyJ` ends at `at`: at least two parts, dot between them.
pub(super) fn jwt(scan: &mut Scan<'_>, at: usize) {
    const PART_MIN: usize = 8;
    const PARTS_MAX: usize = 5;
    // another `eyJ` in the same part of a JWT has the same bytes after it
    if scan.before(at, 1) != b'y' || scan.before(at, 2) != b'e' || at < scan.jwt_until {
        return;
    }
    let start = at - 2;
    let first = scan.run(at, is_base64url);
    scan.jwt_until = first;
    let mut end = first;
    let mut longest = 0;
    for _ in 1..PARTS_MAX {
        if scan.at(end) != b'.' {
            break;
        }
        let next = scan.run(end + 1, is_base64url);
        longest = longest.max(next - end - 1);
        end = next;
    }
    let cut_off = scan.cut && end == scan.bytes.len();
    if cut_off || (first - start >= PART_MIN && longest >= PART_MIN) {
        scan.mask(start..end);
    }
}

/// Masks a PEM private key whose first line's leading dashes end at `at`, real line ends or escaped ones.
fn pem(scan: &mut Scan<'_>, at: usize) {
    const LABEL_BYTES_MAX: usize = 64;
    let Some(start) = at.checked_sub(4) else { return };
    if at < scan.pem_until || !scan.from(start).starts_with(b"-----BEGIN ") {
        return;
    }
    let head = scan.from(start + 11);
    let head = head.get(..head.len().min(LABEL_BYTES_MAX)).unwrap_or_default();
    let Some(label) = find(head, b"-----") else { return };
    if find(head.get(..label).unwrap_or_default(), b"PRIVATE KEY").is_none() {
        return;
    }
    let body = start + 11 + label + 5;
    // a text about keys, such as a quoted first line, has no key after it
    let next = scan.at(body);
    if !(next.is_ascii_whitespace()
        || next.is_ascii_alphanumeric()
        || matches!(next, b'\\' | b'+' | b'/' | b'%'))
    {
        return;
    }
    let Some(footer) = find(scan.from(body), b"-----END ") else {
        return scan.mask(start..scan.bytes.len());
    };
    let label = body + footer + 9;
    let end = find(scan.from(label), b"-----").filter(|length| *length <= LABEL_BYTES_MAX);
    scan.pem_until = end.map_or(label, |length| label + length + 5);
    scan.mask(start..scan.pem_until);
}

/// Masks the user part of a URL whose scheme ends at `at` (`scheme://user:password@host`, also with escaped
/// slashes). Returns whether `at` ends a scheme at all.
pub(super) fn url_user(scan: &mut Scan<'_>, at: usize) -> bool {
    const UNENCODED_BYTES_MAX: usize = 512;
    let rest = scan.from(at + 1);
    let slashes = [&b"//"[..], br"\/\/", br"\\/\\/"].into_iter().find(|slashes| rest.starts_with(slashes));
    let Some(slashes) = slashes else { return false };
    let start = at + 1 + slashes.len();
    let ends_text = |byte: u8| byte <= b' ' || matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'`');
    let mut end = scan.run(start, |byte| !ends_text(byte) && !matches!(byte, b'/' | b'?' | b'#'));
    let authority = scan.bytes.get(start..end).unwrap_or_default();
    // no port, so a password, which may have an unencoded slash and ends at the last `@` in reach
    let mut halves = authority.splitn(2, |byte| *byte == b':');
    let (host, port) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
    if !port.iter().all(u8::is_ascii_digit) && !host.starts_with(b"[") {
        end += scan.from(end).iter().take(UNENCODED_BYTES_MAX).take_while(|byte| !ends_text(**byte)).count();
    }
    let reach = scan.bytes.get(start..end).unwrap_or_default();
    if let Some(user) = reach.iter().rposition(|byte| *byte == b'@') {
        scan.mask(start..start + user);
    } else if scan.cut && end == scan.bytes.len() {
        scan.mask(start..end);
    }
    true
}

/// Masks the word after `Bearer` or `Basic`, whose first letter is at `at`, if it looks like a credential.
pub(super) fn scheme(scan: &mut Scan<'_>, at: usize) {
    const SURE_MIN: usize = 16;
    const LIKELY_MIN: usize = 8;
    if !matches!(scan.at(at + 1), b'e' | b'a' | b'E' | b'A') || at < scan.scheme_until {
        return;
    }
    let is =
        |word: &[u8]| scan.from(at).get(..word.len()).is_some_and(|text| text.eq_ignore_ascii_case(word));
    let Some(word) = [&b"bearer"[..], b"basic"].into_iter().find(|word| is(word)) else { return };
    let gap = at + word.len();
    let start = if scan.from(gap).starts_with(b"%20") {
        gap + 3
    } else {
        scan.run(gap, |byte| matches!(byte, b' ' | b'\t' | b'+'))
    };
    if start == gap {
        return;
    }
    let end = scan.run(start, |byte| is_base64url(byte) || matches!(byte, b'.' | b'~' | b'+' | b'/' | b'='));
    scan.scheme_until = end;
    let token = scan.bytes.get(start..end).unwrap_or_default();
    let odd =
        token.iter().skip(1).any(|byte| !byte.is_ascii_lowercase() && !matches!(byte, b'.' | b'-' | b'/'));
    if token.len() >= SURE_MIN || (token.len() >= LIKELY_MIN && odd) {
        scan.mask(start..end);
    }
}

fn is_base64url(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-')
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}
