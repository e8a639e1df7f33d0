//! Prompts, resources and resource templates, as they are stored.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::offer_pins::{self, OfferRef};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError, Stored};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::offer::OfferKind;
use crate::domain::tool::PinState;

/// An offer as stored.
#[derive(Clone, Debug)]
pub struct StoredOffer {
    /// Server of the offer.
    pub server: ServerId,
    /// Kind of the offer.
    pub kind: OfferKind,
    /// Name of a prompt, URI of a resource, text of a template.
    pub name: String,
    /// Definition, exact bytes.
    pub definition: String,
    /// Digest of the definition.
    pub digest: String,
    /// Start of the time for which the server has made the offer without a break.
    pub first_seen_at: DateTime<Utc>,
    /// Safe spelling of a prompt; `None` for other kinds, and if there is none.
    pub safe_name: Option<String>,
    /// State of the definition against its pin.
    pub state: PinState,
    /// True if some definition of the offer was ever approved.
    pub is_approved_once: bool,
    /// True if the server does not make the offer now: the row is a block of a resource, and the definition is empty.
    pub is_gone: bool,
}

#[derive(FromRow)]
pub(super) struct OfferRow {
    server_id: Uuid,
    kind: Stored<OfferKind>,
    name: String,
    definition: String,
    digest: String,
    pin: String,
    first_seen_at: DateTime<Utc>,
    safe_name: Option<String>,
    approved_pin: Option<String>,
    is_blocked: bool,
    is_gone: bool,
}

impl TryFrom<OfferRow> for StoredOffer {
    type Error = StoreError;

    fn try_from(row: OfferRow) -> Result<StoredOffer, StoreError> {
        Ok(StoredOffer {
            server: ServerId(row.server_id),
            kind: row.kind.known_in("offers", "kind")?,
            name: row.name,
            definition: row.definition,
            digest: row.digest,
            first_seen_at: row.first_seen_at,
            safe_name: row.safe_name,
            state: PinState::of(&row.pin, row.approved_pin.as_deref(), row.is_blocked),
            is_approved_once: row.approved_pin.is_some(),
            is_gone: row.is_gone,
        })
    }
}

/// An offer for people to review.
#[derive(Clone, Debug, FromRow)]
pub struct OfferView {
    /// Name of a prompt, URI of a resource, text of a template.
    pub name: String,
    /// Kind of the offer.
    pub kind: Stored<OfferKind>,
    /// Definition, exact bytes.
    pub definition: String,
    /// Safe spelling of a prompt; `None` for other kinds, and if there is none.
    pub safe_name: Option<String>,
    /// Server that takes precedence for the same URI, so that this offer is not published; `None` if there is none.
    pub shadowed_by: Option<String>,
    /// Pin of the definition.
    pub pin: String,
    /// Pin of the approved definition; `None` if none was approved.
    pub approved_pin: Option<String>,
    /// Approved definition, exact bytes; `None` if none was approved, or it is not kept any more.
    pub approved_definition: Option<String>,
    /// True if a person has blocked the offer.
    pub is_blocked: bool,
    /// Id of the key that blocked it; `None` for the bootstrap key.
    pub blocked_by: Option<Uuid>,
}

impl OfferView {
    /// Returns the state of the definition against its pin.
    pub fn state(&self) -> PinState {
        PinState::of(&self.pin, self.approved_pin.as_deref(), self.is_blocked)
    }
}

/// Filter of a list of offers.
#[derive(Clone, Copy, Debug)]
pub struct OfferFilter<'a> {
    /// Kinds of the offers.
    pub kinds: &'a [OfferKind],
    /// True for those alone that wait for a decision of a person.
    pub is_waiting: bool,
}

/// Start of a page of offers: a kind and a name.
#[derive(Clone, Copy)]
enum PageStart<'a> {
    /// The page begins with this offer.
    At(&'a str, &'a str),
    /// The page begins with the offer after this one.
    After(&'a str, &'a str),
}

