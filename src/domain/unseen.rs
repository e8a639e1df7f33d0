//! Characters that nobody sees, or that change the order in which others are seen.

/// Returns whether a character is one that no honest form needs: it changes the order of others, or carries text that nobody
/// sees.
pub fn is_deceptive(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..='\u{e0fff}')
        || matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}')
        || (c.is_control() && !c.is_whitespace())
}

/// Returns whether a character has no visible form.
pub fn is_unseen(c: char) -> bool {
    is_deceptive(c)
        || matches!(
            c,
            '\u{ad}'
                | '\u{34f}'
                | '\u{61c}'
                | '\u{17b4}'
                | '\u{17b5}'
                | '\u{2800}'
                | '\u{1d159}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{180b}'..='\u{180f}'
        )
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}')
        || matches!(c, '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}')
}

/// Returns a text in which Greek and Cyrillic letters are marks, such as `<U+0430>`, where they stand in one word with Latin ones: such a word
/// looks like another one.
pub fn with_marked_lookalikes(text: &str) -> String {
    let is_other = |c: char| matches!(c, '\u{370}'..='\u{3ff}' | '\u{400}'..='\u{52f}') && c.is_alphabetic();
    let mut out = String::with_capacity(text.len());
    for word in text.split_inclusive(|c: char| !c.is_alphanumeric()) {
        let is_mixed = word.contains(is_other) && word.contains(|c: char| c.is_ascii_alphabetic());
        for c in word.chars() {
            match is_mixed && is_other(c) {
                true => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
                false => out.push(c),
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_that_pass_for_latin_ones_are_marked_in_words_with_latin_ones() {
        for (text, expected) in [
            ("to \u{430}dmin@example.com", "to <U+0430>dmin@example.com"),
            ("p\u{430}ypal.ex\u{3bf}.org", "p<U+0430>ypal.ex<U+03BF>.org"),
            // words of one script are what they look like
            ("иван@example.com, Ωmega, σ 5µm straße", "иван@example.com, <U+03A9>mega, σ 5µm straße"),
            ("", ""),
        ] {
            assert_eq!(with_marked_lookalikes(text), expected, "{text}");
        }
    }
}
