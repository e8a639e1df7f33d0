//! Pins of prompts, resources and templates: the definitions that were approved, and the blocks.
//!
//! A pin is a row of its own beside the offer: it outlives the offer, and the state follows from both rows. Releases that
//! do not know of pins write offers as before, and change no state by that.

use sqlx::FromRow;

use super::revisions::{self, RevisionKind};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, ServerId, TenantId};
use crate::domain::offer::OfferKind;

/// Most pins kept per server of offers that the server does not offer any more, the newest; blocks are always kept.
const GONE_PINS_MAX: i64 = 10_000;
/// Most bytes kept per server of approved definitions of such offers, the newest.
const GONE_TEXTS_BYTES_MAX: i64 = 1 << 20;

/// Bytes that definitions of offers take up: per offer the longer of the current and the approved one. The condition
/// goes on after `tenant_id = $1`.
macro_rules! offer_bytes {
    ($condition:literal) => {
        concat!(
            "(select coalesce(sum(greatest(octet_length(definition), octet_length(approved_definition))), 0)::bigint
              from offers left join offer_pins using (tenant_id, server_id, kind, name)
              where tenant_id = $1 ",
            $condition,
            ")"
        )
    };
}
pub(super) use offer_bytes;

/// Row of an offer and its pin, as far as a decision needs them.
#[derive(FromRow)]
struct Decided {
    pin: String,
    is_approved_once: bool,
    is_blocked: bool,
}

/// Offer of one server that a decision is about.
#[derive(Clone, Copy, Debug)]
pub struct OfferRef<'a> {
    /// Server of the offer.
    pub server: ServerId,
    /// Kind of the offer.
    pub kind: OfferKind,
    /// Name of a prompt, URI of a resource, text of a template.
    pub name: &'a str,
}

