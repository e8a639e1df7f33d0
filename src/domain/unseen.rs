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
        || matches!(c, '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{180b}'..='\u{180f}')
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}')
        || matches!(c, '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}')
}
