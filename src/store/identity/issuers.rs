//! Issuers of tokens, and the tenants that their people belong to. They are the platform's: each query runs as
//! `mcpproxy_system`.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use crate::domain::id::{IssuerId, TenantId};
use crate::store::revisions::{self, RevisionKind};
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError};

/// Most issuers of a deployment.
const ISSUERS_MAX: i64 = 200;

/// Issuer as stored.
#[derive(Clone, Debug, FromRow)]
pub struct Issuer {
    /// Id of the issuer, never used again.
    #[sqlx(rename = "issuer_id")]
    pub id: Uuid,
    /// Name of the entry.
    pub name: String,
    /// Issuer URL, compared byte by byte with `iss`.
    pub issuer: String,
    /// Host whose metadata lists the issuer; `None` for every host.
    pub host: Option<String>,
    /// Id of the tenant of all its people; `None` if assignments decide.
    pub for_tenant: Option<Uuid>,
    /// Name of that tenant; `None` also for a deleted one.
    pub tenant: Option<String>,
    /// Audiences that tokens may have besides the gateway's URLs.
    pub audiences: Vec<String>,
    /// Accepted signature algorithms.
    pub algorithms: Vec<String>,
    /// Accepted kinds of tokens; `None` for all, and for tokens that do not say theirs.
    pub token_types: Option<Vec<String>>,
    /// Scopes that clients are told to ask the issuer for; none says nothing.
    pub advertised_scopes: Vec<String>,
    /// Claim that identifies a person.
    pub subject_claim: String,
    /// Claim that names a person; `None` for the usual ones.
    pub owner_claim: Option<String>,
    /// Claim of assignments that name none.
    pub tenant_claim: Option<String>,
    /// URL of the key set, as configured; `None` to discover it.
    pub jwks_uri: Option<String>,
    /// Last good key set; `None` before the first.
    pub jwks: Option<String>,
    /// Time of the last good fetch.
    pub jwks_fetched_at: Option<DateTime<Utc>>,
    /// End of the last fetch, good or not.
    pub jwks_ended_at: Option<DateTime<Utc>>,
    /// Error of the last fetch; `None` if it was good.
    pub jwks_error: Option<String>,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Number of changes, for optimistic updates.
    pub version: i64,
}

impl Issuer {
    /// Returns the typed id.
    pub fn issuer_id(&self) -> IssuerId {
        IssuerId(self.id)
    }
}

/// Assignment of people to a tenant by a claim.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct IssuerAssignment {
    /// Id of the issuer.
    pub issuer_id: Uuid,
    /// Name of the claim.
    pub claim: String,
    /// Text that the claim, or one of its elements, must be.
    pub value: String,
    /// Id of the tenant.
    pub for_tenant: Uuid,
    /// Name of the tenant; `None` for a deleted one.
    pub tenant: Option<String>,
}

/// Issuer to be created.
#[derive(Clone, Debug)]
pub struct NewIssuer {
    /// Name of the entry.
    pub name: String,
    /// Issuer URL.
    pub issuer: String,
    /// Host whose metadata lists the issuer.
    pub host: Option<String>,
    /// Tenant of all its people.
    pub tenant: Option<TenantId>,
    /// Further audiences.
    pub audiences: Vec<String>,
    /// Accepted signature algorithms.
    pub algorithms: Vec<String>,
    /// Accepted kinds of tokens; `None` for all.
    pub token_types: Option<Vec<String>>,
    /// Scopes that clients are told to ask the issuer for.
    pub advertised_scopes: Vec<String>,
    /// Claim that identifies a person.
    pub subject_claim: String,
    /// Claim that names a person.
    pub owner_claim: Option<String>,
    /// Claim of assignments that name none.
    pub tenant_claim: Option<String>,
    /// URL of the key set.
    pub jwks_uri: Option<String>,
}

