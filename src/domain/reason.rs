//! Reasons of permission requests: what a call will do, in words for the person who decides (R4).
//!
//! Four parts that never mix: what the gateway knows, the arguments, what the agent says, and what the tool's author says.
//! The action is stored as a key with values and worded for each reader; secrets are masked before anything is kept.

mod action;
mod form;
mod key;
mod question;
mod refused;
#[cfg(test)]
mod tests;
mod texts;

use super::log_line;
use super::redact::{self, Preview};
use super::risk::{Risk, RiskFacts, RiskPlace, RiskSignal};
use super::text_enum::text_enum;
use super::unseen::{is_unseen, with_marked_lookalikes};
use super::web_page::plan::FormPlan;
pub use action::CallAction;
pub use key::ActionKey;
pub use refused::{denial, turn_ended, whole_seconds};
pub use texts::risk_reasons;

/// Most languages of a header that are looked at.
const ACCEPTED_MAX: usize = 10;
/// Longest quotation of the agent's or the author's words, in characters.
const QUOTED_CHARS_MAX: usize = 300;
/// Longest arguments that are shown, in bytes.
pub const ARGUMENTS_BYTES_MAX: usize = 2048;
/// Mark of a line feed, as [`redact::preview_marked`] writes it.
const MARKED_BREAK: &str = "<U+000A>";
/// Step in which the length of what is masked is told, in bytes.
const MASKED_BYTES_STEP: usize = 16;
/// Longest name of a member that a place has, in characters.
const MEMBER_CHARS_MAX: usize = 40;
/// Longest text of others that is looked at for a quotation, in bytes.
const QUOTED_BYTES_MAX: usize = 4096;

text_enum! {
    /// Language of a reader; value of the setting `locale`.
    #[derive(Default)]
    pub enum Language {
        /// English, for everybody who asks for no other.
        #[default]
        English = "en",
        /// German.
        German = "de",
    }
}

impl Language {
    /// Returns the language of a tag such as `de-AT`; `None` if there are no texts in it.
    pub fn of_tag(tag: &str) -> Option<Language> {
        match tag.trim().split(['-', '_']).next().unwrap_or_default() {
            primary if primary.eq_ignore_ascii_case("en") => Some(Language::English),
            primary if primary.eq_ignore_ascii_case("de") => Some(Language::German),
            _ => None,
        }
    }

    /// Returns the language that a header `Accept-Language` asks for first; `None` if there are no texts in any.
    pub fn accepted(header: &str) -> Option<Language> {
        let tags = header.split(',').take(ACCEPTED_MAX);
        tags.filter_map(|tag| Language::of_tag(tag.split(';').next()?)).next()
    }
}

/// Reason of a permission request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AskReason {
    /// Action of the call.
    pub action: CallAction,
    /// Server of the tool.
    pub server: String,
    /// The tool's own name.
    pub tool: String,
    /// Risk with its signals.
    pub risk: Risk,
    /// Masked beginning of the arguments. The length of what is masked is a multiple of 16, so that it does not tell the length of a secret.
    pub arguments: Preview,
    /// Length of the arguments, in bytes.
    pub arguments_bytes: usize,
    /// The caller's words, masked and cut; `None` if there are none.
    pub agent_says: Option<String>,
    /// The words of the tool's author, masked and cut; `None` if there are none.
    pub author_says: Option<String>,
}

impl AskReason {
    /// Creates the reason of a request. `agent` is the declared reason of the call, `author` the tool's description.
    pub fn new(facts: &RiskFacts<'_>, risk: Risk, agent: Option<&str>, author: Option<&str>) -> AskReason {
        let (server, tool) = facts.name.split_once(':').unwrap_or(("", facts.name));
        let arguments = marked(facts.arguments, ARGUMENTS_BYTES_MAX);
        AskReason {
            action: CallAction::of(facts, risk),
            server: one_line(server, QUOTED_BYTES_MAX),
            tool: one_line(tool, QUOTED_BYTES_MAX),
            risk,
            arguments: Preview { masked: arguments.masked.next_multiple_of(MASKED_BYTES_STEP), ..arguments },
            arguments_bytes: facts.arguments.len(),
            agent_says: agent.and_then(quotation),
            author_says: author.and_then(quotation),
        }
    }

    /// Makes the reason one about the form that the call submits.
    pub fn about_form(mut self, plan: &FormPlan) -> AskReason {
        let (values, was_cut) = form::values(plan);
        self.action = CallAction::of_form(values, self.risk);
        self.arguments.truncated |= was_cut;
        self
    }

    /// Returns the lines to show, without the arguments themselves. Arguments that are longer than what is shown, or masked in part, say so first.
    pub fn lines(&self, language: Language) -> Vec<String> {
        let mut lines = hidden(self.arguments.truncated, self.arguments.masked, language);
        lines.push(self.action.sentence(language));
        let words = (self.agent_says.as_deref(), self.author_says.as_deref());
        lines.extend(details(self.risk, (&self.server, &self.tool), words, language));
        lines
    }
}

