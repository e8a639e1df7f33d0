//! Listings: what discovery found, stored against what was approved.

mod plan;
mod spelling;

use self::plan::{Known, Plan, ServerState};
use self::spelling::assign_names;
use super::revisions::{self, Kind};
use super::tools::{self, stored_bytes};
use super::tx::{Access, Lane};
use super::unit::Unit;
use super::{Store, StoreError, quotas};
use crate::domain::id::{ServerId, TenantId};
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
    /// The era it speaks.
    pub era: &'a str,
    /// Its tools.
    pub found: &'a [Discovered],
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
    /// Which tools were left out for want of quota; it stands in the server's `last_error`.
    pub left_out: Option<String>,
}

impl Store {
    /// Stores a listing (behaviour, section 6: pins). Equal pins change nothing; a listing that changes
    /// nothing makes no revision. Whoever lists must have read the server at `version`: a listing of an
    /// address that was changed meanwhile is dropped as a conflict.
    pub async fn apply_listing(
        &self,
        tenant: TenantId,
        server: ServerId,
        listing: &NewListing<'_>,
        deployment: &Quotas,
    ) -> Result<Applied, StoreError> {
        let NewListing { version, era, found } = *listing;
        let mut tx = self.begin(Lane::Upkeep, Access::Tenant(tenant)).await?;
        // serialises listings of one server, so that what is compared below stays
        let state: Option<ServerState> = sqlx::query_as(
            "select quarantined, auto_approve, baselined, connection, era from servers
             where tenant_id = $1 and server_id = $2 and removed_at is null and version = $3 for update",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(version)
        .fetch_optional(&mut *tx)
        .await?;
        let state = state.ok_or(StoreError::Conflict("the server changed while it was being listed"))?;
        let known: Vec<Known> = sqlx::query_as(
            "select name, pin, state, approved_pin, removed_at is not null as removed,
                 coalesce(octet_length(approved_definition), 0) as approved_bytes from tools
             where tenant_id = $1 and server_id = $2",
        )
        .bind(tenant.0)
        .bind(server.0)
        .fetch_all(&mut *tx)
        .await?;
        let mut plan = Plan::make(&state, &known, found);
        let mut left_out = None;
        if !plan.write.is_empty() {
            // other listings of the tenant wait from here on: together they must not take more than there is
            revisions::lock(&mut tx, tenant, Kind::Catalogue).await?;
            let quotas = quotas::of(&mut tx, tenant, deployment).await?;
            plan.fit(&known, found, room(&mut tx, tenant, server, &quotas).await?);
            left_out = quota::left_out(&plan.left_out, &quotas);
        }
        let visible = !plan.write.is_empty()
            || !plan.remove.is_empty()
            || state.connection != "connected"
            || state.era.as_deref() != Some(era)
            || plan.sets_baseline;
        if !visible {
            touch(&mut tx, tenant, server, left_out.as_deref()).await?;
            tx.commit().await?;
            return Ok(Applied { left_out, ..Applied::default() });
        }
        let rev = revisions::bump(&mut tx, tenant, Kind::Catalogue).await?;
        write_tools(&mut tx, tenant, server, &plan, rev).await?;
        assign_names(&mut tx, tenant, server, &plan).await?;
        remove_tools(&mut tx, tenant, server, &plan.remove, rev).await?;
        sqlx::query(
            "update servers set era = $3, connection = 'connected', last_ok_at = now(), last_error = $6,
                 baselined = baselined or $4, rev = $5
             where tenant_id = $1 and server_id = $2",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(era)
        .bind(plan.sets_baseline)
        .bind(rev)
        .bind(&left_out)
        .execute(&mut *tx)
        .await?;
        let (written, removed) = (plan.write.len(), plan.remove.len());
        let applied = Applied { rev: Some(rev), written, removed, left_out };
        revisions::commit(tx, tenant, Kind::Catalogue, rev).await?;
        Ok(applied)
    }

    /// Notes that a connected server, as of `version`, has given a sign of life. False if it is not (any more)
    /// connected at that version: only a listing can tell what it offers now, and what of that has no room.
    pub async fn server_answered(
        &self,
        tenant: TenantId,
        server: ServerId,
        version: i64,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, Access::Tenant(tenant)).await?;
        let noted = sqlx::query(
            "update servers set last_ok_at = now()
             where tenant_id = $1 and server_id = $2 and version = $3 and connection = 'connected'
               and enabled and removed_at is null",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(version)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(noted.rows_affected() > 0)
    }
}

/// What is left for a server's tools, beside those of the tenant's other servers.
async fn room(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    quotas: &Quotas,
) -> Result<Room, StoreError> {
    let (tools, bytes): (i64, i64) = sqlx::query_as(concat!(
        "select count(*), ",
        stored_bytes!(),
        " from tools where tenant_id = $1 and server_id <> $2 and removed_at is null"
    ))
    .bind(tenant.0)
    .bind(server.0)
    .fetch_one(&mut **tx)
    .await?;
    Ok(Room::beside(quotas, tools, bytes))
}

async fn touch(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    left_out: Option<&str>,
) -> Result<(), StoreError> {
    sqlx::query(
        "update servers set last_ok_at = now(), last_error = $3 where tenant_id = $1 and server_id = $2",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(left_out)
    .execute(&mut **tx)
    .await?;
    Ok(())
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
