//! Names that a wrong name was most likely meant to be.

/// Most characters of the wrong name that are compared.
const COMPARED_CHARS_MAX: usize = 80;

/// Returns the candidate that `name` was most likely meant to be; `None` if none is close.
pub fn closest<'a>(name: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let name: String = name.chars().take(COMPARED_CHARS_MAX).collect::<String>().to_ascii_lowercase();
    let allowed = (name.chars().count() / 4).max(2);
    candidates
        .map(|candidate| (distance_of_names(&name, candidate), candidate))
        .min_by_key(|(distance, _)| *distance)
        .filter(|(distance, _)| *distance <= allowed)
        .map(|(_, candidate)| candidate)
}

/// Returns the edit distance of two names; the right key in a wrong section is at most 2 away.
fn distance_of_names(name: &str, candidate: &str) -> usize {
    let whole = distance(name, &candidate.to_ascii_lowercase());
    let last = |text: &str| text.rsplit('.').next().unwrap_or_default().to_owned();
    if name.contains('.') && last(name) == last(candidate) { whole.min(2) } else { whole }
}

/// Returns the Levenshtein distance in characters.
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
