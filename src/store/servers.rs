//! Upstream servers, as stored.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::locks::lock_server;
use super::offers;
use super::revisions::{self, RevisionKind};
use super::secrets::{self, HeadersPatch, SealedHeaders};
use super::server_logs;
use super::server_oauth::{self, ServerOauth};
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError, Stored, quotas, web_cookies};
use crate::domain::era::Era;
use crate::domain::id::{IdentityId, KeyId, ServerId, TenantId};
use crate::domain::person::Person;
use crate::domain::quota::Quotas;
use crate::domain::relay::Relay;
use crate::domain::server::ConnectionState;
use crate::domain::server_kind::ServerKind;
use crate::domain::server_url::without_query;
use crate::domain::web_page::settings::PageSettings;

/// Conflict of a server whose name another one has.
pub const NAME_TAKEN: &str = "a server of this name exists";

/// An upstream server as stored.
#[derive(Clone, Debug, FromRow)]
pub struct Server {
    /// Id of the server, independent of its name.
    pub server_id: Uuid,
    /// Name of the server, unique in its tenant.
    pub name: String,
    /// Kind of the server.
    #[sqlx(try_from = "String")]
    pub kind: ServerKind,
    /// URL of the server, the first of its pages for web pages; `None` for a program.
    pub url: Option<String>,
    /// Program of the server, by the name of its entry in the deployment; `None` for a URL.
    pub command: Option<String>,
    /// Name of the server's tenant.
    pub tenant_name: String,
    /// True if the server is enabled.
    pub enabled: bool,
    /// True if the server is quarantined: nothing of it is shown to agents.
    pub quarantined: bool,
    /// True if changed definitions are approved automatically.
    pub auto_approve: bool,
    /// True if the first listing after a release has set the pins.
    pub baselined: bool,
    /// Limits of the server itself, by name.
    pub limits: Json<serde_json::Map<String, serde_json::Value>>,
    /// Messages of the server that reach the client of a call; `None` for the default.
    pub relay: Option<Json<serde_json::Value>>,
    /// True if `relay` was given for the place at which the server is.
    pub relay_is_of_place: bool,
    /// Protocol era that the server was found to speak; `None` before that.
    pub era: Option<Stored<Era>>,
    /// State of the connection.
    pub connection: Stored<ConnectionState>,
    /// Time of the last successful listing or ping; `None` if there was none.
    pub last_ok_at: Option<DateTime<Utc>>,
    /// Error of the last listing, or remark on tools that were left out or held back; `None` if there is neither.
    pub last_error: Option<String>,
    /// True if the server refused the last listing for want of a login, and none is configured.
    pub wants_login: bool,
    /// Reasons why some prompts, resources or templates are missing; `None` if none are.
    pub offers_error: Option<String>,
    /// Key that added the server, or moved it last; `None` for the bootstrap key.
    pub added_by: Option<Uuid>,
    /// Key of `adder_owner` and `adder_creator`. It differs from `added_by` where the previous release wrote that field.
    pub adder_key: Option<Uuid>,
    /// Owner of `adder_key` when the server was added; `None` if nobody had named one.
    pub adder_owner: Option<String>,
    /// E-mail address of the person, if one who logged in added the server.
    pub adder_email: Option<String>,
    /// Identity of the person who held `adder_key` when the server was added; `None` if nobody had named one.
    pub adder_identity: Option<Uuid>,
    /// First key of the line of rotations that `adder_key` belongs to; `None` in rows of an older release.
    pub adder_root: Option<Uuid>,
    /// Root of the key that created `adder_key`; `None` for the bootstrap key.
    pub adder_creator: Option<Uuid>,
    /// Time of creation.
    pub created_at: DateTime<Utc>,
    /// Number of changes by people, for optimistic updates.
    pub version: i64,
    /// Revision that wrote the row last.
    pub rev: i64,
    /// Names of the headers that the server is called with, or of the fields of its pages that have secrets; their values
    /// are sealed elsewhere.
    pub header_names: Vec<String>,
    /// Settings of web pages; `None` for other kinds.
    pub web_page: Option<Json<serde_json::Value>>,
    /// Login of the gateway at the server; `None` for none.
    pub oauth: Option<Json<ServerOauth>>,
}

