//! Decisions of people, and the end of what they had remembered.

use chrono::TimeDelta;
use uuid::Uuid;

use super::{Consent, ConsentView, new_id, refusals};
use crate::domain::consent::{
    self, COMMENT_CHARS_MAX, ConsentDecision, ConsentState, DecidedVia, MayNotDecide,
};
use crate::domain::id::{IdentityId, KeyId};
use crate::domain::person::{OnePerson, Person};
use crate::domain::policy::Assurance;
use crate::domain::redact;
use crate::domain::tenant::Action;
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::log::Attempt;
use crate::gateway::tenants::Caller;
use crate::store::{ConsentRow, DecideOutcome, GrantOrigin, NewDecision, NewGrant, RevisionKind, StoreError};

/// Decision of a person.
#[derive(Clone, Debug)]
pub struct DecideRequest {
    /// Decision, one that the request offers.
    pub decision: ConsentDecision,
    /// Comment, for whoever reads the request later.
    pub comment: Option<String>,
    /// Shorter life of what is remembered, in seconds.
    pub expires_in_s: Option<u32>,
    /// Way by which it came.
    pub via: DecidedVia,
}

impl ConsentView {
    /// Checks that a caller may decide so out of band, over REST, the command line or the console.
    ///
    /// # Errors
    /// The reason for which the caller may not.
    pub fn may_decide(&self, caller: &Caller, decision: ConsentDecision) -> Result<(), MayNotDecide> {
        out_of_band(caller, self, decision).map(drop)
    }

    /// Returns the fact by which the caller and who asked are one person; `None` if they are two.
    pub fn same_person(&self, caller: &Caller) -> Option<OnePerson> {
        caller.person.same_as(&requester(caller, &self.row))
    }
}

impl Consent {
    /// Decides a pending request.
    ///
    /// # Errors
    /// [`GatewayError::MayNotDecide`] for the role and for the own request, [`GatewayError::NotFound`],
    /// [`GatewayError::Invalid`] for a decision that is not on offer, [`GatewayError::Conflict`] if the request is not
    /// pending any more, [`GatewayError::Limit`] for too many grants, or [`GatewayError::Unavailable`].
    pub async fn decide(
        &self,
        attempt: &Attempt,
        id: Uuid,
        request: DecideRequest,
    ) -> Result<ConsentView, GatewayError> {
        let caller = &*attempt.caller;
        caller.authorise(Action::DecideConsent)?;
        let tenant = caller.tenant()?.id;
        let store = |error| GatewayError::from_store(error, "permission request");
        let view = ConsentView::from(self.store.get_consent(tenant, id).await.map_err(store)?);
        let assurance = out_of_band(caller, &view, request.decision).map_err(GatewayError::MayNotDecide)?;
        self.settle(attempt, view, assurance, request).await
    }

    /// Stores the decision of somebody who may decide so.
    ///
    /// # Errors
    /// As [`Consent::decide`], but for the role.
    pub(super) async fn settle(
        &self,
        attempt: &Attempt,
        view: ConsentView,
        assurance: Assurance,
        request: DecideRequest,
    ) -> Result<ConsentView, GatewayError> {
        let caller = &*attempt.caller;
        let (tenant, id) = (caller.tenant()?.id, view.row.id);
        let store = |error| GatewayError::from_store(error, "permission request");
        let DecideRequest { decision, comment, expires_in_s, via } = request;
        if view.row.state != ConsentState::Pending {
            return Err(taken(&view));
        }
        if !view.options.contains(&decision) {
            let offered: Vec<&str> = view.options.iter().map(|option| option.as_str()).collect();
            let offers = format!("this request offers: {}", offered.join(", "));
            let why = decision.remembers().map(|_| {
                let why = consent::why_once(view.risk, view.row.was_cut, view.row.rule.as_deref());
                format!("{} (--always) is not offered: {why}; {offers}", decision.as_str())
            });
            return Err(GatewayError::invalid("decision", why.unwrap_or(offers)));
        }
        if comment.as_ref().is_some_and(|comment| comment.chars().count() > COMMENT_CHARS_MAX) {
            let message = format!("comment must have at most {COMMENT_CHARS_MAX} characters");
            return Err(GatewayError::invalid("comment", message));
        }
        if expires_in_s.is_some() && decision.remembers().is_none() {
            let message = "expires_in_s is for allow_always and reject_always";
            return Err(GatewayError::invalid("expires_in_s", message));
        }
        let now = clock::now();
        let asked = expires_in_s.map(|seconds| TimeDelta::seconds(seconds.into()));
        // nothing that a key had remembered holds longer than the key; a person stays when a token ends
        let until_expiry = caller.expires_at.filter(|_| caller.login.is_none()).map(|at| at - now);
        let life = consent::grant_life(view.risk, asked.into_iter().chain(until_expiry).min());
        let grant = decision.remembers().map(|effect| NewGrant { id: new_id(now), effect, assurance, life });
        let new = NewDecision {
            id,
            decision,
            by: caller.key,
            owner: caller.owner.clone(),
            via,
            comment: comment.map(|comment| redact::redact(&comment).into_owned()),
            grant,
            author: self.author_of(attempt),
            is_recorded: matches!(via, DecidedVia::Rest | DecidedVia::Cli | DecidedVia::Console),
        };
        self.tenants.keep_person(caller).await.map_err(store)?;
        match self.store.decide_consent(tenant, &new).await.map_err(store)? {
            DecideOutcome::Decided { row, rev, also_cancelled } => {
                let took = row.decided_at.unwrap_or(row.created_at) - row.created_at;
                self.measures.decided(decision.state(), via, took, also_cancelled);
                if rev.is_some() {
                    self.tenants.refresh(tenant, RevisionKind::Access).await;
                }
                Ok(ConsentView::from(*row))
            }
            DecideOutcome::Taken(row) => Err(taken(&ConsentView::from(*row))),
        }
    }

