//! Globs on `server:tool`, the setting `allowed_tools`.

/// Longest pattern accepted, in bytes.
pub const PATTERN_BYTES_MAX: usize = 300;
/// Most patterns in one list.
pub const PATTERNS_MAX: usize = 200;

/// Whether `pattern` (`*` any run, `?` one character, everything else itself) matches the whole text.
/// Linear in the product of both lengths at worst: no pattern can blow up.
pub fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || Some(c) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern.get(p..).unwrap_or_default().iter().all(|c| *c == '*')
}

/// Whether any pattern of the list matches.
pub fn any_matches(patterns: &[String], text: &str) -> bool {
    patterns.iter().any(|pattern| pattern == "*" || matches(pattern, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_whole_names() {
        for (pattern, text, expected) in [
            ("*", "a:b", true),
            ("a:*", "a:b", true),
            ("a:*", "ab:c", false),
            ("a:?", "a:b", true),
            ("a:?", "a:bc", false),
            ("*:get_*", "gh:get_x", true),
            ("*:get_*", "gh:set_get_x", false),
            ("*x*y*", "aXxbyc", true),
            ("", "a", false),
            ("a", "a", true),
            ("**", "", true),
            ("A:*", "a:b", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    #[test]
    fn a_hostile_pattern_stays_cheap() {
        assert!(!matches(&"*a".repeat(100), &"b".repeat(10_000)));
    }
}
