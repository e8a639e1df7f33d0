//! Evaluation of a call against all layers.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::selectors::{DIMENSIONS, Mismatch, RuleSubject, all_of, bit, pairs};
use super::when::{Arguments, WORK_MAX};
use super::{
    AskTerms, Assurance, Decision, Effect, Entrance, PolicyLayer, PolicyMode, PolicyRule, RuleSet, Ruling,
    TraceStep,
};
use crate::domain::annotations::Tier;
use crate::domain::risk::{Risk, RiskFacts, RiskLevel, RiskSignal, Sensitivity};

/// Call that is decided.
#[derive(Clone, Copy, Debug)]
pub struct PolicyCall<'a> {
    /// Call, as its risk is assessed.
    pub facts: &'a RiskFacts<'a>,
    /// Risk of the call.
    pub risk: Risk,
    /// Way by which the call comes in.
    pub entrance: Entrance,
    /// Time of the call.
    pub at: DateTime<Utc>,
    /// True if the call submits a form, and a person is asked about each such call: its server wants that, or the description of
    /// the form contradicts the form.
    pub is_asked_always: bool,
}

/// Decision that a person had remembered for this principal, tool, operation and definition pin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remembered {
    /// Always allow.
    Allow {
        /// Assurance of the answer.
        assurance: Assurance,
        /// Risk of the call that was asked about; riskier ones are not covered.
        risk: RiskLevel,
    },
    /// Always reject.
    Reject,
}

impl Remembered {
    /// Returns the assurance with which the decision allows a call of this risk; `None` for a refusal, and for an allow up to a lower risk.
    pub fn answers(self, level: RiskLevel) -> Option<Assurance> {
        match self {
            Remembered::Allow { assurance, risk } if risk >= level => Some(assurance),
            Remembered::Allow { .. } | Remembered::Reject => None,
        }
    }
}

/// Layers that decide a call.
#[derive(Clone, Copy, Debug)]
pub struct PolicyLayers<'a> {
    /// Rules of the deployment.
    pub deployment: &'a RuleSet,
    /// Rules of the tenant.
    pub tenant: &'a RuleSet,
    /// Rules of the API key.
    pub key: &'a RuleSet,
    /// The setting `policy_mode` that applies to the key.
    pub mode: PolicyMode,
    /// Remembered decision; `None` when there is none.
    pub remembered: Option<Remembered>,
    /// True if the setting `host_prompts` names the operation of this call.
    pub has_host_prompt: bool,
}