impl Store {
    /// Returns a server's offers that match the filter, by kind and name, after `after`. `bounds` are the most rows, and the
    /// bytes of definitions after which no further row begins.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn list_offers(
        &self,
        tenant: TenantId,
        server: ServerId,
        filter: OfferFilter<'_>,
        after: (&str, &str),
        bounds: (i64, i64),
    ) -> Result<Vec<OfferView>, StoreError> {
        self.select_offers(tenant, server, filter, PageStart::After(after.0, after.1), bounds).await
    }

    async fn select_offers(
        &self,
        tenant: TenantId,
        server: ServerId,
        filter: OfferFilter<'_>,
        from: PageStart<'_>,
        (limit, bytes_max): (i64, i64),
    ) -> Result<Vec<OfferView>, StoreError> {
        let (after_kind, after, is_included) = match from {
            PageStart::At(kind, name) => (kind, name, true),
            PageStart::After(kind, name) => (kind, name, false),
        };
        let kinds: Vec<&str> = filter.kinds.iter().map(|kind| kind.as_str()).collect();
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rows = sqlx::query_as(
            "select o.name, o.kind, o.definition, n.safe_name, o.pin, p.approved_pin, p.approved_definition,
                 p.blocked_at is not null as is_blocked, p.blocked_by, (
                 select s.name from offers f join servers s
                     on s.tenant_id = f.tenant_id and s.server_id = f.server_id and s.removed_at is null
                 left join offer_pins fp on fp.tenant_id = f.tenant_id and fp.server_id = f.server_id
                     and fp.kind = f.kind and fp.name = f.name
                 where f.tenant_id = o.tenant_id and f.kind = o.kind and f.name = o.name and o.kind <> 'prompt'
                     and (not s.baselined or fp.approved_pin is null, f.first_seen_at, f.server_id)
                       < (not own.baselined or p.approved_pin is null, o.first_seen_at, o.server_id)
                 order by not s.baselined or fp.approved_pin is null, f.first_seen_at, f.server_id limit 1) as shadowed_by
             from offers o join servers own
               on own.tenant_id = o.tenant_id and own.server_id = o.server_id
             left join offer_pins p
               on p.tenant_id = o.tenant_id and p.server_id = o.server_id and p.kind = o.kind and p.name = o.name
             left join prompt_names n
               on n.tenant_id = o.tenant_id and n.server_id = o.server_id and n.prompt = o.name and o.kind = 'prompt'
             where o.tenant_id = $1 and o.server_id = $2 and (o.kind, o.name) in (
               select kind, name from (
                 select kind, name, sum(bytes) over (order by kind, name) - bytes as before from (
                   select l.kind, l.name, octet_length(l.definition) as bytes from offers l
                   where l.tenant_id = $1 and l.server_id = $2 and l.kind = any($3)
                     and ((l.kind, l.name) > ($4, $5) or $8 and (l.kind, l.name) = ($4, $5))
                     and not ($9 and exists (
                         select from offer_pins d
                         where d.tenant_id = l.tenant_id and d.server_id = l.server_id and d.kind = l.kind and d.name = l.name
                           and (d.blocked_at is not null or d.approved_pin = l.pin)))
                   order by l.kind, l.name limit $6
                 ) sized
               ) summed where before < $7)
             order by o.kind, o.name",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(kinds)
        .bind(after_kind)
        .bind(after)
        .bind(limit)
        .bind(bytes_max)
        .bind(is_included)
        .bind(filter.is_waiting)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Returns one offer of a server, in whatever state.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server does not make the offer. Other errors come from the database.
    pub async fn get_offer(&self, tenant: TenantId, offer: OfferRef<'_>) -> Result<OfferView, StoreError> {
        let OfferRef { server, kind, name } = offer;
        let filter = OfferFilter { kinds: &[kind], is_waiting: false };
        let found = self
            .select_offers(tenant, server, filter, PageStart::At(kind.as_str(), name), (1, i64::MAX))
            .await?;
        found.into_iter().find(|found| found.name == name).ok_or(StoreError::NotFound)
    }
}

/// Returns all offers of the tenant's servers, the longest offered first. Blocked resources are included even if their
/// server does not list them any more: a template must not lead around a block.
pub(super) async fn load(tx: &mut Unit, tenant: TenantId) -> Result<Vec<StoredOffer>, StoreError> {
    let rows: Vec<OfferRow> = sqlx::query_as(
        "select o.server_id, o.kind, o.name, o.definition, o.digest, o.pin, o.first_seen_at, n.safe_name,
             p.approved_pin, p.blocked_at is not null as is_blocked, false as is_gone
         from offers o left join offer_pins p
           on p.tenant_id = o.tenant_id and p.server_id = o.server_id and p.kind = o.kind and p.name = o.name
         left join prompt_names n
           on n.tenant_id = o.tenant_id and n.server_id = o.server_id and n.prompt = o.name and o.kind = 'prompt'
         where o.tenant_id = $1
         union all
         select p.server_id, p.kind, p.name, '', '', '', p.blocked_at, null, null, true, true
         from offer_pins p
         where p.tenant_id = $1 and p.kind = 'resource' and p.blocked_at is not null and not exists (
             select from offers o where o.tenant_id = $1 and o.server_id = p.server_id
                 and o.kind = p.kind and o.name = p.name)
         order by first_seen_at, server_id",
    )
    .bind(tenant.0)
    .fetch_all(&mut **tx)
    .await?;
    rows.into_iter().map(StoredOffer::try_from).collect()
}

/// Sets the time since when a server offers things to now, at its release: earlier offers give no precedence.
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

/// Deletes all offers of a server and their approvals, when the server moves or is removed. Blocks stay.
pub(super) async fn remove_all(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    sqlx::query("delete from offers where tenant_id = $1 and server_id = $2")
        .bind(tenant.0)
        .bind(server.0)
        .execute(&mut **tx)
        .await?;
    offer_pins::clear(tx, tenant, server).await
}
