//! Listings: what discovery found, stored against what was approved.

mod drifts;
mod found;
mod offers;
mod pinning;
mod plan;
mod right;
mod signs;
mod spelling;
mod tally;

pub use self::found::{FoundOffers, NewOffers};
pub use self::offers::AppliedOffers;
pub use self::right::Right;
pub use self::signs::FailureNoted;
pub use self::tally::{Before, Tally};

use std::time::Duration;

use chrono::{DateTime, Utc};

use self::offers::OffersPlan;
use self::plan::{Known, ListedServer, Plan};
use self::spelling::assign_names;
use super::offer_pins::offer_bytes;
use super::revisions::{self, RevisionKind};
use super::tools::{self, stored_bytes};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError, quotas};
use crate::domain::damping::{self, Damping, Return};
use crate::domain::drift::Drift;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::offer::OfferKind;
use crate::domain::quota::{self, Quotas, Room};

/// One tool of a listing.
#[derive(Clone, Debug)]
pub struct Discovered {
    /// Its own name.
    pub name: String,
    /// Exact bytes.
    pub definition: String,
    /// Digest of them.
    pub pin: String,
}

/// What a server was found to offer.
#[derive(Clone, Copy, Debug)]
pub struct NewListing<'a> {
    /// The version of its row that was read before it was asked.
    pub version: i64,
    /// The tally that was read before it was asked.
    pub tally: Tally,
    /// The era it speaks.
    pub era: &'a str,
    /// Its tools.
    pub found: &'a [Discovered],
    /// What it offers besides, where that is known without asking.
    pub offers: NewOffers<'a>,
    /// By what right it is stored.
    pub right: Right,
}

/// What a listing changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The new revision; `None` when nothing that anybody could see changed.
    pub rev: Option<i64>,
    /// Tools that were written.
    pub written: usize,
    /// Tools that disappeared.
    pub removed: usize,
    /// Prompts, resources and templates that are other than before.
    pub offers: usize,
    /// Tools whose hints got worse than what was trusted, if that was not known yet.
    pub drifted: Vec<(String, Drift)>,
    /// Whether the server is connected; if not, it is held back, since it comes and goes.
    pub is_connected: bool,
    /// Nothing was written: somebody else has listed the tools meanwhile, and may have read them later.
    pub is_overtaken: bool,
    /// Of these nothing was written, for the same reason.
    pub overtaken: Vec<OfferKind>,
    /// For how long the server, or tools of it, are still held back.
    pub held: Option<Duration>,
    /// What of it is not shown and why: held back, or left out for want of quota. It stands in the server's
    /// `last_error`.
    pub remark: Option<String>,
}

/// What is noted at the server itself.
struct Noted<'a> {
    era: Option<&'a str>,
    connection: &'static str,
    remark: Option<&'a str>,
    sets_baseline: bool,
    damping: Damping,
    /// Only with something that can be seen.
    rev: Option<i64>,
}

