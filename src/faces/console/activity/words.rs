//! Meanings of the words on the page of a record.

use crate::domain::annotations::Tier;
use crate::domain::consent::ConsentState;
use crate::domain::policy::Ruling;
use crate::faces::console::permissions;
use crate::store::ActivityRow;

/// Word of a record, with its meaning.
pub(super) struct Word {
    /// The word, as the page has it.
    pub(super) word: String,
    /// Its meaning, as a sentence.
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
            Tier::Read => "read: its server, or who has overridden that, says that the tool only reads.",
            Tier::Write => "write: its server, or who has overridden that, says that it changes something and destroys nothing.",
            Tier::Destructive => "destructive: its server, or who has overridden that, says that it may destroy something.",
            Tier::Unknown => "unknown: its server does not say what it does.",
        };
        word("Tier of the tool", means)
    });
    let ruling = row.decision.as_deref().and_then(Ruling::parse).map(|ruling| {
        let means = match ruling {
            Ruling::Allowed => "allowed: rules, mode or a remembered decision let the call run.",
            Ruling::WouldAsk => {
                "would ask: the call ran, since the mode is observe; in mode by risk a person would be asked."
            }
            Ruling::WouldDeny => {
                "would deny: the call ran, since the mode is observe; in mode by risk it would be refused."
            }
            Ruling::Asked => "asked: a person has to allow the call before it runs.",
            Ruling::Delegated => "delegated: the call ran, since the agent's own program asks its user.",
            Ruling::Denied => "denied: a rule, or a remembered decision, refused the call.",
        };
        word("Policy", means)
    });
    let mut words: Vec<Word> = [variant, tier, ruling].into_iter().flatten().collect();
    for tool in steps.iter().chain([row]).filter_map(|step| step.tool.as_deref()) {
        let state = tool.strip_prefix("consent.").and_then(ConsentState::parse);
        if let Some(state) = state.filter(|_| !words.iter().any(|there| there.word == tool)) {
            words.push(word(tool, permissions::about(state)));
        }
    }
    words
}
