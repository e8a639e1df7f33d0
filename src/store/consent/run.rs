//! Use of a permission: once, for the call that was asked about.

use uuid::Uuid;

use super::fence::{self, CallTurn, HeldFence, holds};
use super::read::request_columns;
use super::steps::{self, Moved, StepAuthor, StepTaken};
use super::{ConsentRow, grants, principal, read, state_now};
use crate::domain::consent::{ConsentState, DIGEST_BYTES, LapseReason};
use crate::domain::id::TenantId;
use crate::domain::policy::Assurance;
use crate::store::revisions;
use crate::store::tx::{Lane, TxAccess};
use crate::store::{Store, StoreError};

/// Claim of a call to a permission.
#[derive(Clone, Debug)]
pub struct ConsentClaim {
    /// Id of the request.
    pub id: Uuid,
    /// Turn of the call, with the key that calls.
    pub turn: CallTurn,
    /// Kind of answer that the call needs now: that of the permission must be as good.
    pub needed: Assurance,
    /// Pin of the definition.
    pub pin: String,
    /// Keyed digests of the call, one for each key in use.
    pub digests: Vec<[u8; DIGEST_BYTES]>,
    /// Record of the round before, for a later round of a call that has used the permission up; `None` for the first.
    pub after: Option<Uuid>,
    /// Author of the record about the use.
    pub author: StepAuthor,
}

/// Outcome of a claim.
#[derive(Clone, Debug)]
pub enum ConsumeOutcome {
    /// The permission was this call's, and is used up.
    Consumed,
    /// A person ended the turn; `None` if the fence is over by now.
    Fenced(Option<HeldFence>),
    /// The permission is not there any more, or is not for this call.
    Gone(Option<Box<ConsentRow>>),
}

/// Call that a remembered decision lets through.
#[derive(Clone, Debug)]
pub struct GrantedCall {
    /// Turn of the call, with the key that calls.
    pub turn: CallTurn,
    /// Pin of the definition.
    pub pin: String,
    /// Keyed digests of the call, one for each key in use.
    pub digests: Vec<[u8; DIGEST_BYTES]>,
    /// Permission request with whose answer the decision was remembered.
    pub request: Uuid,
}

/// Decision of a person that goes before a remembered one, since it is about this very call.
#[derive(Clone, Debug)]
pub enum OwnDecision {
    /// None.
    None,
    /// None yet: a person is being asked about the call.
    Waits,
    /// The turn of the call was ended.
    Fenced(HeldFence),
    /// The call was allowed, and has not run yet.
    Unused(Box<ConsentRow>),
    /// The call was refused: its request is not over yet, or no decision that allows such calls was remembered since then.
    Denied(Box<ConsentRow>),
}