#[cfg(test)]
impl Server {
    /// A server of no tenant for tests: enabled, released, never contacted.
    pub fn example() -> Server {
        Server {
            server_id: Uuid::nil(),
            name: "up".to_owned(),
            kind: ServerKind::Http,
            url: Some("http://u/".to_owned()),
            command: None,
            tenant_name: "acme".to_owned(),
            enabled: true,
            quarantined: false,
            auto_approve: false,
            baselined: true,
            limits: Json::default(),
            relay: None,
            relay_is_of_place: false,
            era: None,
            connection: ConnectionState::Unknown.into(),
            last_ok_at: None,
            last_error: None,
            wants_login: false,
            offers_error: None,
            added_by: None,
            adder_key: None,
            adder_owner: None,
            adder_email: None,
            adder_identity: None,
            adder_root: None,
            adder_creator: None,
            created_at: DateTime::UNIX_EPOCH,
            version: 1,
            rev: 1,
            header_names: Vec::new(),
            web_page: None,
            oauth: None,
        }
    }
}

impl Server {
    /// Returns the typed id.
    pub fn id(&self) -> ServerId {
        ServerId(self.server_id)
    }

    /// Returns which messages of the server reach the client of a call.
    pub fn relay(&self) -> Relay {
        let stored = Relay::stored(self.relay.as_deref());
        // a replica of the release before moves a server and leaves this alone
        if self.relay_is_of_place { stored } else { stored.of_moved() }
    }

    /// Returns the settings of a server of web pages; `None` for other kinds.
    pub fn pages(&self) -> Option<PageSettings> {
        let row = self.web_page.as_ref().filter(|_| self.kind == ServerKind::WebPage)?;
        PageSettings::stored(row)
    }

    /// Returns who added the server, or moved it last; `None` where only the key is known.
    pub fn adder(&self) -> Option<Person> {
        (self.adder_key == self.added_by).then(|| Person {
            key: self.added_by.map(KeyId),
            root: self.adder_root.or(self.added_by).map(KeyId),
            owner: self.adder_owner.clone(),
            email: self.adder_email.clone(),
            identity: self.adder_identity.map(IdentityId),
            creator: self.adder_creator.map(KeyId),
            line_creators: Vec::new(),
        })
    }
}

macro_rules! server_columns {
    () => {
        "server_id, name, kind, url, command,
         (select t.name from tenants t where t.tenant_id = servers.tenant_id) as tenant_name, enabled, quarantined, auto_approve, baselined, limits, relay,
         coalesce(relay_place = coalesce(split_part(url, '?', 1), command), false) as relay_is_of_place, era, connection, \
         last_ok_at, last_error, wants_login,
         (select string_agg(value, '; ' order by key) from jsonb_each_text(offers_error)) as offers_error,
         added_by, adder_key, adder_root, adder_owner, adder_email, adder_identity, adder_creator, created_at, version, rev, header_names, web_page,
         (select jsonb_build_object('kind', o.kind, 'issuer', o.issuer, 'token_endpoint', o.token_endpoint,
                 'resource', o.resource, 'audience', o.audience, 'exchange_grant', o.exchange_grant, 'scopes', o.scopes, 'client_id', o.client_id, 'client_auth', o.client_auth,
                 'client_generation', o.client_generation, 'registration', o.registration,
                 'authorization_endpoint', o.authorization_endpoint, 'listing_principal', o.listing_principal, 'is_named', o.is_named, 'epoch', o.epoch,
                 'state', coalesce(c.state, case when o.kind = 'authorization_code' then 'login_required' else 'none' end),
                 'last_error', c.last_error)
          from server_oauth o left join connections c on c.tenant_id = o.tenant_id and c.server_id = o.server_id
              and c.principal_id is not distinct from o.listing_principal and c.client_generation = o.client_generation
          where o.tenant_id = servers.tenant_id and o.server_id = servers.server_id
            and o.place = split_part(servers.url, '?', 1)) as oauth"
    };
}
pub(super) use server_columns;

