//! Matching of URIs to templates (RFC 6570, levels 1 to 3).
//!
//! The match only selects the server to ask. So in doubt a URI matches, as the server checks it again.

/// Most expressions of a template; others are refused.
const EXPRESSIONS_MAX: usize = 32;

/// Parsed URI template.
#[derive(Debug, PartialEq, Eq)]
pub struct UriTemplate(Vec<Piece>);

#[derive(Debug, PartialEq, Eq)]
enum Piece {
    Literal(Box<str>),
    /// `{name}`: at least one character, without slashes.
    Segment,
    /// `{+name}` and all others with an operator: any text, also empty.
    Any,
}

impl UriTemplate {
    /// Parses a template; `None` when it is malformed or has more than 32 expressions.
    pub fn parse(text: &str) -> Option<UriTemplate> {
        let mut pieces = Vec::new();
        let mut rest = text;
        let mut expressions = 0;
        while let Some((literal, after)) = rest.split_once('{') {
            let (expression, after) = after.split_once('}')?;
            push_literal(&mut pieces, literal)?;
            pieces.push(match expression.chars().next()? {
                '+' | '#' | '.' | '/' | ';' | '?' | '&' => Piece::Any,
                '{' => return None,
                _ => Piece::Segment,
            });
            expressions += 1;
            rest = after;
        }
        push_literal(&mut pieces, rest)?;
        // two such pieces in a row match the same as one
        pieces.dedup_by(|next, before| matches!((next, before), (Piece::Any, Piece::Any)));
        (expressions <= EXPRESSIONS_MAX).then_some(UriTemplate(pieces))
    }

