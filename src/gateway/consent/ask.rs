//! Asking a person about a call.

use std::sync::Arc;

use super::call::ConsentCall;
use super::refusals::{self, ConsentTold};
use super::run::Permit;
use super::{Consent, ConsentView, PendingAsk, failed, new_id};
use crate::domain::consent;
use crate::domain::policy::{AskTerms, Assurance};
use crate::domain::reason::AskReason;
use crate::domain::refusal::Refusal;
use crate::gateway::clock;
use crate::gateway::log::Attempt;
use crate::store::{AskOutcome, ConsentAsked, NewConsent};

/// Result of asking, where the call is not refused.
#[derive(Debug)]
pub(in crate::gateway) enum AskResult {
    /// A person allowed the call.
    Granted(Permit),
    /// A person has yet to answer.
    Pending(Box<PendingAsk>),
}

/// Ask about a call.
#[derive(Debug)]
pub(in crate::gateway) struct AskRequest<'a> {
    pub(in crate::gateway) attempt: &'a Attempt,
    pub(in crate::gateway) call: ConsentCall<'a>,
    /// Action, risk and words of others, masked.
    pub(in crate::gateway) reason: AskReason,
    pub(in crate::gateway) terms: AskTerms,
    /// Rule that asks; `None` if the mode does.
    pub(in crate::gateway) rule: Option<Arc<str>>,
    /// True if the caller's client shows forms to a person, whose answers count.
    pub(in crate::gateway) has_forms: bool,
}

/// Returns whether the terms of an ask let the caller's own client answer.
pub(in crate::gateway) fn may_answer_in_band(terms: &AskTerms) -> bool {
    terms.assurance == Assurance::Client && terms.channels.has("elicitation")
}

impl Consent {
    /// Returns the permission for a call that a person has allowed, or asks.
    ///
    /// # Errors
    /// The refusal, by the outcome so far: a person is being asked, said no, or cannot be asked.
    pub(in crate::gateway) async fn ask(&self, ask: AskRequest<'_>) -> Result<AskResult, Refusal> {
        let AskRequest { attempt, call, reason, terms, rule, has_forms } = ask;
        let caller = &attempt.caller;
        let tenant = caller.tenant_id();
        // nobody is asked about a call that cannot run
        if !self.tenants.is_valid(caller) {
            return Err(refusals::key_gone());
        }
        let is_in_band = has_forms && may_answer_in_band(&terms);
        // who is attached over ACP may be on any replica, or come later; whether a webhook takes the event is known later
        let is_reached = is_in_band
            || ["inbox", "acp"].into_iter().any(|channel| terms.channels.has(channel))
            || terms.channels.has("webhook") && self.has_webhook(tenant).await;
        if !is_reached {
            return Err(refusals::undeliverable(caller));
        }
        let (server, tool) = call.names();
        let language = attempt.language();
        let lines = reason.lines(language);
        let arguments = reason.arguments.text.clone();
        let new = NewConsent {
            id: new_id(clock::now()),
            turn: attempt.turn(),
            owner: caller.owner.clone(),
            person: caller.person.owner.clone(),
            email: caller.person.email.clone(),
            identity: caller.person.identity,
            creator: caller.person.creator,
            root: caller.person.root,
            server_id: call.tool.server.id,
            server: server.to_owned(),
            tool: tool.to_owned(),
            operation: call.variant.operation(),
            pin: call.pin().to_owned(),
            digests: self.digests(attempt, &call).await,
            endpoint: attempt.source.as_str(),
            options: consent::options(&terms, reason.risk.level, reason.arguments.truncated),
            reason,
            rule: rule.map(|rule| rule.to_string()),
            policy_version: caller.policies.tenant.version,
            assurance: terms.assurance,
            channels: terms.channels.iter().collect(),
            ttl_s: terms.ttl_s,
            trace_id: attempt.trace_id.clone(),
            author: self.author_of(attempt),
        };
        let asked = self.store.ask_consent(tenant, &new, self.options.consent).await;
        let ConsentAsked { outcome, ended } = asked.map_err(|error| {
            failed(tenant, &error);
            refusals::undeliverable(caller)
        })?;
        for state in ended {
            self.measures.ended(state);
        }
        let name = &call.tool.canonical;
        let refusal = match outcome {
            AskOutcome::Granted(row) => return Ok(AskResult::Granted(Permit::of(&row, terms.assurance))),
            AskOutcome::Pending(row) => {
                let refusal = refusals::of_row(ConsentTold::Pending, name, &row);
                let request = language.request(row.id, &refusals::time(row.expires_at));
                let text = [lines.join("\n"), arguments, request].join("\n");
                let view = ConsentView::from(*row);
                return Ok(AskResult::Pending(Box::new(PendingAsk {
                    view,
                    language,
                    text,
                    refusal,
                    is_in_band,
                })));
            }
            AskOutcome::Denied(row) => refusals::of_row(ConsentTold::Denied, name, &row),
            AskOutcome::TimedOut(row) => refusals::of_row(ConsentTold::TimedOut, name, &row),
            AskOutcome::Lapsed(row) => refusals::of_row(ConsentTold::Changed, name, &row),
            AskOutcome::Fenced(fence) => refusals::turn_cancelled(Some(&fence)),
            AskOutcome::CoolingDown { denials, until } => refusals::cooling_down(name, denials, until),
            AskOutcome::Throttled { pending, is_full, retry_s } => {
                refusals::throttled(pending, is_full, retry_s)
            }
        };
        Err(refusal)
    }
}