impl Store {
    /// Begins a decision about an offer: until it ends, no listing of the server and no other decision is stored.
    async fn decide_offer(
        &self,
        tenant: TenantId,
        OfferRef { server, kind, name }: OfferRef<'_>,
    ) -> Result<(Unit, i64, Decided), StoreError> {
        let (mut tx, rev) = self.begin_decision(tenant, server).await?;
        let found: Option<Decided> = sqlx::query_as(
            "select pin, approved_pin is not null as is_approved_once, blocked_at is not null as is_blocked
             from offers left join offer_pins using (tenant_id, server_id, kind, name)
             where tenant_id = $1 and server_id = $2 and kind = $3 and name = $4",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(kind.as_str())
        .bind(name)
        .fetch_optional(&mut *tx)
        .await?;
        Ok((tx, rev, found.ok_or(StoreError::NotFound)?))
    }

    /// Approves the current definition of an offer and lifts its block.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the current definition has another pin, [`StoreError::NotFound`] if the server does
    /// not make the offer. Other errors come from the database.
    pub async fn approve_offer(
        &self,
        tenant: TenantId,
        offer: OfferRef<'_>,
        pin: &str,
        by: Option<KeyId>,
    ) -> Result<(), StoreError> {
        let (mut tx, rev, found) = self.decide_offer(tenant, offer).await?;
        super::pins::expect_pin(&found.pin, pin)?;
        let names = (vec![offer.kind.as_str()], vec![offer.name]);
        if !found.is_approved_once {
            begin_anew(&mut tx, tenant, offer.server, &names).await?;
        }
        approve(&mut tx, (tenant, offer.server), &names, by, rev).await?;
        sqlx::query(
            "update offer_pins set blocked_at = null, blocked_by = null
             where tenant_id = $1 and server_id = $2 and kind = $3 and name = $4",
        )
        .bind(tenant.0)
        .bind(offer.server.0)
        .bind(offer.kind.as_str())
        .bind(offer.name)
        .execute(&mut *tx)
        .await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(drop)
    }

    /// Blocks an offer, whatever its definition is or becomes.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server does not make the offer. Other errors come from the database.
    pub async fn block_offer(
        &self,
        tenant: TenantId,
        offer: OfferRef<'_>,
        by: Option<KeyId>,
    ) -> Result<(), StoreError> {
        let (mut tx, rev, found) = self.decide_offer(tenant, offer).await?;
        if found.is_blocked {
            return Ok(());
        }
        sqlx::query(
            "insert into offer_pins (tenant_id, server_id, kind, name, blocked_at, blocked_by, rev)
             values ($1, $2, $3, $4, clock_timestamp(), $5, $6)
             on conflict (tenant_id, server_id, kind, name) do update set
                 blocked_at = excluded.blocked_at, blocked_by = excluded.blocked_by, rev = excluded.rev",
        )
        .bind(tenant.0)
        .bind(offer.server.0)
        .bind(offer.kind.as_str())
        .bind(offer.name)
        .bind(by.map(|key| key.0))
        .bind(rev)
        .execute(&mut *tx)
        .await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(drop)
    }

    /// Lifts the block of an offer. Nothing is approved by that.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server does not make the offer. Other errors come from the database.
    pub async fn unblock_offer(&self, tenant: TenantId, offer: OfferRef<'_>) -> Result<(), StoreError> {
        let (mut tx, rev, found) = self.decide_offer(tenant, offer).await?;
        if !found.is_blocked {
            return Ok(());
        }
        sqlx::query(
            "update offer_pins set blocked_at = null, blocked_by = null, rev = $5
             where tenant_id = $1 and server_id = $2 and kind = $3 and name = $4",
        )
        .bind(tenant.0)
        .bind(offer.server.0)
        .bind(offer.kind.as_str())
        .bind(offer.name)
        .bind(rev)
        .execute(&mut *tx)
        .await?;
        revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(drop)
    }
}

/// Approves the current definitions of these offers, given as kinds and names. Blocks stay.
pub(super) async fn approve(
    tx: &mut Unit,
    (tenant, server): (TenantId, ServerId),
    (kinds, names): &(Vec<&str>, Vec<&str>),
    by: Option<KeyId>,
    rev: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into offer_pins (tenant_id, server_id, kind, name, approved_pin, approved_definition, approved_by, rev)
         select tenant_id, server_id, kind, name, pin, definition, $5, $6
         from offers join unnest($3::text[], $4::text[]) as f (kind, name) using (kind, name)
         where tenant_id = $1 and server_id = $2
         on conflict (tenant_id, server_id, kind, name) do update set
             approved_pin = excluded.approved_pin, approved_definition = excluded.approved_definition,
             approved_by = excluded.approved_by, rev = excluded.rev",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(kinds)
    .bind(names)
    .bind(by.map(|key| key.0))
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Sets `first_seen_at` of these offers to now: an offer without any approval took no precedence for its URI before.
pub(super) async fn begin_anew(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    (kinds, names): &(Vec<&str>, Vec<&str>),
) -> Result<(), StoreError> {
    sqlx::query(
        "update offers set first_seen_at = clock_timestamp() where tenant_id = $1 and server_id = $2
             and (kind, name) in (select kind, name from unnest($3::text[], $4::text[]) as f (kind, name))",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(kinds)
    .bind(names)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Notes that these are offered no longer, and forgets the oldest pins of such offers above the bounds.
pub(super) async fn gone(
    tx: &mut Unit,
    (tenant, server): (TenantId, ServerId),
    (kinds, names): &(Vec<&str>, Vec<&str>),
    rev: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "update offer_pins set rev = $5 where tenant_id = $1 and server_id = $2
             and (kind, name) in (select kind, name from unnest($3::text[], $4::text[]) as f (kind, name))",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(kinds)
    .bind(names)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    // Postgres has no statistics on rows that this transaction wrote; hashed subqueries need none
    sqlx::query(
        "delete from offer_pins where tenant_id = $1 and server_id = $2 and ctid = any (array(
             select ctid from offer_pins
             where tenant_id = $1 and server_id = $2 and blocked_at is null and (kind, name) not in (
                 select kind, name from offers where tenant_id = $1 and server_id = $2)
             order by rev desc, kind, name offset $3))",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(GONE_PINS_MAX)
    .execute(&mut **tx)
    .await?;
    sqlx::query(
        "update offer_pins set approved_definition = null
         where tenant_id = $1 and server_id = $2 and ctid = any (array(
             select ctid from (
                 select ctid, sum(octet_length(approved_definition)) over (order by rev desc, kind, name) as bytes
                 from offer_pins
                 where tenant_id = $1 and server_id = $2 and approved_definition is not null
                     and (kind, name) not in (
                         select kind, name from offers where tenant_id = $1 and server_id = $2)) gone
             where bytes > $3))",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(GONE_TEXTS_BYTES_MAX)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Deletes all approvals of a server that moved or was removed; blocks stay, and its next listings set the baseline.
pub(super) async fn clear(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    sqlx::query("delete from offer_pins where tenant_id = $1 and server_id = $2 and blocked_at is null")
        .bind(tenant.0)
        .bind(server.0)
        .execute(&mut **tx)
        .await?;
    sqlx::query(
        "update offer_pins set approved_pin = null, approved_definition = null, approved_by = null
         where tenant_id = $1 and server_id = $2",
    )
    .bind(tenant.0)
    .bind(server.0)
    .execute(&mut **tx)
    .await?;
    sqlx::query("update servers set offers_baselined = '{}' where tenant_id = $1 and server_id = $2")
        .bind(tenant.0)
        .bind(server.0)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
