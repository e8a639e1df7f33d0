//! Tools: what discovery found, against what was approved.

use std::collections::{HashMap, HashSet};

use sqlx::FromRow;
use uuid::Uuid;

use super::revisions::{self, Kind};
use super::tx::{Access, Lane};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, ServerId, TenantId};
use crate::domain::names;
use crate::domain::tool::PinState;

/// A tool as stored.
#[derive(Clone, Debug)]
pub struct StoredTool {
    /// Its server.
    pub server: ServerId,
    /// Its own name.
    pub name: String,
    /// The definition as last discovered: exact bytes.
    pub definition: String,
    /// Digest of that definition.
    pub pin: String,
    /// Against the approved pin.
    pub state: PinState,
    /// The pin that was approved.
    pub approved_pin: Option<String>,
    /// The definition that was approved.
    pub approved_definition: Option<String>,
    /// The safe spelling.
    pub safe_name: Option<String>,
}

#[derive(FromRow)]
pub(super) struct ToolRow {
    server_id: Uuid,
    name: String,
    definition: String,
    pin: String,
    state: String,
    approved_pin: Option<String>,
    approved_definition: Option<String>,
    safe_name: Option<String>,
}

impl TryFrom<ToolRow> for StoredTool {
    type Error = StoreError;

    fn try_from(row: ToolRow) -> Result<StoredTool, StoreError> {
        let Some(state) = PinState::parse(&row.state) else {
            return Err(StoreError::Inconsistent { table: "tools", column: "state", value: row.state });
        };
        Ok(StoredTool {
            server: ServerId(row.server_id),
            name: row.name,
            definition: row.definition,
            pin: row.pin,
            state,
            approved_pin: row.approved_pin,
            approved_definition: row.approved_definition,
            safe_name: row.safe_name,
        })
    }
}

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

/// What a listing changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The new revision; `None` when nothing that anybody could see changed.
    pub rev: Option<i64>,
    /// Tools that were written.
    pub written: usize,
    /// Tools that disappeared.
    pub removed: usize,
}

/// The stored side of one tool, as far as a listing needs it.
#[derive(FromRow)]
struct Known {
    name: String,
    pin: String,
    state: String,
    approved_pin: Option<String>,
    removed: bool,
}

#[derive(FromRow)]
struct ServerState {
    quarantined: bool,
    auto_approve: bool,
    baselined: bool,
    connection: String,
    era: Option<String>,
}

impl Store {
    /// Stores a listing (behaviour, section 6: pins). Equal pins change nothing; a listing that changes
    /// nothing makes no revision. Whoever lists must have read the server at `version`: a listing of an
    /// address that was changed meanwhile is dropped as a conflict.
    pub async fn apply_listing(
        &self,
        tenant: TenantId,
        server: ServerId,
        version: i64,
        era: &str,
        found: &[Discovered],
    ) -> Result<Applied, StoreError> {
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
            "select name, pin, state, approved_pin, removed_at is not null as removed from tools
             where tenant_id = $1 and server_id = $2",
        )
        .bind(tenant.0)
        .bind(server.0)
        .fetch_all(&mut *tx)
        .await?;
        let plan = Plan::make(&state, &known, found);
        let visible = !plan.write.is_empty()
            || !plan.remove.is_empty()
            || state.connection != "connected"
            || state.era.as_deref() != Some(era)
            || plan.sets_baseline;
        if !visible {
            touch(&mut tx, tenant, server).await?;
            tx.commit().await?;
            return Ok(Applied::default());
        }
        let rev = revisions::bump(&mut tx, tenant, Kind::Catalogue).await?;
        write_tools(&mut tx, tenant, server, &plan, rev).await?;
        assign_names(&mut tx, tenant, server, &plan).await?;
        remove_tools(&mut tx, tenant, server, &plan.remove, rev).await?;
        sqlx::query(
            "update servers set era = $3, connection = 'connected', last_ok_at = now(), last_error = null,
                 baselined = baselined or $4, rev = $5
             where tenant_id = $1 and server_id = $2",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(era)
        .bind(plan.sets_baseline)
        .bind(rev)
        .execute(&mut *tx)
        .await?;
        let applied = Applied { rev: Some(rev), written: plan.write.len(), removed: plan.remove.len() };
        revisions::commit(tx, tenant, Kind::Catalogue, rev).await?;
        Ok(applied)
    }

