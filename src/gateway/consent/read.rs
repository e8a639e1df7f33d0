//! Reads of permission requests and grants.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::Consent;
use crate::domain::activity::Status;
use crate::domain::consent::{ConsentDecision, ConsentState, FENCE};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::policy::Assurance;
use crate::domain::reason::{self, CallAction, Language};
use crate::domain::redact::MASK;
use crate::domain::risk::RiskLevel;
use crate::domain::tenant::Action;
use crate::domain::tool::PinState;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{ConsentFilter, ConsentGrant, ConsentRow, PendingOf, StoreError, Stored, TurnEnder};

/// Most calls that are counted as let through by a remembered decision.
pub const LET_THROUGH_MAX: i64 = 1000;

/// Permission request, for a reader.
#[derive(Clone, Debug)]
pub struct ConsentView {
    /// The request.
    pub row: ConsentRow,
    /// Kind of answer that is needed; the strictest if this release does not know the word.
    pub assurance: Assurance,
    /// Level of risk; the highest if this release does not know the word.
    pub risk: RiskLevel,
    /// Decisions on offer that this release knows.
    pub options: Vec<ConsentDecision>,
}

/// Numbers of what the end of a request's turn would end now, beside the request itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnReach {
    /// Number of other requests that wait for a person or may run.
    pub others: i64,
    /// Number of calls of other tiers than read whose record in the log has not ended.
    pub under_way: i64,
}

/// Tool of a permission request as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedTool {
    /// The definition is the one that was asked about, as far as this replica knows.
    Same,
    /// The definition, or what an administrator says of it, is another one: as long as that is so, no answer lets the call run.
    Changed,
    /// No server of the tenant has the tool: as long as that is so, no answer lets the call run.
    Gone,
    /// A person has blocked the tool.
    Blocked,
    /// The server of the tool is disabled.
    Disabled,
    /// The server of the tool is in quarantine.
    Quarantined,
}

impl From<ConsentRow> for ConsentView {
    fn from(row: ConsentRow) -> ConsentView {
        ConsentView {
            assurance: row.assurance.known().unwrap_or(Assurance::Approver),
            risk: row.risk.known().unwrap_or(RiskLevel::Critical),
            options: row.options.iter().filter_map(|option| option.known()).collect(),
            row,
        }
    }
}

impl ConsentView {
    /// Returns what the call will do, in a reader's language. Arguments that are not shown whole are mentioned first.
    pub fn told(&self, language: Language) -> String {
        let mut told = self.hidden(language);
        told.push(self.told_shortly(language));
        told.join(" ")
    }

    /// Returns warnings about arguments that are not shown whole.
    pub fn hidden(&self, language: Language) -> Vec<String> {
        reason::hidden(self.row.was_cut, self.masked_bytes(), language)
    }

    /// Returns what the call will do as [`ConsentView::told`] does, without a word about arguments that are not shown whole.
    pub fn told_shortly(&self, language: Language) -> String {
        let row = &self.row;
        match CallAction::stored(&row.action, row.action_values.clone(), row.is_irreversible) {
            Some(action) => action.sentence(language),
            None => format!("{}:{}", row.server, row.tool),
        }
    }

    /// Returns whether a part of the arguments is masked.
    pub fn is_masked(&self) -> bool {
        // a row of an older release does not say it
        self.row.masked_bytes.map_or_else(|| self.row.arguments.contains(MASK), |bytes| bytes > 0)
    }

    /// Returns how much of the beginning of the arguments is masked at most, in bytes; 0 where it is not known.
    pub fn masked_bytes(&self) -> usize {
        self.row.masked_bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(0)
    }

    /// Returns what the state of the request means for its call, and what may be done; `words` gives times to the reader. Empty for a
    /// state that this release does not know.
    pub fn meaning(&self, words: impl Fn(DateTime<Utc>) -> String) -> String {
        let row = &self.row;
        let fenced = row.ended_at.unwrap_or(row.created_at) + FENCE;
        let lapse = row.lapse_reason.as_ref().and_then(Stored::known);
        row.state
            .known()
            .map(|state| state.meaning(&words(row.expires_at), &words(fenced), lapse))
            .unwrap_or_default()
    }