    /// Returns the number of pieces, each of which takes one pass over a URI.
    pub fn pieces(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the URI may match the template. The time is proportional to the number of pieces times the length
    /// of the URI, so callers bound both.
    pub fn matches(&self, uri: &str) -> bool {
        let text = uri.as_bytes();
        if let Some(Piece::Literal(beginning)) = self.0.first()
            && !uri.starts_with(&**beginning)
        {
            return false;
        }
        // offsets at which the pieces so far may end
        let mut ends = vec![false; text.len() + 1];
        ends.first_mut().into_iter().for_each(|start| *start = true);
        for piece in &self.0 {
            ends = match piece {
                Piece::Literal(literal) => after_literal(&ends, text, literal.as_bytes()),
                Piece::Segment => after_segment(&ends, text),
                Piece::Any => after_anything(&ends),
            };
            if !ends.contains(&true) {
                return false;
            }
        }
        ends.last().copied().unwrap_or(false)
    }
}

/// Returns whether a URI means the same as a text and as a resolved path: it has no segment `.` or `..` in any spelling,
/// and no characters that parsers of URLs drop.
pub fn is_straight(uri: &str) -> bool {
    if uri.contains(char::is_control) || uri.trim() != uri {
        return false;
    }
    // all of it, not what follows the first colon: `a/../b:c` has no scheme
    let text = uri.to_ascii_lowercase().replace("%2e", ".").replace("%2f", "/").replace("%5c", "/");
    let mut segments = text.split(['/', '\\', '?', '#', ':', ';']);
    segments.all(|segment| !matches!(segment.trim(), "." | ".."))
}

fn push_literal(pieces: &mut Vec<Piece>, literal: &str) -> Option<()> {
    if literal.contains('}') {
        return None;
    }
    if !literal.is_empty() {
        pieces.push(Piece::Literal(literal.into()));
    }
    Some(())
}

fn after_literal(ends: &[bool], text: &[u8], literal: &[u8]) -> Vec<bool> {
    let mut next = vec![false; ends.len()];
    for (at, _) in ends.iter().enumerate().filter(|(_, is_end)| **is_end) {
        let is_there = text.get(at..).is_some_and(|rest| rest.starts_with(literal));
        if let Some(end) = next.get_mut(at + literal.len()).filter(|_| is_there) {
            *end = true;
        }
    }
    next
}

fn after_segment(ends: &[bool], text: &[u8]) -> Vec<bool> {
    let mut next = vec![false];
    let mut is_within = false;
    for (is_end, byte) in ends.iter().zip(text) {
        is_within = (is_within || *is_end) && *byte != b'/';
        next.push(is_within);
    }
    next
}

fn after_anything(ends: &[bool]) -> Vec<bool> {
    let mut is_after = false;
    let after = |is_end: &bool| {
        is_after |= is_end;
        is_after
    };
    ends.iter().map(after).collect()
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn what_matches() {
        for (template, uri, expected) in [
            ("note://all", "note://all", true),
            ("note://all", "note://all/", false),
            ("note://{id}", "note://7", true),
            ("note://{id}", "note://", false),
            ("note://{id}", "note://a/b", false),
            ("note://{id}", "note://é%20", true),
            ("note://{id}/text", "note://7/text", true),
            ("note://{id}/text", "note://7/8/text", false),
            ("file:///{+path}", "file:///a/b/c", true),
            ("file:///{+path}", "file:///", true),
            ("file:///{+path}", "files:///a", false),
            ("db://{table}{?limit,offset}", "db://users?limit=1&offset=2", true),
            ("db://{table}{?limit,offset}", "db://users", true),
            ("db{/path*}", "db/a/b", true),
            ("x://{a}-{b}", "x://1-2-3", true),
            ("x://{a}-{b}", "x://-2", false),
            ("{+any}", "", true),
            ("{a}{b}", "ab", true),
            ("{a}{b}", "a", false),
        ] {
            let matches = UriTemplate::parse(template).expect(template).matches(uri);
            assert_eq!(matches, expected, "{template} {uri}");
        }
    }

    #[test]
    fn what_is_no_template() {
        for bad in ["x://{", "x://}", "x://{}", "x://{{a}}", "x://{a}}", &"{a}".repeat(EXPRESSIONS_MAX + 1)] {
            assert_eq!(UriTemplate::parse(bad), None, "{bad}");
        }
        assert!(UriTemplate::parse(&"{a}".repeat(EXPRESSIONS_MAX)).is_some());
    }

    #[test]
    fn the_worst_is_bounded() {
        let uri = "a".repeat(2000);
        // templates of the largest length, with the most expressions
        let literals = format!("{{+a}}{}", "a".repeat(55));
        let hostile = [
            format!("{}b", literals.repeat(EXPRESSIONS_MAX)),
            format!("{}b", "{+a}a".repeat(EXPRESSIONS_MAX)),
            format!("{}b", "{a}a".repeat(EXPRESSIONS_MAX)),
        ];
        for text in hostile {
            let template = UriTemplate::parse(&text).expect(&text);
            assert_eq!(template.pieces(), 2 * EXPRESSIONS_MAX + usize::from(!text.ends_with("ab")));
            let began = Instant::now();
            for _ in 0..20 {
                assert!(!template.matches(&uri));
            }
            assert!(began.elapsed() < Duration::from_millis(500), "{text} {:?}", began.elapsed());
        }
        assert_eq!(UriTemplate::parse("x://{+a}{/b}{?c}").unwrap().pieces(), 2);
    }

    #[test]
    fn what_is_straight() {
        for good in [
            "x://h/public/a..b",
            "x://h/a/.hidden/...",
            "note://7",
            "urn:isbn:1",
            "x:",
            "",
            "x://h/a%20b%0Ac?c=1.2#d",
            "file:///a/b.txt",
        ] {
            assert!(is_straight(good), "{good}");
        }
        for bad in [
            "x://h/public/../private",
            "x://h/public/..",
            "x://h/./a",
            "x://h/public/%2e%2e/private",
            "x://h/public/.%2E/private",
            "x://h/public/..%2fprivate",
            "x://h/public%2F..%2Fprivate",
            "file:///public/..\\private",
            "file:///public%5c..%5Cprivate",
            "x://h/public/..?q",
            "x://h/public/..#f",
            "x://h/public/.\t./private",
            "x://h/public/..;a/private",
            "x://h/public/.. ",
            "x:..",
            "public/../private:x",
            "../a",
            " x://h",
        ] {
            assert!(!is_straight(bad), "{bad:?}");
        }
    }
}
