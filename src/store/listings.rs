//! Listings: definitions that discovery found, stored and compared with the approved ones.

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
use super::{Store, StoreError, Stored, quotas};
use crate::domain::damping::{self, Damping, Return};
use crate::domain::drift::Drift;
use crate::domain::era::Era;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::offer::OfferKind;
use crate::domain::quota::{self, Quotas, Room};
use crate::domain::server::ConnectionState;

/// A tool, prompt, resource or template of a listing.
#[derive(Clone, Debug)]
pub struct Discovered {
    /// Name of a tool or prompt, URI of a resource, text of a template.
    pub name: String,
    /// Definition, exact bytes.
    pub definition: String,
    /// Digest of the definition.
    pub pin: String,
}

/// Result of a listing of a server, to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewListing<'a> {
    /// Version of the server's row that was read before the server was asked.
    pub version: i64,
    /// Tally that was read before the server was asked.
    pub tally: Tally,
    /// Protocol era that the server speaks.
    pub era: Era,
    /// Tools that the server offers.
    pub found: &'a [Discovered],
    /// Prompts, resources and templates of the server, as far as they are known without asking.
    pub offers: NewOffers<'a>,
    /// Permission under which the listing is stored.
    pub right: Right,
}

/// Changes that a listing made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// New revision; `None` if nothing visible changed.
    pub rev: Option<i64>,
    /// Number of tools that were written.
    pub written: usize,
    /// Number of tools that disappeared.
    pub removed: usize,
    /// Number of prompts, resources and templates that changed.
    pub offers: usize,
    /// Tools whose hints got worse than the trusted ones, unless they were flagged before.
    pub drifted: Vec<(String, Drift)>,
    /// True if the server is connected. A server that comes and goes is held back, and stays disconnected.
    pub is_connected: bool,
    /// True if nothing was written: another listing of the tools was stored meanwhile and may be newer.
    pub is_overtaken: bool,
    /// Kinds of offers that were not written: another listing of them was stored meanwhile and may be newer.
    pub overtaken: Vec<OfferKind>,
    /// Time for which the server, or some of its tools, are still held back; `None` if nothing is.
    pub held: Option<Duration>,
    /// Remark on tools that are held back, or left out for lack of quota; `None` if there are none. The server's
    /// `last_error` holds it too.
    pub remark: Option<String>,
}

/// Values that a listing writes into the server's row.
struct Noted<'a> {
    era: Option<&'a str>,
    connection: ConnectionState,
    remark: Option<&'a str>,
    sets_baseline: bool,
    damping: Damping,
    /// New revision; `None` if nothing visible changed.
    rev: Option<i64>,
}

impl Store {
    /// Stores a listing (behaviour, section 6: pins, damping). Equal pins change nothing, and a listing that changes
    /// nothing makes no revision. Lists that another listing has stored since the tally was read are left as they are.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the server is not at `version` any more, or its row was written since its program
    /// was asked. [`StoreError::LostLease`] if the lease has moved. Nothing is written then. Other errors come from the
    /// database.
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
            let is_connected = state.connection == ConnectionState::Connected;
            return Ok(Applied { is_connected, is_overtaken: true, ..Applied::default() });
        }
        let overtaken = state.tally.newer_of(&offers, &tally);
        let offers = offers.without(&overtaken);
        // a listing that a person asks for resets the damping
        let damps = right != Right::Asked;
        let mut damping = if damps { state.damping() } else { Damping::default() };
        let was_away = state.connection == ConnectionState::Disconnected;
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
            // other listings of the tenant wait from here on: together they must keep to the quotas
            revisions::lock(&mut tx, tenant, RevisionKind::Catalogue).await?;
            let quotas = quotas::of(&mut tx, tenant, deployment).await?;
            plan.fit(&known, found, room(&mut tx, tenant, server, &quotas).await?);
            left_out = quota::left_out(&plan.left_out, &quotas);
        }
        let returning = plan.returning(&known);
        let mut held = None;
        // tools of a server that returns have come back with it
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
            || state.connection != ConnectionState::Connected
            || state.era != Some(era.into())
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
        let (connection, remark) = (ConnectionState::Connected, applied.remark.as_deref());
        let (sets_baseline, rev) = (plan.sets_baseline, applied.rev);
        let noted = Noted { era: Some(era.as_str()), connection, remark, sets_baseline, damping, rev };
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

/// Locks the server's row, which serializes listings of one server and keeps the row as it was compared.
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

/// Keeps a server disconnected that comes and goes; its offers are compared once it is let in.
async fn hold_server(
    mut tx: Unit,
    (tenant, server): (TenantId, ServerId),
    state: &ListedServer,
    damping: Damping,
    until: DateTime<Utc>,
) -> Result<Applied, StoreError> {
    let remark = damping::server_note(until);
    let noted = Noted {
        era: state.era.as_ref().map(Stored::as_str),
        connection: ConnectionState::Disconnected,
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
        "update servers set era = $3, connection = $4, last_ok_at = now(), last_error = $5, wants_login = false,
             baselined = baselined or $6, rev = coalesce($7, rev),
             offers_baselined = case when $6 then '{}' else offers_baselined end,
             returned_at = $8, returned_before = $9, holds = $10, held_until = $11,
             tools_listings = tools_listings + 1
         where tenant_id = $1 and server_id = $2",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(noted.era)
    .bind(noted.connection.as_str())
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

/// Returns the quota that is left for a server's tools, beside the offers of the tenant's other servers.
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
             -- an approval of the same definition, and its return, are no change of it
             changed_at = case when tools.pin = excluded.pin then tools.changed_at else now() end,
             removed_at = null, rev = excluded.rev",
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
