//! Check 11: the policy (behaviour, section 10).

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::checks::reachable;
use super::checks::tool::CheckedTool;
use super::facts::Facts;
use super::round::OpenedRound;
use crate::domain::activity::{Record, Source};
use crate::domain::annotations::Tier;
use crate::domain::operation::OperationType;
use crate::domain::policy::{
    AskTerms, Assurance, Decision, Entrance, PolicyCall, PolicyLayer, PolicyLayers, Ruling, TraceStep,
};
use crate::domain::reason::AskReason;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::risk::{Risk, RiskFacts, RiskLevel, Sensitivity, TrustTier};
use crate::domain::rounds::RoundConsent;
use crate::domain::web_page::facts::{PageFacts, PageToolKind};
use crate::domain::web_page::needs::missing_secrets;
use crate::domain::web_page::plan::FormPlan;
use crate::domain::web_page::settings::PageExecution;
use crate::gateway::calls::Calls;
use crate::gateway::catalog::Tool;
use crate::gateway::consent::{AskRequest, AskResult, PendingAsk, Permit, may_answer_in_band};
use crate::gateway::log::Attempt;
use crate::gateway::tenants::Caller;

/// Longest arguments that are assessed at once, in bytes; longer ones take their tenant's turn for long work.
const INLINE_BYTES_MAX: usize = 64 * 1024;

/// Call of a tool, as a policy sees it.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway::calls) struct PolicySubject<'a> {
    pub(in crate::gateway::calls) tool: &'a Tool,
    /// Form that the call is about; `None` for tools of servers without pages.
    pub(in crate::gateway::calls) page: Option<&'a PageFacts>,
    /// Tier of the tool for the key.
    pub(in crate::gateway::calls) tier: Tier,
    /// Operation type of the variant.
    pub(in crate::gateway::calls) operation: OperationType,
    /// True if the variant contradicts the annotations, and the key is not strict.
    pub(in crate::gateway::calls) is_mismatched: bool,
    /// Declared sensitivity; `None` if none was declared.
    pub(in crate::gateway::calls) sensitivity: Option<Sensitivity>,
    /// The arguments object.
    pub(in crate::gateway::calls) arguments: &'a str,
    /// Way by which the call comes in.
    pub(in crate::gateway::calls) entrance: Entrance,
    /// Time of the call.
    pub(in crate::gateway::calls) at: DateTime<Utc>,
}

/// Result of check 11 for a call that is not refused.
#[derive(Debug)]
pub(super) enum PolicyStep {
    /// The call may run, with the permission of a person where one was needed.
    Done(Option<Permit>),
    /// A person has yet to answer.
    Ask(Box<PendingAsk>),
}

/// Decision on a call, with its risk.
#[derive(Debug)]
pub struct PolicyVerdict {
    /// Decision of all layers.
    pub decision: Decision,
    /// Risk of the call.
    pub risk: Risk,
    /// Permission request whose answer is remembered for such calls, whether or not it decides this one.
    pub remembered: Option<Uuid>,
}

impl<'a> PolicySubject<'a> {
    /// Returns the subject of a call that passed checks 1 to 10.
    pub(super) fn of(attempt: &Attempt, call: &'a CheckedTool, facts: &Facts) -> PolicySubject<'a> {
        PolicySubject {
            tool: &call.tool,
            page: call.form.as_ref().map(|form| &*form.facts).or(call.tool.shape.page.as_deref()),
            tier: call.tier,
            operation: call.variant.operation(),
            is_mismatched: call.is_mismatched,
            sensitivity: facts.intent.data_sensitivity.as_deref().and_then(Sensitivity::parse),
            arguments: std::str::from_utf8(&call.arguments).unwrap_or_default(),
            entrance: entrance(attempt.source),
            at: attempt.started_at,
        }
    }

    /// Returns the facts by which the risk is assessed.
    pub(in crate::gateway::calls) fn facts(&self) -> RiskFacts<'a> {
        RiskFacts {
            name: &self.tool.canonical,
            tier: self.tier,
            open_world: self.tool.shape.open_world,
            trust: match self.tool.server.target.upstream.pages() {
                Some(_) => TrustTier::Site,
                None => TrustTier::Configured,
            },
            is_sensitive: self.page.is_some_and(PageFacts::is_sensitive),
            is_changed: self.tool.is_changed(self.at),
            is_mismatched: self.is_mismatched,
            operation: self.operation,
            sensitivity: self.sensitivity,
            arguments: self.arguments,
        }
    }

    /// Returns the condition under which the tool runs, if it is a page's.
    fn execution(&self) -> Option<PageExecution> {
        self.tool.server.target.upstream.pages().map(|pages| pages.settings.execute)
    }

    /// Returns whether a person is asked about each such call, whatever the policy says.
    pub(in crate::gateway::calls) fn is_asked_always(&self) -> bool {
        let is_ask = self.execution() == Some(PageExecution::Ask);
        self.page.is_some_and(|page| (is_ask && page.asks_for_permission()) || (page.asks && page.sends()))
    }
}

