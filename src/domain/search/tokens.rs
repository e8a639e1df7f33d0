//! Conversion of text to search terms: identifiers are split, words are stemmed, stop words are left out.
//!
//! Tool catalogues mix prose with identifiers in every spelling, so `createIssue`, `create_issue` and
//! "Creating issues" must all become the same terms.

use std::borrow::Cow;

use rust_stemmers::{Algorithm, Stemmer};

/// Longest run of letters and digits that is read as a word, in bytes. Longer ones are data (keys, encoded
/// files), which nobody searches for.
pub(super) const WORD_BYTES_MAX: usize = 128;

/// Words that carry no meaning in a question about tools, and the letters after an apostrophe. Sorted.
const STOP_WORDS: [&str; 68] = [
    "a", "about", "am", "an", "and", "are", "as", "at", "be", "been", "but", "by", "can", "could", "d",
    "did", "do", "does", "for", "from", "had", "has", "have", "how", "i", "if", "in", "into", "is", "it",
    "its", "ll", "m", "me", "my", "of", "on", "or", "our", "please", "s", "should", "so", "some", "t",
    "than", "that", "the", "their", "them", "then", "there", "these", "they", "this", "those", "to", "us",
    "ve", "was", "we", "were", "what", "which", "will", "with", "would", "you",
];

/// Kind of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Word on its own.
    Word,
    /// Whole word of two or more parts: `github` for "GitHub". Its parts follow.
    Compound,
    /// Part of the compound before it.
    Part,
}

/// Calls `visit` with every piece of `text`, in lower case and in order.
pub(super) fn for_each_piece(text: &str, mut visit: impl FnMut(Piece, &str)) {
    let mut splitter = Splitter::default();
    for run in text.split(|c| !is_word_char(c)).filter(|run| !run.is_empty()) {
        if run.bytes().all(|byte| byte.is_ascii_lowercase()) {
            if run.len() <= WORD_BYTES_MAX {
                visit(Piece::Word, run);
            }
            continue;
        }
        let mut rest = run;
        while let Some(first) = rest.chars().next() {
            let unspaced = is_unspaced(first);
            let end = rest.find(|c| is_unspaced(c) != unspaced).unwrap_or(rest.len());
            let (segment, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
            rest = tail;
            if unspaced {
                splitter.pairs(segment, &mut visit);
            } else if segment.len() <= WORD_BYTES_MAX {
                splitter.identifier(segment, &mut visit);
            }
        }
    }
}

/// Converter of words to index terms.
pub(super) struct Terms(Stemmer);

impl Terms {
    /// Creates the converter for English.
    pub(super) fn english() -> Self {
        Self(Stemmer::create(Algorithm::English))
    }

    /// Returns whether a lower-case word is a stop word.
    pub(super) fn is_stop_word(&self, word: &str) -> bool {
        STOP_WORDS.binary_search(&word).is_ok()
    }

    /// Returns the term of a lower-case `word`; `None` for a stop word.
    pub(super) fn term<'w>(&self, word: &'w str) -> Option<Cow<'w, str>> {
        if self.is_stop_word(word) {
            return None;
        }
        // the stemmer knows English; words in other scripts, and numbers, are their own terms
        if !word.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return Some(Cow::Borrowed(word));
        }
        let stem = self.0.stem(word);
        match spelled_out(&stem) {
            Some(full) => Some(self.0.stem(full)),
            None => Some(stem),
        }
    }
}

/// Returns the full form of a common abbreviation, which tool authors and callers use interchangeably.
fn spelled_out(stem: &str) -> Option<&'static str> {
    Some(match stem {
        "config" => "configuration",
        "db" => "database",
        "dir" => "directory",
        "doc" => "document",
        "env" => "environment",
        "img" => "image",
        "msg" => "message",
        "org" => "organization",
        "param" => "parameter",
        "repo" => "repository",
        _ => return None,
    })
}

/// Buffers reused from one run of text to the next.
#[derive(Default)]
struct Splitter {
    chars: Vec<char>,
    lower: String,
    ends: Vec<usize>,
}

impl Splitter {
    /// Visits each pair of neighbouring characters as a word, for scripts without spaces between words.
    fn pairs(&mut self, segment: &str, visit: &mut impl FnMut(Piece, &str)) {
        self.chars.clear();
        self.chars.extend(segment.chars());
        if self.chars.len() == 1 {
            visit(Piece::Word, segment);
            return;
        }
        for pair in self.chars.windows(2) {
            self.lower.clear();
            self.lower.extend(pair);
            visit(Piece::Word, &self.lower);
        }
    }

