//! Drafts of forms of web pages, sealed. Nothing here can decrypt them.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::sealed_rows::{NewSealedRow, SealedColumns, SealedRow};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, ServerId, TenantId};

/// Class of the advisory locks that serialize the writers of a key's drafts.
const DRAFTING: i32 = 0x6472_6674;

/// Place of a draft: a key has one of each form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DraftPlace {
    /// Tenant of the key.
    pub tenant: TenantId,
    /// API key; nil for the bootstrap key.
    pub principal: Uuid,
    /// Server of the form.
    pub server: ServerId,
    /// Digest of the form's page and selector.
    pub form: [u8; 32],
}

/// Result of storing a draft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DraftStored {
    /// Stored until this time.
    Until(DateTime<Utc>),
    /// Another change came first; nothing is stored.
    Superseded,
    /// The key has too many drafts; nothing is stored.
    TooMany,
}

impl Store {
    /// Returns a draft, until it expires.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn web_draft(&self, place: DraftPlace) -> Result<Option<SealedRow>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(place.tenant)).await?;
        let row: Option<SealedColumns> = sqlx::query_as(
            "select version, data_key_id, sealed from web_drafts
             where tenant_id = $1 and principal_id = $2 and server_id = $3 and form = $4 and expires_at > now()",
        )
        .bind(place.tenant.0)
        .bind(place.principal)
        .bind(place.server.0)
        .bind(place.form.as_slice())
        .fetch_optional(&mut *tx)
        .await?;
        let draft = match row {
            Some(row) => Some(row.with_keys(&mut tx, place.tenant).await?),
            None => None,
        };
        tx.commit().await?;
        Ok(draft)
    }

    /// Begins a draft or replaces the version that was read, unless the key has `drafts_max` others.
    ///
    /// # Errors
    /// The database is out of reach or fails. The draft may be stored all the same.
    pub async fn put_web_draft(
        &self,
        place: DraftPlace,
        new: &NewSealedRow,
        drafts_max: i64,
    ) -> Result<DraftStored, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(place.tenant)).await?;
        // concurrent writers must see each other's rows, or the bound would be exceeded
        sqlx::query("select pg_advisory_xact_lock($1, hashtext($2))")
            .bind(DRAFTING)
            .bind(place.principal.to_string())
            .execute(&mut *tx)
            .await?;
        // an expired draft of the form must not stand in the way of a new one
        let others: i64 = sqlx::query_scalar(
            "with expired as (
                 delete from web_drafts where tenant_id = $1 and principal_id = $2 and expires_at <= now())
             select count(*) from web_drafts
             where tenant_id = $1 and principal_id = $2 and expires_at > now() and (server_id, form) <> ($3, $4)",
        )
        .bind(place.tenant.0)
        .bind(place.principal)
        .bind(place.server.0)
        .bind(place.form.as_slice())
        .fetch_one(&mut *tx)
        .await?;
        if others >= drafts_max {
            return Ok(DraftStored::TooMany);
        }
        let statement = match new.replaces {
            Some(_) => {
                "update web_drafts set version = $5, data_key_id = $6, sealed = $7, expires_at = now() + make_interval(secs => $8)
                 where tenant_id = $1 and principal_id = $2 and server_id = $3 and form = $4 and version = $9
                 returning expires_at"
            }
            None => {
                "insert into web_drafts (tenant_id, principal_id, server_id, form, version, data_key_id, sealed, expires_at)
                 select $1, $2, $3, $4, $5, $6, $7, now() + make_interval(secs => $8) where $9::uuid is null
                 on conflict do nothing returning expires_at"
            }
        };
        let until: Option<DateTime<Utc>> = sqlx::query_scalar(statement)
            .bind(place.tenant.0)
            .bind(place.principal)
            .bind(place.server.0)
            .bind(place.form.as_slice())
            .bind(new.version)
            .bind(new.data_key)
            .bind(&new.sealed)
            .bind(f64::from(new.keep_s))
            .bind(new.replaces)
            .fetch_optional(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(until.map_or(DraftStored::Superseded, DraftStored::Until))
    }

    /// Deletes a draft, if it still has this version.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn drop_web_draft(&self, place: DraftPlace, version: Uuid) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(place.tenant)).await?;
        take(&mut tx, place, version).await?;
        Ok(tx.commit().await?)
    }

    /// Deletes a batch of expired drafts. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_expired_drafts(&self) -> Result<bool, StoreError> {
        let expired = sqlx::query(
            "delete from web_drafts where (tenant_id, principal_id, server_id, form) in (
                 select tenant_id, principal_id, server_id, form from web_drafts where expires_at < now()
                 order by expires_at limit $1)",
        );
        self.delete_expired(expired).await
    }
}

/// Deletes a draft of this version. Returns false if there is none: it was changed, sent, or has expired.
pub(super) async fn take(tx: &mut Unit, place: DraftPlace, version: Uuid) -> Result<bool, StoreError> {
    let deleted = sqlx::query(
        "delete from web_drafts
         where tenant_id = $1 and principal_id = $2 and server_id = $3 and form = $4 and version = $5
           and expires_at > now()",
    )
    .bind(place.tenant.0)
    .bind(place.principal)
    .bind(place.server.0)
    .bind(place.form.as_slice())
    .bind(version)
    .execute(&mut **tx)
    .await?;
    Ok(deleted.rows_affected() == 1)
}

/// Deletes the drafts of a revoked key.
pub(super) async fn remove_of(tx: &mut Unit, tenant: TenantId, principal: KeyId) -> Result<(), StoreError> {
    sqlx::query("delete from web_drafts where tenant_id = $1 and principal_id = $2")
        .bind(tenant.0)
        .bind(principal.0)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