/// Returns the way by which a call of this source comes in.
pub(in crate::gateway::calls) fn entrance(source: Source) -> Entrance {
    match source {
        Source::Mcp => Entrance::Mcp,
        Source::Direct => Entrance::Direct,
        Source::Cli => Entrance::Cli,
        Source::Rest | Source::Console | Source::System => Entrance::Rest,
    }
}

impl Calls {
    /// Runs check 11, and of check 12 whether the server is connected: nobody is asked about a call that cannot run. Notes
    /// the decision in the record. Returns the permission of a person, where one was needed, or whom the call waits for.
    pub(super) async fn check_policy(
        &self,
        attempt: &Attempt,
        call: &mut CheckedTool,
        facts: &Facts,
        opened: &OpenedRound,
        record: &mut Record,
    ) -> Result<PolicyStep, Refusal> {
        let caller = &attempt.caller;
        runs_pages(call).inspect_err(|_| record.decision = Some(Ruling::Denied))?;
        let run = |call: &CheckedTool| self.evaluate(caller, &PolicySubject::of(attempt, call, facts));
        let verdict = if call.arguments.len() <= INLINE_BYTES_MAX {
            run(call)
        } else {
            let verdict = self.upstreams.in_turn(caller.tenant_id().0, || run(call)).await;
            // the wait may have taken a while, and permissions may have changed meanwhile
            call.tool = self.check_again(caller, call)?;
            verdict
        };
        let PolicyVerdict { decision, .. } = &verdict;
        record.decision = Some(decision.ruling);
        record.rule.clone_from(&decision.rule);
        if decision.is_by_grant || decision.layer == PolicyLayer::Remembered {
            // whoever asks later who let this run, or refused it, finds the answer there
            record.consent_id = verdict.remembered;
        }
        if decision.ruling == Ruling::Denied {
            let refusal = denied(&call.tool.canonical, decision, caller);
            return Err(match verdict.remembered.filter(|_| decision.layer == PolicyLayer::Remembered) {
                Some(id) => {
                    // boxed, as all that follows: it is rare, and must not be part of every call's future
                    let words = Box::pin(self.consent.words_about(caller.tenant_id(), id)).await;
                    refusal.about_consent(id).quoting(words)
                }
                None => refusal,
            });
        }
        reachable(&call.tool.server)?;
        match (decision.ruling, opened.consent) {
            // also where nobody would ask any more: the permission must come to its end
            (ruling, Some(RoundConsent::Used { id, after })) => {
                let asks = decision.ask.filter(|_| ruling == Ruling::Asked);
                let needed = asks.map_or(Assurance::Client, |terms| terms.assurance);
                Ok(PolicyStep::Done(Some(Permit::of_earlier_round(id, after, needed))))
            }
            (Ruling::Asked, asked) => {
                let terms = decision.ask.unwrap_or_else(AskTerms::strictest);
                let is_closed = match (asked, &opened.answer) {
                    (Some(RoundConsent::Asked(id)), Some(answer)) if may_answer_in_band(&terms) => {
                        Box::pin(self.consent.answer(attempt, id, answer)).await?
                    }
                    _ => false,
                };
                let has_forms = opened.has_forms(caller);
                let asked = self.ask_person(attempt, call, facts, (&verdict, terms, has_forms));
                let mut step = Box::pin(asked).await;
                if let Ok(PolicyStep::Ask(ask)) = &mut step {
                    // a client that closes every form by itself would be asked without end
                    ask.is_in_band &= !is_closed;
                }
                step
            }
            // in observe also a call that other rules would ask about or deny
            (ruling, _) if decision.is_by_grant && ruling != Ruling::Denied => {
                let consent = call.as_consent();
                let permit = self.consent.permit_under_grant(
                    attempt,
                    &consent,
                    verdict.remembered.unwrap_or_default(),
                );
                let permit = Box::pin(permit).await.inspect_err(|refusal| {
                    if matches!(refusal.code, Code::ConsentDenied | Code::TurnCancelled) {
                        record.decision = Some(Ruling::Denied);
                    }
                    // a refusal of this very call is of another request than the grant
                    record.consent_id = refusal.consent_id.or(record.consent_id);
                })?;
                Ok(PolicyStep::Done(permit))
            }
            (
                Ruling::Allowed | Ruling::WouldAsk | Ruling::WouldDeny | Ruling::Delegated | Ruling::Denied,
                _,
            ) => Ok(PolicyStep::Done(None)),
        }
    }

