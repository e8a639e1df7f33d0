//! Spellings of the terms of an index, for words of a question that are spelled almost as one of them.

use std::ops::RangeInclusive;

/// Lengths of words and terms that are compared, in characters: shorter ones are near to too many others.
const CHARS: RangeInclusive<usize> = 4..=24;

/// Most terms that are compared with one word, those with the most letters in common first.
const COMPARED_MAX: usize = 100;

/// Spelling of a term.
#[derive(Debug)]
struct Spelling {
    first: char,
    chars: usize,
    /// Set of the letters.
    letters: u32,
    text: Box<str>,
    term: u32,
}

/// Spellings of terms, in the order of first letter, length and text.
#[derive(Debug, Default)]
pub(super) struct Spellings(Vec<Spelling>);

impl Spellings {
    /// Collects the spellings of terms with their ids.
    pub(super) fn of<'a>(terms: impl Iterator<Item = (&'a str, u32)>) -> Spellings {
        let spelling = |(text, term): (&'a str, u32)| {
            let (first, chars) = (text.chars().next()?, text.chars().count());
            let spelling = Spelling { first, chars, letters: letters(text), text: text.into(), term };
            (*CHARS.start() - 1..=*CHARS.end() + 2).contains(&chars).then_some(spelling)
        };
        let mut all: Vec<Spelling> = terms.filter_map(spelling).collect();
        all.sort_unstable_by(|a, b| (a.first, a.chars, &a.text).cmp(&(b.first, b.chars, &b.text)));
        Spellings(all)
    }

    /// Returns the ids of terms that are spelled almost as `word` and have the same first letter. At most [`COMPARED_MAX`] terms
    /// that `is_known` accepts are compared.
    pub(super) fn near(&self, word: &str, is_known: impl Fn(u32) -> bool) -> Vec<u32> {
        let length = word.chars().count();
        let allowed = match length {
            length if !CHARS.contains(&length) => 0,
            ..8 => 1,
            _ => 2,
        };
        let wanted = letters(word);
        // each change of a word adds or takes one letter, or both
        let candidates = (0..=2 * allowed).flat_map(|apart| {
            let alike = self.alike(word, length, allowed).iter();
            alike.filter(move |spelling| (spelling.letters ^ wanted).count_ones() == apart)
        });
        let compared =
            candidates.filter(|spelling| allowed > 0 && is_known(spelling.term)).take(COMPARED_MAX);
        let is_near = |spelling: &&Spelling| strsim::osa_distance(&spelling.text, word) <= allowed as usize;
        compared.filter(is_near).map(|spelling| spelling.term).collect()
    }

    /// Returns the spellings with the first letter of `word` whose length differs from `length` by at most `allowed`.
    fn alike(&self, word: &str, length: usize, allowed: u32) -> &[Spelling] {
        let Some(first) = word.chars().next() else { return &[] };
        let (least, most) = (length.saturating_sub(allowed as usize), length + allowed as usize);
        let start = self.0.partition_point(|spelling| (spelling.first, spelling.chars) < (first, least));
        let end = self.0.partition_point(|spelling| (spelling.first, spelling.chars) <= (first, most));
        self.0.get(start..end).unwrap_or_default()
    }
}

fn letters(text: &str) -> u32 {
    text.chars().fold(0, |letters, c| letters | (1 << (u32::from(c) % u32::BITS)))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn words_are_near_that_differ_by_a_letter_or_two() {
        let terms = ["weather", "request", "repository", "git", "wither", "reqest", "x"];
        let spellings = Spellings::of(terms.into_iter().zip(0..));
        let near = |word: &str| {
            let near = spellings.near(word, |_| true).into_iter();
            let mut near: Vec<&str> = near.map(|term| terms[term as usize]).collect();
            near.sort_unstable();
            near.join(" ")
        };
        for (word, found) in [
            ("wether", "weather wither"),
            ("reqeust", "request reqest"),
            ("reqeusted", ""),
            ("repsoitroy", "repository"),
            ("epository", ""),
            ("gti", ""),
            ("", ""),
        ] {
            let mut found: Vec<&str> = found.split_whitespace().collect();
            found.sort_unstable();
            assert_eq!(near(word), found.join(" "), "{word}");
        }
    }

    /// A server may bring any number of terms that are nearly the same.
    #[test]
    fn the_number_of_comparisons_is_bounded() {
        let terms: Vec<String> = (0..10_000).map(|at| format!("aaaaaaa{at:04}")).collect();
        let spellings = Spellings::of(terms.iter().map(String::as_str).zip(0..));
        let asked = Cell::new(0);
        let near = spellings.near("aaaaaaa12345", |_| {
            asked.set(asked.get() + 1);
            true
        });
        assert!(!near.is_empty() && asked.get() == COMPARED_MAX, "{}", asked.get());
        assert!(spellings.near(&"a".repeat(30), |_| true).is_empty());
    }
}