    /// Revokes a grant, and ends the permissions that were given with it: who decided it may, also in a client, and
    /// administrators. An agent cannot take back a refusal of its user, whose key it has.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], also for one that the caller may not see,
    /// [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn revoke_grant(&self, attempt: &Attempt, id: Uuid) -> Result<(), GatewayError> {
        let caller = &*attempt.caller;
        let grant = self.visible_grant(caller, id).await?;
        if !caller.role.may(Action::ManageKeys) && grant.granted_by != caller.key {
            let message = "this grant is another person's; it takes that key, or one of role admin";
            return Err(GatewayError::Forbidden(message.to_owned()));
        }
        if !caller.role.may(Action::DecideConsent) && grant.effect != consent::GrantEffect::Allow {
            let message = "a key of this role revokes no refusal; it takes one of role admin";
            return Err(GatewayError::Forbidden(message.to_owned()));
        }
        let tenant = caller.tenant()?.id;
        let revoked = self.store.revoke_grant(tenant, id, caller.key, &self.author_of(attempt)).await;
        revoked.map_err(|error| GatewayError::from_store(error, "grant"))?;
        self.tenants.refresh(tenant, RevisionKind::Access).await;
        Ok(())
    }

    /// Returns the id of the request that a grant came from; `None` if the grant does not hold, the caller may not see it, or
    /// that cannot be known now.
    pub async fn request_of_grant(&self, caller: &Caller, id: Uuid) -> Option<Uuid> {
        self.visible_grant(caller, id).await.ok().map(|grant| grant.request_id)
    }

    async fn visible_grant(&self, caller: &Caller, id: Uuid) -> Result<GrantOrigin, GatewayError> {
        caller.authorise(Action::SeeOwnConsent)?;
        let found = self.store.grant_origin(caller.tenant()?.id, id).await;
        let sees_all = [Action::ManageKeys, Action::SeeConsent].iter().any(|action| caller.role.may(*action));
        let found = found.and_then(|grant| {
            let is_own = [grant.granted_by, grant.principal].contains(&caller.key);
            if sees_all || is_own { Ok(grant) } else { Err(StoreError::NotFound) }
        });
        found.map_err(|error| GatewayError::from_store(error, "grant"))
    }

    /// Ends the requests of a key that was revoked, and the permissions that it gave and that no call has used. Its grants end
    /// by themselves.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn withdraw_of(&self, attempt: &Attempt, key: KeyId) -> Result<(), GatewayError> {
        let tenant = attempt.caller.tenant()?.id;
        let withdrawn = self.store.withdraw_consent(tenant, key, &self.author_of(attempt)).await;
        withdrawn.map_err(|error| GatewayError::from_store(error, "key"))
    }
}

/// Returns the assurance of a caller's answer out of band.
///
/// # Errors
/// The reason for which this caller may not decide so.
pub(super) fn out_of_band(
    caller: &Caller,
    view: &ConsentView,
    decision: ConsentDecision,
) -> Result<Assurance, MayNotDecide> {
    consent::assurance_of(
        decision,
        caller.role,
        &caller.person,
        &requester(caller, &view.row),
        view.assurance,
    )
}

/// Returns the person who asked, as known at that time: a change of the owner or the identity since then
/// changes nothing. Only the creators of its rotations are those of now.
fn requester(caller: &Caller, row: &ConsentRow) -> Person {
    let key = |id: Uuid| (!id.is_nil()).then_some(KeyId(id));
    let (principal, root) = (key(row.principal), key(row.principal_root.unwrap_or(row.principal)));
    let rotations = principal.zip(root).map(|(key, root)| caller.persons_of(key, root));
    let creators = |person: Person| person.line_creators.into_iter().chain([person.creator]);
    Person {
        key: principal,
        root,
        owner: row.person.clone(),
        email: row.person_email.clone(),
        identity: row.identity_id.map(IdentityId),
        creator: row.creator.and_then(key),
        line_creators: rotations.into_iter().flatten().flat_map(creators).collect(),
    }
}

/// Returns the conflict of a decision that came too late: the winner, and what became of the request.
fn taken(view: &ConsentView) -> GatewayError {
    let row = &view.row;
    let state = row.state.as_str().replace('_', " ");
    let winner = match (&row.decided_owner, &row.decided_via, row.decided_at) {
        (Some(owner), Some(via), Some(at)) => {
            format!(": {owner} was first, over {via}, at {}", refusals::time(at))
        }
        _ => String::new(),
    };
    let meaning = match view.meaning(refusals::time) {
        meaning if meaning.is_empty() => meaning,
        meaning => format!(": {meaning}"),
    };
    let stop = match row.state.known() {
        Some(ConsentState::Granted) => {
            ". A rule that denies the call, or revoking the key that asked, still stops it"
        }
        _ => "",
    };
    GatewayError::Conflict(format!(
        "this request is {state} already{winner}; it stays as it is{meaning}{stop}"
    ))
}