    /// Asks a person about a call, or returns the permission that a person gave.
    async fn ask_person(
        &self,
        attempt: &Attempt,
        call: &CheckedTool,
        facts: &Facts,
        (verdict, terms, has_forms): (&PolicyVerdict, AskTerms, bool),
    ) -> Result<PolicyStep, Refusal> {
        let tenant = attempt.caller.tenant_id().0;
        let subject = PolicySubject::of(attempt, call, facts);
        let author = Some(call.tool.shape.description()).filter(|text| !text.is_empty());
        let agent = facts.intent.reason.as_deref();
        let reason = || {
            let reason = AskReason::new(&subject.facts(), verdict.risk, agent, author);
            match &call.form {
                Some(form) => reason.about_form(&FormPlan::of(&form.facts, form.values())),
                None => reason,
            }
        };
        let reason = self.upstreams.aside(tenant, call.arguments.len(), reason).await;
        let rule = verdict.decision.rule.clone();
        let asked =
            self.consent.ask(AskRequest { attempt, call: call.as_consent(), reason, terms, rule, has_forms });
        Ok(match asked.await? {
            AskResult::Granted(permit) => PolicyStep::Done(Some(permit)),
            AskResult::Pending(ask) => PolicyStep::Ask(ask),
        })
    }

    /// Evaluates the policies of deployment, tenant and key on a call. Takes no query.
    pub(in crate::gateway::calls) fn evaluate(
        &self,
        caller: &Caller,
        subject: &PolicySubject<'_>,
    ) -> PolicyVerdict {
        let (decision, risk, remembered) =
            self.weigh(caller, subject, None, |layers, call| layers.evaluate(call));
        PolicyVerdict { decision, risk, remembered }
    }

    /// Evaluates as [`Calls::evaluate`] does, with a trace of each step.
    pub(in crate::gateway::calls) fn explain_steps(
        &self,
        caller: &Caller,
        subject: &PolicySubject<'_>,
    ) -> (PolicyVerdict, Vec<TraceStep>) {
        let ((decision, trace), risk, remembered) =
            self.weigh(caller, subject, None, |layers, call| layers.explain(call));
        (PolicyVerdict { decision, risk, remembered }, trace)
    }

    /// Runs `decide` on the layers in force and the call. `level` is its level of risk where that is known already. Returns the result, the
    /// risk, and the request whose answer is remembered.
    pub(in crate::gateway::calls) fn weigh<T>(
        &self,
        caller: &Caller,
        subject: &PolicySubject<'_>,
        level: Option<RiskLevel>,
        decide: impl FnOnce(&PolicyLayers<'_>, &PolicyCall<'_>) -> T,
    ) -> (T, Risk, Option<Uuid>) {
        let facts = subject.facts();
        let assessed = Risk::assess(&facts);
        let risk = Risk { level: level.unwrap_or(assessed.level), ..assessed };
        let call = PolicyCall {
            facts: &facts,
            risk,
            entrance: subject.entrance,
            at: subject.at,
            is_asked_always: subject.is_asked_always(),
        };
        let (remembered, request) =
            caller.grants.find(subject.tool, subject.operation, risk.level, subject.at).unzip();
        let layers = PolicyLayers {
            deployment: &self.options.policy,
            tenant: &caller.policies.tenant.rules,
            key: &caller.policies.key.rules,
            mode: caller.settings.policy_mode,
            remembered,
            has_host_prompt: caller.settings.host_prompts.contains(&subject.operation),
        };
        (decide(&layers, &call), risk, request)
    }
}

/// Refuses tools of pages where their server runs none, those without facts that this release can read, and forms that take secrets
/// which the server does not have: nobody is asked about a call that cannot run.
pub(super) fn runs_pages(CheckedTool { tool, form, .. }: &CheckedTool) -> Result<(), Refusal> {
    let refused = |why: &str| {
        let message = format!("Tool '{}' is not allowed here: {why}", tool.canonical);
        Err(Refusal::new(Code::PolicyDenied, message))
    };
    let pages = tool.server.target.upstream.pages();
    let kind = tool.shape.page.as_ref().map(|page| page.kind);
    match (pages.map(|pages| pages.settings.execute), kind) {
        (None, _) | (_, Some(PageToolKind::InspectProvenance)) => Ok(()),
        (Some(PageExecution::Off), _) => {
            refused("its server describes forms and runs none ('execute' is off)")
        }
        (Some(_), Some(_)) => match form.as_deref().map(|form| &*form.facts.needs).unwrap_or_default() {
            [] => Ok(()),
            needs => {
                let has: Vec<&str> =
                    pages.iter().flat_map(|pages| pages.secrets.iter()).map(|(name, _)| &**name).collect();
                refused(&missing_secrets(&tool.server.name, needs, &has))
            }
        },
        (Some(_), None) => refused("its definition says nothing of its form"),
    }
}

/// Returns the refusal of a call that the policy denies.
pub(super) fn denied(tool: &str, decision: &Decision, caller: &Caller) -> Refusal {
    let why = match (&decision.rule, &decision.message) {
        (Some(rule), Some(message)) => format!(": {} (rule {rule})", message.trim_end_matches('.')),
        (Some(rule), None) => format!(" (rule {rule})"),
        (None, _) if decision.layer == PolicyLayer::Remembered => ": a person refused it for now".to_owned(),
        (None, _) => {
            format!(": no rule allows it, and the mode is {}", caller.settings.policy_mode.as_str())
        }
    };
    Refusal::new(Code::PolicyDenied, format!("Tool '{tool}' is not allowed here{why}"))
}
