//! Rehearsal of calls: what checks and policies say of a call that is not made. Nothing is run, nobody is asked, and there is no
//! record.

use std::sync::Arc;
use std::time::Instant;

use super::Checked;
use super::checks::reachable;
use super::checks::tool::{self, CheckedTool};
use super::door::Door;
use super::facts::Facts;
use super::policy::{PolicySubject, PolicyVerdict, denied, runs_pages};
use super::request::{Callee, ToolRequest};
use crate::domain::annotations::Tier;
use crate::domain::operation::Variant;
use crate::domain::policy::Ruling;
use crate::domain::refusal::Refusal;
use crate::domain::tool::PinState;
use crate::gateway::calls::Calls;
use crate::gateway::catalog::{Tool, sees};
use crate::gateway::log::Attempt;
use crate::gateway::tenants::Caller;

/// Outcome of a rehearsal.
#[derive(Debug, Default)]
pub struct Rehearsed {
    /// Refusal that the call would meet; `None` if it would run, or ask.
    pub refusal: Option<Refusal>,
    /// Decision of the policies; `None` if a check before them refuses the call.
    pub verdict: Option<PolicyVerdict>,
    /// Warnings of the checks.
    pub warnings: Vec<String>,
}

impl Calls {
    /// Returns a tool that lists show this caller, with its tier; `None` for any other name. A definition that nobody has approved, or
    /// whose server is out of reach for agents, is shown to nobody who could call it.
    pub fn callable_tool(&self, caller: &Caller, name: &str) -> Option<(Arc<Tool>, Tier)> {
        let tool = caller.catalogue()?.tool(name).cloned()?;
        let is_listed = tool.server.is_exposed() && tool.state == PinState::Approved;
        sees(&caller.settings, &tool).filter(|_| is_listed).map(|tier| (tool, tier))
    }

    /// Returns tools that lists show the caller: the first `limit` after the name `after`, in order, whose names contain `part`
    /// in either case.
    pub async fn callable_tools(
        &self,
        caller: &Caller,
        (part, after): (&str, &str),
        limit: usize,
    ) -> Vec<Arc<Tool>> {
        let Some(catalogue) = caller.catalogue() else { return Vec::new() };
        let part = part.to_lowercase();
        let find = || {
            let tools = catalogue.listed().iter().filter(|tool| *tool.canonical > *after);
            let tools = tools.filter(|tool| tool.canonical.to_lowercase().contains(&part));
            let tools = tools.filter(|tool| sees(&caller.settings, tool).is_some());
            let mut tools: Vec<&Arc<Tool>> = tools.collect();
            tools.sort_unstable_by(|one, other| one.canonical.cmp(&other.canonical));
            tools.into_iter().take(limit).cloned().collect()
        };
        self.upstreams.in_turn(caller.tenant_id().0, find).await
    }

    /// Rehearses a call without its arguments: the checks of name, intent and tool, and the policies as far as no argument
    /// matters to them. It counts against the rate of its key, as the call would.
    pub async fn rehearse_bare(
        &self,
        attempt: &Attempt,
        variant: Variant,
        request: ToolRequest,
    ) -> Rehearsed {
        let mut facts = Facts::new(Door::Variant(variant));
        if let Err(refusal) = self.tenants.limits.admit(&attempt.caller, Instant::now()) {
            return refused(refusal, facts);
        }
        match tool::run(&attempt.caller, &request, &mut facts) {
            Ok(checked) => self.judge(attempt, &checked, facts).await,
            Err(refusal) => refused(refusal, facts),
        }
    }

    /// Rehearses a call. It counts against the rate of its key, as the call would.
    pub async fn rehearse(&self, attempt: &Attempt, variant: Variant, request: ToolRequest) -> Rehearsed {
        let (door, caller) = (Door::Variant(variant), &attempt.caller);
        let mut facts = Facts::new(door);
        let admitted = self.tenants.limits.admit(caller, Instant::now());
        match self.check(caller, &Callee::Tool(door, request), &mut facts, admitted).await {
            Ok(Checked::Tool(checked)) => match runs_pages(&checked) {
                Ok(()) => self.judge(attempt, &checked, facts).await,
                Err(refusal) => refused(refusal, facts),
            },
            Ok(Checked::Offer(_)) => Rehearsed::default(),
            Err(refusal) => refused(refusal, facts),
        }
    }

    /// Asks the policies about a call that passed its checks, and whether its server could be reached.
    async fn judge(&self, attempt: &Attempt, checked: &CheckedTool, facts: Facts) -> Rehearsed {
        let caller = &attempt.caller;
        let subject = PolicySubject::of(attempt, checked, &facts);
        let evaluate = || self.evaluate(caller, &subject);
        let verdict = self.upstreams.aside(caller.tenant_id().0, checked.arguments.len(), evaluate).await;
        let refusal = match verdict.decision.ruling {
            Ruling::Denied => Some(denied(&checked.tool.canonical, &verdict.decision, caller)),
            _ => reachable(&checked.tool.server).err(),
        };
        Rehearsed { refusal, verdict: Some(verdict), warnings: facts.warnings }
    }
}

fn refused(refusal: Refusal, facts: Facts) -> Rehearsed {
    Rehearsed { refusal: Some(refusal), verdict: None, warnings: facts.warnings }
}
