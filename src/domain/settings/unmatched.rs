//! Warning about a list of globs that leaves keys without tools.

use std::borrow::Cow;

use crate::domain::brief::{listed, short};
use crate::domain::glob::{self, Globs};
use crate::domain::near;

/// Most comparisons of a glob with a tool. Longer lists get no warning.
const COMPARISONS_MAX: usize = 2_000_000;
/// Globs for which a near name is searched, the first ones: each search reads all names.
const MEANT_MAX: usize = 5;
/// Most keys or globs that a warning names.
const NAMED_MAX: usize = 5;
/// Longest name or glob in a warning, in characters.
const NAME_CHARS_MAX: usize = 60;

/// Returns a warning about a value of `allowed_tools` that matches none of the `known` tools; `None` if it matches one, or no tool is known.
pub fn unmatched_tools(globs: &[String], known: &[&str]) -> Option<String> {
    unmatched(globs, known, "no key sees a tool")
}

/// Returns the warning with its consequence.
fn unmatched(globs: &[String], known: &[&str], so: &str) -> Option<String> {
    let is_short = globs.len().saturating_mul(known.len()) <= COMPARISONS_MAX;
    let matches_one = || globs.iter().any(|glob| known.iter().any(|tool| glob::matches(glob, tool)));
    if known.is_empty() || !is_short || matches_one() {
        return None;
    }
    let meant = globs.iter().take(MEANT_MAX).find_map(|glob| near::tool(glob, known));
    let meant = meant.map_or_else(String::new, |meant| format!(" Did you mean '{meant}'?"));
    let of = match known.len() {
        1 => "does not match the 1 tool that is".to_owned(),
        number => format!("matches none of the {number} tools that are"),
    };
    Some(format!("allowed_tools {of} known and not blocked now: {so}.{meant}"))
}

/// Returns a warning about globs that match no tool; `None` without one.
pub fn idle_globs(globs: &[String], known: &[&str]) -> Option<String> {
    if known.is_empty() || globs.len().saturating_mul(known.len()) > COMPARISONS_MAX {
        return None;
    }
    let is_idle = |glob: &&String| !known.iter().any(|tool| glob::matches(glob, tool));
    let idle: Vec<&String> = globs.iter().filter(is_idle).collect();
    let named = |glob: &&String| match near::tool(glob, known) {
        Some(meant) => format!("{} (did you mean '{}'?)", name(glob), name(&meant)),
        None => name(glob).into_owned(),
    };
    (!idle.is_empty()).then(|| {
        format!(
            "these globs of allowed_tools match no tool that is known and not blocked now: {}.",
            listed(idle.iter().map(named), NAMED_MAX)
        )
    })
}

/// Returns a warning about a key's value of `allowed_tools` beside those of its tenant and the deployment: one that matches no tool, as
/// [`unmatched_tools`] does, or none that they let through.
pub fn unmatched_tools_within(
    globs: &[String],
    [tenant, deployment]: [&[String]; 2],
    known: &[&str],
) -> Option<String> {
    const SO: &str = "the key sees no tool";
    if let Some(warning) = unmatched(globs, known, SO) {
        return Some(warning);
    }
    let lists = [globs, tenant, deployment];
    let patterns: usize = lists.iter().map(|list| list.len()).sum();
    let is_short = patterns.saturating_mul(known.len()) <= COMPARISONS_MAX;
    let let_through = |tool: &str| lists.iter().all(|list| list.iter().any(|glob| glob::matches(glob, tool)));
    let is_fine = known.is_empty() || !is_short || known.iter().any(|tool| let_through(tool));
    match is_fine {
        true => idle_globs(globs, known),
        false => Some(format!(
            "allowed_tools has no tool in common with those of the tenant and the deployment, which hold as well: {SO}."
        )),
    }
}

/// Returns a warning about keys, each with its name and all lists that hold for it, that see none of the `known` tools; `None` without one. Keys
/// for which there is no time are left out, and a warning says so.
pub fn keys_without_tools(mut keys: Vec<(&str, &Globs)>, known: &[&str]) -> Option<String> {
    keys.sort_unstable_by_key(|(name, _)| *name);
    let all = keys.len();
    let mut left = COMPARISONS_MAX;
    keys.retain(|(_, globs)| {
        let rest = left.checked_sub(globs.patterns().saturating_mul(known.len()));
        left = rest.unwrap_or(left);
        rest.is_some()
    });
    let is_whole = keys.len() == all;
    keys.retain(|(_, globs)| !known.iter().any(|tool| globs.allows(tool)));
    let mut names: Vec<&str> = keys.into_iter().map(|(name, _)| name).collect();
    // a key and its successor have one name
    names.dedup();
    if names.is_empty() || known.is_empty() {
        return None;
    }
    let rest = if is_whole { "" } else { " Not all keys were looked at." };
    Some(format!(
        "keys whose own allowed_tools has no tool in common with the lists that hold as well see none: {}.{rest}",
        listed(names.into_iter().map(name), NAMED_MAX)
    ))
}

