//! Connections of a server as people see them: who has logged in, and the end of a login.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::connections::{LoginOf, NewTokens, SealedText};
use super::locks::lock_server;
use super::revisions::{self, Change, RevisionKind};
use super::secrets::{self, DataKey};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, ServerId, TenantId};

/// Most scopes that a connection keeps of those that its server asked for.
const WANTED_MAX: i32 = 50;

/// Connection as it may be shown.
#[derive(Clone, Debug, FromRow)]
pub struct ConnectionRow {
    /// Id of the connection.
    pub connection_id: Uuid,
    /// Principal whose login it is; `None` for the tenant's.
    pub principal_id: Option<Uuid>,
    /// Name of the API key whose holder's login it is; `None` for people, and keys without a name.
    pub key_name: Option<String>,
    /// Owner of the key, or of the person's identity; `None` for the tenant's login.
    pub owner: Option<String>,
    /// State, a word of [`LoginState`](crate::domain::server_login::LoginState).
    pub state: String,
    /// Number of tokens so far.
    pub generation: i64,
    /// True if the server is listed with this login.
    pub is_for_listing: bool,
    /// End of the token; `None` without one, or if the provider does not say.
    pub expires_at: Option<DateTime<Utc>>,
    /// Time before which the token endpoint is not asked again; `None` after a success.
    pub retry_at: Option<DateTime<Utc>>,
    /// Failure of the last request; `None` after a success.
    pub last_error: Option<String>,
}

/// Tokens of a connection that was removed, and where they can be revoked.
#[derive(Clone, Debug)]
pub struct RemovedConnection {
    /// Login that they were of.
    pub login: LoginOf,
    /// URL of the server without its query.
    pub place: String,
    /// URL where tokens are revoked; `None` if there is none.
    pub revocation_endpoint: Option<String>,
    /// URL of the token endpoint, which the client secret is sealed for.
    pub token_endpoint: String,
    /// Client id of the gateway.
    pub client_id: String,
    /// Way of authentication, a word of [`ClientAuthWay`](crate::domain::server_login::ClientAuthWay).
    pub client_auth: String,
    /// Client secret; `None` for a public client.
    pub client_secret: Option<SealedText>,
    /// Token that renewed the login; `None` without one.
    pub refresh: Option<SealedText>,
    /// Access token; `None` without one.
    pub access: Option<SealedText>,
    /// Wrapped data keys of the tenant.
    pub keys: Vec<DataKey>,
}

#[derive(FromRow)]
struct Removed {
    principal_id: Option<Uuid>,
    client_generation: Uuid,
    place: String,
    revocation_endpoint: Option<String>,
    token_endpoint: String,
    client_id: String,
    client_auth: String,
    client_key_id: Option<Uuid>,
    client_sealed: Option<Vec<u8>>,
    refresh_key_id: Option<Uuid>,
    refresh_sealed: Option<Vec<u8>>,
    data_key_id: Option<Uuid>,
    sealed: Option<Vec<u8>>,
}

