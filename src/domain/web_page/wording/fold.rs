//! Folding of texts for comparisons with word lists: case, accents, compatible forms and look-alike letters fall away.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use super::is_unseen;

/// Cyrillic and Greek letters that look like Latin ones.
const LOOK_ALIKES: [(char, char); 30] = [
    ('а', 'a'),
    ('в', 'b'),
    ('с', 'c'),
    ('ԁ', 'd'),
    ('е', 'e'),
    ('һ', 'h'),
    ('і', 'i'),
    ('ј', 'j'),
    ('к', 'k'),
    ('м', 'm'),
    ('о', 'o'),
    ('р', 'p'),
    ('ԛ', 'q'),
    ('ѕ', 's'),
    ('т', 't'),
    ('у', 'y'),
    ('ѵ', 'v'),
    ('ԝ', 'w'),
    ('х', 'x'),
    ('α', 'a'),
    ('ε', 'e'),
    ('ι', 'i'),
    ('κ', 'k'),
    ('ν', 'v'),
    ('ο', 'o'),
    ('ρ', 'p'),
    ('τ', 't'),
    ('υ', 'u'),
    ('χ', 'x'),
    ('ı', 'i'),
];

/// Returns the text in lower case, without accents and characters that nobody sees, and with Latin letters for those that look like them.
pub(in super::super) fn folded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.nfkd().filter(|c| !is_combining_mark(*c) && !is_unseen(*c)).flat_map(char::to_lowercase) {
        match c {
            'ß' => out.push_str("ss"),
            'æ' => out.push_str("ae"),
            'œ' => out.push_str("oe"),
            'ø' => out.push('o'),
            'ł' => out.push('l'),
            _ if c.is_ascii() => out.push(c),
            _ => out.push(LOOK_ALIKES.iter().find(|(like, _)| *like == c).map_or(c, |(_, latin)| *latin)),
        }
    }
    out
}

/// Returns the folded words of a text. A capital after a small letter begins a word, so that `cardNumber` is two.
pub(in super::super) fn words(text: &str) -> Vec<String> {
    let mut parted = String::with_capacity(text.len());
    let mut was_small = false;
    for c in text.chars().filter(|c| !is_unseen(*c)) {
        if was_small && c.is_uppercase() {
            parted.push(' ');
        }
        was_small = c.is_lowercase() || c.is_numeric();
        parted.push(c);
    }
    unparted_words(&parted)
}

/// Returns the folded words of a text, which only other characters than letters and digits part.
pub(in super::super) fn unparted_words(text: &str) -> Vec<String> {
    let folded = folded(text);
    folded.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}
