//! Upstream servers.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::locks::lock_server;
use super::offers::{self, StoredOffer};
use super::revisions::{self, RevisionKind};
use super::secrets::{self, HeadersPatch, SealedHeaders, SecretRows};
use super::server_logs;
use super::tools::{StoredTool, ToolRow, select_tools};
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError, quotas};
use crate::domain::id::{KeyId, ServerId, TenantId};
use crate::domain::person::Person;
use crate::domain::quota::Quotas;
use crate::domain::server_url::without_query;

/// An upstream server as stored.
#[derive(Clone, Debug, FromRow)]
pub struct Server {
    /// Its id, apart from its name.
    pub server_id: Uuid,
    /// Its name in the tenant.
    pub name: String,
    /// `http` or `stdio`.
    pub kind: String,
    /// Where it is.
    pub url: Option<String>,
    /// The program that it is, by the name of its entry in the deployment.
    pub command: Option<String>,
    /// The name of its tenant.
    pub tenant_name: String,
    /// Switched on.
    pub enabled: bool,
    /// Nothing of it is shown to agents.
    pub quarantined: bool,
    /// Changes of definitions are taken at once.
    pub auto_approve: bool,
    /// Whether its first listing after a release has set the pins.
    pub baselined: bool,
    /// Bounds of its own, by name.
    pub limits: Json<serde_json::Map<String, serde_json::Value>>,
    /// The protocol era it was found to speak.
    pub era: Option<String>,
    /// `unknown`, `connected`, `disconnected`.
    pub connection: String,
    /// When it last answered the gateway's listing.
    pub last_ok_at: Option<DateTime<Utc>>,
    /// Why the last listing failed.
    pub last_error: Option<String>,
    /// Why some of its prompts, resources or templates are not there.
    pub offers_error: Option<String>,
    /// The key that added it.
    pub added_by: Option<Uuid>,
    /// The key that the two fields below are of; another one than `added_by` where the release before wrote that.
    pub adder_key: Option<Uuid>,
    /// Owner of that key when it added the server, where somebody had named one.
    pub adder_owner: Option<String>,
    /// The key that created that key.
    pub adder_creator: Option<Uuid>,
    /// When it was added.
    pub created_at: DateTime<Utc>,
    /// Counts changes by people, for optimistic updates.
    pub version: i64,
    /// The revision that wrote its row last.
    pub rev: i64,
    /// Names of the headers it is called with; their values are sealed elsewhere.
    pub header_names: Vec<String>,
}

#[cfg(test)]
impl Server {
    /// A server of no tenant for tests: enabled, released, never contacted.
    pub fn example() -> Server {
        Server {
            server_id: Uuid::nil(),
            name: "up".to_owned(),
            kind: "http".to_owned(),
            url: Some("http://u/".to_owned()),
            command: None,
            tenant_name: "acme".to_owned(),
            enabled: true,
            quarantined: false,
            auto_approve: false,
            baselined: true,
            limits: Json::default(),
            era: None,
            connection: "unknown".to_owned(),
            last_ok_at: None,
            last_error: None,
            offers_error: None,
            added_by: None,
            adder_key: None,
            adder_owner: None,
            adder_creator: None,
            created_at: DateTime::UNIX_EPOCH,
            version: 1,
            rev: 1,
            header_names: Vec::new(),
        }
    }
}

impl Server {
    /// The typed id.
    pub fn id(&self) -> ServerId {
        ServerId(self.server_id)
    }

    /// Returns who added the server, or moved it last; `None` where only the key is known.
    pub fn adder(&self) -> Option<Person> {
        (self.adder_key == self.added_by).then(|| Person {
            key: self.added_by.map(KeyId),
            owner: self.adder_owner.clone(),
            creator: self.adder_creator.map(KeyId),
        })
    }
}

macro_rules! server_columns {
    () => {
        "server_id, name, kind, url, command,
         (select t.name from tenants t where t.tenant_id = servers.tenant_id) as tenant_name, enabled, quarantined, auto_approve, baselined, limits, era, connection, \
         last_ok_at, last_error,
         (select string_agg(value, '; ' order by key) from jsonb_each_text(offers_error)) as offers_error,
         added_by, adder_key, adder_owner, adder_creator, created_at, version, rev, header_names"
    };
}

/// A server to be added.
#[derive(Clone, Debug)]
pub struct NewServer {
    /// Id of the server, never used before.
    pub id: ServerId,
    /// Name of the server.
    pub name: String,
    /// Kind of the server: `http` or `stdio`.
    pub kind: &'static str,
    /// URL of the server; `None` for a program.
    pub url: Option<String>,
    /// Program of the server, by the name of its entry in the deployment; `None` for a URL.
    pub command: Option<String>,
    /// True if the server is enabled.
    pub enabled: bool,
    /// True if the server is quarantined: hidden until released.
    pub quarantined: bool,
    /// True if changed definitions are approved automatically.
    pub auto_approve: bool,
    /// Limits of the server itself, by name.
    pub limits: serde_json::Map<String, serde_json::Value>,
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
    /// Change of the headers that the server is called with.
    pub headers: Option<HeadersPatch>,
    /// Version that the server must still have; `None` for any.
    pub version: Option<i64>,
    /// Person who changes the server; needed where `place_changed`.
    pub by: Option<Person>,
}