impl Store {
    /// Returns the connections of a server.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_connections(
        &self,
        tenant: TenantId,
        server: ServerId,
    ) -> Result<Vec<ConnectionRow>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rows = sqlx::query_as(
            "select c.connection_id, c.principal_id, k.name as key_name, coalesce(k.owner, i.owner) as owner, c.state,
                 c.generation, coalesce(c.principal_id = o.listing_principal, false) as is_for_listing,
                 c.expires_at, c.retry_at, c.last_error
             from connections c join server_oauth o on o.tenant_id = c.tenant_id and o.server_id = c.server_id
                 and o.client_generation = c.client_generation
             left join api_keys k on k.tenant_id = c.tenant_id and k.key_id = c.principal_id
             left join identities i on i.tenant_id = c.tenant_id and i.identity_id = c.principal_id
             where c.tenant_id = $1 and c.server_id = $2 order by c.connection_id",
        )
        .bind(tenant.0)
        .bind(server.0)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Stores the tokens of a person who logged in, in the place of those of before, and lists the server with this login from now
    /// on if `for_listing`. Ends the flow that brought them. Returns whether it was there: it ends with its principal, and only one
    /// request ends it; and whether the login's configuration is still the one that it was begun with.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn put_connection(
        &self,
        login: LoginOf,
        flow: Uuid,
        new: &NewTokens,
        for_listing: bool,
    ) -> Result<bool, StoreError> {
        let LoginOf { tenant, server, principal, client } = login;
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        // first, as where logins end with their principal: in another order the two could wait for each other
        let ended = sqlx::query("delete from connect_flows where tenant_id = $1 and flow_id = $2")
            .bind(tenant.0)
            .bind(flow)
            .execute(&mut *tx)
            .await?;
        if ended.rows_affected() == 0 {
            return Ok(false);
        }
        lock_server(&mut tx, tenant, server).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        let (access, refresh) = (new.access.as_ref(), new.refresh.as_ref());
        let stored = sqlx::query(
            "insert into connections (tenant_id, connection_id, server_id, principal_id, client_generation, generation, state,
                 data_key_id, sealed, refresh_key_id, refresh_sealed, expires_at, renew_at)
             select $1, $2, $3, $4, $5, 1, 'connected', $6, $7, $8, $9, clock_timestamp() + make_interval(secs => $10),
                 clock_timestamp() + make_interval(secs => $11)
             from server_oauth o where o.tenant_id = $1 and o.server_id = $3 and o.client_generation = $5
             on conflict (tenant_id, server_id, coalesce(principal_id, '00000000-0000-0000-0000-000000000000'))
             do update set client_generation = excluded.client_generation, generation = connections.generation + 1,
                 state = 'connected', data_key_id = excluded.data_key_id, sealed = excluded.sealed,
                 refresh_key_id = excluded.refresh_key_id, refresh_sealed = excluded.refresh_sealed,
                 expires_at = excluded.expires_at, renew_at = excluded.renew_at, lease_by = null, retry_at = null,
                 refused_count = 0, failures = 0, last_error = null",
        )
        .bind(tenant.0)
        .bind(Uuid::now_v7())
        .bind(server.0)
        .bind(principal)
        .bind(client)
        .bind(access.map(|access| access.data_key_id))
        .bind(access.map(|access| access.sealed.as_slice()))
        .bind(refresh.map(|refresh| refresh.data_key_id))
        .bind(refresh.map(|refresh| refresh.sealed.as_slice()))
        .bind(new.expires_s)
        .bind(new.renew_s)
        .execute(&mut *tx)
        .await?;
        if stored.rows_affected() == 0 {
            return Ok(false);
        }
        let listing = principal.filter(|_| for_listing).map_or(Listing::Kept, Listing::By);
        count_change(&mut tx, (tenant, server), rev, listing).await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await?;
        Ok(true)
    }

    /// Notes scopes that a server asked for when it refused this token of a person.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn want_scopes(
        &self,
        login: LoginOf,
        generation: i64,
        scopes: &[String],
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(login.tenant)).await?;
        sqlx::query(
            "update connections set wanted_scopes = (array(
                 select distinct unnest(wanted_scopes || $6) order by 1))[1:$7]
             where tenant_id = $1 and server_id = $2 and principal_id = $3 and client_generation = $4 and generation = $5
               and not wanted_scopes @> $6",
        )
        .bind(login.tenant.0)
        .bind(login.server.0)
        .bind(login.principal)
        .bind(login.client)
        .bind(generation)
        .bind(scopes)
        .bind(WANTED_MAX)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Forgets the scopes that a server asked for: the authorization server did not give them.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn forget_wanted_scopes(&self, login: LoginOf) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(login.tenant)).await?;
        sqlx::query(
            "update connections set wanted_scopes = '{}'
             where tenant_id = $1 and server_id = $2 and principal_id = $3 and wanted_scopes <> '{}'",
        )
        .bind(login.tenant.0)
        .bind(login.server.0)
        .bind(login.principal)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Forgets a connection, with its tokens, and returns them to be revoked.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server has no such connection, or the tenant is deleted. Other errors come from the
    /// database.
    pub async fn remove_connection(
        &self,
        tenant: TenantId,
        server: ServerId,
        connection: Uuid,
    ) -> Result<RemovedConnection, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        lock_server(&mut tx, tenant, server).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        let row: Option<Removed> = sqlx::query_as(
            "with gone as (
                 delete from connections where tenant_id = $1 and server_id = $2 and connection_id = $3 returning *)
             select gone.principal_id, gone.client_generation, o.place, o.revocation_endpoint, o.token_endpoint, o.client_id,
                 o.client_auth, o.data_key_id as client_key_id, o.client_sealed, gone.refresh_key_id, gone.refresh_sealed,
                 gone.data_key_id, gone.sealed
             from gone join server_oauth o on o.tenant_id = gone.tenant_id and o.server_id = gone.server_id",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(connection)
        .fetch_optional(&mut *tx)
        .await?;
        let row = row.ok_or(StoreError::NotFound)?;
        let keys = secrets::keys(&mut tx, tenant).await?;
        let listing = row.principal_id.map_or(Listing::Kept, Listing::Ended);
        count_change(&mut tx, (tenant, server), rev, listing).await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await?;
        let login = LoginOf { tenant, server, principal: row.principal_id, client: row.client_generation };
        Ok(RemovedConnection {
            login,
            place: row.place,
            revocation_endpoint: row.revocation_endpoint,
            token_endpoint: row.token_endpoint,
            client_id: row.client_id,
            client_auth: row.client_auth,
            client_secret: SealedText::of(row.client_key_id, row.client_sealed),
            refresh: SealedText::of(row.refresh_key_id, row.refresh_sealed),
            access: SealedText::of(row.data_key_id, row.sealed),
            keys,
        })
    }
}