impl PolicyLayers<'_> {
    /// Decides a call.
    pub fn evaluate(&self, call: &PolicyCall<'_>) -> Decision {
        self.conclude(self.run(Run::new(call)))
    }

    /// Decides a call whose arguments are not known: conditions hold as `assumed` says. Returns the decision, and the effects of the
    /// rules whose condition was needed.
    pub(super) fn evaluate_assuming(&self, call: &PolicyCall<'_>, assumed: ByEffect) -> (Decision, ByEffect) {
        let run = self.run(Run { assumed: Some(assumed), ..Run::new(call) });
        let needed = run.needed;
        (self.conclude(run), needed)
    }

    /// Applies the rules of all layers that may match.
    fn run<'a, 'c>(&'a self, mut run: Run<'a, 'c>) -> Run<'a, 'c> {
        run.built_in();
        for (layer, set) in self.sets() {
            let subject = run.subject;
            let may_match = set.filters.iter().enumerate().filter(|(_, filter)| filter.passes(&subject));
            for rule in may_match.filter_map(|(at, _)| set.rules.get(at)) {
                run.rule(layer, rule);
            }
        }
        run
    }

    /// Decides a call, and says of each step what it did.
    pub fn explain(&self, call: &PolicyCall<'_>) -> (Decision, Vec<TraceStep>) {
        let mut run = Run::new(call);
        let mut trace = Vec::new();
        if let Some(why) = run.built_in() {
            trace.push(step(PolicyLayer::BuiltIn, Some(Effect::Ask), why));
        }
        for (layer, set) in self.sets() {
            for rule in &set.rules {
                let judgement = run.rule(layer, rule);
                let effect = judgement.is_match().then_some(rule.effect);
                let why = judgement.why(&run.subject);
                trace.push(TraceStep { rule: Some(Arc::clone(&rule.id)), ..step(layer, effect, why) });
            }
        }
        if self.is_up_to_mode(&run) {
            let (effect, why) = mode(self.mode, call);
            trace.push(step(PolicyLayer::Mode, Some(effect), format!("no rule matches; {why}")));
        }
        let decision = self.conclude(run);
        if let Some(remembered) = self.remembered {
            let effect = (decision.layer == PolicyLayer::Remembered).then_some(decision.effect);
            let why = match (remembered, effect) {
                (Remembered::Allow { .. }, Some(_)) => "a person allowed this tool until the grant ends",
                (Remembered::Reject, Some(_)) => "a person refused this tool until the grant ends",
                (Remembered::Allow { .. }, None) => "the remembered allow relaxes nothing here",
                (Remembered::Reject, None) => "the rules deny the call anyway",
            };
            trace.push(step(PolicyLayer::Remembered, effect, why));
        }
        (decision, trace)
    }

    fn sets(&self) -> [(PolicyLayer, &RuleSet); 3] {
        [
            (PolicyLayer::Deployment, self.deployment),
            (PolicyLayer::Tenant, self.tenant),
            (PolicyLayer::Key, self.key),
        ]
    }

    /// Returns whether the mode decides. What a person is asked about anyway still needs a rule that allows it where the mode
    /// wants one.
    fn is_up_to_mode(&self, run: &Run<'_, '_>) -> bool {
        let wants_rule = self.mode == PolicyMode::DenyUnlessAllowed && !run.has_match;
        run.all.effect.is_none() || wants_rule
    }

    /// Decides by what the rules found, the mode and what was remembered.
    fn conclude(&self, run: Run<'_, '_>) -> Decision {
        let is_up_to_mode = self.is_up_to_mode(&run);
        let Run { call, mut all, mut enforced, .. } = run;
        if is_up_to_mode {
            let assurance = approver_if(call.risk.level == RiskLevel::Critical);
            let terms = AskTerms::plain(assurance, call.risk.level < RiskLevel::Critical);
            all.take(mode(self.mode, call).0, PolicyLayer::Mode, None, terms);
        }
        let mut is_by_grant = false;
        if self.remembered == Some(Remembered::Reject) {
            let terms = AskTerms::plain(Assurance::Client, false);
            all.take(Effect::Deny, PolicyLayer::Remembered, None, terms);
            // the answer to an enforced ask holds where that does
            if enforced.effect == Some(Effect::Ask) {
                enforced.take(Effect::Deny, PolicyLayer::Remembered, None, terms);
            }
        }
        if let Some(assurance) = self.remembered.and_then(|remembered| remembered.answers(call.risk.level)) {
            let relaxed = (all.relax(assurance), enforced.relax(assurance));
            is_by_grant = if self.mode == PolicyMode::Observe { relaxed.1 } else { relaxed.0 };
        }
        let effect = all.effect.unwrap_or(Effect::Deny);
        let observes = self.mode == PolicyMode::Observe && enforced.effect < Some(Effect::Ask);
        let standing = if self.mode == PolicyMode::Observe && !observes { enforced } else { all };
        let ruling = match (standing.effect.unwrap_or(Effect::Deny), observes) {
            (Effect::Allow, _) => Ruling::Allowed,
            (Effect::Ask, true) => Ruling::WouldAsk,
            (Effect::Deny, true) => Ruling::WouldDeny,
            (Effect::Ask, false) if self.is_delegated(call, standing.ask) => Ruling::Delegated,
            (Effect::Ask, false) => Ruling::Asked,
            (Effect::Deny, false) => Ruling::Denied,
        };
        let is_ask = standing.effect == Some(Effect::Ask);
        Decision {
            ruling,
            effect,
            layer: standing.layer,
            rule: standing.rule.map(|rule| Arc::clone(&rule.id)),
            message: standing.rule.and_then(|rule| rule.message.clone()),
            ask: standing.ask.filter(|_| is_ask),
            is_by_grant,
        }
    }

    /// Returns whether the host's own prompt is enough for an ask.
    fn is_delegated(&self, call: &PolicyCall<'_>, ask: Option<AskTerms>) -> bool {
        self.has_host_prompt
            && call.risk.level < RiskLevel::Critical
            && ask.is_some_and(|ask| ask.assurance == Assurance::Client)
    }
}

fn approver_if(is_needed: bool) -> Assurance {
    if is_needed { Assurance::Approver } else { Assurance::Client }
}

fn step(layer: PolicyLayer, effect: Option<Effect>, why: impl Into<String>) -> TraceStep {
    TraceStep { layer, rule: None, matched: effect.is_some(), effect, why: why.into() }
}

