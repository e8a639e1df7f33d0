//! People who are attached to a replica, over the Agent Client Protocol: who is asked, and what they decide.
//!
//! The caller's own key answers as its client does in the call ([`Assurance::Client`]), any other as over REST.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use super::announcer::CHANNEL;
use super::decide::out_of_band;
use super::{Consent, ConsentNews, ConsentView, DecideRequest, new_id};
use crate::domain::consent::{ConsentDecision, ConsentState, DecidedVia, MayNotDecide};
use crate::domain::policy::Assurance;
use crate::domain::reason::{self, Language};
use crate::domain::risk::{Risk, RiskSignal, Signals, risk_places};
use crate::domain::tenant::Action;
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::life::sleep_or_stop;
use crate::gateway::log::Attempt;
use crate::gateway::outlive::{Apart, Outlive};
use crate::gateway::tenants::Caller;
use crate::store::{ConsentDecider, ConsentFilter, ConsentOrder, NewDecision};

/// Pause after the end of a key's turn, however many connections the key has.
const END_PAUSE: Duration = Duration::from_secs(1);

/// Outcome of a decision in a task of its own.
pub type Deciding = Apart<Result<ConsentView, GatewayError>>;

impl ConsentView {
    /// Returns whether the request is put to a caller who is attached: a rule lets it be, and the caller may allow it.
    pub fn is_put_to(&self, caller: &Caller) -> bool {
        self.row.channels.iter().any(|channel| channel == CHANNEL)
            && assurance(caller, self, ConsentDecision::AllowOnce).is_ok()
    }

    /// Returns what to show beside [`ConsentView::told`]: the risk, and the words of the agent and of the tool's author.
    pub fn details(&self, language: Language) -> Vec<String> {
        let row = &self.row;
        let risk = Risk { level: self.risk, signals: self.signals() };
        let words = (row.agent_says.as_deref(), row.author_says.as_deref());
        reason::details(risk, (&row.server, &row.tool), words, language)
    }

    /// Returns a line for each place in the arguments that raises the risk, and for each whose place was not found in them.
    pub fn places(&self, language: Language) -> Vec<String> {
        let row = &self.row;
        let signals = self.signals();
        let mut places = risk_places(&format!("{}:{}", row.server, row.tool), &row.arguments, row.was_cut);
        // masks have characters of their own, and a later release finds more
        places.retain(|place| signals.has(place.signal));
        let is_hidden = row.was_cut || self.is_masked();
        let found = |signal: RiskSignal| places.iter().any(|place| place.signal == signal);
        let not_found: Vec<RiskSignal> = signals
            .iter()
            .filter(|signal| is_hidden && signal.is_of_arguments() && !found(*signal))
            .collect();
        reason::place_lines(&places, &not_found, language)
    }

    /// Returns the signals of the risk that this release knows.
    fn signals(&self) -> Signals {
        let mut signals = Signals::default();
        self.row
            .signals
            .iter()
            .filter_map(|signal| RiskSignal::parse(signal))
            .for_each(|signal| signals.add(signal));
        signals
    }
}

/// Returns the assurance of an answer of an attached caller.
fn assurance(
    caller: &Caller,
    view: &ConsentView,
    decision: ConsentDecision,
) -> Result<Assurance, MayNotDecide> {
    if view.key() != caller.key {
        return out_of_band(caller, view, decision);
    }
    match view.assurance {
        Assurance::Client if caller.settings.in_band_answers => Ok(Assurance::Client),
        // a person may refuse their own call
        _ => out_of_band(caller, view, decision),
    }
}

impl Consent {
    /// Attaches a caller who can be asked: those who decide, and those whose own calls may ask. Returns the news from now on.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant.
    pub fn attach(&self, caller: &Caller) -> Result<ConsentNews, GatewayError> {
        caller.authorise(if caller.role.may(Action::UseTools) {
            Action::UseTools
        } else {
            Action::DecideConsent
        })?;
        self.follow(caller)
    }

