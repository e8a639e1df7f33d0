//! Grants: decisions that a person had remembered, for one key, tool, operation and definition.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::decision::{NewDecision, NewGrant};
use super::steps::{self, Moved, StepAuthor, StepTaken};
use super::{ConsentRow, principal};
use crate::domain::activity::Status;
use crate::domain::consent::{ConsentState, GrantEffect, LapseReason};
use crate::domain::id::{KeyId, TenantId};
use crate::domain::operation::OperationType;
use crate::domain::policy::{Assurance, Remembered};
use crate::domain::risk::RiskLevel;
use crate::store::revisions::{self, RevisionKind};
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError, Stored};

/// Most grants of a tenant that hold at the same time: every replica keeps them in memory.
const GRANTS_MAX: i64 = 1000;
/// Most of them about calls of one key.
const GRANTS_PER_KEY_MAX: i64 = 100;

/// Grant, as stored.
#[derive(Clone, Debug, FromRow)]
pub struct ConsentGrant {
    /// Id of the grant.
    pub id: Uuid,
    /// Key whose calls it is about; nil for the bootstrap key.
    pub principal: Uuid,
    /// Owner of that key.
    pub owner: String,
    /// Name of the server.
    pub server: String,
    /// The tool's own name.
    pub tool: String,
    /// Operation type of the calls.
    pub operation_type: Stored<OperationType>,
    /// Effect on calls.
    pub effect: Stored<GrantEffect>,
    /// Assurance of the answer.
    pub assurance: Stored<Assurance>,
    /// Risk of the call that was asked about; `None` in rows of an older release.
    pub risk: Option<Stored<RiskLevel>>,
    /// Pin of the definition.
    pub pin: String,
    /// Request that was answered.
    pub request_id: Uuid,
    /// Key that decided; nil for the bootstrap key.
    pub granted_by: Uuid,
    /// Owner of that key.
    pub granted_owner: String,
    /// Way by which it was decided.
    pub granted_via: String,
    /// Time of the decision.
    pub created_at: DateTime<Utc>,
    /// End of the grant.
    pub expires_at: DateTime<Utc>,
}

/// Origin of a grant.
#[derive(Clone, Debug)]
pub struct GrantOrigin {
    /// Key that decided; `None` for the bootstrap key.
    pub granted_by: Option<KeyId>,
    /// Effect on calls.
    pub effect: Stored<GrantEffect>,
    /// Key whose calls the grant is about; `None` for the bootstrap key.
    pub principal: Option<KeyId>,
    /// Request that was answered.
    pub request_id: Uuid,
}

/// Grant that holds, as a snapshot has it.
#[derive(Clone, Debug, FromRow)]
pub struct GrantInForce {
    /// Key whose calls it is about; nil for the bootstrap key.
    pub principal: Uuid,
    /// Server of the tool.
    pub server_id: Uuid,
    /// The tool's own name.
    pub tool: String,
    /// Operation type of the calls.
    pub operation_type: Stored<OperationType>,
    /// Pin of the definition.
    pub pin: String,
    /// Effect on calls.
    pub effect: Stored<GrantEffect>,
    /// Assurance of the answer.
    pub assurance: Stored<Assurance>,
    /// Risk of the call that was asked about; `None` in rows of an older release.
    pub risk: Option<Stored<RiskLevel>>,
    /// Request that was answered.
    pub request_id: Uuid,
    /// End of the grant.
    pub expires_at: DateTime<Utc>,
}

impl ConsentGrant {
    /// Returns the decision as a policy takes it. Words of a newer release are read as the strictest.
    pub fn remembered(&self) -> Remembered {
        remembered(&self.effect, &self.assurance, self.risk.as_ref())
    }
}

impl GrantInForce {
    /// Returns the decision as a policy takes it. Words of a newer release are read as the strictest.
    pub fn remembered(&self) -> Remembered {
        remembered(&self.effect, &self.assurance, self.risk.as_ref())
    }
}

