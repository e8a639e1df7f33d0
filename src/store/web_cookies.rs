//! Cookies that keys and people keep at servers of web pages, sealed. Nothing here can decrypt them.

use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::sealed_rows::{NewSealedRow, SealedColumns, SealedRow};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError, revisions};
use crate::domain::id::{KeyId, ServerId, TenantId};
use crate::domain::web_page::settings::PageSettings;

/// Place of cookies: a key or a person has one row at each server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CookiePlace {
    /// Tenant of the key.
    pub tenant: TenantId,
    /// API key, or identity of a person; nil for the bootstrap key.
    pub principal: Uuid,
    /// Server of the pages.
    pub server: ServerId,
}

impl CookiePlace {
    fn is_person(self) -> bool {
        KeyId(self.principal).identity().is_some()
    }
}

/// Versions of the server and the key of cookies. A call that ends after one of them changed stores nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRow)]
pub struct CookieOwners {
    /// Version of the server.
    pub server: i64,
    /// Version of the key; revision of the last block of a person, 0 if there was none; `None` for the bootstrap key.
    pub key: Option<i64>,
}

/// Cookies of a place, as a call finds them.
#[derive(Clone, Debug)]
pub struct FoundCookies {
    /// Server and key; `None` if one of them is gone, or the server keeps no cookies.
    pub owners: Option<CookieOwners>,
    /// Cookies; `None` if there are none.
    pub stored: Option<SealedRow>,
}

/// Result of storing cookies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CookiesStored {
    /// Stored.
    Done,
    /// Another call changed the cookies first; nothing is stored.
    Superseded,
    /// Server, key or tenant is gone or was changed since the call began; nothing is stored.
    Unwanted,
}

impl Store {
    /// Returns the cookies of a key at a server, until they expire, and the versions of both.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn web_cookies(&self, place: CookiePlace) -> Result<FoundCookies, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(place.tenant)).await?;
        let owners: Option<CookieOwners> = sqlx::query_as(
            "select s.version as server,
                 case when $5 then coalesce((select i.rev from identities i
                     where i.tenant_id = $1 and i.identity_id = $2), 0) else k.version end as key
             from servers s left join api_keys k on k.tenant_id = $1 and k.key_id = $2 and k.revoked_at is null
             where s.tenant_id = $1 and s.server_id = $3 and s.removed_at is null and s.web_page->>'cookies' = 'kept'
               and (k.key_id is not null or $4 or $5)",
        )
        .bind(place.tenant.0)
        .bind(place.principal)
        .bind(place.server.0)
        .bind(place.principal.is_nil())
        .bind(place.is_person())
        .fetch_optional(&mut *tx)
        .await?;
        let row: Option<SealedColumns> = sqlx::query_as(
            "select version, data_key_id, sealed from web_cookies
             where tenant_id = $1 and principal_id = $2 and server_id = $3 and expires_at > now()",
        )
        .bind(place.tenant.0)
        .bind(place.principal)
        .bind(place.server.0)
        .fetch_optional(&mut *tx)
        .await?;
        let stored = match row {
            Some(row) => Some(row.with_keys(&mut tx, place.tenant).await?),
            None => None,
        };
        tx.commit().await?;
        Ok(FoundCookies { owners, stored })
    }

    /// Stores cookies in the place of the version that was read, as long as their server and key are as the call found them.
    ///
    /// # Errors
    /// The database is out of reach or fails. The cookies may be stored all the same.
    pub async fn put_web_cookies(
        &self,
        place: CookiePlace,
        owners: CookieOwners,
        new: &NewSealedRow,
    ) -> Result<CookiesStored, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(place.tenant)).await?;
        // a tenant's deletion takes all that is sealed, and must not miss a row
        match revisions::hold(&mut tx, place.tenant).await {
            Err(StoreError::NotFound) => return Ok(CookiesStored::Unwanted),
            held => held?,
        }
        if !are_unchanged(&mut tx, place, owners).await? {
            return Ok(CookiesStored::Unwanted);
        }
        // an expired row must not stand in the way of a new one
        let statement = match new.replaces {
            Some(_) => {
                "update web_cookies set version = $4, data_key_id = $5, sealed = $6, expires_at = now() + make_interval(secs => $7)
                 where tenant_id = $1 and principal_id = $2 and server_id = $3 and version = $8"
            }
            None => {
                "insert into web_cookies (tenant_id, principal_id, server_id, version, data_key_id, sealed, expires_at)
                 select $1, $2, $3, $4, $5, $6, now() + make_interval(secs => $7) where $8::uuid is null
                 on conflict (tenant_id, principal_id, server_id) do update
                     set version = excluded.version, data_key_id = excluded.data_key_id, sealed = excluded.sealed,
                         expires_at = excluded.expires_at
                     where web_cookies.expires_at <= now()"
            }
        };
        let stored = sqlx::query(statement)
            .bind(place.tenant.0)
            .bind(place.principal)
            .bind(place.server.0)
            .bind(new.version)
            .bind(new.data_key)
            .bind(&new.sealed)
            .bind(f64::from(new.keep_s))
            .bind(new.replaces)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(if stored.rows_affected() == 1 { CookiesStored::Done } else { CookiesStored::Superseded })
    }

    /// Deletes a batch of expired cookies. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_expired_cookies(&self) -> Result<bool, StoreError> {
        let expired = sqlx::query(
            "delete from web_cookies where (tenant_id, principal_id, server_id) in (
                 select tenant_id, principal_id, server_id from web_cookies where expires_at < now()
                 order by expires_at limit $1)",
        );
        self.delete_expired(expired).await
    }
}