impl Store {
    /// Returns the newest decision about a call itself, which a remembered decision lets through.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn find_own_decision(
        &self,
        tenant: TenantId,
        call: &GrantedCall,
    ) -> Result<OwnDecision, StoreError> {
        let digests: Vec<&[u8]> = call.digests.iter().map(<[u8; DIGEST_BYTES]>::as_slice).collect();
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let fence = fence::held(&mut tx, tenant, &call.turn).await?;
        let decided: Option<ConsentRow> = sqlx::query_as(concat!(
            "select ",
            request_columns!(),
            " from consent_requests
             where tenant_id = $1 and principal = $2 and digest = any($3) and pin = $4
               and (state in ('pending', 'granted', 'denied') and expires_at > now()
                    or state = 'denied' and not exists (
                        select from consent_grants
                        where consent_grants.tenant_id = $1 and effect = 'allow'
                          and (consent_grants.principal, consent_grants.server_id, consent_grants.tool,
                               consent_grants.operation_type, consent_grants.pin)
                              = ($2, consent_requests.server_id, consent_requests.tool, consent_requests.operation_type, $4)
                          and (consent_grants.assurance = 'approver' or consent_requests.assurance = 'client')
                          and array_position(array['low', 'moderate', 'high', 'critical'], consent_grants.risk)
                              >= array_position(array['low', 'moderate', 'high', 'critical'], consent_requests.risk)
                          and consent_grants.created_at > consent_requests.decided_at
                          and ",
            grants::holds!(),
            "))
             order by state = 'pending', id desc limit 1"
        ))
        .bind(tenant.0)
        .bind(principal(call.turn.key))
        .bind(digests)
        .bind(&call.pin)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(match (fence, decided) {
            (Some(fence), _) => OwnDecision::Fenced(fence),
            (None, None) => OwnDecision::None,
            (None, Some(row)) if row.state == ConsentState::Denied => OwnDecision::Denied(Box::new(row)),
            (None, Some(row)) if row.state == ConsentState::Pending => OwnDecision::Waits,
            (None, Some(row)) => OwnDecision::Unused(Box::new(row)),
        })
    }

    /// Ends the requests about a call that wait, since a remembered decision lets it through: no answer to them would change that. They
    /// lapse, so that none becomes a permission that nobody gave. Returns how many they were.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn lapse_granted(
        &self,
        tenant: TenantId,
        call: &GrantedCall,
        author: &StepAuthor,
    ) -> Result<usize, StoreError> {
        self.stepping(author, || self.try_lapse_granted(tenant, call, author)).await
    }

    async fn try_lapse_granted(
        &self,
        tenant: TenantId,
        call: &GrantedCall,
        author: &StepAuthor,
    ) -> Result<usize, StoreError> {
        let digests: Vec<&[u8]> = call.digests.iter().map(<[u8; DIGEST_BYTES]>::as_slice).collect();
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let ended: Vec<Moved> = sqlx::query_as(concat!(
            "update consent_requests r set state = 'lapsed', ended_at = now(), lapse_reason = $6
             where tenant_id = $1 and principal = $2 and digest = any($3) and pin = $4
               and state = 'pending' and r.expires_at > now()
               and exists (
                   select from consent_grants
                   where consent_grants.tenant_id = $1 and request_id = $5 and effect = 'allow'
                     and (consent_grants.assurance = 'approver' or r.assurance = 'client') and ",
            grants::holds!(),
            ") returning id, server, tool"
        ))
        .bind(tenant.0)
        .bind(principal(call.turn.key))
        .bind(digests)
        .bind(&call.pin)
        .bind(call.request)
        .bind(LapseReason::AllowedByGrant.as_str())
        .fetch_all(&mut *tx)
        .await?;
        let lapsed = ConsentState::Lapsed.as_str();
        let steps: Vec<_> = ended.iter().map(|moved| StepTaken::of(tenant, moved, lapsed)).collect();
        steps::write(&mut tx, author, &steps).await?;
        tx.commit_change().await?;
        Ok(ended.len())
    }

    /// Uses a permission up for one call, if it is for that call and nobody has ended the turn.
    ///
    /// # Errors
    /// The database is out of reach or fails. The permission may be used up all the same.
    pub async fn consume_consent(
        &self,
        tenant: TenantId,
        claim: &ConsentClaim,
    ) -> Result<ConsumeOutcome, StoreError> {
        self.stepping(&claim.author, || self.try_consume(tenant, claim)).await
    }

    async fn try_consume(
        &self,
        tenant: TenantId,
        claim: &ConsentClaim,
    ) -> Result<ConsumeOutcome, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let digests: Vec<&[u8]> = claim.digests.iter().map(<[u8; DIGEST_BYTES]>::as_slice).collect();
        let consumed: Option<Moved> = sqlx::query_as(concat!(
            "update consent_requests set state = 'consumed', consumed_at = now(), replica_id = $8, kept_until = null,
                 kept_after = null
             where tenant_id = $1 and principal = $2 and id = $5 and digest = any($6) and pin = $7
               and ($10 = 'client' or assurance = 'approver')
               and case when $9::uuid is not null
                        then state = 'consumed' and kept_until > now() and kept_after = $9
                        else state = 'granted' and expires_at > now() end
               and not exists (select from consent_fences f where ",
            holds!(),
            ") returning id, server, tool"
        ))
        .bind(tenant.0)
        .bind(principal(claim.turn.key))
        .bind(&claim.turn.session)
        .bind(claim.turn.session_began)
        .bind(claim.id)
        .bind(digests)
        .bind(&claim.pin)
        .bind(claim.author.replica.0)
        .bind(claim.after)
        .bind(claim.needed.as_str())
        .fetch_optional(&mut *tx)
        .await?;
        if let Some(moved) = consumed {
            let state = ConsentState::Consumed.as_str();
            match claim.after {
                None => {
                    steps::write(&mut tx, &claim.author, &[StepTaken::of(tenant, &moved, state)]).await?;
                }
                // a later round is no step
                Some(_) => revisions::tell_consent(&mut tx, tenant, claim.id).await?,
            }
            tx.commit_change().await?;
            return Ok(ConsumeOutcome::Consumed);
        }
        let fence = fence::held(&mut tx, tenant, &claim.turn).await?;
        let row = read::find(&mut tx, tenant, claim.id).await?;
        tx.commit().await?;
        let is_cancelled = row.as_ref().is_some_and(|row| row.state == ConsentState::Cancelled);
        Ok(match fence.is_some() || is_cancelled {
            true => ConsumeOutcome::Fenced(fence),
            false => ConsumeOutcome::Gone(row.map(Box::new)),
        })
    }

    /// Keeps a permission that was used up for the next round of its call, for `seconds`, unless a person has ended the turn
    /// since then. One round may claim it, with the record of the round before.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn keep_consent(
        &self,
        tenant: TenantId,
        (id, record): (Uuid, Uuid),
        seconds: f64,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        sqlx::query(
            "update consent_requests r set kept_until = now() + make_interval(secs => $3), kept_after = $4
             where tenant_id = $1 and id = $2 and state = 'consumed' and not exists (
                 select from consent_fences f
                 where f.tenant_id = $1 and f.principal = r.principal and f.ends_at > r.consumed_at
                   and (f.session_id is null or r.session_id is null or f.session_id = r.session_id))",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(seconds)
        .bind(record)
        .execute(&mut *tx)
        .await?;
        tx.commit_change().await
    }

    /// Notes the outcome of a call that used a permission up.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn finish_consent(
        &self,
        tenant: TenantId,
        id: Uuid,
        state: ConsentState,
        author: &StepAuthor,
    ) -> Result<(), StoreError> {
        self.stepping(author, || self.try_finish(tenant, id, state, author)).await
    }

    async fn try_finish(
        &self,
        tenant: TenantId,
        id: Uuid,
        state: ConsentState,
        author: &StepAuthor,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        let finished: Option<Moved> = sqlx::query_as(
            "update consent_requests set state = $3, ended_at = now()
             where tenant_id = $1 and id = $2 and state = 'consumed' returning id, server, tool",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(state.as_str())
        .fetch_optional(&mut *tx)
        .await?;
        if let Some(moved) = finished {
            steps::write(&mut tx, author, &[StepTaken::of(tenant, &moved, state.as_str())]).await?;
        }
        Ok(tx.commit().await?)
    }
}