    /// Splits where case or kind changes. A word that was split is also visited whole, as callers search for
    /// "GitHub" as "github".
    fn identifier(&mut self, segment: &str, visit: &mut impl FnMut(Piece, &str)) {
        self.chars.clear();
        self.chars.extend(segment.chars());
        self.lower.clear();
        self.ends.clear();
        for (at, c) in self.chars.iter().enumerate() {
            if at > 0 && splits_before(&self.chars, at) {
                self.ends.push(self.lower.len());
            }
            self.lower.extend(c.to_lowercase());
        }
        if self.ends.is_empty() {
            visit(Piece::Word, &self.lower);
            return;
        }
        self.ends.push(self.lower.len());
        visit(Piece::Compound, &self.lower);
        let mut start = 0;
        for &end in &self.ends {
            if let Some(part) = self.lower.get(start..end) {
                visit(Piece::Part, part);
            }
            start = end;
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Upper,
    Lower,
    Digit,
}

fn class_at(chars: &[char], at: usize) -> Option<Class> {
    let c = *chars.get(at)?;
    Some(if c.is_numeric() {
        Class::Digit
    } else if c.is_uppercase() {
        Class::Upper
    } else {
        Class::Lower
    })
}

/// Returns whether a part begins at `at`, which is not the first character.
fn splits_before(chars: &[char], at: usize) -> bool {
    let Some(before) = at.checked_sub(1) else { return false };
    let (Some(previous), Some(current)) = (class_at(chars, before), class_at(chars, at)) else {
        return false;
    };
    match (previous, current) {
        (Class::Lower, Class::Upper) => true,
        (Class::Upper, Class::Upper) => {
            class_at(chars, at + 1) == Some(Class::Lower) && !is_plural_mark(chars, at + 1)
        }
        (Class::Upper, Class::Lower) => is_plural_mark(chars, at),
        (Class::Digit, Class::Digit) | (Class::Lower, Class::Lower) => false,
        (Class::Digit, _) | (_, Class::Digit) => true,
    }
}

/// Returns whether there is a plural `s` at `at`, a lone one after an acronym: "URLs", "listPRsByAuthor".
fn is_plural_mark(chars: &[char], at: usize) -> bool {
    let acronym = at >= 2
        && class_at(chars, at - 1) == Some(Class::Upper)
        && class_at(chars, at - 2) == Some(Class::Upper);
    acronym && chars.get(at) == Some(&'s') && class_at(chars, at + 1) != Some(Class::Lower)
}

/// Returns whether a character is part of a word: a letter, a digit, or a combining mark of decomposed text.
fn is_word_char(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '\u{300}'..='\u{36f}')
}

/// Returns whether a character is of a script without spaces: Han, kana and hangul.
fn is_unspaced(c: char) -> bool {
    matches!(c,
        '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
        | '\u{f900}'..='\u{faff}' | '\u{ff66}'..='\u{ff9f}' | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(text: &str, wanted: impl Fn(Piece) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for_each_piece(text, |piece, word| {
            if wanted(piece) {
                found.push(word.to_owned());
            }
        });
        found
    }

    #[test]
    fn identifiers_are_split_in_every_spelling() {
        let table: &[(&str, &[&str])] = &[
            ("create_issue", &["create", "issue"]),
            ("create-issue", &["create", "issue"]),
            ("createIssue", &["create", "issue"]),
            ("CreateIssue", &["create", "issue"]),
            ("CREATE_ISSUE", &["create", "issue"]),
            ("issues.create", &["issues", "create"]),
            ("github:create_issue", &["github", "create", "issue"]),
            ("HTTPServer", &["http", "server"]),
            ("getHTTPSUrl", &["get", "https", "url"]),
            ("base64Encode", &["base", "64", "encode"]),
            ("__private__", &["private"]),
            ("listPRsByAuthor", &["list", "pr", "s", "by", "author"]),
            ("URLs", &["url", "s"]),
            ("As", &["as"]),
            ("l'été ÉCOLE", &["l", "été", "école"]),
            ("搜索GitHub仓库", &["搜索", "git", "hub", "仓库"]),
            ("東京都", &["東京", "京都"]),
            ("🚀 ... ::", &[]),
            ("", &[]),
        ];
        for (text, expected) in table {
            assert_eq!(pieces(text, |piece| piece != Piece::Compound), *expected, "{text}");
        }
    }

    #[test]
    fn what_was_split_is_also_visited_whole() {
        for (text, expected) in
            [("GitHub", "github"), ("OAuth2", "oauth2"), ("PostgreSQL", "postgresql"), ("s3", "s3")]
        {
            assert_eq!(pieces(text, |piece| piece == Piece::Compound), [expected], "{text}");
        }
        assert!(pieces("create_issue List", |piece| piece == Piece::Compound).is_empty());
    }

    #[test]
    fn data_is_not_read_as_words() {
        let longest = "a".repeat(WORD_BYTES_MAX);
        assert_eq!(pieces(&longest, |_| true), [longest.as_str()]);
        assert!(pieces(&format!("{longest}a"), |_| true).is_empty());
        assert!(pieces(&format!("{longest}A"), |_| true).is_empty());
    }

    #[test]
    fn different_forms_of_a_word_are_one_term() {
        let terms = Terms::english();
        for (one, other) in [
            ("issues", "issue"),
            ("queries", "query"),
            ("created", "creating"),
            ("repositories", "repo"),
            ("repos", "repository"),
            ("docs", "documentation"),
        ] {
            assert_eq!(terms.term(one), terms.term(other), "{one} {other}");
            assert!(terms.term(one).is_some(), "{one}");
        }
        assert_ne!(terms.term("issue"), terms.term("query"));
        assert_eq!(terms.term("été").as_deref(), Some("été"));
        assert_eq!(terms.term("the"), None);
    }

    #[test]
    fn the_stop_words_are_sorted() {
        assert!(STOP_WORDS.is_sorted());
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_failing(text in "\\PC{0,200}|[a-zA-Z0-9_ ]{0,200}") {
            let terms = Terms::english();
            for_each_piece(&text, |_, word| {
                assert!(!word.is_empty());
                let _: Option<Cow<'_, str>> = terms.term(word);
            });
        }

        #[test]
        fn spelling_does_not_change_the_words(words in proptest::collection::vec("[a-z]{2,8}", 1..5)) {
            let camel: String = words.iter().map(|word| {
                let (head, tail) = word.split_at(1);
                head.to_uppercase() + tail
            }).collect();
            for spelled in [words.join("_"), words.join("-"), words.join("."), camel] {
                prop_assert_eq!(pieces(&spelled, |piece| piece != Piece::Compound), words.clone());
            }
        }
    }
}