/// A server to be added.
#[derive(Clone, Debug)]
pub struct NewServer {
    /// Id of the server, never used before.
    pub id: ServerId,
    /// Name of the server.
    pub name: String,
    /// Kind of the server.
    pub kind: ServerKind,
    /// URL of the server; `None` for a program.
    pub url: Option<String>,
    /// Program of the server, by the name of its entry in the deployment; `None` for a URL.
    pub command: Option<String>,
    /// Settings of web pages; `None` for other kinds.
    pub pages: Option<PageSettings>,
    /// True if the server is enabled.
    pub enabled: bool,
    /// True if the server is quarantined: hidden until released.
    pub quarantined: bool,
    /// True if changed definitions are approved automatically.
    pub auto_approve: bool,
    /// Limits of the server itself, by name.
    pub limits: serde_json::Map<String, serde_json::Value>,
    /// Messages that reach the client of a call; `None` for the default.
    pub relay: Option<Relay>,
    /// Sealed headers that the server is called with; `None` for none.
    pub headers: Option<SealedHeaders>,
    /// Person who adds the server.
    pub added_by: Person,
    /// Default quotas, for a tenant without its own.
    pub quotas: Quotas,
}

/// A change to a server; `None` leaves a field.
#[derive(Clone, Debug, Default)]
pub struct ServerPatch {
    /// New URL, in whole.
    pub url: Option<String>,
    /// New program, by the name of its entry in the deployment.
    pub command: Option<String>,
    /// New settings of web pages, in whole.
    pub pages: Option<PageSettings>,
    /// True if the URL leads to another place, or the program is another. Credentials, pins, era and baseline
    /// are then removed, and `by` counts as the person who added the server.
    pub place_changed: bool,
    /// Enables or disables the server.
    pub enabled: Option<bool>,
    /// Quarantines or releases the server.
    pub quarantined: Option<bool>,
    /// Quarantines the server if its pins are still to be set: its first listing is then not approved as it
    /// is.
    pub waits_without_baseline: bool,
    /// Switches automatic approval.
    pub auto_approve: Option<bool>,
    /// New limits of the server itself, by name.
    pub limits: Option<serde_json::Map<String, serde_json::Value>>,
    /// New choice of the messages that reach the client of a call.
    pub relay: Option<Relay>,
    /// Change of the headers that the server is called with.
    pub headers: Option<HeadersPatch>,
    /// Version that the server must still have; `None` for any.
    pub version: Option<i64>,
    /// Person who changes the server; needed where `place_changed`.
    pub by: Option<Person>,
}