    /// Notes that a connected server, as of `version`, has given a sign of life. False if it is not (any more)
    /// connected at that version: only a listing can tell what it offers now.
    pub async fn server_answered(
        &self,
        tenant: TenantId,
        server: ServerId,
        version: i64,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, Access::Tenant(tenant)).await?;
        let noted = sqlx::query(
            "update servers set last_ok_at = now(), last_error = null
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

    /// Approves a tool's current definition, if it still is the one that was reviewed.
    pub async fn approve_tool(
        &self,
        tenant: TenantId,
        server: ServerId,
        tool: &str,
        pin: &str,
        by: Option<KeyId>,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, Access::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, Kind::Catalogue).await?;
        let current: Option<String> = sqlx::query_scalar(
            "select pin from tools where tenant_id = $1 and server_id = $2 and name = $3 and removed_at is null",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(tool)
        .fetch_optional(&mut *tx)
        .await?;
        if current.ok_or(StoreError::NotFound)? != pin {
            return Err(StoreError::Conflict("the definition is not the one with this pin any more"));
        }
        sqlx::query(
            "update tools set state = 'approved', approved_pin = pin, approved_definition = definition,
                 approved_by = $4, rev = $5
             where tenant_id = $1 and server_id = $2 and name = $3",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(tool)
        .bind(by.map(|key| key.0))
        .bind(rev)
        .execute(&mut *tx)
        .await?;
        revisions::commit(tx, tenant, Kind::Catalogue, rev).await.map(drop)
    }

    /// A server's present tools by name, after `after`.
    pub async fn list_tools(
        &self,
        tenant: TenantId,
        server: ServerId,
        after: &str,
        limit: i64,
    ) -> Result<Vec<StoredTool>, StoreError> {
        let mut tx = self.begin(Lane::Control, Access::Tenant(tenant)).await?;
        let rows: Vec<ToolRow> = sqlx::query_as(
            "select t.server_id, t.name, t.definition, t.pin, t.state, t.approved_pin, t.approved_definition,
                    n.safe_name
             from tools t left join tool_names n
               on n.tenant_id = t.tenant_id and n.server_id = t.server_id and n.tool = t.name
             where t.tenant_id = $1 and t.server_id = $2 and t.removed_at is null and t.name > $3
             order by t.name limit $4",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(after)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        rows.into_iter().map(StoredTool::try_from).collect()
    }
}

/// Most tool names ever remembered of one server, disappeared ones included.
const NAMES_MAX: usize = 50_000;

/// What a listing writes.
struct Plan<'a> {
    write: Vec<(&'a Discovered, PinState)>,
    remove: Vec<&'a str>,
    sets_baseline: bool,
}

impl<'a> Plan<'a> {
    fn make(server: &ServerState, known: &'a [Known], found: &'a [Discovered]) -> Plan<'a> {
        let by_name: HashMap<&str, &Known> = known.iter().map(|tool| (tool.name.as_str(), tool)).collect();
        let sets_baseline = !server.quarantined && !server.baselined;
        let take = sets_baseline || (server.auto_approve && !server.quarantined);
        let mut room = NAMES_MAX.saturating_sub(known.len());
        let write = found
            .iter()
            .filter_map(|tool| {
                let known = by_name.get(tool.name.as_str()).copied();
                if known.is_none() {
                    // a server that invents names for ever fills its own room only
                    room = room.checked_sub(1)?;
                }
                let state = next_state(known, tool, take);
                let same =
                    known.is_some_and(|k| !k.removed && k.pin == tool.pin && k.state == state.as_str());
                (!same).then_some((tool, state))
            })
            .collect();
        let names: HashSet<&str> = found.iter().map(|tool| tool.name.as_str()).collect();
        let remove = known
            .iter()
            .filter(|tool| !tool.removed && !names.contains(tool.name.as_str()))
            .map(|tool| tool.name.as_str())
            .collect();
        Plan { write, remove, sets_baseline }
    }
}

/// The state of a discovered definition. A block stays; what equals the approved pin is approved; a
/// baseline or automatic approval takes the rest; otherwise it is changed, or pending when nothing ever was
/// approved under that name.
fn next_state(known: Option<&Known>, tool: &Discovered, take: bool) -> PinState {
    let approved = known.and_then(|k| k.approved_pin.as_deref());
    match known.and_then(|k| PinState::parse(&k.state)) {
        Some(PinState::Blocked) => PinState::Blocked,
        _ if approved == Some(tool.pin.as_str()) || take => PinState::Approved,
        _ if approved.is_some() => PinState::Changed,
        _ => PinState::Pending,
    }
}

async fn touch(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    sqlx::query(
        "update servers set last_ok_at = now(), last_error = null where tenant_id = $1 and server_id = $2",
    )
    .bind(tenant.0)
    .bind(server.0)
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

/// Gives every new tool its safe spelling. The revision's row lock keeps other listings of the tenant out.
async fn assign_names(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    plan: &Plan<'_>,
) -> Result<(), StoreError> {
    let name: String = sqlx::query_scalar("select name from servers where tenant_id = $1 and server_id = $2")
        .bind(tenant.0)
        .bind(server.0)
        .fetch_one(&mut **tx)
        .await?;
    let taken: Vec<(String, Uuid, String)> =
        sqlx::query_as("select safe_name, server_id, tool from tool_names where tenant_id = $1")
            .bind(tenant.0)
            .fetch_all(&mut **tx)
            .await?;
    let named: HashSet<&str> =
        taken.iter().filter(|(_, id, _)| *id == server.0).map(|(_, _, tool)| tool.as_str()).collect();
    let mut used: HashSet<String> = taken.iter().map(|(safe, _, _)| safe.clone()).collect();
    let mut rows: (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
    for (tool, _) in plan.write.iter().filter(|(tool, _)| !named.contains(tool.name.as_str())) {
        let free = (0..u32::MAX).map(|n| names::safe_name(&name, &tool.name, n)).find(|n| !used.contains(n));
        if let Some(free) = free {
            used.insert(free.clone());
            rows.0.push(free);
            rows.1.push(&tool.name);
        }
    }
    sqlx::query(
        "insert into tool_names (tenant_id, safe_name, server_id, tool)
         select $1, safe_name, $2, tool from unnest($3::text[], $4::text[]) as f (safe_name, tool)",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(rows.0)
    .bind(rows.1)
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
    sqlx::query(
        "update tools set removed_at = now(), rev = $4
         where tenant_id = $1 and server_id = $2 and name = any($3)",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(names)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// The tools of a removed server go with it.
pub(super) async fn remove_all(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    rev: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "update tools set removed_at = now(), rev = $3
         where tenant_id = $1 and server_id = $2 and removed_at is null",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Another origin is another server in all but name: nothing that was approved holds.
pub(super) async fn clear_pins(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    rev: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "update tools set approved_pin = null, approved_definition = null, approved_by = null,
             state = case when state = 'blocked' then state else 'pending' end,
             removed_at = coalesce(removed_at, now()), rev = $3
         where tenant_id = $1 and server_id = $2",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(pin: &str, state: &str, approved: Option<&str>) -> Known {
        Known {
            name: "t".into(),
            pin: pin.into(),
            state: state.into(),
            approved_pin: approved.map(str::to_owned),
            removed: false,
        }
    }

    #[test]
    fn states_of_discovered_definitions() {
        let found = |pin: &str| Discovered { name: "t".into(), definition: "{}".into(), pin: pin.into() };
        let cases = [
            (None, "a", true, PinState::Approved),
            (None, "a", false, PinState::Pending),
            (Some(known("a", "approved", Some("a"))), "a", false, PinState::Approved),
            (Some(known("a", "approved", Some("a"))), "b", false, PinState::Changed),
            (Some(known("a", "approved", Some("a"))), "b", true, PinState::Approved),
            (Some(known("b", "changed", Some("a"))), "a", false, PinState::Approved),
            (Some(known("a", "pending", None)), "b", false, PinState::Pending),
            (Some(known("a", "blocked", Some("a"))), "a", true, PinState::Blocked),
        ];
        for (at, (known, pin, take, expected)) in cases.into_iter().enumerate() {
            assert_eq!(next_state(known.as_ref(), &found(pin), take), expected, "case {at}");
        }
    }
}