impl Store {
    /// Stores a listing (behaviour, section 6: pins, damping). Equal pins change nothing; a listing that changes
    /// nothing makes no revision. Whoever lists must have read the server at `version`: a listing of an
    /// address that was changed meanwhile is dropped as a conflict. What was listed by somebody else since the tally was
    /// read is left as it is.
    ///
    /// # Errors
    /// [`StoreError::LostLease`] for who looks after servers no more: nothing is written.
    pub async fn apply_listing(
        &self,
        tenant: TenantId,
        server: ServerId,
        listing: &NewListing<'_>,
        deployment: &Quotas,
    ) -> Result<Applied, StoreError> {
        let NewListing { version, tally, era, found, offers, right } = *listing;
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        let state = lock(&mut tx, tenant, server, version).await?;
        right.check(&mut tx, state.rev).await?;
        if state.tally.has_newer_tools(&tally) {
            tx.rollback().await?;
            let is_connected = state.connection == "connected";
            return Ok(Applied { is_connected, is_overtaken: true, ..Applied::default() });
        }
        let overtaken = state.tally.newer_of(&offers, &tally);
        let offers = offers.without(&overtaken);
        // whoever asks for a listing begins anew
        let damps = right != Right::Asked;
        let mut damping = if damps { state.damping() } else { Damping::default() };
        let was_away = state.connection == "disconnected";
        if damps
            && was_away
            && let Return::HeldUntil(until) = damping.comes_back(state.now)
        {
            return hold_server(tx, (tenant, server), &state, damping, until).await;
        }
        let known = known(&mut tx, tenant, server).await?;
        let mut plan = Plan::make(&state, &known, found);
        let mut left_out = None;
        if !plan.write.is_empty() {
            // other listings of the tenant wait from here on: together they must not take more than there is
            revisions::lock(&mut tx, tenant, RevisionKind::Catalogue).await?;
            let quotas = quotas::of(&mut tx, tenant, deployment).await?;
            plan.fit(&known, found, room(&mut tx, tenant, server, &quotas).await?);
            left_out = quota::left_out(&plan.left_out, &quotas);
        }
        let returning = plan.returning(&known);
        let mut held = None;
        // those that come with the server have come back with it
        if damps
            && !was_away
            && !returning.is_empty()
            && let Return::HeldUntil(until) = damping.comes_back(state.now)
        {
            held = Some((damping::tools_note(until, &returning), state.until(until)));
            plan.hold(&returning);
        }
        let bytes = found.iter().map(|tool| i64::try_from(tool.definition.len()).unwrap_or(i64::MAX));
        let own_tools = bytes.fold(0, i64::saturating_add);
        let pinning = state.pinning(plan.sets_baseline);
        let others =
            OffersPlan::make(&mut tx, (tenant, server), (&offers, &pinning), own_tools, deployment).await?;
        let remark = [left_out, held.as_ref().map(|(note, _)| note.clone())];
        let remark = Some(remark.into_iter().flatten().collect::<Vec<_>>().join("; "));
        let mut applied = Applied {
            written: plan.write.len(),
            removed: plan.remove.len(),
            offers: others.changes(),
            drifted: Vec::new(),
            is_connected: true,
            is_overtaken: false,
            overtaken,
            held: held.map(|(_, left)| left),
            remark: remark.filter(|text| !text.is_empty()),
            rev: None,
        };
        let visible = !plan.write.is_empty()
            || !plan.remove.is_empty()
            || state.connection != "connected"
            || state.era.as_deref() != Some(era)
            || plan.sets_baseline
            || others.changes() > 0;
        if visible {
            let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
            applied.drifted = drifts::find(&mut tx, tenant, server, &plan).await?;
            write_tools(&mut tx, tenant, server, &plan, rev).await?;
            drifts::note(&mut tx, tenant, server, &applied.drifted).await?;
            assign_names(&mut tx, tenant, server, &plan).await?;
            remove_tools(&mut tx, tenant, server, &plan.remove, rev).await?;
            others.apply(&mut tx, tenant, server, rev).await?;
            if plan.sets_baseline {
                super::offers::begin_anew(&mut tx, tenant, server).await?;
            }
            applied.rev = Some(rev);
        }
        let (connection, remark) = ("connected", applied.remark.as_deref());
        let (sets_baseline, rev) = (plan.sets_baseline, applied.rev);
        let noted = Noted { era: Some(era), connection, remark, sets_baseline, damping, rev };
        note(&mut tx, tenant, server, &noted).await?;
        if !offers.is_empty() {
            let faults = others.faults(&offers);
            offers::note(&mut tx, (tenant, server), (&offers, &pinning), &faults, None).await?;
        }
        match applied.rev {
            Some(rev) => revisions::commit(tx, tenant, RevisionKind::Catalogue, rev).await.map(drop)?,
            None => tx.commit().await?,
        }
        Ok(applied)
    }
}

