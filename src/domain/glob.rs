//! Globs on `server:tool`, as in the setting `allowed_tools`.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::fingerprint::{Fingerprint, Fingerprinting};

/// Longest pattern accepted, in bytes.
pub const PATTERN_BYTES_MAX: usize = 300;
/// Most patterns in one list.
pub const PATTERNS_MAX: usize = 200;
/// Most characters that the search for one part with `?` between two `*` compares. Only crafted names and patterns need
/// more; those do not match.
const COMPARED_MAX: usize = 1024;

/// Returns whether `pattern` matches the whole text: `*` is any run, `?` one character, all else itself. No pattern is
/// slow: the search for each of its parts takes time linear in the text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return after(pattern, text) == Some("") };
    let Some(mut text) = after(first, text) else { return false };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    // the end first: it takes one comparison, and most patterns have a `*` at one end only
    let Some(before) = before(last, text) else { return false };
    text = before;
    middle.split('*').all(|part| {
        let found = behind(part, text);
        text = found.unwrap_or_default();
        found.is_some()
    })
}

/// Strips `part`, which has no `*`, from the beginning of the text; `None` if the text does not begin with it.
fn after<'a>(part: &str, text: &'a str) -> Option<&'a str> {
    if !part.contains('?') {
        return text.strip_prefix(part);
    }
    let mut left = text.chars();
    part.chars()
        .all(|wanted| left.next().is_some_and(|c| wanted == '?' || wanted == c))
        .then_some(left.as_str())
}

/// Strips `part`, which has no `*`, from the end of the text; `None` if the text does not end with it.
fn before<'a>(part: &str, text: &'a str) -> Option<&'a str> {
    if !part.contains('?') {
        return text.strip_suffix(part);
    }
    let mut left = text.chars();
    let is_there =
        part.chars().rev().all(|wanted| left.next_back().is_some_and(|c| wanted == '?' || wanted == c));
    is_there.then_some(left.as_str())
}

/// Returns the text after the first match of `part`, which has no `*`; `None` if there is no match.
fn behind<'a>(part: &str, text: &'a str) -> Option<&'a str> {
    if !part.contains('?') {
        let at = text.find(part)?;
        return text.get(at + part.len()..);
    }
    let mut compared = 0;
    let mut from = text.chars();
    loop {
        let mut left = from.clone();
        let is_there = part.chars().all(|wanted| {
            compared += 1;
            left.next().is_some_and(|c| wanted == '?' || wanted == c)
        });
        if is_there && compared <= COMPARED_MAX {
            return Some(left.as_str());
        }
        if compared > COMPARED_MAX {
            return None;
        }
        from.next()?;
    }
}

/// Returns whether a list of patterns excludes anything, that is, lacks `*`.
pub fn narrows(list: &[String]) -> bool {
    !list.iter().any(|pattern| pattern == "*")
}

/// Lists of patterns that apply together: a name must match every list. Clones and comparisons are cheap.
#[derive(Clone, Debug)]
pub struct Globs(Arc<Lists>);

#[derive(Debug)]
struct Lists {
    lists: Vec<Arc<[String]>>,
    print: Fingerprint,
}

impl Globs {
    /// Creates the globs from these lists, the outermost first. Lists with `*` are dropped, as they allow everything.
    pub fn of<'a>(lists: impl IntoIterator<Item = &'a Vec<String>>) -> Globs {
        let all = Globs(Arc::new(Lists { lists: Vec::new(), print: Fingerprinting::default().finish() }));
        lists.into_iter().fold(all, |globs, list| globs.and(list))
    }

    /// Returns these globs narrowed by one more list. The existing lists are shared, not copied.
    pub fn and(&self, list: &[String]) -> Globs {
        if !narrows(list) {
            return self.clone();
        }
        let mut print = Fingerprinting::default();
        print.print(self.0.print);
        list.iter().for_each(|pattern| print.field(pattern));
        let lists = self.0.lists.iter().map(Arc::clone).chain([Arc::from(list)]).collect();
        Globs(Arc::new(Lists { lists, print: print.finish() }))
    }

    /// Returns the number of patterns in all lists.
    pub fn patterns(&self) -> usize {
        self.0.lists.iter().map(|list| list.len()).sum()
    }

    /// Returns the innermost list that does not allow everything; `None` when all do.
    pub fn innermost(&self) -> Option<&[String]> {
        self.0.lists.last().map(|list| &**list)
    }

    /// Returns whether all lists are shared with `other`, not copied.
    #[cfg(test)]
    pub fn share(&self, other: &Globs) -> bool {
        self.0.lists.iter().all(|list| other.0.lists.iter().any(|others| Arc::ptr_eq(list, others)))
    }

    /// Returns whether the canonical name (`server:tool`) matches every list.
    pub fn allows(&self, canonical: &str) -> bool {
        self.0.lists.iter().all(|list| list.iter().any(|pattern| matches(pattern, canonical)))
    }
}

