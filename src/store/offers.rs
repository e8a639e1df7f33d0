//! Prompts, resources and templates of resources, as they are stored.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::tx::{Access, Lane};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{ServerId, TenantId};

/// What a server offers besides tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferKind {
    /// A prompt.
    Prompt,
    /// A resource.
    Resource,
    /// A template of resources.
    Template,
}

impl OfferKind {
    /// All kinds.
    pub const ALL: [OfferKind; 3] = [OfferKind::Prompt, OfferKind::Resource, OfferKind::Template];

    /// The stored name, which is also the wire's.
    pub fn as_str(self) -> &'static str {
        match self {
            OfferKind::Prompt => "prompt",
            OfferKind::Resource => "resource",
            OfferKind::Template => "template",
        }
    }

    /// `None` for any other text.
    pub fn parse(text: &str) -> Option<OfferKind> {
        OfferKind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// An offer as stored.
#[derive(Clone, Debug)]
pub struct StoredOffer {
    /// Its server.
    pub server: ServerId,
    /// What it is.
    pub kind: OfferKind,
    /// A prompt's name, a resource's URI, a template's text.
    pub name: String,
    /// The definition, exact bytes.
    pub definition: String,
    /// Digest of these bytes.
    pub digest: String,
    /// Since when the server offers it without a break.
    pub first_seen_at: DateTime<Utc>,
    /// The safe spelling of a prompt.
    pub safe_name: Option<String>,
}

#[derive(FromRow)]
pub(super) struct OfferRow {
    server_id: Uuid,
    kind: String,
    name: String,
    definition: String,
    digest: String,
    first_seen_at: DateTime<Utc>,
    safe_name: Option<String>,
}

impl TryFrom<OfferRow> for StoredOffer {
    type Error = StoreError;

    fn try_from(row: OfferRow) -> Result<StoredOffer, StoreError> {
        let Some(kind) = OfferKind::parse(&row.kind) else {
            return Err(StoreError::Inconsistent { table: "offers", column: "kind", value: row.kind });
        };
        Ok(StoredOffer {
            server: ServerId(row.server_id),
            kind,
            name: row.name,
            definition: row.definition,
            digest: row.digest,
            first_seen_at: row.first_seen_at,
            safe_name: row.safe_name,
        })
    }
}

/// An offer as it is shown to people.
#[derive(Clone, Debug, FromRow)]
pub struct OfferView {
    /// A prompt's name, a resource's URI, a template's text.
    pub name: String,
    /// `prompt`, `resource` or `template`.
    pub kind: String,
    /// The definition, exact bytes.
    pub definition: String,
    /// The safe spelling of a prompt.
    pub safe_name: Option<String>,
    /// The server that offered the same URI before, if one did that was released: this one is published nowhere.
    pub shadowed_by: Option<String>,
}

impl Store {
    /// A server's offers of these kinds, by kind and name, after `after`.
    pub async fn list_offers(
        &self,
        tenant: TenantId,
        server: ServerId,
        kinds: &[OfferKind],
        (after_kind, after): (&str, &str),
        limit: i64,
    ) -> Result<Vec<OfferView>, StoreError> {
        let kinds: Vec<&str> = kinds.iter().map(|kind| kind.as_str()).collect();
        let mut tx = self.begin(Lane::Control, Access::Tenant(tenant)).await?;
        let rows = sqlx::query_as(
            "select o.name, o.kind, o.definition, n.safe_name, (
                 select s.name from offers f join servers s
                     on s.tenant_id = f.tenant_id and s.server_id = f.server_id and s.removed_at is null
                 where f.tenant_id = o.tenant_id and f.kind = o.kind and f.name = o.name and o.kind <> 'prompt'
                     and (not s.baselined, f.first_seen_at, f.server_id)
                       < (not own.baselined, o.first_seen_at, o.server_id)
                 order by not s.baselined, f.first_seen_at, f.server_id limit 1) as shadowed_by
             from offers o join servers own
               on own.tenant_id = o.tenant_id and own.server_id = o.server_id
             left join prompt_names n
               on n.tenant_id = o.tenant_id and n.server_id = o.server_id and n.prompt = o.name and o.kind = 'prompt'
             where o.tenant_id = $1 and o.server_id = $2 and o.kind = any($3) and (o.kind, o.name) > ($4, $5)
             order by o.kind, o.name limit $6",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(kinds)
        .bind(after_kind)
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }
}

/// All that the tenant's servers offer, those first that offer it the longest.
pub(super) async fn load(tx: &mut Unit, tenant: TenantId) -> Result<Vec<StoredOffer>, StoreError> {
    let rows: Vec<OfferRow> = sqlx::query_as(
        "select o.server_id, o.kind, o.name, o.definition, o.digest, o.first_seen_at, n.safe_name
         from offers o left join prompt_names n
           on n.tenant_id = o.tenant_id and n.server_id = o.server_id and n.prompt = o.name and o.kind = 'prompt'
         where o.tenant_id = $1 order by o.first_seen_at, o.server_id",
    )
    .bind(tenant.0)
    .fetch_all(&mut **tx)
    .await?;
    rows.into_iter().map(StoredOffer::try_from).collect()
}

/// Who is released offers from then on: what it did before counts for nothing.
pub(super) async fn begin_anew(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    sqlx::query(
        "update offers set first_seen_at = clock_timestamp() where tenant_id = $1 and server_id = $2",
    )
    .bind(tenant.0)
    .bind(server.0)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// What a server offered at another origin, or before it was removed, is gone.
pub(super) async fn remove_all(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    sqlx::query("delete from offers where tenant_id = $1 and server_id = $2")
        .bind(tenant.0)
        .bind(server.0)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