/// Change of an issuer; `None` leaves a field, `Some(None)` removes it. The issuer URL never changes: another URL is another
/// issuer, with other people.
#[derive(Clone, Debug, Default)]
pub struct IssuerPatch {
    /// New host.
    pub host: Option<Option<String>>,
    /// New tenant.
    pub tenant: Option<Option<TenantId>>,
    /// New audiences.
    pub audiences: Option<Vec<String>>,
    /// New algorithms.
    pub algorithms: Option<Vec<String>>,
    /// New kinds of tokens.
    pub token_types: Option<Option<Vec<String>>>,
    /// New scopes that clients are told to ask the issuer for.
    pub advertised_scopes: Option<Vec<String>>,
    /// New subject claim.
    pub subject_claim: Option<String>,
    /// New owner claim.
    pub owner_claim: Option<Option<String>>,
    /// New claim of assignments that name none.
    pub tenant_claim: Option<Option<String>>,
    /// New URL of the key set. A change forgets the keys.
    pub jwks_uri: Option<Option<String>>,
    /// Version that the issuer must still have; `None` for any.
    pub version: Option<i64>,
}

/// All issuers with their assignments, at one revision.
#[derive(Clone, Debug)]
pub struct IssuerRows {
    /// Revision of the snapshot; 0 before the first issuer.
    pub rev: i64,
    /// Issuers, by name.
    pub issuers: Vec<Issuer>,
    /// Assignments, by issuer and position.
    pub assignments: Vec<IssuerAssignment>,
}

macro_rules! issuer_columns {
    () => {
        "i.issuer_id, i.name, i.issuer, i.host, i.for_tenant, i.audiences, i.algorithms, i.token_types, i.advertised_scopes,
             i.subject_claim,
             i.owner_claim, i.tenant_claim, i.jwks_uri, i.jwks, i.jwks_fetched_at, i.jwks_ended_at, i.jwks_error, i.created_at,
             i.version, t.name as tenant
         from issuers i left join tenants t on t.tenant_id = i.for_tenant and t.deleted_at is null "
    };
}

macro_rules! assignment_columns {
    () => {
        "a.issuer_id, a.claim, a.value, a.for_tenant, t.name as tenant
         from issuer_tenants a left join tenants t on t.tenant_id = a.for_tenant and t.deleted_at is null "
    };
}

/// Takes the next revision of the issuers, whose row is created with the first.
pub(super) async fn next_rev(tx: &mut Unit) -> Result<i64, StoreError> {
    revisions::bump_or_begin(tx, TenantId::PLATFORM, RevisionKind::Issuers).await
}

async fn current_rev(tx: &mut Unit) -> Result<i64, StoreError> {
    match revisions::current(tx, TenantId::PLATFORM, RevisionKind::Issuers).await {
        Err(StoreError::NotFound) => Ok(0),
        other => other,
    }
}

/// Commits a change of the issuers, and notifies every replica.
pub(super) async fn commit(tx: Unit, rev: i64) -> Result<(), StoreError> {
    revisions::commit(tx, TenantId::PLATFORM, RevisionKind::Issuers, rev).await.map(drop)
}