impl PartialEq for Globs {
    fn eq(&self, other: &Globs) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.print == other.0.print && self.0.lists == other.0.lists)
    }
}

impl Eq for Globs {}

impl Hash for Globs {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.print.hash(state);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn globs_match_whole_names() {
        for (pattern, text, expected) in [
            ("*", "a:b", true),
            ("a:*", "a:b", true),
            ("a:*", "ab:c", false),
            ("a:?", "a:b", true),
            ("a:?", "a:ß", true),
            ("a:?", "a:bc", false),
            ("*:get_*", "gh:get_x", true),
            ("*:get_*", "gh:set_get_x", false),
            ("*x*y*", "aXxbyc", true),
            ("*?ö*", "äöü", true),
            ("*?ä*", "äöü", false),
            ("ab*ba", "aba", false),
            ("", "a", false),
            ("a", "a", true),
            ("**", "", true),
            ("A:*", "a:b", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    /// Matches a glob in the simplest way, as a reference.
    fn is_match(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], []) => true,
            (['*', rest @ ..], _) => (0..=text.len()).any(|skipped| is_match(rest, &text[skipped..])),
            (['?', rest @ ..], [_, left @ ..]) => is_match(rest, left),
            ([c, rest @ ..], [d, left @ ..]) => c == d && is_match(rest, left),
            _ => false,
        }
    }

    proptest! {
        #[test]
        fn as_the_definition_says(pattern in "[aäb*?]{0,8}", text in "[aäb]{0,9}") {
            let chars = |text: &str| text.chars().collect::<Vec<char>>();
            prop_assert_eq!(matches(&pattern, &text), is_match(&chars(&pattern), &chars(&text)));
        }
    }

    #[test]
    fn a_hostile_pattern_stays_cheap() {
        let name = "a".repeat(320);
        // counted in characters, since a clock would measure the machine
        assert_eq!(behind(&format!("?{}b", "a".repeat(290)), &name), None);
        assert!(!matches(&"*a".repeat(100), &"b".repeat(10_000)));
        assert!(!matches(&format!("*?{}b*", "a".repeat(290)), &name));
        let far = format!("{}xyz", "a".repeat(300));
        assert!(matches("*?y*", &far) && matches("*x?z*", &far));
    }

    #[test]
    fn what_there_was_is_shared() {
        let list = |pattern: &str| vec![pattern.to_owned()];
        let tenants = Globs::of([&list("a:*"), &list("b:*")]);
        let keys = tenants.and(&list("a:b"));
        assert!(tenants.share(&keys) && !keys.share(&tenants), "{keys:?}");
        assert!(Arc::ptr_eq(&tenants.and(&list("*")).0, &tenants.0), "what allows everything adds nothing");
        assert!(!tenants.share(&Globs::of([&list("a:*"), &list("b:*")])), "equal, and another");
    }

    #[test]
    fn scopes_are_equal_by_what_they_say() {
        let list =
            |patterns: &[&str]| patterns.iter().map(|pattern| (*pattern).to_owned()).collect::<Vec<_>>();
        let (one, other, all) = (list(&["a:*", "b:*"]), list(&["a:*"]), list(&["x", "*"]));
        assert_eq!(Globs::of([&one, &all]), Globs::of([&one]));
        assert_ne!(Globs::of([&one]), Globs::of([&other]));
        assert_ne!(Globs::of([&one]), Globs::of([&other, &list(&["b:*"])]));
        assert!(Globs::of([]).allows("any") && !Globs::of([&list(&[])]).allows("any"));
        let both = Globs::of([&one, &other]);
        assert!(both.allows("a:x") && !both.allows("b:x"));
    }
}
