//! Replay of policies: what rules would have said of the calls of the last week, as far as the records of the calls tell.
//!
//! Records keep no arguments that a rule could read. Where a condition on arguments matters, the outcome is unknown, and the
//! risk is that of the tool and its operation. Remembered decisions, changes of definitions and prompts of hosts count nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use uuid::Uuid;

use super::Calls;
use super::explain::{NO_ARGUMENTS, is_mismatched};
use super::pipeline::policy::{PolicySubject, entrance};
use crate::domain::activity::Source;
use crate::domain::annotations::Tier;
use crate::domain::id::KeyId;
use crate::domain::operation::{OperationType, Variant};
use crate::domain::policy::{
    PastDecision, PolicyCall, PolicyDocument, PolicyLayer, PolicyLayers, PolicyMode, Ruling,
};
use crate::domain::risk::{Risk, RiskFacts, Sensitivity, TrustTier};
use crate::domain::tenant::Action;
use crate::domain::text_enum::text_enum;
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{PastCalls, PastTimes};

/// Days that are looked at, each in a query of its own.
const DAYS: i64 = 7;
/// Most groups of calls of one day; further ones are counted as left out.
const GROUPS_MAX: i64 = 2000;
/// Most processor time of a replay. Calls that are left then are counted as left out.
const WORK_MAX: Duration = Duration::from_secs(1);
/// Longest piece of it: others' work comes in between.
const PIECE_MAX: Duration = Duration::from_millis(20);
/// Most entries of a report.
const REPORTED_MAX: usize = 50;

text_enum! {
    /// Outcome that rules would have had for a past call.
    pub enum PastOutcome {
        /// The call would have run.
        Allowed = "allowed",
        /// The call would have run, and a person would have been asked if its mode were not `observe`.
        WouldAsk = "would_ask",
        /// The call would have run, and not if its mode were not `observe`.
        WouldDeny = "would_deny",
        /// A person would have been asked.
        Asked = "asked",
        /// The call would not have run.
        Denied = "denied",
        /// The outcome depends on arguments, or on times, that the replay does not know.
        Unknown = "unknown",
    }
}

impl From<Option<Ruling>> for PastOutcome {
    fn from(ruling: Option<Ruling>) -> PastOutcome {
        match ruling {
            Some(Ruling::Allowed | Ruling::Delegated) => PastOutcome::Allowed,
            Some(Ruling::WouldAsk) => PastOutcome::WouldAsk,
            Some(Ruling::WouldDeny) => PastOutcome::WouldDeny,
            Some(Ruling::Asked) => PastOutcome::Asked,
            Some(Ruling::Denied) => PastOutcome::Denied,
            None => PastOutcome::Unknown,
        }
    }
}

/// Past calls of one tool with one outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplayedCalls {
    /// Canonical name of the tool.
    pub tool: String,
    /// Outcome of the calls.
    pub outcome: PastOutcome,
    /// Rule that decides, or on whose condition the outcome depends; `None` if the mode decides.
    pub rule: Option<Arc<str>>,
    /// Layer of the rule, or else the one that decides.
    pub layer: PolicyLayer,
    /// Mode that decides; `None` if a rule does, and for an outcome that is unknown without one.
    pub mode: Option<PolicyMode>,
    /// Number of calls.
    pub calls: i64,
}

/// Report on the calls of the last week.
#[derive(Debug, Default)]
pub struct ReplayReport {
    /// Numbers of calls by outcome, in the order of [`PastOutcome::ALL`].
    pub by_outcome: [i64; PastOutcome::ALL.len()],
    /// Number of calls that were not looked at: those of rare groups, and those after a second of work.
    pub left_out: i64,
    /// Calls that would not simply have run, those with the most calls first.
    pub entries: Vec<ReplayedCalls>,
    /// True if there are more entries than are listed.
    pub has_more: bool,
}

/// Tool, outcome, rule, layer and mode of an entry, as [`ReplayedCalls`] has them.
type EntryKey = (String, PastOutcome, Option<Arc<str>>, PolicyLayer, Option<PolicyMode>);

/// Sums of a replay under way.
#[derive(Default)]
struct Sums {
    report: ReplayReport,
    entries: HashMap<EntryKey, i64>,
}

impl Sums {
    fn add(&mut self, past: &PastCalls, (decided, mode): (PastDecision, PolicyMode)) {
        let outcome = PastOutcome::from(decided.ruling);
        if let Some(sum) = self.report.by_outcome.get_mut(outcome as usize) {
            *sum += past.calls;
        }
        if outcome != PastOutcome::Allowed {
            let tool = format!("{}:{}", past.server, past.tool);
            let mode = Some(mode).filter(|_| decided.rule.is_none() && outcome != PastOutcome::Unknown);
            *self.entries.entry((tool, outcome, decided.rule, decided.layer, mode)).or_default() +=
                past.calls;
        }
    }

