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

/// Returns a number of seconds in the largest unit that it is a whole number of, such as `30 min`.
pub fn whole_seconds(seconds: u64) -> String {
    match seconds {
        s if s > 0 && s % 3600 == 0 => format!("{} h", s / 3600),
        s if s > 0 && s % 60 == 0 => format!("{} min", s / 60),
        s => format!("{s} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_shown_in_whole_units() {
        let shown = [0, 30, 90, 600, 1800, 3600, 5400, 86_400].map(whole_seconds);
        assert_eq!(shown, ["0 s", "30 s", "90 s", "10 min", "30 min", "1 h", "90 min", "24 h"]);
    }
}