/// Returns warnings about arguments that are not shown whole: `was_cut` for those that are longer, `masked` for the bytes that are masked.
pub fn hidden(was_cut: bool, masked: usize, language: Language) -> Vec<String> {
    let cut = was_cut.then(|| texts::CUT.of(language).to_owned());
    cut.into_iter().chain((masked > 0).then(|| texts::masked(masked, language))).collect()
}

/// Returns the lines beside the action of a request: the risk of the tool's call, and what the agent and the tool's author
/// say.
pub fn details(
    risk: Risk,
    (server, tool): (&str, &str),
    (agent, author): (Option<&str>, Option<&str>),
    language: Language,
) -> Vec<String> {
    let mut lines = vec![texts::risk(risk, server, tool, language)];
    for (label, words) in [(&texts::AGENT, agent), (&texts::AUTHOR, author)] {
        lines.extend(words.map(|words| format!("{} {}", label.of(language), texts::quoted(words, language))));
    }
    lines
}

/// Returns a line for each place in the arguments that raises the risk: the reason, and what is there. Places without a name or text have none. Signals
/// whose place was not found have a line that says so.
pub fn place_lines(places: &[RiskPlace], not_found: &[RiskSignal], language: Language) -> Vec<String> {
    let line = |place: &RiskPlace| {
        let member: String = place.member.chars().take(MEMBER_CHARS_MAX).collect();
        let words: Vec<String> = [&member, &place.excerpt]
            .into_iter()
            .filter_map(|text| Some(texts::quoted(&quotation(text)?, language)))
            .collect();
        let reason = texts::reason(place.signal, language);
        (!words.is_empty()).then(|| format!("{reason}: {}", words.join(": ")))
    };
    let unseen = |signal: &RiskSignal| {
        format!("{}: {}", texts::reason(*signal, language), texts::NOT_FOUND.of(language))
    };
    places.iter().filter_map(line).chain(not_found.iter().map(unseen)).collect()
}

/// Makes the words of others fit for a quotation: one line, masked, cut, with marks for characters that nobody sees, and without quotation
/// marks that could end it.
pub fn quotation(text: &str) -> Option<String> {
    let line = marked(text, QUOTED_BYTES_MAX).text;
    let line = line.replace(texts::QUOTES, "'");
    let mut words: String = line.trim().chars().take(QUOTED_CHARS_MAX).collect();
    if words.len() < line.trim().len() {
        words.push('…');
    }
    (!words.is_empty()).then_some(words)
}

/// Returns the beginning of a text as one masked line, as [`value_line`] does.
fn one_line(text: &str, bytes_max: usize) -> String {
    value_line(text, bytes_max).text
}

/// Returns the beginning of a value as one masked line; a longer one, and one of which codes for terminals were taken out, ends with its length and
/// counts as cut. Line breaks, characters that nobody sees, and letters that pass for Latin ones are marks: whoever decides must see what the call
/// has. Blanks in a row are one, so that none push the rest out of sight.
fn value_line(text: &str, bytes_max: usize) -> Preview {
    let is_marked = |c: char| is_unseen(c) || c.is_control();
    let line = with_breaks(text);
    let Preview { text: shown, truncated, masked } = redact::preview_marked(&line, is_marked, bytes_max);
    let mut shown = with_marked_lookalikes(&shown.replace(MARKED_BREAK, "⏎ "));
    // after the masks, which tell values apart by their blanks
    shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_cut = truncated || shown.len() > bytes_max || line.contains(['\u{1b}', '\u{9b}']);
    if is_cut {
        shown.truncate(shown.floor_char_boundary(bytes_max));
        shown.push_str(&format!("… ({} B)", text.len()));
    }
    Preview { text: shown, truncated: is_cut, masked }
}

/// Returns the text with one blank, and behind it a line feed where there was a line break, for blanks, tabs and line breaks in a row: masks look at
/// the blank, and the line feed becomes a mark.
fn with_breaks(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    let mut blank: Option<bool> = None;
    for c in log_line::without_sequences(text).chars() {
        if matches!(c, ' ' | '\t') || is_break(c) {
            blank = Some(blank.unwrap_or(false) || is_break(c));
            continue;
        }
        match blank.take() {
            Some(true) => line.push_str(" \n"),
            Some(false) => line.push(' '),
            None => {}
        }
        line.push(c);
    }
    line
}

/// Returns the masked beginning of a text in one line, with marks for characters that nobody sees. A text of which codes for terminals
/// were taken out, since they could part a secret, counts as cut.
fn marked(text: &str, bytes_max: usize) -> Preview {
    let line = in_one_line(text);
    let is_marked = |c: char| is_unseen(c) || c.is_control();
    let preview = redact::preview_marked(&line, is_marked, bytes_max);
    Preview { truncated: preview.truncated || line.contains(['\u{1b}', '\u{9b}']), ..preview }
}

/// Returns the text in one line, with codes for terminals cut down to the character that begins them.
fn in_one_line(text: &str) -> String {
    let line: String = text.chars().map(|c| if c == '\t' || is_break(c) { ' ' } else { c }).collect();
    log_line::without_sequences(&line)
}

fn is_break(c: char) -> bool {
    matches!(c, '\n' | '\r' | '\u{2028}' | '\u{2029}' | '\u{85}')
}
