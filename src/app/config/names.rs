//! Names of settings: how they are spelt in the environment, what else they are called, and what a wrong one
//! may have meant.

/// What every environment variable of a setting begins with.
pub(super) const PREFIX: &str = "MCPPROXY__";
/// Other names of settings, first the other name.
pub(super) const ALIASES: [(&str, &str); 1] = [("enable_direct_endpoint", "direct.enabled")];
/// Pairs of settings that mean the same.
pub(super) const SYNONYMS: [(&str, &str); 2] = [
    ("intent_declaration.mode", "defaults.intent_declaration"),
    ("intent_declaration.strict_server_validation", "defaults.strict_server_validation"),
];
/// Most characters of an unknown name that an error shows.
const SHOWN_CHARS_MAX: usize = 80;

/// The environment variable of a setting: `server.listen` is `MCPPROXY__SERVER__LISTEN`.
pub(super) fn variable(key: &str) -> String {
    format!("{PREFIX}{}", key.replace('.', "__").to_ascii_uppercase())
}

/// The setting that a name stands for once aliases are followed.
pub(super) fn canonical(name: &str) -> &str {
    ALIASES.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, key)| key)
}

/// A name made fit to be shown: bounded, without control characters.
pub(super) fn shown(name: &str) -> String {
    name.chars().take(SHOWN_CHARS_MAX).flat_map(char::escape_debug).collect()
}

/// The candidate that `name` was most likely meant to be, if one is close.
pub(super) fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name: String = name.chars().take(SHOWN_CHARS_MAX).collect::<String>().to_ascii_lowercase();
    let allowed = (name.chars().count() / 4).max(2);
    candidates
        .map(|candidate| (distance_of_names(&name, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= allowed)
        .map(|(_, candidate)| candidate)
}

/// How far `name` is from `candidate`; the right key in a wrong section counts as near.
fn distance_of_names(name: &str, candidate: &str) -> usize {
    let whole = distance(name, &candidate.to_ascii_lowercase());
    let last = |text: &str| text.rsplit('.').next().unwrap_or_default().to_owned();
    if name.contains('.') && last(name) == last(candidate) { whole.min(2) } else { whole }
}

/// Levenshtein distance in characters.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, l) in left.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        let mut before = i + 1;
        next.push(before);
        for (r, pair) in right.iter().zip(row.windows(2)) {
            let &[diagonal, above] = pair else { continue };
            before = (diagonal + usize::from(l != *r)).min(above + 1).min(before + 1);
            next.push(before);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (left, right, expected) in [("", "", 0), ("a", "", 1), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(left, right), expected, "{left} {right}");
            assert_eq!(distance(right, left), expected, "{right} {left}");
        }
    }

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
    }
}
