//! Differences of two JSON texts, for people who review a changed definition before they approve it.

use super::canonical::canonical;
use super::json;

/// Deepest level at which members are compared one by one; deeper values are compared as a whole.
const DEPTH_MAX: usize = 32;
/// Most differences in one list.
const CHANGES_MAX: usize = 1000;
/// Most bytes of all paths in one list.
const PATHS_BYTES_MAX: usize = 256 * 1024;

/// Single difference between two JSON texts.
#[derive(Debug, PartialEq, Eq)]
pub struct TextChange<'a> {
    /// JSON pointer (RFC 6901) to the value.
    pub path: String,
    /// Raw value in the text before; `None` where the value is new.
    pub before: Option<&'a str>,
    /// Raw value in the text after; `None` where the value is gone.
    pub after: Option<&'a str>,
}

/// Differences of two texts.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Diff<'a> {
    /// Differences in the order of the text before; new members of an object come after its others.
    pub changes: Vec<TextChange<'a>>,
    /// True if there are more differences than `changes` has.
    pub is_cut: bool,
    paths_bytes: usize,
}

impl<'a> Diff<'a> {
    /// Compares two texts. The order of members, white space and the spelling of strings do not count. Numbers are
    /// compared as written.
    pub fn between(before: &'a str, after: &'a str) -> Diff<'a> {
        let mut diff = Diff::default();
        diff.values(&mut Vec::new(), Some(before), Some(after));
        diff
    }

    /// Compares two values at the path `place`, which is written as a pointer only where they differ.
    fn values(&mut self, place: &mut Vec<String>, before: Option<&'a str>, after: Option<&'a str>) {
        if before == after || self.is_cut {
            return;
        }
        if let (Some(before), Some(after)) = (before, after)
            && place.len() < DEPTH_MAX
            && (self.objects(place, before, after) || self.arrays(place, before, after))
        {
            return;
        }
        if let (Some(before), Some(after)) = (before, after)
            && canonical(before).is_ok_and(|before| canonical(after).is_ok_and(|after| before == after))
        {
            return;
        }
        self.paths_bytes += place.iter().map(|step| step.len() + 1).sum::<usize>();
        if self.changes.len() == CHANGES_MAX || self.paths_bytes > PATHS_BYTES_MAX {
            self.is_cut = true;
            return;
        }
        self.changes.push(TextChange { path: pointer(place), before, after });
    }

    fn below(
        &mut self,
        place: &mut Vec<String>,
        step: impl FnOnce() -> String,
        before: Option<&'a str>,
        after: Option<&'a str>,
    ) {
        if before != after && !self.is_cut {
            place.push(step());
            self.values(place, before, after);
            place.pop();
        }
    }

    /// Compares two objects member by member; false if either is not an object.
    fn objects(&mut self, place: &mut Vec<String>, before: &'a str, after: &'a str) -> bool {
        let (Ok(before), Ok(after)) = (json::top_level_members(before), json::top_level_members(after))
        else {
            return false;
        };
        let value_after: std::collections::HashMap<&str, &'a str> =
            after.iter().map(|member| (&*member.name, member.value)).collect();
        let names: std::collections::HashSet<&str> = before.iter().map(|member| &*member.name).collect();
        for member in &before {
            let after = value_after.get(&*member.name).copied();
            self.below(place, || member.name.to_string(), Some(member.value), after);
        }
        for member in after.iter().filter(|member| !names.contains(&*member.name)) {
            self.below(place, || member.name.to_string(), None, Some(member.value));
        }
        true
    }

    /// Compares two arrays index by index; false if either is not an array.
    fn arrays(&mut self, place: &mut Vec<String>, before: &'a str, after: &'a str) -> bool {
        let (Some(mut before), Some(mut after)) = (json::elements(before), json::elements(after)) else {
            return false;
        };
        for at in 0_usize.. {
            let (before, after) = (before.next(), after.next());
            if (before.is_none() && after.is_none()) || self.is_cut {
                break;
            }
            self.below(place, || at.to_string(), before, after);
        }
        true
    }
}

fn pointer(place: &[String]) -> String {
    place.iter().map(|step| format!("/{}", step.replace('~', "~0").replace('/', "~1"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_have_places() {
        let before = r#"{"name":"t","description":"a","inputSchema":{"a/b":1.0,"~":{"x":[1,2]},"same":"\u0061"},"gone":null}"#;
        let after = r#"{"inputSchema":{"same":"a","~":{"x":[1,3,4]},"a/b":1.00},"description":"b","name":"t","new":{}}"#;
        let diff = Diff::between(before, after);
        let shown: Vec<(&str, Option<&str>, Option<&str>)> =
            diff.changes.iter().map(|change| (&*change.path, change.before, change.after)).collect();
        assert_eq!(
            shown,
            [
                ("/description", Some(r#""a""#), Some(r#""b""#)),
                ("/inputSchema/a~1b", Some("1.0"), Some("1.00")),
                ("/inputSchema/~0/x/1", Some("2"), Some("3")),
                ("/inputSchema/~0/x/2", None, Some("4")),
                ("/gone", Some("null"), None),
                ("/new", None, Some("{}")),
            ]
        );
        assert!(!diff.is_cut);
        assert!(Diff::between(r#"{"a":1,"b":[ ]}"#, r#"{ "b":[],"\u0061":1}"#).changes.is_empty());
        assert_eq!(Diff::between("{}", "[]").changes.len(), 1);
    }

    #[test]
    fn it_is_bounded() {
        let many = |value: u32| format!("[{}]", vec![value.to_string(); CHANGES_MAX + 1].join(","));
        let (before, after) = (many(1), many(2));
        let diff = Diff::between(&before, &after);
        assert_eq!((diff.changes.len(), diff.is_cut), (CHANGES_MAX, true));
        let deep = |value: u32| format!("{}{value}{}", "[".repeat(60), "]".repeat(60));
        let (before, after) = (deep(1), deep(2));
        let diff = Diff::between(&before, &after);
        assert_eq!((diff.changes.len(), diff.is_cut), (1, false));
    }
}
