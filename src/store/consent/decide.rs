//! Decisions: the first one wins, by one conditional update.

use super::decision::NewDecision;
use super::read::{find, request_columns};
use super::steps::{self, Moved, StepAuthor, StepTaken};
use super::{ConsentRow, fence, grants, principal, state_now};
use crate::domain::consent::{ConsentDecision, ConsentState, LapseReason};
use crate::domain::id::{KeyId, TenantId};
use crate::store::revisions::{self, RevisionKind};
use crate::store::tx::{Lane, TxAccess};
use crate::store::{Store, StoreError};

/// Outcome of a decision.
#[derive(Clone, Debug)]
pub enum DecideOutcome {
    /// The decision holds.
    Decided {
        /// The request as it is now.
        row: Box<ConsentRow>,
        /// Revision of the tenant's keys and grants; `None` if nothing was remembered.
        rev: Option<i64>,
        /// Number of other requests that ended with the turn.
        also_cancelled: u64,
    },
    /// The request is not pending any more: somebody else was first, or its time is over.
    Taken(Box<ConsentRow>),
}

impl Store {
    /// Decides a pending request.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without such a request, [`StoreError::Limit`] for too many grants. Other errors come from the
    /// database.
    pub async fn decide_consent(
        &self,
        tenant: TenantId,
        new: &NewDecision,
    ) -> Result<DecideOutcome, StoreError> {
        self.stepping(&new.author, || self.try_decide(tenant, new)).await
    }

    async fn try_decide(&self, tenant: TenantId, new: &NewDecision) -> Result<DecideOutcome, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = match new.grant {
            Some(_) => Some(revisions::bump(&mut tx, tenant, RevisionKind::Access).await?),
            None => None,
        };
        if new.decision == ConsentDecision::CancelTurn
            && let Some(row) = find(&mut tx, tenant, new.id).await?
        {
            // two ends of one turn would wait for each other's requests
            fence::lock_key(&mut tx, tenant, row.principal).await?;
        }
        let decided: Option<ConsentRow> = sqlx::query_as(concat!(
            "update consent_requests set state = $3, decided_at = now(), decided_by = $4, decided_owner = $5,
                 decided_via = $6, decision = $7, comment = $8,
                 ended_at = case when $3 = 'granted' then ended_at else now() end
             where tenant_id = $1 and id = $2 and state = 'pending' and expires_at > now()
             returning ",
            request_columns!()
        ))
        .bind(tenant.0)
        .bind(new.id)
        .bind(new.decision.state().as_str())
        .bind(principal(new.by))
        .bind(&new.owner)
        .bind(new.via.as_str())
        .bind(new.decision.as_str())
        .bind(&new.comment)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(row) = decided else {
            let row = find(&mut tx, tenant, new.id).await?;
            tx.rollback().await?;
            return Ok(DecideOutcome::Taken(Box::new(row.ok_or(StoreError::NotFound)?)));
        };
        if let (Some(grant), Some(rev)) = (&new.grant, rev) {
            grants::insert(&mut tx, tenant, new, grant, &row, rev).await?;
        }
        let others = match new.decision {
            ConsentDecision::CancelTurn => {
                fence::begin(&mut tx, tenant, new, (row.principal, row.session_id.as_deref())).await?
            }
            _ => Vec::new(),
        };
        let own = (row.id, row.server.clone(), row.tool.clone());
        if new.is_recorded {
            revisions::tell_consent(&mut tx, tenant, row.id).await?;
        }
        let step = new.decision.state().as_str();
        let recorded = others.iter().chain((!new.is_recorded).then_some(&own));
        let steps: Vec<_> = recorded.map(|moved| StepTaken::of(tenant, moved, step)).collect();
        steps::write(&mut tx, &new.author, &steps).await?;
        match rev {
            Some(rev) => revisions::commit(tx, tenant, RevisionKind::Access, rev).await.map(drop)?,
            None => tx.commit_change().await?,
        }
        let also_cancelled = others.len() as u64;
        Ok(DecideOutcome::Decided { row: Box::new(row), rev, also_cancelled })
    }

    /// Ends what depends on a key: the requests of its calls that wait or may run, and the permissions that it gave and that no
    /// call has used. They lapse.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn withdraw_consent(
        &self,
        tenant: TenantId,
        key: KeyId,
        author: &StepAuthor,
    ) -> Result<(), StoreError> {
        self.stepping(author, || self.try_withdraw(tenant, key, author)).await
    }

    async fn try_withdraw(
        &self,
        tenant: TenantId,
        key: KeyId,
        author: &StepAuthor,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let ended: Vec<Moved> = sqlx::query_as(
            "update consent_requests set state = 'lapsed', ended_at = now(),
                 lapse_reason = case principal when $2 then $3 else $4 end
             where tenant_id = $1 and state in ('pending', 'granted') and expires_at > now()
               and (principal = $2 or decided_by = $2)
             returning id, server, tool",
        )
        .bind(tenant.0)
        .bind(key.0)
        .bind(LapseReason::AskerRevoked.as_str())
        .bind(LapseReason::DeciderRevoked.as_str())
        .fetch_all(&mut *tx)
        .await?;
        let lapsed = ConsentState::Lapsed.as_str();
        let steps: Vec<_> = ended.iter().map(|moved| StepTaken::of(tenant, moved, lapsed)).collect();
        steps::write(&mut tx, author, &steps).await?;
        tx.commit_change().await
    }
}