    /// Returns an attached caller with its settings of now. A connection is as old as it is.
    ///
    /// # Errors
    /// [`GatewayError::NotFound`] if the key is not valid any more.
    pub fn present(&self, caller: &Caller) -> Result<Arc<Caller>, GatewayError> {
        if !self.tenants.is_valid(caller) {
            return Err(GatewayError::NotFound("key"));
        }
        self.tenants.stand_in(caller, caller.key)
    }

    /// Returns the open requests that are put to an attached caller and newer than `after`, the oldest first.
    ///
    /// # Errors
    /// As [`Consent::list`].
    pub async fn list_put_to(
        &self,
        caller: &Caller,
        after: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<ConsentView>, GatewayError> {
        let decider = ConsentDecider {
            key: caller.key,
            root: caller.person.root,
            creator: caller.person.creator,
            identity: caller.person.identity,
            owner: caller.person.owner.clone(),
            is_approver: caller.role.may(Action::DecideConsent),
            is_in_band: caller.settings.in_band_answers,
        };
        let filter = ConsentFilter {
            state: Some(ConsentState::Pending),
            channel: Some(CHANNEL),
            decider: Some(decider),
            behind: after,
            order: ConsentOrder::Oldest,
            ..ConsentFilter::default()
        };
        let mut views = self.list(caller, filter, limit).await?;
        // owners in another spelling are one person
        views.retain(|view| view.is_put_to(caller));
        Ok(views)
    }

    /// Decides a request as an attached caller, in a task of its own: an answer counts whether or not its sender waits.
    pub fn decide_attached(
        self: &Arc<Self>,
        attempt: Attempt,
        id: Uuid,
        decision: ConsentDecision,
    ) -> Deciding {
        let consent = Arc::clone(self);
        let deciding = async move {
            let via = DecidedVia::Acp;
            let request = DecideRequest { decision, comment: None, expires_in_s: None, via };
            let attempt = Attempt { caller: consent.present(&attempt.caller)?, ..attempt };
            let caller = &*attempt.caller;
            let view = consent.get(caller, id).await?;
            if !view.row.channels.iter().any(|channel| channel == CHANNEL) {
                return Err(GatewayError::NotFound("permission request"));
            }
            let assurance = assurance(caller, &view, decision).map_err(GatewayError::MayNotDecide)?;
            consent.settle(&attempt, view, assurance, request).await
        };
        Outlive::new(&self.life.tasks, deciding).apart()
    }

    /// Ends the turn of the caller's own key: its open requests are cancelled, its calls under way end, and further ones that
    /// ask are refused for a while. Does nothing for a caller without calls, nor if the turn was ended here just before: its
    /// fence holds.
    pub fn end_own_turn(self: &Arc<Self>, attempt: Attempt) {
        if !attempt.caller.role.may(Action::UseTools) {
            return;
        }
        let whose = (attempt.caller.tenant_id(), attempt.caller.key);
        if !self.ending_turns.lock().insert(whose) {
            return;
        }
        let consent = Arc::clone(self);
        self.life.tasks.spawn(async move {
            let caller = &attempt.caller;
            let tenant = caller.tenant_id();
            let new = NewDecision {
                id: new_id(clock::now()),
                decision: ConsentDecision::CancelTurn,
                by: caller.key,
                owner: caller.owner.clone(),
                via: DecidedVia::Acp,
                comment: None,
                grant: None,
                author: consent.author_of(&attempt),
                is_recorded: false,
            };
            match consent.store.end_own_turn(tenant, &new).await {
                Ok(cancelled) => consent.measures.also_cancelled(DecidedVia::Acp, cancelled),
                Err(error) => super::failed(tenant, &error),
            }
            sleep_or_stop(END_PAUSE, &consent.life.stop).await;
            consent.ending_turns.lock().remove(&whose);
        });
    }
}