/// Returns whether server and key of cookies are as they were found, and locks both: a change meanwhile takes the cookies with it.
async fn are_unchanged(tx: &mut Unit, place: CookiePlace, owners: CookieOwners) -> Result<bool, StoreError> {
    let server: Option<i32> = sqlx::query_scalar(
        "select 1 from servers
         where tenant_id = $1 and server_id = $2 and removed_at is null and version = $3 for share",
    )
    .bind(place.tenant.0)
    .bind(place.server.0)
    .bind(owners.server)
    .fetch_optional(&mut **tx)
    .await?;
    if server.is_none() || place.principal.is_nil() {
        return Ok(server.is_some());
    }
    if place.is_person() {
        return is_person_unchanged(tx, place, owners.key).await;
    }
    let key: Option<i32> = sqlx::query_scalar(
        "select 1 from api_keys where tenant_id = $1 and key_id = $2 and revoked_at is null and version = $3 for share",
    )
    .bind(place.tenant.0)
    .bind(place.principal)
    .bind(owners.key)
    .fetch_optional(&mut **tx)
    .await?;
    Ok(key.is_some())
}

/// Returns whether a person was not blocked since. A person who was seen a moment ago may have no row yet.
async fn is_person_unchanged(
    tx: &mut Unit,
    place: CookiePlace,
    found: Option<i64>,
) -> Result<bool, StoreError> {
    let person: Option<(i64, bool)> = sqlx::query_as(
        "select rev, blocked_at is not null from identities where tenant_id = $1 and identity_id = $2 for share",
    )
    .bind(place.tenant.0)
    .bind(place.principal)
    .fetch_optional(&mut **tx)
    .await?;
    let (rev, is_blocked) = person.unwrap_or_default();
    Ok(found == Some(rev) && !is_blocked)
}

/// Deletes the cookies of a key that is revoked or goes to another person, or of a person who is blocked.
pub(super) async fn remove_of(tx: &mut Unit, tenant: TenantId, principal: KeyId) -> Result<(), StoreError> {
    sqlx::query("delete from web_cookies where tenant_id = $1 and principal_id = $2")
        .bind(tenant.0)
        .bind(principal.0)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Deletes all cookies at a server.
pub(super) async fn remove_at(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    sqlx::query("delete from web_cookies where tenant_id = $1 and server_id = $2")
        .bind(tenant.0)
        .bind(server.0)
        .execute(&mut **tx)
        .await?;
    Ok(())
}

/// Deletes all cookies at a server before it gets settings that keep none, or other pages: those are not what the cookies were set
/// for.
pub(super) async fn remove_unless_kept(
    tx: &mut Unit,
    (tenant, server): (TenantId, ServerId),
    settings: &PageSettings,
) -> Result<(), StoreError> {
    sqlx::query(
        "delete from web_cookies c using servers s
         where c.tenant_id = $1 and c.server_id = $2 and s.tenant_id = $1 and s.server_id = $2
           and ($3::jsonb->>'cookies' <> 'kept' or s.web_page->'pages' <> $3::jsonb->'pages')",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(Json(settings))
    .execute(&mut **tx)
    .await?;
    Ok(())
}
