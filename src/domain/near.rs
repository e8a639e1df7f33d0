//! Names that a wrong name was most likely meant to be.

use super::glob;

/// Most characters of the wrong name that are compared.
const COMPARED_CHARS_MAX: usize = 80;
/// Characters of a glob that stand for others.
const WILDCARDS: [char; 2] = ['*', '?'];

/// Returns the candidate that `name` was most likely meant to be; `None` if none is close.
pub fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name: String = name.chars().take(COMPARED_CHARS_MAX).collect::<String>().to_ascii_lowercase();
    let allowed = (name.chars().count() / 4).max(2);
    candidates
        .map(|candidate| (distance_of_names(&name, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        // a name of which nothing is left is none that somebody meant
        .filter(|(distance, _)| *distance <= allowed && *distance < name.chars().count())
        .map(|(_, candidate)| candidate)
}

/// Returns the tool, or the glob on tools, that `name` was most likely meant to be; `None` if none is close. `name` may be a
/// glob and may lack its server; `known` are names of tools as `server:tool`. Reads all of them.
pub fn tool(name: &str, known: &[&str]) -> Option<String> {
    let parts = || known.iter().filter_map(|tool| Some((*tool, tool.split_once(':')?)));
    let with_own_name = |own: &str| parts().find(|(_, (_, tool))| *tool == own).map(|(tool, _)| tool);
    let Some((server, own)) = name.split_once(':') else {
        let close = || with_own_name(closest(name, parts().map(|(_, (_, tool))| tool))?);
        return with_own_name(name).or_else(close).map(str::to_owned);
    };
    if !server.contains(WILDCARDS) && parts().all(|(_, (known, _))| known != server) {
        let meant = closest(server, parts().map(|(_, (known, _))| known));
        let meant = meant.map(|server| format!("{server}:{own}"));
        if let Some(meant) = meant.filter(|meant| known.iter().any(|tool| glob::matches(meant, tool))) {
            return Some(meant);
        }
    }
    let close = closest(&name.replace(WILDCARDS, ""), known.iter().copied());
    close.or_else(|| with_own_name(own)).map(str::to_owned)
}

/// Returns the edit distance of two names; the right key in a wrong section is at most 2 away.
fn distance_of_names(name: &str, candidate: &str) -> usize {
    let whole = strsim::levenshtein(name, &candidate.to_ascii_lowercase());
    let last = |text: &str| text.rsplit('.').next().unwrap_or_default().to_owned();
    if name.contains('.') && last(name) == last(candidate) { whole.min(2) } else { whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_found_and_a_far_one_is_not() {
        let names = ["server.listen", "server.admin_listen", "limits.drain_s"];
        for (wrong, expected) in [
            ("server.lisen", Some("server.listen")),
            ("SERVER.LISTEN", Some("server.listen")),
            ("activity.drain_s", Some("limits.drain_s")),
            ("nothing.like.it", None),
        ] {
            assert_eq!(closest(wrong, names.into_iter()), expected, "{wrong}");
        }
        assert_eq!(closest("ab", ["xy"].into_iter()), None);
    }

    #[test]
    fn tools_are_found_by_either_part_of_their_name() {
        let known = ["github:delete_repo", "github:list_issues", "ops:query"];
        for (wrong, expected) in [
            ("delete_repo", Some("github:delete_repo")),
            ("list_isues", Some("github:list_issues")),
            ("gihub:delete_repo", Some("github:delete_repo")),
            ("gihub:*", Some("github:*")),
            ("gihub:delete_*", Some("github:delete_*")),
            ("github:delete_rep", Some("github:delete_repo")),
            ("github:delet_rep?", Some("github:delete_repo")),
            ("gitlab:query", Some("ops:query")),
            ("pg:*", None),
            ("unheard", None),
        ] {
            assert_eq!(tool(wrong, &known).as_deref(), expected, "{wrong}");
        }
    }
}
