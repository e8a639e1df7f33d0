//! Permission request in a list of those that wait no more.

use super::card::{TOLD_CHARS_MAX, decided, ended_otherwise, state_of};
use crate::domain::consent::ConsentState;
use crate::domain::reason::ActionKey;
use crate::faces::console::moment::Moment;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::{short, short_told};
use crate::gateway::ConsentView;

/// Permission request in one line.
pub(super) struct RequestLine {
    /// Link to the request.
    pub(super) href: String,
    /// Action of the call, in words.
    pub(super) told: String,
    /// Beginning of the arguments; `None` where the action says what they are.
    pub(super) arguments: Option<String>,
    /// Language of `told`, as a tag.
    pub(super) language: &'static str,
    /// Canonical name of the tool.
    pub(super) tool: String,
    /// Level of risk.
    pub(super) risk: &'static str,
    /// Owner of the key that asked.
    pub(super) owner: String,
    /// Name of that key; `None` without one.
    pub(super) key_name: Option<String>,
    /// State of the request.
    pub(super) state: String,
    /// Class by which the state stands out.
    pub(super) tone: &'static str,
    /// Decision, the person who decided and the way; `None` without a decision.
    pub(super) decided_by: Option<String>,
    /// Time of the decision; `None` without one.
    pub(super) decided: Option<Moment>,
    /// Time of the ask.
    pub(super) created: Moment,
}

impl RequestLine {
    /// Creates the line of a request for a visitor. `key_name` is the name of the key that asked, if it has one.
    pub(super) fn of(visit: &PageVisit, view: &ConsentView, key_name: Option<&String>) -> RequestLine {
        let (row, language) = (&view.row, visit.language());
        RequestLine {
            href: super::href_of(row.id),
            told: short_told(&view.told_shortly(language), TOLD_CHARS_MAX),
            arguments: arguments(view),
            language: language.as_str(),
            tool: format!("{}:{}", row.server, row.tool),
            risk: view.risk.as_str(),
            owner: row.owner.clone(),
            key_name: key_name.cloned(),
            state: state_of(view),
            tone: tone(row.state.known()),
            decided_by: decided(view).or_else(|| ended_otherwise(view).map(str::to_owned)),
            decided: row.decided_at.map(|at| Moment::new(at, visit.now())),
            created: Moment::new(row.created_at, visit.now()),
        }
    }
}

/// Returns the beginning of a call's arguments, by which it is told from others; `None` where the words for its action have them.
pub(super) fn arguments(view: &ConsentView) -> Option<String> {
    let is_generic = view.row.action == ActionKey::Call.as_str();
    is_generic.then(|| short(&view.row.arguments, TOLD_CHARS_MAX))
}

fn tone(state: Option<ConsentState>) -> &'static str {
    match state {
        Some(ConsentState::Succeeded) => "good",
        Some(ConsentState::Pending | ConsentState::Granted | ConsentState::Consumed) => "open",
        Some(ConsentState::Failed | ConsentState::Unknown) => "bad",
        _ => "held",
    }
}
