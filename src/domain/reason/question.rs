//! Texts of the gateway's own question, beside the reason.

use super::Language;
use super::texts::{Wording, say};
use crate::domain::consent::ConsentDecision;

const NOTHING: Wording =
    say("No permission request waits for an answer.", "Keine Anfrage wartet auf eine Antwort.");
const DECISION: Wording = say("Decision", "Entscheidung");

impl Language {
    /// Returns the label of the choice between decisions.
    pub fn decision(self) -> &'static str {
        DECISION.of(self)
    }

    /// Returns the label of one decision.
    pub fn choice(self, decision: ConsentDecision) -> &'static str {
        let label = match decision {
            ConsentDecision::AllowOnce => say("Allow this one call", "Diesen einen Aufruf erlauben"),
            ConsentDecision::AllowAlways => {
                say("Allow this tool for some hours", "Dieses Werkzeug für einige Stunden erlauben")
            }
            ConsentDecision::RejectOnce => say("Refuse this call", "Diesen Aufruf ablehnen"),
            ConsentDecision::RejectAlways => {
                say("Refuse this tool for some hours", "Dieses Werkzeug für einige Stunden ablehnen")
            }
            ConsentDecision::CancelTurn => {
                say("Stop everything in this turn", "Alles in diesem Durchgang abbrechen")
            }
        };
        label.of(self)
    }

    /// Returns the answer to whoever asks for open requests where there are none.
    pub fn nothing_waits(self) -> &'static str {
        NOTHING.of(self)
    }

    /// Returns the line with the id of a request and the end of its time.
    pub fn request(self, id: impl std::fmt::Display, until: &str) -> String {
        match self {
            Language::English => format!("Request {id}, until {until}."),
            Language::German => format!("Anfrage {id}, bis {until}."),
        }
    }
}