/// Returns the effect of a mode on a call that no rule matches, and the reason.
fn mode(mode: PolicyMode, call: &PolicyCall<'_>) -> (Effect, &'static str) {
    match mode {
        PolicyMode::AlwaysAsk => (Effect::Ask, "the mode is always_ask"),
        PolicyMode::AlwaysAllow => (Effect::Allow, "the mode is always_allow"),
        PolicyMode::DenyUnlessAllowed => (Effect::Deny, "the mode is deny_unless_allowed"),
        PolicyMode::Observe | PolicyMode::ByRisk => by_risk(call),
    }
}

fn by_risk(call: &PolicyCall<'_>) -> (Effect, &'static str) {
    let facts = call.facts;
    match call.risk.level {
        RiskLevel::Low => (Effect::Allow, "the risk is low"),
        RiskLevel::High => (Effect::Ask, "the risk is high"),
        RiskLevel::Critical => (Effect::Ask, "the risk is critical"),
        RiskLevel::Moderate if facts.tier == Tier::Read => {
            (Effect::Allow, "the risk is moderate and the tool reads")
        }
        RiskLevel::Moderate if facts.open_world == Some(true) => {
            (Effect::Ask, "the risk is moderate and the tool reaches outside")
        }
        RiskLevel::Moderate if facts.sensitivity == Some(Sensitivity::Private) => {
            (Effect::Ask, "the risk is moderate and the data are private")
        }
        RiskLevel::Moderate if call.risk.signals.has(RiskSignal::WritesFiles) => {
            (Effect::Ask, "the risk is moderate and the tool writes files")
        }
        RiskLevel::Moderate => (Effect::Allow, "the risk is moderate"),
    }
}

/// Flag for each effect, in the order of [`Effect`].
pub(super) type ByEffect = [bool; Effect::ALL.len()];

/// Strictest effect so far.
struct Standing<'a> {
    effect: Option<Effect>,
    layer: PolicyLayer,
    rule: Option<&'a PolicyRule>,
    ask: Option<AskTerms>,
}

impl<'a> Standing<'a> {
    const NONE: Standing<'static> =
        Standing { effect: None, layer: PolicyLayer::Mode, rule: None, ask: None };

    /// Takes an effect if it is stricter than what stands. The terms of all asks add up.
    fn take(&mut self, effect: Effect, layer: PolicyLayer, rule: Option<&'a PolicyRule>, terms: AskTerms) {
        if self.effect < Some(effect) {
            (self.effect, self.layer, self.rule) = (Some(effect), layer, rule);
        }
        if effect == Effect::Ask {
            self.ask = Some(self.ask.map_or(terms, |asked| asked.and(terms)));
        }
    }

    /// Lets a remembered allow relax an ask that permits it. Returns whether it did.
    fn relax(&mut self, answered: Assurance) -> bool {
        let permits =
            self.ask.is_some_and(|ask| ask.remember.has("allow_always") && answered >= ask.assurance);
        let is_relaxed = self.effect == Some(Effect::Ask) && permits;
        if is_relaxed {
            *self =
                Standing { effect: Some(Effect::Allow), layer: PolicyLayer::Remembered, ..Standing::NONE };
        }
        is_relaxed
    }
}

/// Evaluation under way.
struct Run<'a, 'c> {
    call: &'c PolicyCall<'c>,
    subject: RuleSubject<'c>,
    all: Standing<'a>,
    enforced: Standing<'a>,
    /// True if any rule matched.
    has_match: bool,
    /// Arguments for conditions, read when the first one needs them.
    arguments: Option<Arguments>,
    /// Work that is left for conditions.
    work: u64,
    /// Effects whose rules have conditions that hold, where the arguments are not known; `None` where they are.
    assumed: Option<ByEffect>,
    /// Effects of the rules whose condition was assumed.
    needed: ByEffect,
}

/// Result of one rule.
enum Judgement {
    Match,
    /// The condition has no value, which is a match for ask and deny.
    MatchByError(String),
    Mismatch(Mismatch),
    Excluded,
    ConditionFails,
    /// The condition has no value, which is no match for allow.
    ConditionErrs(String),
}