/// Returns a glob or name, cut to [`NAME_CHARS_MAX`] characters.
fn name(text: &str) -> Cow<'_, str> {
    short(text, NAME_CHARS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_keys_without_a_tool_of_the_tenant_are_found() {
        let warning = |globs: &[&str], outer: &[&str], known: &[&str]| {
            let list = |globs: &[&str]| globs.iter().map(|glob| (*glob).to_owned()).collect::<Vec<_>>();
            unmatched_tools_within(&list(globs), [&list(outer), &list(&["*"])], known)
        };
        let known = ["a:one", "b:two"];
        assert_eq!(warning(&["a:*"], &["*"], &known), None);
        assert_eq!(warning(&["a:*"], &["b:*", "a:o*"], &known), None);
        assert_eq!(warning(&["a:*"], &["b:*"], &[]), None);
        assert!(warning(&["a:*"], &["b:*"], &known).unwrap().contains("no tool in common"));
        assert!(warning(&["c:*"], &["b:*"], &known).unwrap().contains("matches none of the 2 tools"));
    }

    #[test]
    fn keys_that_a_narrower_list_leaves_without_tools_are_named() {
        let list = |glob: &str| vec![glob.to_owned()];
        let globs = |own: &str| Globs::of([&list("a:*"), &list(own)]);
        let (fits, apart) = (globs("a:o*"), globs("b:*"));
        let known = ["a:one", "b:two"];
        let warning = |keys: &[(&str, &Globs)], known: &[&str]| keys_without_tools(keys.to_vec(), known);
        assert_eq!(warning(&[("ci", &fits)], &known), None);
        assert_eq!(warning(&[("ci", &apart)], &[]), None);
        let one = warning(&[("ci", &fits), ("deploy", &apart)], &known).unwrap();
        assert!(one.ends_with("see none: deploy."), "{one}");
        let many: Vec<(&str, &Globs)> = ["g", "f", "e", "d", "c", "b", "a"].map(|name| (name, &apart)).into();
        assert!(warning(&many, &known).unwrap().ends_with("see none: a, b, c, d, e and 2 more."));
        assert!(warning(&[("a", &apart), ("a", &apart)], &known).unwrap().ends_with("see none: a."));
        // the lists of one key are too long to be compared, and hide no other key
        let patterns = vec!["x".to_owned(); COMPARISONS_MAX / known.len() + 1];
        let huge = Globs::of([&patterns]);
        let some = warning(&[("a", &huge), ("b", &apart)], &known).unwrap();
        assert!(some.ends_with("see none: b. Not all keys were looked at."), "{some}");
    }

    #[test]
    fn lists_that_match_nothing_are_found() {
        let warning = |globs: &[&str], known: &[&str]| {
            let globs: Vec<String> = globs.iter().map(|glob| (*glob).to_owned()).collect();
            unmatched_tools(&globs, known)
        };
        let known = ["op-first:read", "op-first:write"];
        let none = "allowed_tools matches none of the 2 tools that are known and not blocked now: no key sees a tool.";
        assert_eq!(warning(&["op-"], &known).as_deref(), Some(none));
        assert_eq!(warning(&[], &known).as_deref(), Some(none));
        let meant = format!("{none} Did you mean 'op-first:*'?");
        assert_eq!(warning(&["nothing", "op-firsts:*"], &known), Some(meant));
        let one = warning(&["x:*"], &["a:b"]).unwrap();
        assert!(
            one.starts_with("allowed_tools does not match the 1 tool that is known and not blocked now"),
            "{one}"
        );
        for globs in [&["op-*"][..], &["op-first:*", "*:read"], &["*"]] {
            assert_eq!(warning(globs, &known), None, "{globs:?}");
        }
        let globs = ["x:*", "*:read", "op-firsts:*"].map(str::to_owned);
        let some = idle_globs(&globs, &known).unwrap();
        assert!(some.ends_with("not blocked now: x:*, op-firsts:* (did you mean 'op-first:*'?)."), "{some}");
        assert_eq!(warning(&["x:*"], &[]), None);
    }
}