    /// Returns the tool of the request as the catalogue of the caller's tenant has it.
    pub fn tool_now(&self, caller: &Caller) -> RequestedTool {
        let row = &self.row;
        let Some(catalogue) = caller.catalogue() else { return RequestedTool::Same };
        match catalogue.tool(&format!("{}:{}", row.server, row.tool)) {
            None => RequestedTool::Gone,
            Some(tool) if tool.server.id.0 == row.server_id && **tool.shape.pin() == *row.pin => {
                match (tool.state == PinState::Blocked, tool.server.enabled, tool.server.quarantined) {
                    (true, ..) => RequestedTool::Blocked,
                    (false, false, _) => RequestedTool::Disabled,
                    (false, true, true) => RequestedTool::Quarantined,
                    (false, true, false) => RequestedTool::Same,
                }
            }
            Some(_) => RequestedTool::Changed,
        }
    }

    /// Returns whether a caller of the same tenant may see the request.
    pub fn is_visible_to(&self, caller: &Caller) -> bool {
        let is_whose = caller.role.may(Action::SeeConsent) || self.key() == caller.key;
        is_whose && caller.authorise(Action::SeeOwnConsent).is_ok()
    }

    /// Returns the key that calls; `None` for the bootstrap key.
    pub fn key(&self) -> Option<KeyId> {
        (!self.row.principal.is_nil()).then_some(KeyId(self.row.principal))
    }
}

