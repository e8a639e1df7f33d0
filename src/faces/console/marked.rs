//! Values on pages: texts in which every character is seen.

use std::fmt::{self, Write};

use askama::filters::{Escaper, Html};

use crate::domain::unseen::is_unseen;

/// Escaper of the pages. Characters that nobody sees, or that change the order of others, become marks such as `<U+202E>`:
/// who approves a text must see all of it. Line ends and tabs stay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marked;

/// Returns whether a character is shown as a mark.
pub(super) fn is_marked(c: char) -> bool {
    is_unseen(c) || matches!(c, '\u{b}' | '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}')
}

impl Escaper for Marked {
    fn write_escaped_str<W: Write>(&self, mut dest: W, text: &str) -> fmt::Result {
        for part in text.split_inclusive(is_marked) {
            let plain = part.strip_suffix(is_marked).unwrap_or(part);
            Html.write_escaped_str(&mut dest, plain)?;
            if let Some(unseen) = part.chars().next_back().filter(|_| plain.len() < part.len()) {
                write!(dest, "&#60;U+{:04X}&#62;", u32::from(unseen))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unseen_characters_become_marks() {
        let marked = |text: &str| {
            let mut out = String::new();
            Marked.write_escaped_str(&mut out, text).unwrap();
            out
        };
        for (text, shown) in [
            ("", ""),
            ("a\tb\r\n<é>", "a\tb\r\n&#60;é&#62;"),
            ("a\u{202e}b\u{2066}", "a&#60;U+202E&#62;b&#60;U+2066&#62;"),
            ("\u{200b}\u{e0041}c", "&#60;U+200B&#62;&#60;U+E0041&#62;c"),
            ("\0\u{1b}\u{2028}\u{feff}", "&#60;U+0000&#62;&#60;U+001B&#62;&#60;U+2028&#62;&#60;U+FEFF&#62;"),
        ] {
            assert_eq!(marked(text), shown, "{text:?}");
        }
    }
}
