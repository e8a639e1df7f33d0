//! Check for regular expressions that are surely valid in ECMAScript with the flag `u`. Only a subset is accepted, without
//! look-around, names and references.

use std::iter::Peekable;
use std::str::Chars;

/// Longest pattern that is accepted, in bytes.
const BYTES_MAX: usize = 2000;
/// Deepest nesting of groups, in levels.
const DEPTH_MAX: usize = 16;
/// Most digits of a number in a quantifier.
const COUNT_DIGITS_MAX: usize = 4;

const CLASSES: &str = "dDwWsS";
const SYNTAX: &str = "^$\\.*+?()[]{}|/";
const CONTROLS: [(char, char); 5] = [('n', '\n'), ('r', '\r'), ('t', '\t'), ('f', '\u{c}'), ('v', '\u{b}')];

/// Returns whether the pattern is in the accepted subset.
pub(super) fn is_plain(pattern: &str) -> bool {
    pattern.len() <= BYTES_MAX && whole(&mut pattern.chars().peekable()).is_some()
}

type Rest<'a> = Peekable<Chars<'a>>;

fn whole(rest: &mut Rest<'_>) -> Option<()> {
    let (mut depth, mut repeats) = (0_usize, false);
    while let Some(c) = rest.next() {
        // whether what was read can be repeated
        repeats = match c {
            '^' | '$' | '|' => false,
            '(' => {
                depth += 1;
                if depth > DEPTH_MAX || (rest.next_if_eq(&'?').is_some() && rest.next() != Some(':')) {
                    return None;
                }
                false
            }
            ')' => {
                depth = depth.checked_sub(1)?;
                true
            }
            '[' => {
                class(rest)?;
                true
            }
            '\\' => {
                let escaped = rest.next()?;
                let is_known = CLASSES.contains(escaped) || single(escaped, SYNTAX).is_some();
                is_known.then_some(true)?
            }
            '*' | '+' | '?' | '{' => {
                if !repeats || (c == '{' && !is_count(rest)) {
                    return None;
                }
                let _lazy = rest.next_if_eq(&'?');
                false
            }
            ']' | '}' => return None,
            _ => true,
        };
    }
    (depth == 0).then_some(())
}

/// Returns the character that an escape of one character stands for.
fn single(escaped: char, syntax: &str) -> Option<char> {
    let control = CONTROLS.into_iter().find(|(name, _)| *name == escaped).map(|(_, control)| control);
    control.or_else(|| syntax.contains(escaped).then_some(escaped))
}

/// Reads the rest of a quantifier: `n}`, `n,}` or `n,m}`.
fn is_count(rest: &mut Rest<'_>) -> bool {
    let Some(from) = number(rest) else { return false };
    let to = match rest.next() {
        Some('}') => return true,
        Some(',') if rest.next_if_eq(&'}').is_some() => return true,
        Some(',') => number(rest),
        _ => None,
    };
    to.is_some_and(|to| from <= to) && rest.next() == Some('}')
}

fn number(rest: &mut Rest<'_>) -> Option<u32> {
    let mut digits = String::new();
    while let Some(digit) = rest.next_if(char::is_ascii_digit) {
        digits.push(digit);
    }
    (digits.len() <= COUNT_DIGITS_MAX).then(|| digits.parse().ok()).flatten()
}

/// Reads a character class after its `[`, up to its `]`; `None` if it is empty or not valid.
fn class(rest: &mut Rest<'_>) -> Option<()> {
    let _negated = rest.next_if_eq(&'^');
    let mut is_empty = true;
    loop {
        let from = match rest.next()? {
            ']' => return (!is_empty).then_some(()),
            c => member(c, rest)?,
        };
        is_empty = false;
        if rest.peek() != Some(&'-') {
            continue;
        }
        rest.next();
        if rest.peek() == Some(&']') {
            continue;
        }
        let to = rest.next()?;
        let to = member(to, rest)?;
        // a range is between two characters, in their order
        if from? > to? {
            return None;
        }
    }
}

/// Reads a member of a character class: `Some(None)` is a class such as `\d`.
fn member(c: char, rest: &mut Rest<'_>) -> Option<Option<char>> {
    if c != '\\' {
        return Some(Some(c));
    }
    let escaped = rest.next()?;
    if CLASSES.contains(escaped) {
        return Some(None);
    }
    single(escaped, SYNTAX).or((escaped == '-').then_some('-')).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_patterns() {
        for pattern in [
            "",
            "^[a-z0-9_-]{1,64}$",
            r"^\d{4}-\d{2}-\d{2}$",
            "^(?:a|b(c))+?$",
            r"[\w.-]+@[\w-]+\.\w{2,}",
            r"[^\]\\-]",
            "[a-z-9]",
            "[-a]",
            r"[\d-]",
            "a{2}b{2,3}?",
            r"\/x\n",
            "größe|[ä-ü]",
            "(|a)",
            ".*",
            "[[a]",
            r"[\--a]",
        ] {
            assert!(is_plain(pattern), "{pattern}");
        }
    }

    #[test]
    fn others() {
        for pattern in [
            "(", ")", "[", "]", "{", "}", "a{", "a{,2}", "a{3,2}", "a{2", "a**", "*a", "^*", "(*a)", "a|+",
            "[]", "[^]", "[z-a]", r"[\w-.]", r"[a-\d]", r"\", r"\-", r"\1", r"\k<a>", r"\p{L}", r"\u0041",
            r"\x41", "(?=a)", "(?<n>a)", "(?i)a", r"[\b]", r"\b", r"\_", "a{2}{3}", "a{99999}", "[a",
            r"[\q]",
        ] {
            assert!(!is_plain(pattern), "{pattern}");
        }
        assert!(!is_plain(&"(".repeat(DEPTH_MAX + 1)) && !is_plain(&"a".repeat(BYTES_MAX + 1)));
    }
}