impl Store {
    /// Adds a server, with its sealed headers.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the name is taken, [`StoreError::Quota`] if the quota of servers is used up.
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn create_server(&self, tenant: TenantId, new: &NewServer) -> Result<Server, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        let count: i64 =
            sqlx::query_scalar("select count(*) from servers where tenant_id = $1 and removed_at is null")
                .bind(tenant.0)
                .fetch_one(&mut *tx)
                .await?;
        let quotas = quotas::of(&mut tx, tenant, &new.quotas).await?;
        quotas::check(count, quotas.servers, "servers")?;
        let server = sqlx::query_as(concat!(
            "insert into servers (tenant_id, server_id, name, kind, url, enabled, quarantined, auto_approve,
                 limits, added_by, rev, header_names, command, adder_key, adder_owner, adder_creator,
                 adder_identity, relay, relay_place, web_page, adder_root, adder_email)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $10, $14, $15, $16, $17,
                 coalesce(split_part($5, '?', 1), $13), $18, $19, $20) returning ",
            server_columns!()
        ))
        .bind(tenant.0)
        .bind(new.id.0)
        .bind(&new.name)
        .bind(new.kind.as_str())
        .bind(&new.url)
        .bind(new.enabled)
        .bind(new.quarantined)
        .bind(new.auto_approve)
        .bind(Json(&new.limits))
        .bind(new.added_by.key.map(|key| key.0))
        .bind(rev)
        .bind(new.headers.as_ref().map_or(&[][..], |headers| &headers.names))
        .bind(&new.command)
        .bind(&new.added_by.owner)
        .bind(new.added_by.creator.map(|key| key.0))
        .bind(new.added_by.identity.map(|identity| identity.0))
        .bind(new.relay.map(Json))
        .bind(new.pages.as_ref().map(Json))
        .bind(new.added_by.root.map(|key| key.0))
        .bind(&new.added_by.email)
        .fetch_one(&mut *tx)
        .await
        .map_err(|error| StoreError::from_insert(error, "servers_name", NAME_TAKEN))?;
        if let Some(headers) = &new.headers {
            secrets::insert(&mut tx, tenant, new.id, headers).await?;
        }
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await?;
        Ok(server)
    }

    /// Returns one server by name.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant has no such server. Other errors come from the database.
    pub async fn get_server(&self, tenant: TenantId, name: &str) -> Result<Server, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let server = sqlx::query_as(concat!(
            "select ",
            server_columns!(),
            " from servers where tenant_id = $1 and name = $2 and removed_at is null"
        ))
        .bind(tenant.0)
        .bind(name)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        server.ok_or(StoreError::NotFound)
    }

    /// Returns a server that the gateway itself is about to contact.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server is removed, or its tenant deleted or suspended. Other errors come from
    /// the database.
    pub async fn served_server(&self, tenant: TenantId, server: ServerId) -> Result<Server, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let server = sqlx::query_as(concat!(
            "select ",
            server_columns!(),
            " from servers where tenant_id = $1 and server_id = $2 and removed_at is null
                 and exists (select from tenants t where t.tenant_id = $1 and t.deleted_at is null
                     and t.suspended_at is null)"
        ))
        .bind(tenant.0)
        .bind(server.0)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        server.ok_or(StoreError::NotFound)
    }

    /// Returns servers after `after` by name, at most `limit`.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_servers(
        &self,
        tenant: TenantId,
        after: &str,
        limit: i64,
    ) -> Result<Vec<Server>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let servers = sqlx::query_as(concat!(
            "select ",
            server_columns!(),
            " from servers where tenant_id = $1 and name > $2 and removed_at is null order by name limit $3"
        ))
        .bind(tenant.0)
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(servers)
    }

    /// Changes a server and returns its new row.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the server is removed, or has another version than the patch names.
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn update_server(
        &self,
        tenant: TenantId,
        server: ServerId,
        patch: &ServerPatch,
    ) -> Result<Server, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        lock_server(&mut tx, tenant, server).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        if let Some(url) = patch.url.as_deref().filter(|_| !patch.place_changed) {
            secrets::respell(&mut tx, tenant, server, without_query(url)).await?;
            server_oauth::respell(&mut tx, tenant, server, without_query(url)).await?;
        }
        if patch.place_changed {
            // neither secret nor token is for another place
            server_oauth::remove(&mut tx, tenant, server).await?;
        }
        if let Some(pages) = &patch.pages {
            web_cookies::remove_unless_kept(&mut tx, (tenant, server), pages).await?;
        }
        let by = patch.by.as_ref();
        let updated: Option<Server> = sqlx::query_as(concat!(
            "update servers set url = coalesce($3, url), command = coalesce($13, command), enabled = coalesce($4, enabled),
                 quarantined = coalesce($5, quarantined) or ($14 and not baselined), auto_approve = coalesce($7, auto_approve),
                 limits = coalesce($8, limits), relay = coalesce($18, relay),
                 relay_place = case
                     -- given now, or the same place in another spelling
                     when $18 is not null or relay_place = coalesce(split_part(url, '?', 1), command)
                         then coalesce(split_part(coalesce($3, url), '?', 1), coalesce($13, command))
                     else relay_place end,
                 web_page = coalesce($19, web_page), page_report = case when $6 then null else page_report end,
                 era = case when $6 then null else era end,
                 baselined = baselined and not $6,
                 added_by = case when $6 then $11 else added_by end,
                 adder_key = case when $6 then $11 else adder_key end,
                 adder_owner = case when $6 then $15 else adder_owner end,
                 adder_creator = case when $6 then $16 else adder_creator end,
                 adder_identity = case when $6 then $17 else adder_identity end,
                 adder_root = case when $6 then $20 else adder_root end,
                 adder_email = case when $6 then $21 else adder_email end,
                 connection = case when $6 or $4 <> enabled then 'unknown' else connection end,
                 header_names = coalesce($12, case when $6 then '{}' else header_names end),
                 version = version + 1, rev = $9
             where tenant_id = $1 and server_id = $2 and removed_at is null
               and ($10::bigint is null or version = $10)
             returning ",
            server_columns!()
        ))
        .bind(tenant.0)
        .bind(server.0)
        .bind(&patch.url)
        .bind(patch.enabled)
        .bind(patch.quarantined)
        .bind(patch.place_changed)
        .bind(patch.auto_approve)
        .bind(patch.limits.as_ref().map(Json))
        .bind(rev)
        .bind(patch.version)
        .bind(by.and_then(|by| by.key).map(|key| key.0))
        .bind(patch.headers.as_ref().map(HeadersPatch::names))
        .bind(&patch.command)
        .bind(patch.waits_without_baseline)
        .bind(by.and_then(|by| by.owner.as_deref()))
        .bind(by.and_then(|by| by.creator).map(|key| key.0))
        .bind(by.and_then(|by| by.identity).map(|identity| identity.0))
        .bind(patch.relay.map(Json))
        .bind(patch.pages.as_ref().map(Json))
        .bind(by.and_then(|by| by.root).map(|key| key.0))
        .bind(by.and_then(|by| by.email.as_deref()))
        .fetch_optional(&mut *tx)
        .await?;
        let updated = updated.ok_or(StoreError::Conflict("the server changed since that version"))?;
        if patch.place_changed {
            super::tools::clear_pins(&mut tx, tenant, server, rev).await?;
            offers::remove_all(&mut tx, tenant, server).await?;
        }
        if patch.place_changed || patch.headers.is_some() {
            secrets::remove(&mut tx, tenant, server).await?;
            // what the old credentials led to
            web_cookies::remove_at(&mut tx, tenant, server).await?;
        }
        if let Some(HeadersPatch::Set(headers)) = &patch.headers {
            secrets::insert(&mut tx, tenant, server, headers).await?;
        }
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await?;
        Ok(updated)
    }

    /// Removes a server. Its name is free again; its id is never used again.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server is removed already, or the tenant deleted. Other errors come from the
    /// database.
    pub async fn remove_server(&self, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        // a concurrent writer of log lines would not see the removal, and its lines would stay
        server_logs::take_turn(&mut tx).await?;
        lock_server(&mut tx, tenant, server).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        let done = sqlx::query(
            "update servers set removed_at = now(), enabled = false, header_names = '{}', page_report = null,
                 version = version + 1, rev = $3
             where tenant_id = $1 and server_id = $2 and removed_at is null",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(rev)
        .execute(&mut *tx)
        .await?;
        if done.rows_affected() == 0 {
            return Err(StoreError::NotFound);
        }
        secrets::remove(&mut tx, tenant, server).await?;
        server_oauth::remove(&mut tx, tenant, server).await?;
        web_cookies::remove_at(&mut tx, tenant, server).await?;
        server_logs::remove(&mut tx, tenant, server).await?;
        super::tools::remove_all(&mut tx, tenant, server, rev).await?;
        offers::remove_all(&mut tx, tenant, server).await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(drop)
    }
}
