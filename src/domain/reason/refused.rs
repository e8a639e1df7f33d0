//! Refusals of calls by the decision of a person, as the caller reads them.

use uuid::Uuid;

use crate::domain::consent::FENCE;
use crate::domain::refusal::{Code, Refusal};

/// Returns the refusal of a call that a person denied; `who` is the owner of the key that decided.
pub fn denial(id: Uuid, who: Option<&str>) -> Refusal {
    let who = who.unwrap_or("a person");
    let message = format!("Refused by {who} ({id}). Do not repeat this call");
    Refusal::new(Code::ConsentDenied, message).about_consent(id)
}

/// Returns the refusal of a call in a turn that a person ended. `began` says what became of the call, `until` when the fence
/// ends, where that is known.
pub fn turn_ended(began: &str, until: Option<&str>) -> Refusal {
    let until = match until {
        Some(until) => format!("until {until}"),
        None => format!("for {} s", FENCE.num_seconds()),
    };
    let message = format!(
        "{began} stopped this turn; no further calls until the next instruction. Calls that need permission are refused \
         {until}"
    );
    Refusal::new(Code::TurnCancelled, message)
}
