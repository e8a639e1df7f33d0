//! The gateway's own question to the person at a client, inside of a call (MCP 2026-07-28, multi-round-trip requests), and
//! the answer.

use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::refusals;
use super::{Consent, ConsentView, DecideRequest, failed};
use crate::domain::consent::{ConsentDecision, ConsentState, DecidedVia};
use crate::domain::policy::Assurance;
use crate::domain::reason::Language;
use crate::domain::refusal::Refusal;
use crate::domain::rounds::CONSENT_KEY;
use crate::gateway::error::GatewayError;
use crate::gateway::log::Attempt;

/// Request that waits for a person.
#[derive(Debug)]
pub(in crate::gateway) struct PendingAsk {
    /// The request.
    pub(in crate::gateway) view: ConsentView,
    /// Language of the person at the caller's client.
    pub(super) language: Language,
    /// Action of the call, in lines.
    pub(super) text: String,
    /// Refusal for a caller whose client cannot ask.
    pub(in crate::gateway) refusal: Refusal,
    /// True if the caller's own client is one that may ask.
    pub(in crate::gateway) is_in_band: bool,
}

/// Answer of a client to a form (MCP, `elicitation/create`).
#[derive(Deserialize)]
struct FormAnswer {
    action: String,
    #[serde(default)]
    content: Value,
}

impl PendingAsk {
    /// Returns the result that asks the person at the client, with the sealed state.
    pub(in crate::gateway) fn question(&self, state: &str) -> String {
        let choice = |decision: &ConsentDecision| json!({ "const": decision.as_str(), "title": self.language.choice(*decision) });
        let choices: Vec<Value> = self.view.options.iter().map(choice).collect();
        let title = self.language.decision();
        let schema = json!({
            "type": "object",
            "properties": { "decision": { "type": "string", "title": title, "oneOf": choices } },
            // no default: a host that fills in forms by itself must choose
            "required": ["decision"],
        });
        let params = json!({ "mode": "form", "message": self.text, "requestedSchema": schema });
        let request = json!({ "method": "elicitation/create", "params": params });
        json!({
            "resultType": "input_required",
            "inputRequests": { CONSENT_KEY: request },
            "requestState": state,
        })
        .to_string()
    }
}

/// Returns the decision in an answer; `None` if the person closed the form without one.
///
/// # Errors
/// The answer is none that was offered.
fn decision(raw: &[u8], options: &[ConsentDecision]) -> Result<Option<ConsentDecision>, ()> {
    let FormAnswer { action, content } = serde_json::from_slice(raw).map_err(|_| ())?;
    match action.as_str() {
        "accept" => {
            let word = content.get("decision").and_then(Value::as_str).ok_or(())?;
            let chosen = options.iter().find(|option| option.as_str() == word).ok_or(())?;
            Ok(Some(*chosen))
        }
        "decline" => Ok(Some(ConsentDecision::RejectOnce)),
        "cancel" => Ok(None),
        _ => Err(()),
    }
}

impl Consent {
    /// Takes the answer of the person at the caller's client. A request that somebody else has decided meanwhile, or that
    /// needs another kind of answer, stays as it is. Returns true if the person closed the form without an answer.
    ///
    /// # Errors
    /// The refusal of an answer that was not offered, or of a database out of reach.
    pub(in crate::gateway) async fn answer(
        &self,
        attempt: &Attempt,
        id: Uuid,
        raw: &[u8],
    ) -> Result<bool, Refusal> {
        let caller = &attempt.caller;
        let tenant = caller.tenant_id();
        let unreachable = |error| {
            failed(tenant, &error);
            refusals::undeliverable(caller).about_consent(id)
        };
        let view = ConsentView::from(self.store.get_consent(tenant, id).await.map_err(unreachable)?);
        let is_own = view.key() == caller.key;
        let is_enough = view.assurance == Assurance::Client && caller.settings.in_band_answers;
        if !is_own || !is_enough || view.row.state != ConsentState::Pending {
            return Ok(false);
        }
        let decided = decision(raw, &view.options);
        let Some(decision) = decided.map_err(|()| refusals::malformed().about_consent(id))? else {
            return Ok(true);
        };
        let via = DecidedVia::Elicitation;
        let request = DecideRequest { decision, comment: None, expires_in_s: None, via };
        match self.settle(attempt, view, Assurance::Client, request).await {
            Ok(_) => Ok(false),
            // somebody else was first: the call gets their decision
            Err(GatewayError::Conflict(_)) => Ok(false),
            Err(error) => {
                tracing::error!(%tenant, %error, "an answer to a permission request could not be stored");
                Err(refusals::undeliverable(caller).about_consent(id))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_offered_is_a_decision() {
        let options = [ConsentDecision::AllowOnce, ConsentDecision::RejectOnce];
        for (raw, wanted) in [
            (r#"{"action":"accept","content":{"decision":"allow_once"}}"#, Ok(Some(options[0]))),
            (r#"{"action":"accept","content":{"decision":"reject_once"}}"#, Ok(Some(options[1]))),
            (r#"{"action":"decline"}"#, Ok(Some(ConsentDecision::RejectOnce))),
            (r#"{"action":"cancel"}"#, Ok(None)),
            (r#"{"action":"accept","content":{"decision":"allow_always"}}"#, Err(())),
            (r#"{"action":"accept","content":{"decision":"yes"}}"#, Err(())),
            (r#"{"action":"accept","content":{"decision":true}}"#, Err(())),
            (r#"{"action":"accept","content":{}}"#, Err(())),
            (r#"{"action":"accept"}"#, Err(())),
            (r#"{"action":"granted"}"#, Err(())),
            ("{}", Err(())),
            ("true", Err(())),
        ] {
            assert_eq!(decision(raw.as_bytes(), &options), wanted, "{raw}");
        }
    }
}