/// Serialises listings of one server, so that what is compared with its row stays.
async fn lock(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    version: i64,
) -> Result<ListedServer, StoreError> {
    let state: Option<ListedServer> = sqlx::query_as(
        "select quarantined, auto_approve, baselined, offers_baselined, connection, era, rev, returned_at, returned_before,
             holds, held_until, clock_timestamp() as now,
             tools_listings, prompts_listings, resources_listings, templates_listings from servers
         where tenant_id = $1 and server_id = $2 and removed_at is null and version = $3 for update",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(version)
    .fetch_optional(&mut **tx)
    .await?;
    state.ok_or(StoreError::Conflict("the server changed while it was being listed"))
}

async fn known(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<Vec<Known>, StoreError> {
    let known = sqlx::query_as(
        "select name, pin, state, approved_pin, removed_at is not null as removed,
             coalesce(octet_length(approved_definition), 0) as approved_bytes from tools
         where tenant_id = $1 and server_id = $2",
    )
    .bind(tenant.0)
    .bind(server.0)
    .fetch_all(&mut **tx)
    .await?;
    Ok(known)
}

/// A server that comes and goes stays away: what it offers is looked at when it is let in.
async fn hold_server(
    mut tx: Unit,
    (tenant, server): (TenantId, ServerId),
    state: &ListedServer,
    damping: Damping,
    until: DateTime<Utc>,
) -> Result<Applied, StoreError> {
    let remark = damping::server_note(until);
    let noted = Noted {
        era: state.era.as_deref(),
        connection: "disconnected",
        remark: Some(&remark),
        sets_baseline: false,
        damping,
        rev: None,
    };
    note(&mut tx, tenant, server, &noted).await?;
    tx.commit().await?;
    Ok(Applied { held: Some(state.until(until)), remark: Some(remark), ..Applied::default() })
}

async fn note(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    noted: &Noted<'_>,
) -> Result<(), StoreError> {
    sqlx::query(
        "update servers set era = $3, connection = $4, last_ok_at = now(), last_error = $5,
             baselined = baselined or $6, rev = coalesce($7, rev),
             offers_baselined = case when $6 then '{}' else offers_baselined end,
             returned_at = $8, returned_before = $9, holds = $10, held_until = $11,
             tools_listings = tools_listings + 1
         where tenant_id = $1 and server_id = $2",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(noted.era)
    .bind(noted.connection)
    .bind(noted.remark)
    .bind(noted.sets_baseline)
    .bind(noted.rev)
    .bind(noted.damping.returned_at)
    .bind(noted.damping.returned_before)
    .bind(i32::try_from(noted.damping.holds).unwrap_or(i32::MAX))
    .bind(noted.damping.held_until)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// What is left for a server's tools, beside what the tenant's other servers offer.
async fn room(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    quotas: &Quotas,
) -> Result<Room, StoreError> {
    let (tools, bytes): (i64, i64) = sqlx::query_as(concat!(
        "select count(*), ",
        stored_bytes!(),
        " + ",
        offer_bytes!("and server_id <> $2"),
        " from tools where tenant_id = $1 and server_id <> $2 and removed_at is null"
    ))
    .bind(tenant.0)
    .bind(server.0)
    .fetch_one(&mut **tx)
    .await?;
    Ok(Room::beside(quotas, tools, bytes))
}

async fn write_tools(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    plan: &Plan<'_>,
    rev: i64,
) -> Result<(), StoreError> {
    let column =
        |pick: fn(&Discovered) -> &str| plan.write.iter().map(|(tool, _)| pick(tool)).collect::<Vec<_>>();
    let states: Vec<&str> = plan.write.iter().map(|(_, state)| state.as_str()).collect();
    sqlx::query(
        "insert into tools (tenant_id, server_id, name, definition, pin, state, approved_pin, approved_definition, rev)
         select $1, $2, name, definition, pin, state,
                case when state = 'approved' then pin end,
                case when state = 'approved' then definition end, $7
         from unnest($3::text[], $4::text[], $5::text[], $6::text[]) as f (name, definition, pin, state)
         on conflict (tenant_id, server_id, name) do update set
             definition = excluded.definition, pin = excluded.pin, state = excluded.state,
             approved_pin = coalesce(excluded.approved_pin, tools.approved_pin),
             approved_definition = coalesce(excluded.approved_definition, tools.approved_definition),
             changed_at = now(), removed_at = null, rev = excluded.rev",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(column(|tool| &tool.name))
    .bind(column(|tool| &tool.definition))
    .bind(column(|tool| &tool.pin))
    .bind(states)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

async fn remove_tools(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    names: &[&str],
    rev: i64,
) -> Result<(), StoreError> {
    if names.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "update tools set removed_at = now(), definition = '', rev = $4
         where tenant_id = $1 and server_id = $2 and name = any($3)",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(names)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    tools::forget_texts(tx, tenant, server).await
}