impl<'a, 'c> Run<'a, 'c> {
    fn new(call: &'c PolicyCall<'c>) -> Self {
        let facts = call.facts;
        let values = [
            facts.operation as usize,
            facts.tier as usize,
            call.risk.level as usize,
            facts.sensitivity.unwrap_or(Sensitivity::Unknown) as usize,
            call.entrance as usize,
            facts.trust as usize,
        ];
        let bits = values.into_iter().enumerate().fold(0, |all, (place, value)| all | bit(place, value));
        let subject = RuleSubject { tool: facts.name, bits, pairs: pairs(facts.name), at: call.at };
        Run {
            call,
            subject,
            all: Standing::NONE,
            enforced: Standing::NONE,
            has_match: false,
            arguments: None,
            work: WORK_MAX,
            assumed: None,
            needed: ByEffect::default(),
        }
    }

    /// Applies what no rule can change. Returns the reason; `None` if there is no such thing.
    fn built_in(&mut self) -> Option<&'static str> {
        let is_critical = self.call.risk.level == RiskLevel::Critical;
        let (assurance, why) = match (self.call.facts.is_sensitive, self.call.is_asked_always) {
            (true, _) => (Assurance::Approver, "the tool is of a sensitive category"),
            (false, true) => {
                (approver_if(is_critical), "the tool submits a form that a person is asked about each time")
            }
            (false, false) => return None,
        };
        let terms = AskTerms::plain(assurance, false);
        self.all.take(Effect::Ask, PolicyLayer::BuiltIn, None, terms);
        self.enforced.take(Effect::Ask, PolicyLayer::BuiltIn, None, terms);
        Some(why)
    }

    /// Applies a rule.
    fn rule(&mut self, layer: PolicyLayer, rule: &'a PolicyRule) -> Judgement {
        let judgement = self.judge(rule);
        if judgement.is_match() {
            self.has_match = true;
            let may_be_remembered = self.call.risk.level < RiskLevel::Critical;
            let terms = if may_be_remembered { rule.ask } else { rule.ask.once() };
            self.all.take(rule.effect, layer, Some(rule), terms);
            if rule.is_enforced {
                self.enforced.take(rule.effect, layer, Some(rule), terms);
            }
        }
        judgement
    }

    /// Returns the judgement on a condition as it is assumed; `None` where the arguments are known.
    fn assume(&mut self, effect: Effect) -> Option<Judgement> {
        let place = effect as usize;
        let holds = self.assumed?.get(place).copied().unwrap_or_default();
        if let Some(needed) = self.needed.get_mut(place) {
            *needed = true;
        }
        Some(if holds { Judgement::Match } else { Judgement::ConditionFails })
    }

    fn judge(&mut self, rule: &PolicyRule) -> Judgement {
        if let Some(mismatch) = rule.selectors.mismatch(&self.subject) {
            return Judgement::Mismatch(mismatch);
        }
        if rule.except.as_ref().is_some_and(|except| except.mismatch(&self.subject).is_none()) {
            return Judgement::Excluded;
        }
        let Some(when) = &rule.when else { return Judgement::Match };
        if let Some(assumed) = self.assume(rule.effect) {
            return assumed;
        }
        let text = self.call.facts.arguments;
        let arguments = self.arguments.get_or_insert_with(|| Arguments::read(text));
        match when.holds(arguments, &mut self.work) {
            Ok(true) => Judgement::Match,
            Ok(false) => Judgement::ConditionFails,
            Err(why) if rule.effect == Effect::Allow => Judgement::ConditionErrs(why),
            Err(why) => Judgement::MatchByError(why),
        }
    }
}

impl Judgement {
    fn is_match(&self) -> bool {
        matches!(self, Judgement::Match | Judgement::MatchByError(_))
    }

    fn why(&self, subject: &RuleSubject<'_>) -> String {
        match self {
            Judgement::Match => "it matches".to_owned(),
            Judgement::MatchByError(why) => format!("'when' has no value, which counts as a match: {why}"),
            Judgement::Mismatch(Mismatch::Tool) => "the tool does not match".to_owned(),
            Judgement::Mismatch(Mismatch::Time) => "it is outside the time window".to_owned(),
            Judgement::Mismatch(Mismatch::Dimension(place)) => {
                let (name, values) = DIMENSIONS.get(*place).copied().unwrap_or_default();
                let value =
                    (subject.bits & all_of(*place)).trailing_zeros() - all_of(*place).trailing_zeros();
                format!("{name} is {}", values.get(value as usize).copied().unwrap_or_default())
            }
            Judgement::Excluded => "'except' excludes it".to_owned(),
            Judgement::ConditionFails => "'when' is false".to_owned(),
            Judgement::ConditionErrs(why) => format!("'when' has no value, which is no match: {why}"),
        }
    }
}
