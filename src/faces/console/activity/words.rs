//! Meanings of the words on the page of a record.

use crate::domain::activity::RecordKind;
use crate::domain::annotations::Tier;
use crate::domain::consent::ConsentState;
use crate::domain::policy::Ruling;
use crate::faces::console::permissions;
use crate::store::ActivityRow;

/// Word of a record, with its meaning.
pub(super) struct Word {
    /// The word, as the page has it.
    pub(super) word: String,
    /// Meaning of the word, as a sentence.
    pub(super) means: &'static str,
}

/// Returns the words of a record and of the steps of its permission request that are not plain English, with their meanings.
pub(super) fn of(row: &ActivityRow, steps: &[ActivityRow]) -> Vec<Word> {
    let word = |word: &str, means| Word { word: word.to_owned(), means };
    let variant = row.tool_variant.as_ref().map(|_| {
        let means =
            "The variant of the call, which says what it may do at most: read, change (write), or destroy.";
        word("Called with", means)
    });
    let tier = row.tier.as_deref().and_then(Tier::parse).map(|tier| {
        let means = match tier {
            Tier::Read => "read: the server's annotations, or an override, say that the tool only reads.",
            Tier::Write => "write: the server's annotations, or an override, say that it changes something and destroys nothing.",
            Tier::Destructive => "destructive: the server's annotations, or an override, say that it may destroy something.",
            Tier::Unknown => "unknown: nobody says what the tool does.",
        };
        word("Tier of the tool", means)
    });
    let ruling = row.decision.as_deref().and_then(Ruling::parse).map(|ruling| {
        let means = match ruling {
            Ruling::Allowed => "allowed: rules, mode or a remembered decision let the call pass.",
            Ruling::WouldAsk => "would_ask: the call passed, since the mode is observe; in mode by_risk a person would be asked.",
            Ruling::WouldDeny => "would_deny: the call passed, since the mode is observe; in mode by_risk it would be refused.",
            Ruling::Asked => "asked: a person has to allow the call before it runs.",
            Ruling::Delegated => "delegated: the call passed, since the agent's own program asks its user.",
            Ruling::Denied => "denied: a rule, or a remembered decision, refused the call.",
        };
        word("Policy", means)
    });
    let (shown, _) = super::status_of_record(row);
    let status = super::status_words().into_iter().find(|(status, ..)| *status == shown);
    let status = status.map(|(status, _, means)| word(status, means));
    let mut words: Vec<Word> = [status, variant, tier, ruling].into_iter().flatten().collect();
    let is_step = |step: &&ActivityRow| step.kind == RecordKind::Consent.as_str();
    for tool in steps.iter().chain([row]).filter(is_step).filter_map(|step| step.tool.as_deref()) {
        let state = tool.strip_prefix("consent.").and_then(ConsentState::parse);
        if let Some(state) = state.filter(|_| !words.iter().any(|there| there.word == tool)) {
            words.push(word(tool, permissions::about(state)));
        }
    }
    words
}