    fn report(self) -> ReplayReport {
        let entry = |((tool, outcome, rule, layer, mode), calls)| ReplayedCalls {
            tool,
            outcome,
            rule,
            layer,
            mode,
            calls,
        };
        let mut entries: Vec<ReplayedCalls> = self.entries.into_iter().map(entry).collect();
        entries.sort_unstable_by(|a, b| {
            b.calls.cmp(&a.calls).then_with(|| a.tool.cmp(&b.tool)).then_with(|| a.rule.cmp(&b.rule))
        });
        let has_more = entries.len() > REPORTED_MAX;
        entries.truncate(REPORTED_MAX);
        ReplayReport { entries, has_more, ..self.report }
    }
}

/// Rules to be tried, and those who called.
struct Replay<'a> {
    caller: &'a Caller,
    document: &'a PolicyDocument,
    /// Value of `policy_mode` that holds for the tenant now.
    mode: PolicyMode,
    times: PastTimes,
    callers: HashMap<Option<Uuid>, Arc<Caller>>,
}

impl Calls {
    /// Says what rules of the tenant would have said of the calls of the last 7 days that a policy decided on. Nothing is
    /// run or changed.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, [`GatewayError::Busy`] if too many reports
    /// of the tenant are under way, or [`GatewayError::Unavailable`].
    pub async fn replay(
        &self,
        caller: &Caller,
        document: &PolicyDocument,
    ) -> Result<ReplayReport, GatewayError> {
        caller.authorise(Action::SeePolicies)?;
        let looks = document.rules.looks_at_times() || self.options.policy.looks_at_times();
        let mut replay = Replay {
            caller,
            document,
            mode: self.tenants.stand_in(caller, None)?.settings.policy_mode,
            times: if looks { PastTimes::Quarters } else { PastTimes::Ignored },
            callers: HashMap::new(),
        };
        let (now, mut sums) = (clock::now(), Sums::default());
        let mut work_left = WORK_MAX;
        for day in 0..DAYS {
            let range = (now - TimeDelta::days(day + 1), now - TimeDelta::days(day));
            let groups = self.log.count_past_calls(caller, range, replay.times, GROUPS_MAX).await?;
            let total = groups.first().map_or(0, |group| group.total);
            sums.report.left_out += total - groups.iter().map(|group| group.calls).sum::<i64>();
            let mut rest = groups.as_slice();
            while !rest.is_empty() && !work_left.is_zero() {
                let piece = work_left.min(PIECE_MAX);
                let (left, spent) = self
                    .upstreams
                    .in_turn(caller.tenant_id().0, || {
                        let began = Instant::now();
                        let left = each_within(piece, rest, |past| {
                            sums.add(past, self.decide_past(&mut replay, past));
                        });
                        (left, began.elapsed())
                    })
                    .await;
                (rest, work_left) = (left, work_left.saturating_sub(spent));
            }
            sums.report.left_out += rest.iter().map(|group| group.calls).sum::<i64>();
        }
        Ok(sums.report())
    }

    /// Decides a group of past calls. Returns the decision, and the mode that holds for whoever called.
    fn decide_past(&self, replay: &mut Replay<'_>, past: &PastCalls) -> (PastDecision, PolicyMode) {
        let unknown = |mode| (PastDecision { ruling: None, rule: None, layer: PolicyLayer::Mode }, mode);
        let Some(calling) = self.caller_of(replay, past.principal) else {
            return unknown(replay.mode);
        };
        let mode = mode_of(replay, calling.settings.policy_mode);
        if replay.times == PastTimes::Ignored && calling.policies.key.rules.looks_at_times() {
            return unknown(mode);
        }
        let name = format!("{}:{}", past.server, past.tool);
        let (tier, operation) = (tier_of(past), operation_of(past));
        let settings = &calling.settings;
        let sensitivity = past.intent_sensitivity.as_deref().and_then(Sensitivity::parse);
        let (entrance, at) = (entrance(Source::parse(&past.source).unwrap_or(Source::Mcp)), past.at);
        let catalogue = replay.caller.catalogue();
        let subject = catalogue.as_ref().and_then(|all| all.tool(&name)).map(|tool| PolicySubject {
            tool,
            page: tool.shape.page.as_deref(),
            tier,
            operation,
            is_mismatched: is_mismatched(settings, tool, operation.variant()),
            sensitivity,
            arguments: NO_ARGUMENTS,
            entrance,
            at,
        });
        let facts = match &subject {
            // a change of now says nothing about calls of then
            Some(subject) => RiskFacts { is_changed: false, ..subject.facts() },
            None => RiskFacts {
                name: &name,
                tier,
                open_world: None,
                trust: TrustTier::Configured,
                is_sensitive: false,
                is_changed: false,
                is_mismatched: false,
                operation,
                sensitivity,
                arguments: NO_ARGUMENTS,
            },
        };
        let call = PolicyCall {
            facts: &facts,
            risk: Risk::assess(&facts),
            entrance,
            at,
            is_asked_always: subject.as_ref().is_some_and(PolicySubject::is_asked_always),
        };
        let layers = PolicyLayers {
            deployment: &self.options.policy,
            tenant: &replay.document.rules,
            key: &calling.policies.key.rules,
            mode,
            remembered: None,
            has_host_prompt: false,
        };
        (layers.evaluate_past(&call), mode)
    }

