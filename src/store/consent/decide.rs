//! Decisions: the first one wins, by one conditional update.

use chrono::TimeDelta;
use uuid::Uuid;

use super::decision::NewDecision;
use super::read::{find, request_columns};
use super::{ConsentRow, grants, principal, state_now};
use crate::domain::consent::{ConsentDecision, FENCE};
use crate::domain::id::TenantId;
use crate::store::revisions::{self, RevisionKind};
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
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
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = match new.grant {
            Some(_) => Some(revisions::bump(&mut tx, tenant, RevisionKind::Access).await?),
            None => None,
        };
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
        let also_cancelled = match new.decision {
            ConsentDecision::CancelTurn => fence(&mut tx, tenant, new, &row).await?,
            _ => 0,
        };
        revisions::tell_consent(&mut tx, tenant, row.id).await?;
        match rev {
            Some(rev) => revisions::commit(tx, tenant, RevisionKind::Access, rev).await.map(drop)?,
            None => tx.commit_change().await?,
        }
        Ok(DecideOutcome::Decided { row: Box::new(row), rev, also_cancelled })
    }
}

/// Fences the turn of a request, and cancels what else is open in it. Returns how many requests that are.
async fn fence(
    tx: &mut Unit,
    tenant: TenantId,
    new: &NewDecision,
    row: &ConsentRow,
) -> Result<u64, StoreError> {
    let lasts: TimeDelta = FENCE;
    sqlx::query(
        "insert into consent_fences (tenant_id, id, principal, session_id, ends_at)
         values ($1, $2, $3, $4, now() + make_interval(secs => $5))",
    )
    .bind(tenant.0)
    .bind(row.id)
    .bind(row.principal)
    .bind(&row.session_id)
    .bind(lasts.as_seconds_f64())
    .execute(&mut **tx)
    .await?;
    let others: Vec<Uuid> = sqlx::query_scalar(
        "update consent_requests set state = 'cancelled', decided_at = now(), decided_by = $4, decided_owner = $5,
             decided_via = $6, decision = $7, ended_at = now()
         where tenant_id = $1 and principal = $2 and state in ('pending', 'granted') and expires_at > now()
           and ($3::text is null or session_id is null or session_id = $3)
         returning id",
    )
    .bind(tenant.0)
    .bind(row.principal)
    .bind(&row.session_id)
    .bind(principal(new.by))
    .bind(&new.owner)
    .bind(new.via.as_str())
    .bind(new.decision.as_str())
    .fetch_all(&mut **tx)
    .await?;
    for id in &others {
        revisions::tell_consent(tx, tenant, *id).await?;
    }
    Ok(others.len() as u64)
}
