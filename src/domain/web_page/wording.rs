//! Words of a site, made fit for names and quotations in tool definitions.
//!
//! A site's author is a stranger who may write for the model and not for people. Texts are cleaned, judged and cut; a
//! suspicious one is not quoted at all, and the gateway's own words stand in its place.

mod fold;
mod phrases;
#[cfg(test)]
mod tests;

use crate::domain::text_enum::text_enum;
use crate::domain::unseen::is_deceptive;
pub(super) use crate::domain::unseen::is_unseen;
pub(super) use fold::{folded, unparted_words, words};

/// Longest quotation of a site's text, in characters.
pub const SITE_TEXT_CHARS_MAX: usize = 300;
/// Longest name of a tool or parameter that is made of a site's text, in characters.
pub const SITE_NAME_CHARS_MAX: usize = 48;
/// Longest text of a site that is looked at, in bytes.
const LOOK_BYTES_MAX: usize = 4096;

text_enum! {
    /// Reason why a site's text is not quoted.
    pub enum Suspicion {
        /// Characters that change the order of others, or that nobody sees.
        HiddenCharacters = "hidden_characters",
        /// Markup, or marks of a conversation's roles.
        Markup = "markup",
        /// A link or an address.
        Link = "link",
        /// Words that tell a model, or its user, what to do.
        Instruction = "instruction",
    }
}

/// Returns a site's text in one line, fit for a quotation; `None` if nothing is left of it.
///
/// # Errors
/// The reason why the text must not be quoted.
pub fn site_text(raw: &str) -> Result<Option<String>, Suspicion> {
    let looked_at = beginning(raw);
    if looked_at.chars().any(is_deceptive) {
        return Err(Suspicion::HiddenCharacters);
    }
    let line = one_line(looked_at);
    if let Some(suspicion) = phrases::suspicion(&line) {
        return Err(suspicion);
    }
    Ok(cut(&line, SITE_TEXT_CHARS_MAX))
}

/// Returns a text that says what a site wrote, for reports that people read: in one line and cut, whatever it says.
pub fn shown(raw: &str) -> String {
    cut(&one_line(beginning(raw)), SITE_TEXT_CHARS_MAX).unwrap_or_default()
}

/// Returns a name over `[a-z0-9_]` made of a site's text; `None` if nothing is left, or the text must not be quoted.
pub fn site_name(raw: &str) -> Option<String> {
    let text = site_text(raw).ok()??;
    let words = words(&text);
    if phrases::suspicion(&words.join(" ")).is_some() {
        return None;
    }
    let mut name = String::new();
    for word in words {
        if !name.is_empty() {
            name.push('_');
        }
        name.extend(word.chars().filter(char::is_ascii_alphanumeric));
    }
    let name: String = name.chars().take(SITE_NAME_CHARS_MAX).collect();
    let name = name.trim_matches('_').to_owned();
    (!name.is_empty()).then_some(name)
}

/// Returns a control's name as the name of a parameter: itself where models' providers accept it, else made of its words.
/// `None` if nothing is left, or the name must not be quoted.
pub fn parameter_name(raw: &str) -> Option<String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    if raw.len() <= SITE_NAME_CHARS_MAX && raw.chars().all(is_plain) {
        site_name(raw).map(|_| raw.to_owned())
    } else {
        site_name(raw)
    }
}

/// Returns a quotation: the text between marks that it cannot end.
pub fn quoted(text: &str) -> String {
    format!("“{}”", text.replace(['"', '“', '”', '„', '«', '»'], "'"))
}

/// Returns the beginning of a text that is looked at, whole characters only.
fn beginning(raw: &str) -> &str {
    raw.get(..raw.floor_char_boundary(LOOK_BYTES_MAX)).unwrap_or(raw)
}

/// Returns the text in one line of visible characters.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars().filter(|c| !is_unseen(*c)) {
        let is_space = c.is_whitespace() || c.is_control();
        if !is_space {
            line.push(c);
        } else if !line.ends_with(' ') && !line.is_empty() {
            line.push(' ');
        }
    }
    line.truncate(line.trim_end().len());
    line
}

/// Returns the text with at most this many characters, an ellipsis where it was cut; `None` for an empty one.
fn cut(line: &str, chars_max: usize) -> Option<String> {
    let mut text: String = line.chars().take(chars_max).collect();
    if text.len() < line.len() {
        text.pop();
        text.push('…');
    }
    (!text.is_empty()).then_some(text)
}
