//! Forecasts of calls, as their page says them before a call is made.

use crate::domain::operation::Variant;
use crate::domain::policy::{Assurance, Ruling};
use crate::domain::reason::{Language, risk_reasons, whole_seconds};
use crate::domain::risk::Risk;
use crate::domain::tenant::Action;
use crate::faces::console::page_visit::PageVisit;
use crate::gateway::{Rehearsed, ToolRequest};

/// Forecast of a call.
pub(super) struct Forecast {
    /// Consequence in a sentence.
    pub(super) says: String,
    /// Class by which the sentence stands out.
    pub(super) tone: &'static str,
    /// Reasons and remarks.
    pub(super) notes: Vec<String>,
}

/// Returns the forecast of a call without arguments.
pub(super) async fn bare(visit: &PageVisit, variant: Variant, request: ToolRequest) -> Forecast {
    let rehearsed = visit.gateway().calls.rehearse_bare(visit.attempt(), variant, request).await;
    let mut forecast = Forecast::of(&rehearsed, sees_policies(visit));
    forecast.notes.push("The arguments are not looked at yet: they may change this.".to_owned());
    forecast
}

/// Returns the forecast of a call as it was filled in.
pub(super) async fn whole(visit: &PageVisit, variant: Variant, request: ToolRequest) -> Forecast {
    Forecast::of(
        &visit.gateway().calls.rehearse(visit.attempt(), variant, request).await,
        sees_policies(visit),
    )
}

/// Returns whether a visitor may see why a policy decides as it does. Others see what becomes of a call, as the call itself tells.
fn sees_policies(visit: &PageVisit) -> bool {
    visit.caller().role.may(Action::SeePolicies)
}

/// Returns the reasons of a risk in words, after a colon; empty without any.
pub(in crate::faces::console) fn why(risk: Risk) -> String {
    let reasons = risk_reasons(risk, Language::English);
    if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join("; ")) }
}

impl Forecast {
    fn of(rehearsed: &Rehearsed, sees_policies: bool) -> Forecast {
        let Rehearsed { refusal, verdict, warnings } = rehearsed;
        let mut notes = warnings.clone();
        if let Some(verdict) = verdict.as_ref().filter(|_| sees_policies) {
            notes.push(format!("Risk: {}{}", verdict.risk.level.as_str(), why(verdict.risk)));
            notes.extend(verdict.decision.rule.as_ref().map(|rule| format!("Rule: {rule}")));
        }
        if let Some(refusal) = refusal {
            notes.insert(0, format!("{} ({})", refusal.message, refusal.code.as_str()));
            return Forecast { says: "This call would be refused.".to_owned(), tone: "bad", notes };
        }
        let ruling = verdict.as_ref().map(|verdict| verdict.decision.ruling);
        let ask = verdict.as_ref().and_then(|verdict| verdict.decision.ask);
        let (says, tone) = match ruling {
            Some(Ruling::Asked) => {
                let who = match ask.map(|ask| ask.assurance) {
                    Some(Assurance::Client) => "whoever has another key with role approver or admin",
                    Some(Assurance::Approver) | None => "another person with role approver or admin",
                };
                notes.extend(ask.map(|ask| {
                    format!("The request waits {} for an answer.", whole_seconds(ask.ttl_s.into()))
                }));
                (
                    format!(
                        "This call would ask, unless it has been allowed already: {who} has to allow it."
                    ),
                    "open",
                )
            }
            Some(Ruling::WouldAsk) if sees_policies => {
                ("This call would run; if the mode were not observe, it would ask.".into(), "good")
            }
            Some(Ruling::WouldDeny) if sees_policies => {
                ("This call would run; if the mode were not observe, it would be refused.".into(), "good")
            }
            _ => ("This call would run.".to_owned(), "good"),
        };
        Forecast { says, tone, notes }
    }
}
