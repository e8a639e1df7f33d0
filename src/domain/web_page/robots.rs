//! Rules of a site for programs that fetch its pages (`robots.txt`, RFC 9309).

/// Most rules that are kept; further ones are ignored.
const RULES_MAX: usize = 2000;
/// Longest pattern that is kept, in bytes; a longer one cannot match a URL that is fetched.
const PATTERN_BYTES_MAX: usize = 2048;

/// Rules of a `robots.txt` for one program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RobotsRules {
    rules: Vec<(RobotsEffect, String)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RobotsEffect {
    Allow,
    Disallow,
}

impl RobotsRules {
    /// Returns rules that allow every page.
    pub fn allow_all() -> RobotsRules {
        RobotsRules::default()
    }

    /// Returns rules that allow no page.
    pub fn refuse_all() -> RobotsRules {
        RobotsRules { rules: vec![(RobotsEffect::Disallow, "/".to_owned())] }
    }

    /// Reads the rules for the program with this product token, which is compared in any case. Without a group of its own,
    /// those for all programs hold. Whatever is malformed is ignored.
    pub fn read(text: &str, program: &str) -> RobotsRules {
        let (mut own, mut general) = (Vec::new(), Vec::new());
        let mut has_own = false;
        // members of the group that is being read: the program, all programs
        let mut group = (false, false);
        let mut is_heading = false;
        for line in text.trim_start_matches('\u{feff}').split(['\n', '\r']) {
            let line = line.split('#').next().unwrap_or_default();
            let Some((key, value)) = line.split_once(':') else { continue };
            let (key, value) = (key.trim(), value.trim());
            if key.eq_ignore_ascii_case("user-agent") {
                if !is_heading {
                    group = (false, false);
                }
                is_heading = true;
                let token: &str = value.split(['/', ' ', '\t']).next().unwrap_or_default();
                if value == "*" {
                    group.1 = true;
                } else if token.eq_ignore_ascii_case(program) {
                    group.0 = true;
                    has_own = true;
                }
                continue;
            }
            let effect = if key.eq_ignore_ascii_case("disallow") {
                RobotsEffect::Disallow
            } else if key.eq_ignore_ascii_case("allow") {
                RobotsEffect::Allow
            } else {
                // such as Sitemap, which belongs to no group
                continue;
            };
            is_heading = false;
            if value.is_empty() || value.len() > PATTERN_BYTES_MAX {
                continue;
            }
            for (is_in, rules) in [(group.0, &mut own), (group.1, &mut general)] {
                if is_in && rules.len() < RULES_MAX {
                    rules.push((effect, normalized(value)));
                }
            }
        }
        RobotsRules { rules: if has_own { own } else { general } }
    }

    /// Returns whether a page may be fetched; `path` is the path with the query. The longest matching rule decides, of two
    /// equally long ones the rule that allows.
    pub fn allow(&self, path: &str) -> bool {
        let path = normalized(path);
        let matching = self.rules.iter().filter(|(_, pattern)| matches(pattern, &path));
        let decides =
            matching.max_by_key(|(effect, pattern)| (pattern.len(), *effect == RobotsEffect::Allow));
        decides.is_none_or(|(effect, _)| *effect == RobotsEffect::Allow)
    }
}

/// Returns a path or a pattern with one spelling of escaped characters: those that need no escape stand for themselves.
fn normalized(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        let escaped = bytes.get(at + 1..at + 3).and_then(|digits| std::str::from_utf8(digits).ok());
        let value = escaped.filter(|_| *byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match value {
            Some(value) if value.is_ascii_alphanumeric() || b"-._~".contains(&value) => {
                out.push(char::from(value));
                at += 3;
            }
            Some(value) => {
                out.push_str(&format!("%{value:02X}"));
                at += 3;
            }
            None if byte.is_ascii() => {
                out.push(char::from(*byte));
                at += 1;
            }
            None => {
                out.push_str(&format!("%{byte:02X}"));
                at += 1;
            }
        }
    }
    out
}

/// Returns whether a pattern matches the start of a path. `*` stands for any text, `$` at the end for the end of the path.
fn matches(pattern: &str, path: &str) -> bool {
    let (pattern, is_anchored) = match pattern.strip_suffix('$') {
        Some(before) => (before, true),
        None => (pattern, false),
    };
    let mut parts = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else { return !is_anchored || rest.is_empty() };
    for part in middle {
        let Some(at) = rest.find(part) else { return false };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    if is_anchored { rest.ends_with(last) } else { rest.contains(last) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_rule_decides() {
        let rules = RobotsRules::read(
            "User-agent: *\nDisallow: /private\nAllow: /private/open # but this\nDisallow: /*.php$\nDisallow:\n",
            "mcpproxy",
        );
        for (path, is_allowed) in [
            ("/", true),
            ("/private", false),
            ("/private/x?y=1", false),
            ("/privat%65/x", false),
            ("/private/open/x", true),
            ("/a/b.php", false),
            ("/a/b.php?x", true),
            ("/a/b.phpx", true),
        ] {
            assert_eq!(rules.allow(path), is_allowed, "{path}");
        }
        let tie = RobotsRules::read("user-agent:*\ndisallow:/a\nallow:/a", "mcpproxy");
        assert!(tie.allow("/a"));
    }

    #[test]
    fn a_group_of_its_own_holds_instead_of_the_general_one() {
        let text = "User-Agent: *\nDisallow: /\n\nUser-agent: Other\nUser-agent: McpProxy/1.0\nSitemap: x\nDisallow: /no\n";
        let own = RobotsRules::read(text, "mcpproxy");
        assert!(own.allow("/") && !own.allow("/no"));
        assert!(!RobotsRules::read(text, "else").allow("/"));
        // an empty group allows everything
        let open =
            RobotsRules::read("User-agent: *\nDisallow: /\n\nUser-agent: mcpproxy\nAllow: /\n", "mcpproxy");
        assert!(open.allow("/x"));
    }

    #[test]
    fn patterns_match_as_written() {
        for (pattern, path, matched) in [
            ("/a*b*c", "/a-b-c-d", true),
            ("/a*b*c$", "/a-b-c-d", false),
            ("/a*b*c$", "/abcc", true),
            ("*", "/x", true),
            ("/$", "/", true),
            ("/$", "/x", false),
            ("/a*", "/b", false),
        ] {
            assert_eq!(matches(pattern, path), matched, "{pattern} {path}");
        }
        assert!(RobotsRules::read("", "mcpproxy").allow("/x"));
        assert!(RobotsRules::read("Disallow: /", "mcpproxy").allow("/x"), "a rule outside of any group");
        assert!(!RobotsRules::refuse_all().allow("/x") && RobotsRules::allow_all().allow("/x"));
    }

    #[test]
    fn many_stars_cost_little() {
        let text = format!("User-agent: *\nDisallow: /{}x$", "*a".repeat(1000));
        let path = format!("/{}", "a".repeat(2000));
        let began = std::time::Instant::now();
        assert!(RobotsRules::read(&text, "mcpproxy").allow(&path));
        assert!(began.elapsed() < std::time::Duration::from_secs(1));
    }
}