    /// Returns who called, with the settings and policies of now; of keys that are gone, and of people, those of the tenant.
    fn caller_of(&self, replay: &mut Replay<'_>, principal: Option<Uuid>) -> Option<Arc<Caller>> {
        if let Some(known) = replay.callers.get(&principal) {
            return Some(Arc::clone(known));
        }
        let found = self.tenants.stand_in(replay.caller, principal.map(KeyId));
        let found = found.or_else(|_| self.tenants.stand_in(replay.caller, None)).ok()?;
        replay.callers.insert(principal, Arc::clone(&found));
        Some(found)
    }
}

/// Does something with each item until the time is over, at least with the first. Returns those that are left.
fn each_within<T>(time: Duration, items: &[T], mut act: impl FnMut(&T)) -> &[T] {
    let began = Instant::now();
    let mut rest = items;
    while let Some((first, others)) = rest.split_first() {
        act(first);
        rest = others;
        if began.elapsed() >= time {
            break;
        }
    }
    rest
}

/// Returns the mode that would hold for a key: another one than the tenant's is the key's own.
fn mode_of(replay: &Replay<'_>, of_key: PolicyMode) -> PolicyMode {
    match replay.document.mode {
        Some(mode) if of_key == replay.mode => mode,
        _ => of_key,
    }
}

fn tier_of(past: &PastCalls) -> Tier {
    past.tier.as_deref().and_then(Tier::parse).unwrap_or(Tier::Unknown)
}

/// Returns the operation type of the calls: that of their variant, or else the declared one.
fn operation_of(past: &PastCalls) -> OperationType {
    let variant = past.tool_variant.as_deref().and_then(Variant::parse).map(Variant::operation);
    let declared = past.intent_type.as_deref().and_then(OperationType::parse);
    variant.or(declared).unwrap_or(OperationType::Destructive)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn past(tool: &str, calls: i64) -> PastCalls {
        PastCalls {
            server: "s".to_owned(),
            tool: tool.to_owned(),
            tier: Some("read".to_owned()),
            tool_variant: None,
            intent_type: Some("read".to_owned()),
            intent_sensitivity: None,
            source: "mcp".to_owned(),
            principal: None,
            at: chrono::DateTime::UNIX_EPOCH,
            calls,
            total: calls,
        }
    }

    #[test]
    fn calls_are_added_up_by_tool_outcome_and_rule() {
        let mut sums = Sums::default();
        let rule: Arc<str> = "r".into();
        let layer = PolicyLayer::Tenant;
        let decided =
            |ruling| (PastDecision { ruling, rule: Some(Arc::clone(&rule)), layer }, PolicyMode::ByRisk);
        let layer = PolicyLayer::Mode;
        let by_mode =
            (PastDecision { ruling: Some(Ruling::Asked), rule: None, layer }, PolicyMode::AlwaysAsk);
        sums.add(&past("m", 8), by_mode);
        sums.add(&past("a", 2), decided(Some(Ruling::Asked)));
        sums.add(&past("a", 3), decided(Some(Ruling::Asked)));
        sums.add(&past("b", 9), decided(None));
        sums.add(&past("c", 7), decided(Some(Ruling::Allowed)));
        for n in 0..REPORTED_MAX {
            sums.add(&past(&format!("d{n}"), 1), decided(Some(Ruling::Denied)));
        }
        let report = sums.report();
        assert_eq!(report.by_outcome, [7, 0, 0, 13, REPORTED_MAX as i64, 9]);
        let first: Vec<(&str, PastOutcome, Option<PolicyMode>, i64)> = report
            .entries
            .iter()
            .take(3)
            .map(|entry| (&*entry.tool, entry.outcome, entry.mode, entry.calls))
            .collect();
        let expected = [
            ("s:b", PastOutcome::Unknown, None, 9),
            ("s:m", PastOutcome::Asked, Some(PolicyMode::AlwaysAsk), 8),
            ("s:a", PastOutcome::Asked, None, 5),
        ];
        assert_eq!(first, expected);
        assert!(report.has_more && report.entries.len() == REPORTED_MAX);
    }

    #[test]
    fn a_piece_of_work_ends_in_time() {
        let mut seen = Vec::new();
        assert_eq!(each_within(Duration::ZERO, &[1, 2, 3], |item| seen.push(*item)), [2, 3]);
        assert_eq!(each_within(Duration::from_secs(3600), &[2, 3], |item| seen.push(*item)), [0; 0]);
        assert_eq!(seen, [1, 2, 3]);
    }

    #[test]
    fn the_variant_says_the_operation_and_what_is_unreadable_is_severe() {
        let mut call = past("a", 1);
        assert_eq!((operation_of(&call), tier_of(&call)), (OperationType::Read, Tier::Read));
        call.tool_variant = Some("call_tool_write".to_owned());
        assert_eq!(operation_of(&call), OperationType::Write);
        (call.tool_variant, call.intent_type, call.tier) = (None, Some("odd".to_owned()), None);
        assert_eq!((operation_of(&call), tier_of(&call)), (OperationType::Destructive, Tier::Unknown));
    }
}