impl Consent {
    /// Returns a page of permission requests, the newest first. A key that may see only its own gets those.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn list(
        &self,
        caller: &Caller,
        mut filter: ConsentFilter,
        limit: i64,
    ) -> Result<Vec<ConsentView>, GatewayError> {
        caller.authorise(Action::SeeOwnConsent)?;
        let tenant = caller.tenant()?.id;
        if !caller.role.may(Action::SeeConsent) {
            // a filter for another key's requests matches none that this caller may see
            if filter.key.is_some_and(|key| key != caller.key) {
                return Ok(Vec::new());
            }
            filter.key = Some(caller.key);
        }
        let rows = self.store.list_consent(tenant, &filter, limit).await;
        let rows = rows.map_err(|error| GatewayError::from_store(error, "permission request"))?;
        Ok(rows.into_iter().map(ConsentView::from).collect())
    }

    /// Returns a permission request.
    ///
    /// # Errors
    /// [`GatewayError::NotFound`], also for one that the caller may not see; [`GatewayError::Forbidden`] for the role,
    /// [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn get(&self, caller: &Caller, id: Uuid) -> Result<ConsentView, GatewayError> {
        caller.authorise(Action::SeeOwnConsent)?;
        let tenant = caller.tenant()?.id;
        let not_found = |error| GatewayError::from_store(error, "permission request");
        let view = ConsentView::from(self.store.get_consent(tenant, id).await.map_err(not_found)?);
        if !view.is_visible_to(caller) {
            return Err(not_found(StoreError::NotFound));
        }
        Ok(view)
    }

    /// Returns the words of the person who decided on a request, fit for a quotation; `None` without any, and if they cannot be
    /// read now.
    pub(in crate::gateway) async fn words_about(&self, tenant: TenantId, id: Uuid) -> Option<String> {
        let row = self.store.get_consent(tenant, id).await.ok()?;
        row.comment.as_deref().and_then(reason::quotation)
    }

    /// Returns how many requests of the caller's tenant wait for a person, as counted a few seconds ago; `None` before the
    /// first count, and for a caller that may not see them all. Takes no query.
    pub fn count_pending(&self, caller: &Caller) -> Option<i64> {
        let tenant = caller.tenant().ok().filter(|_| caller.role.may(Action::SeeConsent))?;
        self.measures.pending_of(tenant.id)
    }

    /// Returns how many requests that the caller may see wait for a person now.
    ///
    /// # Errors
    /// As [`Consent::list`].
    pub async fn count_waiting(&self, caller: &Caller) -> Result<i64, GatewayError> {
        caller.authorise(Action::SeeOwnConsent)?;
        let whose = match caller.role.may(Action::SeeConsent) {
            true => PendingOf::All,
            false => PendingOf::Key(caller.key),
        };
        let count = self.store.count_pending_of(caller.tenant()?.id, whose).await;
        count.map_err(|error| GatewayError::from_store(error, "permission request"))
    }

    /// Returns how many other requests ended with the turn that a decision about this request ended.
    ///
    /// # Errors
    /// As [`Consent::list`].
    pub async fn count_ended_with(&self, caller: &Caller, view: &ConsentView) -> Result<i64, GatewayError> {
        caller.authorise(Action::SeeConsent)?;
        let count = self.store.count_ended_with(caller.tenant()?.id, &view.row).await;
        count.map_err(|error| GatewayError::from_store(error, "permission request"))
    }

    /// Returns the request whose decision ended the turn of this one; `None` if that is not known.
    ///
    /// # Errors
    /// As [`Consent::list`].
    pub async fn ended_by(
        &self,
        caller: &Caller,
        view: &ConsentView,
    ) -> Result<Option<TurnEnder>, GatewayError> {
        if !view.is_visible_to(caller) {
            return Ok(None);
        }
        let found = self.store.ended_by(caller.tenant()?.id, &view.row).await;
        found.map_err(|error| GatewayError::from_store(error, "permission request"))
    }

    /// Returns how many calls beside its own a decision that was remembered with a request has let run, as far as the log has them, counted up to
    /// [`LET_THROUGH_MAX`].
    ///
    /// # Errors
    /// As [`Consent::list`].
    pub async fn count_let_through(&self, caller: &Caller, view: &ConsentView) -> Result<i64, GatewayError> {
        caller.authorise(Action::SeeConsent)?;
        let own =
            [ConsentState::Consumed, ConsentState::Succeeded, ConsentState::Failed, ConsentState::Unknown];
        let own = i64::from(own.iter().any(|state| view.row.state == *state));
        let count = self.store.count_let_through(caller.tenant()?.id, &view.row, LET_THROUGH_MAX + own).await;
        let count = count.map_err(|error| GatewayError::from_store(error, "permission request"))?;
        Ok((count - own).max(0))
    }

    /// Returns the status that the log has of the call of a request; `None` if it has none, or one of a later release.
    ///
    /// # Errors
    /// As [`Consent::list`].
    pub async fn status_of_call(
        &self,
        caller: &Caller,
        view: &ConsentView,
    ) -> Result<Option<Status>, GatewayError> {
        caller.authorise(Action::SeeConsent)?;
        let status = self.store.status_of_call(caller.tenant()?.id, &view.row).await;
        let status = status.map_err(|error| GatewayError::from_store(error, "permission request"))?;
        Ok(status.as_ref().and_then(Stored::known))
    }

    /// Returns until when denials refuse the tool of a request to its key, whatever the arguments; `None` where they do not.
    ///
    /// # Errors
    /// As [`Consent::list`].
    pub async fn cooldown(
        &self,
        caller: &Caller,
        view: &ConsentView,
    ) -> Result<Option<DateTime<Utc>>, GatewayError> {
        caller.authorise(Action::SeeConsent)?;
        let until = self.store.consent_cooldown(caller.tenant()?.id, &view.row).await;
        until.map_err(|error| GatewayError::from_store(error, "permission request"))
    }

    /// Returns for each of these requests, by id, what the end of its turn would end now.
    ///
    /// # Errors
    /// As [`Consent::list`].
    pub async fn count_in_turns(
        &self,
        caller: &Caller,
        views: &[&ConsentView],
    ) -> Result<HashMap<Uuid, TurnReach>, GatewayError> {
        if views.is_empty() {
            return Ok(HashMap::new());
        }
        caller.authorise(Action::SeeConsent)?;
        let mut principals: Vec<Uuid> = views.iter().map(|view| view.row.principal).collect();
        principals.sort_unstable();
        principals.dedup();
        let counts = self.store.count_open(caller.tenant()?.id, &principals).await;
        let counts = counts.map_err(|error| GatewayError::from_store(error, "permission request"))?;
        let reach = |view: &&ConsentView| {
            let of_turn = || counts.iter().filter(|open| open.are_in_turn_of(&view.row));
            let requests: i64 = of_turn().map(|open| open.requests).sum();
            // without the request itself
            let others = (requests - 1).max(0);
            (view.row.id, TurnReach { others, under_way: of_turn().map(|open| open.under_way).sum() })
        };
        Ok(views.iter().map(reach).collect())
    }

    /// Returns a page of grants that hold, the newest first, older than `before`. A key that may see only its own gets those
    /// about its calls.
    ///
    /// # Errors
    /// As [`Consent::list`].
    pub async fn list_grants(
        &self,
        caller: &Caller,
        before: Uuid,
        limit: i64,
    ) -> Result<Vec<ConsentGrant>, GatewayError> {
        caller.authorise(Action::SeeOwnConsent)?;
        let tenant = caller.tenant()?.id;
        let of = (!caller.role.may(Action::SeeConsent)).then_some(caller.key);
        let rows = self.store.list_grants(tenant, of, before, limit).await;
        rows.map_err(|error| GatewayError::from_store(error, "grant"))
    }
}
