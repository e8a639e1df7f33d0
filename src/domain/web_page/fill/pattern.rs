//! The attribute `pattern`: a regular expression of JavaScript with the flag `v`, for the whole value.
//!
//! Browsers ignore an expression that is no valid one with that flag, such as `[\w-]`. Valid ones that the
//! house's engine does not support, such as lookahead, are not checked here.

use crate::domain::schema::Pattern;

/// Most steps of one search.
const STEPS_MAX: u64 = 2_000_000;

/// Outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternVerdict {
    /// The values match, or browsers ignore the pattern.
    Matches,
    /// A value does not match.
    Differs,
    /// The pattern is valid, and not supported here.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Syntax {
    Plain,
    /// Valid with the flag `v`, with another meaning than without it.
    Sets,
    Invalid,
}

/// Checks values against a pattern.
pub(super) fn check(pattern: &str, values: &[&str]) -> PatternVerdict {
    match syntax(pattern) {
        Syntax::Invalid => return PatternVerdict::Matches,
        Syntax::Sets => return PatternVerdict::Unknown,
        Syntax::Plain => {}
    }
    let Ok(compiled) = Pattern::compile_with_case(&format!("^(?:{pattern})$")) else {
        return PatternVerdict::Unknown;
    };
    if values.iter().any(|value| compiled.steps(value.len()) > STEPS_MAX) {
        return PatternVerdict::Unknown;
    }
    let is_matched = values.iter().all(|value| compiled.is_found_in(value));
    if is_matched { PatternVerdict::Matches } else { PatternVerdict::Differs }
}

/// Reads what differs between expressions with the flag `v` and others: escapes, brackets and classes.
fn syntax(pattern: &str) -> Syntax {
    let mut rest = pattern.chars().peekable();
    let mut result = Syntax::Plain;
    let mut groups = 0_u32;
    while let Some(character) = rest.next() {
        match character {
            '\\' => match rest.next() {
                Some(own) if own.is_ascii_alphanumeric() || "^$\\.*+?()[]{}|/".contains(own) => {}
                _ => return Syntax::Invalid,
            },
            '[' => match class(&mut rest) {
                Syntax::Invalid => return Syntax::Invalid,
                Syntax::Sets => result = Syntax::Sets,
                Syntax::Plain => {}
            },
            '(' => groups += 1,
            ')' => match groups.checked_sub(1) {
                Some(open) => groups = open,
                None => return Syntax::Invalid,
            },
            ']' | '}' => return Syntax::Invalid,
            '{' => {
                let mut digits = 0;
                loop {
                    match rest.next() {
                        Some(own) if own.is_ascii_digit() => digits += 1,
                        Some(',') if digits > 0 => {}
                        Some('}') if digits > 0 => break,
                        _ => return Syntax::Invalid,
                    }
                }
            }
            _ => {}
        }
    }
    if groups > 0 { Syntax::Invalid } else { result }
}

/// Reads a class behind its `[`.
fn class(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Syntax {
    let mut result = Syntax::Plain;
    let mut depth = 1_u32;
    // an operand before `-` and one behind it
    let mut has_operand = false;
    while let Some(character) = rest.next() {
        match character {
            '[' => {
                (depth, result) = (depth + 1, Syntax::Sets);
                has_operand = false;
            }
            ']' => {
                depth -= 1;
                if depth == 0 {
                    return result;
                }
                has_operand = false;
            }
            '\\' => match rest.next() {
                Some('q') => result = Syntax::Sets,
                Some(own)
                    if own.is_ascii_alphanumeric() || "^$\\.*+?()[]{}|/&-!#%,:;<=>@`~".contains(own) =>
                {
                    has_operand = true;
                    if matches!(own, 'p' | 'P' | 'u') && rest.peek() == Some(&'{') {
                        // the name in braces is no part of the class
                        if !rest.by_ref().any(|own| own == '}') {
                            return Syntax::Invalid;
                        }
                    }
                }
                _ => return Syntax::Invalid,
            },
            '-' if rest.peek() == Some(&'-') => {
                rest.next();
                result = Syntax::Sets;
            }
            '-' => {
                let goes_on = rest.peek().is_some_and(|next| !matches!(next, ']' | '['));
                if !has_operand || !goes_on {
                    return Syntax::Invalid;
                }
                has_operand = false;
            }
            '(' | ')' | '{' | '}' | '/' | '|' => return Syntax::Invalid,
            // of these, two in a row are reserved
            own if "&!#$%*+,.:;<=>?@^`~".contains(own) && rest.peek() == Some(&own) => {
                if own != '&' {
                    return Syntax::Invalid;
                }
                rest.next();
                result = Syntax::Sets;
            }
            _ => has_operand = true,
        }
    }
    Syntax::Invalid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_those_of_browsers() {
        use PatternVerdict::{Differs, Matches, Unknown};
        for (pattern, value, verdict) in [
            ("[A-Z]{3}", "ABC", Matches),
            ("[A-Z]{3}", "xABCx", Differs),
            ("a|b", "b", Matches),
            ("a|b", "ab", Differs),
            (r"\d{5}", "٠١٢٣٤", Differs),
            (r"[a-zA-Z0-9_\-.]+", "a-b.c", Matches),
            (r"[a-zA-Z0-9_\-.]+", "a b", Differs),
            ("", "x", Differs),
            // no expressions with the flag `v`: browsers ignore them
            (r"[\w-]+", "!", Matches),
            (r"[a-z-]", "!", Matches),
            (r"[-a-z]", "!", Matches),
            (r"[a-z\-]", "!", Differs),
            (r"\d{3}\-\d{4}", "!", Matches),
            ("[(]", "!", Matches),
            ("a{", "!", Matches),
            ("a)|(b", "!", Matches),
            ("(a", "!", Matches),
            ("]", "!", Matches),
            ("[a", "!", Matches),
            ("[!!]", "x", Matches),
            // valid ones that are not supported
            ("(?=.*[0-9]).*", "!", Unknown),
            (r"[\w--\d]", "1", Unknown),
            ("[[a-z]&&[b]]", "a", Unknown),
            (r"(a)\1", "aa", Unknown),
        ] {
            assert_eq!(check(pattern, &[value]), verdict, "{pattern} of {value}");
        }
    }
}
