//! Long texts and lists of names, cut to what a warning or a line has room for.

use std::borrow::{Borrow, Cow};

/// Returns a text of at most `chars_max` characters as it is, else its first `chars_max` characters and an ellipsis.
pub fn short(text: &str, chars_max: usize) -> Cow<'_, str> {
    match text.char_indices().nth(chars_max) {
        None => Cow::Borrowed(text),
        Some((at, _)) => Cow::Owned(format!("{}…", text.get(..at).unwrap_or_default())),
    }
}

/// Returns the first `named_max` names with commas between them, and how many more there are: `a, b and 3 more`. The names after them
/// are counted, not made.
pub fn listed<N: Borrow<str>>(names: impl ExactSizeIterator<Item = N>, named_max: usize) -> String {
    let more = names.len().saturating_sub(named_max);
    let mut list = names.take(named_max).collect::<Vec<N>>().join(", ");
    if more > 0 {
        list.push_str(&format!(" and {more} more"));
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_between_characters() {
        for (text, want) in [("", ""), ("éa", "éa"), ("éab", "éa…"), ("aéé", "aé…")] {
            assert_eq!(short(text, 2), want);
        }
    }

    #[test]
    fn lists_say_how_many_names_they_leave_out() {
        let names = ["a", "b", "c"];
        assert_eq!(listed(names.into_iter(), 3), "a, b, c");
        assert_eq!(listed(names.into_iter(), 2), "a, b and 1 more");
    }
}
