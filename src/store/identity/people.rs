//! People who log in with tokens, as a tenant sees them.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use crate::domain::id::{IdentityId, IssuerId, KeyId, TenantId};
use crate::domain::tenant::Role;
use crate::store::revisions::{self, RevisionKind};
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError, connected, web_cookies};

/// Most people of a tenant that are stored when they are seen. Further ones work, and are not listed.
const PEOPLE_MAX: i64 = 100_000;
/// Most people of a tenant with those who are stored to be blocked, or since they decided something.
const KEPT_MAX: i64 = 2 * PEOPLE_MAX;

/// Days for which people are kept who are not seen any more, and were never blocked. The policy of the table has the same number.
const PEOPLE_DAYS: i32 = 400;
/// Rows per batch: a few milliseconds of work, and one commit.
const BATCH: i64 = 1000;

/// Person as stored.
#[derive(Clone, Debug, FromRow)]
pub struct Identity {
    /// Id of the person, derived from tenant, issuer and subject.
    #[sqlx(rename = "identity_id")]
    pub id: Uuid,
    /// Id of the issuer.
    pub issuer_id: Uuid,
    /// Subject at the issuer.
    pub subject: String,
    /// Name of the person.
    pub owner: String,
    /// E-mail address of the person.
    pub email: Option<String>,
    /// Role at the last sight; empty for a person who was blocked before the first.
    pub role: String,
    /// Time of the last sight, written at most once a minute; of the block, for a person who was not seen yet.
    pub last_seen_at: DateTime<Utc>,
    /// Time of the block; `None` for a person who is not blocked.
    pub blocked_at: Option<DateTime<Utc>>,
    /// Time before which tokens must not have been issued; `None` without a bound.
    pub not_before: Option<DateTime<Utc>>,
}

/// Person who was seen.
#[derive(Clone, Debug)]
pub struct SeenIdentity {
    /// Id of the person.
    pub id: IdentityId,
    /// Id of the issuer.
    pub issuer: IssuerId,
    /// Subject at the issuer.
    pub subject: String,
    /// Name of the person.
    pub owner: String,
    /// E-mail address of the person.
    pub email: Option<String>,
    /// Role by the tenant's rules.
    pub role: Role,
    /// Time of the sight.
    pub at: DateTime<Utc>,
}

/// Person who is blocked, or some of whose tokens are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarredIdentity {
    /// Id of the person.
    pub id: IdentityId,
    /// True for a person who is blocked.
    pub is_blocked: bool,
    /// Time before which tokens must not have been issued, in seconds since 1970; `None` without a bound.
    pub not_before_s: Option<i64>,
}

macro_rules! identity_columns {
    () => {
        "identity_id, issuer_id, subject, owner, email, role, last_seen_at, blocked_at, not_before"
    };
}