fn remembered(
    effect: &Stored<GrantEffect>,
    assurance: &Stored<Assurance>,
    risk: Option<&Stored<RiskLevel>>,
) -> Remembered {
    let effect = effect.known().unwrap_or(GrantEffect::Reject);
    let risk = risk.and_then(Stored::known).unwrap_or(RiskLevel::Low);
    effect.remembered(assurance.known().unwrap_or(Assurance::Client), risk)
}

/// SQL for whether a grant holds: not over, not revoked, and of a granter whose key is still valid, or who is not blocked and was
/// not since.
macro_rules! holds {
    () => {
        "revoked_at is null and expires_at > now()
         and (granted_by = '00000000-0000-0000-0000-000000000000' or exists (
             select from api_keys k
             where k.tenant_id = $1 and k.key_id = granted_by and k.revoked_at is null
               and (k.expires_at is null or k.expires_at > now()))
             or exists (
             select from identities p
             where p.tenant_id = $1 and p.identity_id = granted_by and p.blocked_at is null
               and (p.not_before is null or p.not_before < consent_grants.created_at)))"
    };
}
pub(super) use holds;

impl Store {
    /// Returns a page of a tenant's grants that hold and whose key may still call, the newest first, older than `before`; with `of` those about the calls
    /// of one key, where `Some(None)` is the bootstrap key.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_grants(
        &self,
        tenant: TenantId,
        of: Option<Option<KeyId>>,
        before: Uuid,
        limit: i64,
    ) -> Result<Vec<ConsentGrant>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rows = sqlx::query_as(concat!(
            "select id, principal, owner, server, tool, operation_type, effect, assurance, risk, pin, request_id,
                 granted_by, granted_owner, granted_via, created_at, expires_at
             from consent_grants where tenant_id = $1 and id < $2
               and ($4::uuid is null or principal = $4)
               and not exists (select from api_keys k
                   where k.tenant_id = $1 and k.key_id = principal and k.revoked_at is not null)
               and ",
            holds!(),
            " order by id desc limit $3"
        ))
        .bind(tenant.0)
        .bind(before)
        .bind(limit)
        .bind(of.map(principal))
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Counts the calls that a decision which was remembered with a request has let run, the request's own included, as far as the log has them;
    /// at most `most`.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn count_let_through(
        &self,
        tenant: TenantId,
        row: &ConsentRow,
        most: i64,
    ) -> Result<i64, StoreError> {
        let mut tx = self.begin(Lane::Report, TxAccess::Tenant(tenant)).await?;
        let count = sqlx::query_scalar(
            "select count(*) from (
                 select from activity
                 where tenant_id = $1 and consent_id = $2 and started_at >= $3 and type in ('tool_call', 'direct_call')
                   and decision in ('allowed', 'would_ask', 'would_deny') and status not in ('blocked', 'rejected')
                 limit $4) calls",
        )
        .bind(tenant.0)
        .bind(row.id)
        .bind(row.decided_at)
        .bind(most)
        .fetch_one(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(count)
    }

    /// Returns the status of the last record of a request's own call; `None` if the log has none.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn status_of_call(
        &self,
        tenant: TenantId,
        row: &ConsentRow,
    ) -> Result<Option<Stored<Status>>, StoreError> {
        let mut tx = self.begin(Lane::Report, TxAccess::Tenant(tenant)).await?;
        let status = sqlx::query_scalar(
            "select status from activity
             where tenant_id = $1 and consent_id = $2 and started_at >= $3 and type in ('tool_call', 'direct_call')
             order by started_at desc limit 1",
        )
        .bind(tenant.0)
        .bind(row.id)
        .bind(row.decided_at)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(status)
    }

    /// Returns the origin of a grant that was not revoked.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without such a grant. Other errors come from the database.
    pub async fn grant_origin(&self, tenant: TenantId, id: Uuid) -> Result<GrantOrigin, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let found: Option<(Uuid, Stored<GrantEffect>, Uuid, Uuid)> = sqlx::query_as(
            "select granted_by, effect, principal, request_id from consent_grants
             where tenant_id = $1 and id = $2 and revoked_at is null",
        )
        .bind(tenant.0)
        .bind(id)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        let (by, effect, principal, request_id) = found.ok_or(StoreError::NotFound)?;
        let key = |id: Uuid| (!id.is_nil()).then_some(KeyId(id));
        Ok(GrantOrigin { granted_by: key(by), effect, principal: key(principal), request_id })
    }

    /// Revokes a grant. Permissions that were given with it, or with decisions whose place it took, and that were not used
    /// lapse. Returns the new revision.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without such a grant. Other errors come from the database.
    pub async fn revoke_grant(
        &self,
        tenant: TenantId,
        id: Uuid,
        by: Option<KeyId>,
        author: &StepAuthor,
    ) -> Result<i64, StoreError> {
        self.stepping(author, || self.try_revoke(tenant, id, by, author)).await
    }

    async fn try_revoke(
        &self,
        tenant: TenantId,
        id: Uuid,
        by: Option<KeyId>,
        author: &StepAuthor,
    ) -> Result<i64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        let revoked = sqlx::query(
            "update consent_grants set revoked_at = now(), revoked_by = $3, rev = $4
             where tenant_id = $1 and id = $2 and revoked_at is null",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(principal(by))
        .bind(rev)
        .execute(&mut *tx)
        .await?;
        if revoked.rows_affected() == 0 {
            return Err(StoreError::NotFound);
        }
        let unused: Vec<Moved> = sqlx::query_as(
            "update consent_requests r set state = 'lapsed', ended_at = now(), lapse_reason = $3
             from consent_grants g, consent_grants o
             where g.tenant_id = $1 and g.id = $2 and o.tenant_id = $1
               and (o.principal, o.server_id, o.tool, o.operation_type, o.pin, o.effect, o.assurance)
                   = (g.principal, g.server_id, g.tool, g.operation_type, g.pin, g.effect, g.assurance)
               and o.risk is not distinct from g.risk
               and r.tenant_id = $1 and r.id = o.request_id and r.state = 'granted' and r.expires_at > now()
             returning r.id, r.server, r.tool",
        )
        .bind(tenant.0)
        .bind(id)
        .bind(LapseReason::GrantRevoked.as_str())
        .fetch_all(&mut *tx)
        .await?;
        let lapsed = ConsentState::Lapsed.as_str();
        let steps: Vec<_> = unused.iter().map(|moved| StepTaken::of(tenant, moved, lapsed)).collect();
        steps::write(&mut tx, author, &steps).await?;
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await
    }
}