impl Store {
    /// Returns all issuers, their keys and assignments in one consistent snapshot.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn load_issuers(&self) -> Result<IssuerRows, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        // the revision first: rows read later are not older
        let rev = current_rev(&mut tx).await?;
        let issuers = sqlx::query_as(concat!("select ", issuer_columns!(), "order by i.name"))
            .fetch_all(&mut *tx)
            .await?;
        let assignments =
            sqlx::query_as(concat!("select ", assignment_columns!(), "order by a.issuer_id, a.position"))
                .fetch_all(&mut *tx)
                .await?;
        tx.commit().await?;
        Ok(IssuerRows { rev, issuers, assignments })
    }

    /// Returns the revision of the issuers; 0 before the first.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn issuers_rev(&self) -> Result<i64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rev = current_rev(&mut tx).await?;
        tx.commit().await?;
        Ok(rev)
    }

    /// Returns issuers after `after` by name, at most `limit`.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_issuers(&self, after: &str, limit: i64) -> Result<Vec<Issuer>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rows = sqlx::query_as(concat!(
            "select ",
            issuer_columns!(),
            "where i.name > $1 order by i.name limit $2"
        ))
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Returns an issuer by name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without one. Other errors come from the database.
    pub async fn find_issuer(&self, name: &str) -> Result<Issuer, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let row = find(&mut tx, name).await?;
        tx.commit().await?;
        Ok(row)
    }

    /// Creates an issuer.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the name or the URL is taken, [`StoreError::Limit`] for too many. Other errors come from the
    /// database.
    pub async fn create_issuer(&self, new: &NewIssuer) -> Result<Issuer, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rev = next_rev(&mut tx).await?;
        let count: i64 = sqlx::query_scalar("select count(*) from issuers").fetch_one(&mut *tx).await?;
        if count >= ISSUERS_MAX {
            return Err(StoreError::Limit("issuers"));
        }
        let inserted = sqlx::query(
            "insert into issuers (issuer_id, name, issuer, host, for_tenant, audiences, algorithms, subject_claim,
                 owner_claim, tenant_claim, jwks_uri, token_types, advertised_scopes)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)",
        )
        .bind(Uuid::now_v7())
        .bind(&new.name)
        .bind(&new.issuer)
        .bind(&new.host)
        .bind(new.tenant.map(|tenant| tenant.0))
        .bind(&new.audiences)
        .bind(&new.algorithms)
        .bind(&new.subject_claim)
        .bind(&new.owner_claim)
        .bind(&new.tenant_claim)
        .bind(&new.jwks_uri)
        .bind(&new.token_types)
        .bind(&new.advertised_scopes)
        .execute(&mut *tx)
        .await;
        if let Err(error) = inserted {
            let constraint =
                error.as_database_error().and_then(|error| error.constraint()).map(str::to_owned);
            return Err(match constraint.as_deref() {
                Some("issuers_name") => StoreError::Conflict("an issuer of this name exists"),
                Some("issuers_issuer") => StoreError::Conflict("an issuer with this URL exists"),
                _ => StoreError::Database(error),
            });
        }
        let made = find(&mut tx, &new.name).await?;
        commit(tx, rev).await?;
        Ok(made)
    }

    /// Changes an issuer.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it has another version than the patch names, [`StoreError::NotFound`] without one. Other errors
    /// come from the database.
    pub async fn update_issuer(&self, name: &str, patch: &IssuerPatch) -> Result<Issuer, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rev = next_rev(&mut tx).await?;
        let done = sqlx::query(
            "update issuers set host = case when $2 then $3 else host end,
                 for_tenant = case when $4 then $5 else for_tenant end, audiences = coalesce($6, audiences),
                 algorithms = coalesce($7, algorithms), subject_claim = coalesce($8, subject_claim),
                 owner_claim = case when $9 then $10 else owner_claim end,
                 tenant_claim = case when $11 then $12 else tenant_claim end,
                 jwks = case when $13 and jwks_uri is distinct from $14 then null else jwks end,
                 jwks_fetched_at = case when $13 and jwks_uri is distinct from $14 then null else jwks_fetched_at end,
                 jwks_tried_at = case when $13 and jwks_uri is distinct from $14 then null else jwks_tried_at end,
                 jwks_asked_at = case when $13 and jwks_uri is distinct from $14 then null else jwks_asked_at end,
                 jwks_uri = case when $13 then $14 else jwks_uri end,
                 token_types = case when $16 then $17 else token_types end,
                 advertised_scopes = coalesce($18, advertised_scopes), version = version + 1
             where name = $1 and ($15::bigint is null or version = $15)",
        )
        .bind(name)
        .bind(patch.host.is_some())
        .bind(patch.host.clone().flatten())
        .bind(patch.tenant.is_some())
        .bind(patch.tenant.flatten().map(|tenant| tenant.0))
        .bind(&patch.audiences)
        .bind(&patch.algorithms)
        .bind(&patch.subject_claim)
        .bind(patch.owner_claim.is_some())
        .bind(patch.owner_claim.clone().flatten())
        .bind(patch.tenant_claim.is_some())
        .bind(patch.tenant_claim.clone().flatten())
        .bind(patch.jwks_uri.is_some())
        .bind(patch.jwks_uri.clone().flatten())
        .bind(patch.version)
        .bind(patch.token_types.is_some())
        .bind(patch.token_types.clone().flatten())
        .bind(&patch.advertised_scopes)
        .execute(&mut *tx)
        .await?;
        let found = find(&mut tx, name).await?;
        if done.rows_affected() == 0 {
            return Err(StoreError::Conflict("the issuer changed since that version"));
        }
        commit(tx, rev).await?;
        Ok(found)
    }

    /// Deletes an issuer: its tokens are refused on every replica.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without one. Other errors come from the database.
    pub async fn delete_issuer(&self, name: &str) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rev = next_rev(&mut tx).await?;
        let done = sqlx::query("delete from issuers where name = $1").bind(name).execute(&mut *tx).await?;
        if done.rows_affected() == 0 {
            return Err(StoreError::NotFound);
        }
        commit(tx, rev).await
    }

    /// Returns the assignments of an issuer, by position, with the issuer's version.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without the issuer. Other errors come from the database.
    pub async fn issuer_tenants(&self, name: &str) -> Result<(i64, Vec<IssuerAssignment>), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let issuer = find(&mut tx, name).await?;
        let rows = sqlx::query_as(concat!(
            "select ",
            assignment_columns!(),
            "where a.issuer_id = $1 order by a.position"
        ))
        .bind(issuer.id)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok((issuer.version, rows))
    }

    /// Replaces the assignments of an issuer: claim, value and tenant of each.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the issuer has another version than `replaces`, [`StoreError::NotFound`] without the issuer. Other
    /// errors come from the database.
    pub async fn put_issuer_tenants(
        &self,
        name: &str,
        replaces: Option<i64>,
        items: &[(String, String, TenantId)],
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::System).await?;
        let rev = next_rev(&mut tx).await?;
        // the revision's row lock makes this read current
        let issuer = find(&mut tx, name).await?;
        if replaces.is_some_and(|version| version != issuer.version) {
            return Err(StoreError::Conflict("the issuer changed since that version"));
        }
        sqlx::query("delete from issuer_tenants where issuer_id = $1")
            .bind(issuer.id)
            .execute(&mut *tx)
            .await?;
        sqlx::query(
            "insert into issuer_tenants (issuer_id, position, claim, value, for_tenant)
             select $1, row_number() over (), u.claim, u.value, u.tenant
             from unnest($2::text[], $3::text[], $4::uuid[]) as u (claim, value, tenant)",
        )
        .bind(issuer.id)
        .bind(items.iter().map(|(claim, _, _)| claim.as_str()).collect::<Vec<_>>())
        .bind(items.iter().map(|(_, value, _)| value.as_str()).collect::<Vec<_>>())
        .bind(items.iter().map(|(_, _, tenant)| tenant.0).collect::<Vec<_>>())
        .execute(&mut *tx)
        .await?;
        sqlx::query("update issuers set version = version + 1 where issuer_id = $1")
            .bind(issuer.id)
            .execute(&mut *tx)
            .await?;
        commit(tx, rev).await
    }
}

async fn find(tx: &mut Unit, name: &str) -> Result<Issuer, StoreError> {
    let row = sqlx::query_as(concat!("select ", issuer_columns!(), "where i.name = $1"))
        .bind(name)
        .fetch_optional(&mut **tx)
        .await?;
    row.ok_or(StoreError::NotFound)
}