/// Ends the logins of a principal that is gone, or of a key that changes hands.
pub(super) async fn remove_of(tx: &mut Unit, tenant: TenantId, principal: KeyId) -> Result<(), StoreError> {
    sqlx::query("delete from connect_flows where tenant_id = $1 and principal_id = $2")
        .bind(tenant.0)
        .bind(principal.0)
        .execute(&mut **tx)
        .await?;
    let servers: Vec<Uuid> = sqlx::query_scalar(
        "delete from connections where tenant_id = $1 and principal_id = $2 returning server_id",
    )
    .bind(tenant.0)
    .bind(principal.0)
    .fetch_all(&mut **tx)
    .await?;
    if servers.is_empty() {
        return Ok(());
    }
    let rev = revisions::bump(tx, tenant, RevisionKind::Catalogue).await?;
    for server in servers {
        count_change(tx, (tenant, ServerId(server)), rev, Listing::Ended(principal.0)).await?;
    }
    revisions::notify(tx, Change { tenant, kind: RevisionKind::Catalogue, rev }).await
}

/// Change of the login that a server is listed with.
#[derive(Clone, Copy)]
enum Listing {
    /// None.
    Kept,
    /// The server is listed with the login of this principal from now on.
    By(Uuid),
    /// The login of this principal has ended: nobody's is used for listings any more, if it was.
    Ended(Uuid),
}

/// Counts a change of a server's connections, and notes what that means for the login that the server is listed with. The
/// server has no other version by that: the connections of others go on.
async fn count_change(
    tx: &mut Unit,
    (tenant, server): (TenantId, ServerId),
    rev: i64,
    listing: Listing,
) -> Result<(), StoreError> {
    let (by, ended) = match listing {
        Listing::Kept => (None, None),
        Listing::By(principal) => (Some(principal), None),
        Listing::Ended(principal) => (None, Some(principal)),
    };
    sqlx::query(
        "update server_oauth set epoch = epoch + 1,
             listing_principal = coalesce($3, case when listing_principal is distinct from $4 then listing_principal end)
         where tenant_id = $1 and server_id = $2",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(by)
    .bind(ended)
    .execute(&mut **tx)
    .await?;
    sqlx::query("update servers set rev = $3 where tenant_id = $1 and server_id = $2")
        .bind(tenant.0)
        .bind(server.0)
        .bind(rev)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