impl Store {
    /// Stores people of a tenant who were seen, while it has room. No revision changes.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn see_identities(&self, tenant: TenantId, seen: &[SeenIdentity]) -> Result<(), StoreError> {
        self.see_up_to(tenant, seen, PEOPLE_MAX).await
    }

    /// Stores a person whose answer to a permission request counts from now on, also where the tenant has no room for people who
    /// are only seen.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn keep_identity(&self, tenant: TenantId, person: &SeenIdentity) -> Result<(), StoreError> {
        self.see_up_to(tenant, std::slice::from_ref(person), KEPT_MAX).await
    }

    async fn see_up_to(
        &self,
        tenant: TenantId,
        seen: &[SeenIdentity],
        people_max: i64,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        sqlx::query(
            "insert into identities (tenant_id, identity_id, issuer_id, subject, owner, email, role, last_seen_at)
             select $1, u.* from unnest($2::uuid[], $3::uuid[], $4::text[], $5::text[], $6::text[], $7::text[],
                 $8::timestamptz[]) as u (id, issuer, subject, owner, email, role, at)
             where exists (select from identities i where i.tenant_id = $1 and i.identity_id = u.id)
                or (select count(*) from identities i where i.tenant_id = $1) < $9
             order by u.id
             on conflict (tenant_id, identity_id) do update set owner = excluded.owner, email = excluded.email,
                 role = excluded.role, last_seen_at = greatest(identities.last_seen_at, excluded.last_seen_at)",
        )
        .bind(tenant.0)
        .bind(seen.iter().map(|person| person.id.0).collect::<Vec<_>>())
        .bind(seen.iter().map(|person| person.issuer.0).collect::<Vec<_>>())
        .bind(seen.iter().map(|person| person.subject.as_str()).collect::<Vec<_>>())
        .bind(seen.iter().map(|person| person.owner.as_str()).collect::<Vec<_>>())
        .bind(seen.iter().map(|person| person.email.as_deref()).collect::<Vec<_>>())
        .bind(seen.iter().map(|person| person.role.as_str()).collect::<Vec<_>>())
        .bind(seen.iter().map(|person| person.at).collect::<Vec<_>>())
        .bind(people_max)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Returns people of a tenant after `after` by id.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_identities(
        &self,
        tenant: TenantId,
        after: Uuid,
        limit: i64,
    ) -> Result<Vec<Identity>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rows = sqlx::query_as(concat!(
            "select ",
            identity_columns!(),
            " from identities where tenant_id = $1 and identity_id > $2 order by identity_id limit $3"
        ))
        .bind(tenant.0)
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Blocks a person, or ends a block. From a block on, tokens that were issued before it are refused, also after its end.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] for a person whom the tenant never saw, or a deleted tenant. Other errors come from the database.
    pub async fn block_identity(
        &self,
        tenant: TenantId,
        identity: IdentityId,
        is_blocked: bool,
    ) -> Result<Identity, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        let row = sqlx::query_as(concat!(
            "update identities set blocked_at = case when $3 then coalesce(blocked_at, now()) end,
                 not_before = case when $3 then now() else not_before end, rev = $4
             where tenant_id = $1 and identity_id = $2 returning ",
            identity_columns!()
        ))
        .bind(tenant.0)
        .bind(identity.0)
        .bind(is_blocked)
        .bind(rev)
        .fetch_optional(&mut *tx)
        .await?;
        let row = row.ok_or(StoreError::NotFound)?;
        if is_blocked {
            web_cookies::remove_of(&mut tx, tenant, KeyId::of_identity(identity)).await?;
            connected::remove_of(&mut tx, tenant, KeyId::of_identity(identity)).await?;
        }
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await?;
        Ok(row)
    }

    /// Blocks a person by id, issuer and subject, also one whom the tenant never saw.
    ///
    /// # Errors
    /// [`StoreError::Limit`] for too many people, [`StoreError::NotFound`] for a deleted tenant. Other errors come from the database.
    pub async fn block_subject(
        &self,
        tenant: TenantId,
        (identity, issuer, subject): (IdentityId, IssuerId, &str),
    ) -> Result<Identity, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        let row = sqlx::query_as(concat!(
            "insert into identities (tenant_id, identity_id, issuer_id, subject, owner, role, last_seen_at, blocked_at,
                 not_before, rev)
             select $1, $2, $3, $4, left($4, 200), '', now(), now(), now(), $5
             where exists (select from identities i where i.tenant_id = $1 and i.identity_id = $2)
                or (select count(*) from identities i where i.tenant_id = $1) < $6
             on conflict (tenant_id, identity_id) do update set
                 blocked_at = coalesce(identities.blocked_at, now()), not_before = now(), rev = excluded.rev
             returning ",
            identity_columns!()
        ))
        .bind(tenant.0)
        .bind(identity.0)
        .bind(issuer.0)
        .bind(subject)
        .bind(rev)
        .bind(KEPT_MAX)
        .fetch_optional(&mut *tx)
        .await?;
        let row = row.ok_or(StoreError::Limit("identities"))?;
        web_cookies::remove_of(&mut tx, tenant, KeyId::of_identity(identity)).await?;
        connected::remove_of(&mut tx, tenant, KeyId::of_identity(identity)).await?;
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await?;
        Ok(row)
    }

    /// Returns tenants with people who have not been seen for as long as people are kept.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn tenants_with_old_people(&self) -> Result<Vec<TenantId>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let rows: Vec<Uuid> = sqlx::query_scalar(
            "select distinct tenant_id from identities
             where blocked_at is null and not_before is null and last_seen_at < now() - make_interval(days => $1)",
        )
        .bind(PEOPLE_DAYS)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(TenantId).collect())
    }

    /// Deletes a batch of a tenant's people who have not been seen for as long as people are kept, and who were never blocked.
    /// Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_old_people(&self, tenant: TenantId) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Owner).await?;
        let deleted = sqlx::query(
            "delete from identities where tenant_id = $1 and identity_id in (
                 select identity_id from identities
                 where tenant_id = $1 and blocked_at is null and not_before is null
                    and last_seen_at < now() - make_interval(days => $2)
                 limit $3)",
        )
        .bind(tenant.0)
        .bind(PEOPLE_DAYS)
        .bind(BATCH)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == BATCH.unsigned_abs())
    }
}

/// Returns the people of a tenant who are blocked, or some of whose tokens are refused, within a snapshot.
pub(in crate::store) async fn barred(
    tx: &mut Unit,
    tenant: TenantId,
) -> Result<Vec<BarredIdentity>, StoreError> {
    let rows: Vec<(Uuid, bool, Option<DateTime<Utc>>)> = sqlx::query_as(
        "select identity_id, blocked_at is not null, not_before from identities
         where tenant_id = $1 and (blocked_at is not null or not_before is not null)",
    )
    .bind(tenant.0)
    .fetch_all(&mut **tx)
    .await?;
    let of = |(id, is_blocked, not_before): (Uuid, bool, Option<DateTime<Utc>>)| BarredIdentity {
        id: IdentityId(id),
        is_blocked,
        not_before_s: not_before.map(|at| at.timestamp()),
    };
    Ok(rows.into_iter().map(of).collect())
}
