//! Result of a check: warnings, and what the rules would have said of the calls of the last week.

use crate::domain::policy::{PolicyDocument, PolicyLayer, PolicyMode};
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::short;
use crate::gateway::{GatewayError, PastOutcome, ReplayReport, ReplayedCalls};

/// Longest name in a list, in characters.
const NAME_CHARS_MAX: usize = 80;

/// Number of past calls with one outcome.
pub(super) struct OutcomeCount {
    /// Outcome in words.
    pub(super) name: &'static str,
    /// Class by which the outcome stands out.
    pub(super) tone: &'static str,
    /// Number of calls.
    pub(super) calls: i64,
}

/// Past calls of one tool in the list.
pub(super) struct ReplayLine {
    /// Canonical name of the tool.
    pub(super) tool: String,
    /// Link to its records.
    pub(super) href: String,
    /// Outcome in words.
    pub(super) outcome: &'static str,
    /// Class by which the outcome stands out.
    pub(super) tone: &'static str,
    /// Rule or mode that decides; empty if neither is known.
    pub(super) rule: String,
    /// Number of calls.
    pub(super) calls: i64,
}

/// Calls of the last week as rules would have decided them.
pub(super) struct ReplayShown {
    /// Numbers of calls by outcome.
    pub(super) counts: Vec<OutcomeCount>,
    /// True if some calls run only because the mode of their key is observe.
    pub(super) observes: bool,
    /// Number of calls that were not looked at.
    pub(super) left_out: i64,
    /// Calls that would not simply have run.
    pub(super) lines: Vec<ReplayLine>,
    /// True if there are more than are listed.
    pub(super) has_more: bool,
}

/// Rules that were checked and not saved.
pub(super) struct CheckedDraft {
    /// Number of the rules.
    pub(super) rules: usize,
    /// Warnings about them.
    pub(super) warnings: Vec<String>,
    /// Calls of the last week; `None` if they could not be counted.
    pub(super) replay: Option<ReplayShown>,
    /// Reason why they could not be counted; `None` if they were.
    pub(super) failure: Option<String>,
}

impl CheckedDraft {
    /// Checks rules.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role; [`GatewayError::Unavailable`] if there can be no warnings now.
    pub(super) async fn of(
        visit: &PageVisit,
        document: &PolicyDocument,
    ) -> Result<CheckedDraft, GatewayError> {
        let (gateway, caller) = (visit.gateway(), visit.caller());
        let warnings = gateway.tenants.lint_policy(caller, document).await?;
        let (replay, failure) = match gateway.calls.replay(caller, document).await {
            Ok(report) => (Some(shown(&report)), None),
            Err(error @ GatewayError::Forbidden(_)) => return Err(error),
            Err(error) => (None, Some(error.to_string())),
        };
        Ok(CheckedDraft { rules: document.rules.len(), warnings, replay, failure })
    }
}

fn shown(report: &ReplayReport) -> ReplayShown {
    let by_outcome = || PastOutcome::ALL.into_iter().zip(report.by_outcome);
    let observed = |outcome: PastOutcome| matches!(outcome, PastOutcome::WouldAsk | PastOutcome::WouldDeny);
    let count = |(outcome, calls): (PastOutcome, i64)| {
        let (name, tone) = words(outcome);
        OutcomeCount { name, tone, calls }
    };
    ReplayShown {
        counts: by_outcome()
            .filter(|(outcome, calls)| !observed(*outcome) || *calls > 0)
            .map(count)
            .collect(),
        observes: by_outcome().any(|(outcome, calls)| observed(outcome) && calls > 0),
        left_out: report.left_out,
        lines: report.entries.iter().map(line).collect(),
        has_more: report.has_more,
    }
}

fn line(calls: &ReplayedCalls) -> ReplayLine {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    query.append_pair("tool", &calls.tool);
    let (outcome, tone) = words(calls.outcome);
    ReplayLine {
        tool: short(&calls.tool, NAME_CHARS_MAX),
        href: format!("{}?{}", Section::Activity.href(), query.finish()),
        outcome,
        tone,
        rule: decider(calls),
        calls: calls.calls,
    }
}

/// Returns the rule or the mode that decides calls, in words; empty if neither is known.
fn decider(calls: &ReplayedCalls) -> String {
    match (calls.layer, calls.rule.as_deref(), calls.mode) {
        (PolicyLayer::Key, Some(rule), _) => format!("{rule}, of a key's own rules"),
        (PolicyLayer::Deployment, Some(rule), _) => format!("{rule}, of the deployment's rules"),
        (_, Some(rule), _) => rule.to_owned(),
        (PolicyLayer::BuiltIn, None, _) => "built in, whatever the rules say".to_owned(),
        (_, None, Some(PolicyMode::Observe)) => "risk, as in by_risk".to_owned(),
        (_, None, Some(mode)) => format!("mode {}", mode.as_str()),
        (_, None, None) => String::new(),
    }
}

/// Returns an outcome in words, and its class.
fn words(outcome: PastOutcome) -> (&'static str, &'static str) {
    match outcome {
        PastOutcome::Allowed => ("run", "good"),
        PastOutcome::WouldAsk => ("run, and would be asked", "open"),
        PastOutcome::WouldDeny => ("run, and would be denied", "bad"),
        PastOutcome::Asked => ("asked", "open"),
        PastOutcome::Denied => ("denied", "bad"),
        PastOutcome::Unknown => ("unknown", "held"),
    }
}