/// Stores the grant of a decision.
pub(super) async fn insert(
    tx: &mut Unit,
    tenant: TenantId,
    decision: &NewDecision,
    grant: &NewGrant,
    row: &ConsentRow,
    rev: i64,
) -> Result<(), StoreError> {
    // a decision like one that holds takes its place
    sqlx::query(
        "update consent_grants g set revoked_at = now(), revoked_by = $5, rev = $6
         from consent_requests r
         where g.tenant_id = $1 and g.revoked_at is null and r.tenant_id = $1 and r.id = $2
           and (g.principal, g.server_id, g.tool, g.operation_type, g.pin, g.risk)
               = (r.principal, r.server_id, r.tool, r.operation_type, r.pin, r.risk)
           and (g.effect, g.assurance) = ($3, $4)",
    )
    .bind(tenant.0)
    .bind(row.id)
    .bind(grant.effect.as_str())
    .bind(grant.assurance.as_str())
    .bind(principal(decision.by))
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    let (held, of_key): (i64, i64) = sqlx::query_as(concat!(
        "select count(*), count(*) filter (where principal = $2) from consent_grants where tenant_id = $1 and ",
        holds!()
    ))
    .bind(tenant.0)
    .bind(row.principal)
    .fetch_one(&mut **tx)
    .await?;
    if of_key >= GRANTS_PER_KEY_MAX {
        return Err(StoreError::Limit("100 grants of a key; decide about this one call, or revoke some"));
    }
    if held >= GRANTS_MAX {
        return Err(StoreError::Limit("1000 grants of a tenant; decide about this one call, or revoke some"));
    }
    sqlx::query(
        "insert into consent_grants (
             tenant_id, id, principal, owner, server_id, server, tool, operation_type, pin, effect, assurance,
             risk, request_id, granted_by, granted_owner, granted_via, expires_at, rev)
         select tenant_id, $3, principal, owner, server_id, server, tool, operation_type, pin, $4, $5, risk, id, $6, $7, $8,
             now() + make_interval(secs => $9), $10
         from consent_requests where tenant_id = $1 and id = $2",
    )
    .bind(tenant.0)
    .bind(row.id)
    .bind(grant.id)
    .bind(grant.effect.as_str())
    .bind(grant.assurance.as_str())
    .bind(principal(decision.by))
    .bind(&decision.owner)
    .bind(decision.via.as_str())
    .bind(grant.life.as_seconds_f64())
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Copies the grants about the calls of a key that hold to its successor, which has none: as many of the newest as the tenant's
/// bound leaves room for. What the key itself decided, at its own client, counts as decided by the successor.
pub(in crate::store) async fn copy(
    tx: &mut Unit,
    tenant: TenantId,
    (from, to): (KeyId, KeyId),
    rev: i64,
) -> Result<(), StoreError> {
    let mut held: Vec<Uuid> = sqlx::query_scalar(concat!(
        "select id from consent_grants where tenant_id = $1 and principal = $2 and ",
        holds!(),
        " order by id desc
         limit greatest(0, $3 - (select count(*) from consent_grants where tenant_id = $1 and ",
        holds!(),
        "))"
    ))
    .bind(tenant.0)
    .bind(from.0)
    .bind(GRANTS_MAX)
    .fetch_all(&mut **tx)
    .await?;
    // ids are by age
    held.reverse();
    let copies: Vec<Uuid> = held.iter().map(|_| Uuid::now_v7()).collect();
    sqlx::query(
        "insert into consent_grants (
             tenant_id, id, principal, owner, server_id, server, tool, operation_type, pin, effect, assurance,
             risk, request_id, granted_by, granted_owner, granted_via, created_at, expires_at, rev)
         select tenant_id, c.copy, $3, owner, server_id, server, tool, operation_type, pin, effect, assurance, risk, request_id,
             case when granted_by = $2 then $3 else granted_by end, granted_owner, granted_via, created_at, expires_at, $6
         from consent_grants join unnest($4::uuid[], $5::uuid[]) as c (held, copy) on id = c.held
         where tenant_id = $1",
    )
    .bind(tenant.0)
    .bind(from.0)
    .bind(to.0)
    .bind(held)
    .bind(copies)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Returns the number of grants that hold, are about calls of other keys, and were given by this one.
pub(in crate::store) async fn count_to_others(
    tx: &mut Unit,
    tenant: TenantId,
    key: KeyId,
) -> Result<i64, StoreError> {
    let count = sqlx::query_scalar(concat!(
        "select count(*) from consent_grants where tenant_id = $1 and granted_by = $2 and principal <> $2 and ",
        holds!()
    ))
    .bind(tenant.0)
    .bind(key.0)
    .fetch_one(&mut **tx)
    .await?;
    Ok(count)
}

/// Returns the grants of a tenant that hold, within a snapshot.
pub(in crate::store) async fn in_force(
    tx: &mut Unit,
    tenant: TenantId,
) -> Result<Vec<GrantInForce>, StoreError> {
    let rows = sqlx::query_as(concat!(
        "select principal, server_id, tool, operation_type, pin, effect, assurance, risk, request_id, expires_at
         from consent_grants where tenant_id = $1 and ",
        holds!(),
        " order by id desc limit $2"
    ))
    .bind(tenant.0)
    .bind(GRANTS_MAX)
    .fetch_all(&mut **tx)
    .await?;
    Ok(rows)
}