impl Store {
    /// Adds a server.
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
                 limits, added_by, rev, header_names, command, adder_key, adder_owner, adder_creator)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $10, $14, $15) returning ",
            server_columns!()
        ))
        .bind(tenant.0)
        .bind(new.id.0)
        .bind(&new.name)
        .bind(new.kind)
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
        .fetch_one(&mut *tx)
        .await
        .map_err(|error| StoreError::from_insert(error, "servers_name", "a server of this name exists"))?;
        if let Some(headers) = &new.headers {
            secrets::insert(&mut tx, tenant, new.id, headers).await?;
        }
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await?;
        Ok(server)
    }

    /// One server by name.
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

    /// A server as the gateway itself asks it: [`StoreError::NotFound`] also when its tenant is not served any more.
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

    /// Servers by name, after `after`.
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

    /// Changes a server.
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
        }
        let by = patch.by.as_ref();
        let updated: Option<Server> = sqlx::query_as(concat!(
            "update servers set url = coalesce($3, url), command = coalesce($13, command), enabled = coalesce($4, enabled),
                 quarantined = coalesce($5, quarantined) or ($14 and not baselined), auto_approve = coalesce($7, auto_approve),
                 limits = coalesce($8, limits), era = case when $6 then null else era end,
                 baselined = baselined and not $6,
                 added_by = case when $6 then $11 else added_by end,
                 adder_key = case when $6 then $11 else adder_key end,
                 adder_owner = case when $6 then $15 else adder_owner end,
                 adder_creator = case when $6 then $16 else adder_creator end,
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
        .fetch_optional(&mut *tx)
        .await?;
        let updated = updated.ok_or(StoreError::Conflict("the server changed since that version"))?;
        if patch.place_changed {
            super::tools::clear_pins(&mut tx, tenant, server, rev).await?;
            offers::remove_all(&mut tx, tenant, server).await?;
        }
        if patch.place_changed || patch.headers.is_some() {
            secrets::remove(&mut tx, tenant, server).await?;
        }
        if let Some(HeadersPatch::Set(headers)) = &patch.headers {
            secrets::insert(&mut tx, tenant, server, headers).await?;
        }
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await?;
        Ok(updated)
    }

    /// Removes a server; its name is free again, its id never used again.
    pub async fn remove_server(&self, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        // whoever writes a line meanwhile would not see the removal, and the line would stay
        server_logs::take_turn(&mut tx).await?;
        lock_server(&mut tx, tenant, server).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        let done = sqlx::query(
            "update servers set removed_at = now(), enabled = false, header_names = '{}', version = version + 1,
                 rev = $3
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
        server_logs::remove(&mut tx, tenant, server).await?;
        super::tools::remove_all(&mut tx, tenant, server, rev).await?;
        offers::remove_all(&mut tx, tenant, server).await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(drop)
    }

    /// The catalogue of a tenant in one consistent picture: servers, present tools, revision.
    /// [`StoreError::NotFound`] when the tenant is deleted.
    pub async fn load_catalogue(&self, tenant: TenantId) -> Result<CatalogueRows, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(tenant)).await?;
        // a deleted tenant has none
        quotas::own(&mut tx, tenant).await?;
        let rev = revisions::current(&mut tx, tenant, RevisionKind::Catalogue).await?;
        let servers: Vec<Server> = sqlx::query_as(concat!(
            "select ",
            server_columns!(),
            " from servers where tenant_id = $1 and removed_at is null order by name"
        ))
        .bind(tenant.0)
        .fetch_all(&mut *tx)
        .await?;
        let tools: Vec<ToolRow> = sqlx::query_as(select_tools!(
            "case when t.approved_pin <> t.pin then t.approved_definition end",
            ""
        ))
        .bind(tenant.0)
        .fetch_all(&mut *tx)
        .await?;
        let offers = offers::load(&mut tx, tenant).await?;
        let sealed = servers.iter().any(|server| !server.header_names.is_empty());
        let secrets =
            if sealed { secrets::load(&mut tx, tenant, None).await? } else { SecretRows::default() };
        tx.commit().await?;
        let tools = tools.into_iter().map(StoredTool::try_from).collect::<Result<Vec<_>, _>>()?;
        Ok(CatalogueRows { rev, servers, tools, offers, secrets })
    }
}

/// What [`Store::load_catalogue`] gives.
#[derive(Clone, Debug)]
pub struct CatalogueRows {
    /// The revision this picture belongs to.
    pub rev: i64,
    /// By name.
    pub servers: Vec<Server>,
    /// In no order.
    pub tools: Vec<StoredTool>,
    /// Those first that are offered the longest.
    pub offers: Vec<StoredOffer>,
    /// What the servers are called with, sealed.
    pub secrets: SecretRows,
}
