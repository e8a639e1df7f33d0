//! Tools, as they are stored.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError, Stored};
use crate::domain::drift::Drift;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::overrides::Override;
use crate::domain::tool::PinState;

/// Most bytes of approved definitions kept per server for tools that it does not offer any more, the newest. Such a
/// tool may come back, and then its changes are to be shown. Pins are kept for all.
const GONE_TEXTS_BYTES_MAX: i64 = 1 << 20;

/// SQL for the bytes that definitions take up: per tool the longer of the current and the approved one.
macro_rules! stored_bytes {
    () => {
        "coalesce(sum(greatest(octet_length(definition), octet_length(approved_definition))), 0)::bigint"
    };
}
pub(super) use stored_bytes;

/// SQL that selects tools and their names, and can go on with a condition. `$approved` is an expression for the
/// approved definition, as far as it is wanted.
macro_rules! select_tools {
    ($approved:literal, $condition:literal) => {
        concat!(
            "select t.server_id, t.name, t.definition, t.pin, t.state, t.approved_pin, ",
            $approved,
            " as approved_definition, n.safe_name, t.blocked_by, t.drift, t.drifted_at,
                 t.override_annotations, t.override_pin, t.override_version, t.override_by, t.overridden_at,
                 case when t.changed_at > t.first_seen_at then t.changed_at end as changed_at
             from tools t left join tool_names n
               on n.tenant_id = t.tenant_id and n.server_id = t.server_id and n.tool = t.name
             where t.tenant_id = $1 and t.removed_at is null ",
            $condition
        )
    };
}
pub(super) use select_tools;

/// A tool as stored.
#[derive(Clone, Debug)]
pub struct StoredTool {
    /// Server of the tool.
    pub server: ServerId,
    /// Name of the tool at its server.
    pub name: String,
    /// Definition as last discovered, exact bytes.
    pub definition: String,
    /// Digest of the definition.
    pub pin: String,
    /// State of the definition against the approved pin.
    pub state: PinState,
    /// Pin of the approved definition; `None` if none was approved.
    pub approved_pin: Option<String>,
    /// Approved definition; in a catalogue only if it differs from the current one. `None` if none is kept.
    pub approved_definition: Option<String>,
    /// Safe spelling of the name; `None` if there is none.
    pub safe_name: Option<String>,
    /// Key that blocked the tool; `None` for the bootstrap key, or if the tool is not blocked.
    pub blocked_by: Option<Uuid>,
    /// Drift of the hints and its time, until a person approves the tool; `None` if there is none.
    pub drift: Option<(Drift, DateTime<Utc>)>,
    /// Annotations that a person has set in place of the server's; `None` if there are none.
    pub overridden: Option<StoredOverride>,
    /// Time of the last change of the definition; `None` if it is the first that was seen.
    pub changed_at: Option<DateTime<Utc>>,
}

/// An override as stored.
#[derive(Clone, Debug)]
pub struct StoredOverride {
    /// Annotations that are set, and the pin of the definition that they are for.
    pub said: Override,
    /// Version of the override; every new override of the tool counts it up.
    pub version: i64,
    /// Key that made the override; `None` for the bootstrap key.
    pub by: Option<Uuid>,
    /// Time of the override.
    pub at: DateTime<Utc>,
}

#[derive(FromRow)]
pub(super) struct ToolRow {
    server_id: Uuid,
    name: String,
    definition: String,
    pin: String,
    state: Stored<PinState>,
    approved_pin: Option<String>,
    approved_definition: Option<String>,
    safe_name: Option<String>,
    blocked_by: Option<Uuid>,
    drift: Option<Stored<Drift>>,
    drifted_at: Option<DateTime<Utc>>,
    override_annotations: Option<String>,
    override_pin: Option<String>,
    override_version: i64,
    override_by: Option<Uuid>,
    overridden_at: Option<DateTime<Utc>>,
    changed_at: Option<DateTime<Utc>>,
}

impl ToolRow {
    /// Takes the override out of the row. An unreadable override is an error: without it the tool might look more
    /// harmless than it is.
    fn take_override(&mut self) -> Result<Option<StoredOverride>, StoreError> {
        let (Some(text), Some(pin)) = (self.override_annotations.take(), self.override_pin.take()) else {
            return Ok(None);
        };
        let Ok(hints) = serde_json::from_str(&text) else {
            return Err(StoreError::Inconsistent {
                table: "tools",
                column: "override_annotations",
                value: text,
            });
        };
        let at = self.overridden_at.unwrap_or_default();
        let said = Override { hints, pin };
        Ok(Some(StoredOverride { said, version: self.override_version, by: self.override_by, at }))
    }
}

impl TryFrom<ToolRow> for StoredTool {
    type Error = StoreError;

    fn try_from(mut row: ToolRow) -> Result<StoredTool, StoreError> {
        let overridden = row.take_override()?;
        let drift = row.drift.and_then(|drift| drift.known()).zip(row.drifted_at);
        Ok(StoredTool {
            server: ServerId(row.server_id),
            name: row.name,
            definition: row.definition,
            pin: row.pin,
            state: row.state.known_in("tools", "state")?,
            approved_pin: row.approved_pin,
            approved_definition: row.approved_definition,
            safe_name: row.safe_name,
            blocked_by: row.blocked_by,
            drift,
            overridden,
            changed_at: row.changed_at,
        })
    }
}

impl Store {
    /// Returns a server's present tools after `after` by name, at most `limit`; if `is_waiting`, those that wait for a decision. No further tool is added once the
    /// definitions have `bytes_max` bytes.
    ///
    /// # Errors
    /// [`StoreError::Inconsistent`] if a row holds a value that this version does not know. Other errors come from the
    /// database.
    pub async fn list_tools(
        &self,
        tenant: TenantId,
        server: ServerId,
        (after, is_waiting): (&str, bool),
        (limit, bytes_max): (i64, i64),
    ) -> Result<Vec<StoredTool>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rows: Vec<ToolRow> = sqlx::query_as(select_tools!(
            "t.approved_definition",
            "and t.server_id = $2 and t.name in (
               select name from (
                 select name, sum(bytes) over (order by name) - bytes as before from (
                   select p.name,
                          octet_length(p.definition) + coalesce(octet_length(p.approved_definition), 0) as bytes
                   from tools p
                   where p.tenant_id = $1 and p.server_id = $2 and p.removed_at is null and p.name > $3
                     and (not $6 or p.state in ('pending', 'changed'))
                   order by p.name limit $4
                 ) sized
               ) summed where before < $5
             ) order by t.name"
        ))
        .bind(tenant.0)
        .bind(server.0)
        .bind(after)
        .bind(limit)
        .bind(bytes_max)
        .bind(is_waiting)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        rows.into_iter().map(StoredTool::try_from).collect()
    }

    /// Returns one of a server's present tools.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server does not offer the tool, [`StoreError::Inconsistent`] if its row holds a
    /// value that this version does not know. Other errors come from the database.
    pub async fn get_tool(
        &self,
        tenant: TenantId,
        server: ServerId,
        tool: &str,
    ) -> Result<StoredTool, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let row: Option<ToolRow> =
            sqlx::query_as(select_tools!("t.approved_definition", "and t.server_id = $2 and t.name = $3"))
                .bind(tenant.0)
                .bind(server.0)
                .bind(tool)
                .fetch_optional(&mut *tx)
                .await?;
        tx.commit().await?;
        row.ok_or(StoreError::NotFound)?.try_into()
    }
}

/// Marks the tools of a removed server as removed and clears their definitions; the rows are deleted in the background.
pub(super) async fn remove_all(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    rev: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "update tools set removed_at = coalesce(removed_at, now()), definition = '', approved_definition = null, rev = $3
         where tenant_id = $1 and server_id = $2 and (removed_at is null or approved_definition is not null)",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Clears approvals and overrides of a server's tools, since at another place it is another server in all but name.
/// Blocks stay.
pub(super) async fn clear_pins(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    rev: i64,
) -> Result<(), StoreError> {
    sqlx::query(
        "update tools set approved_pin = null, approved_definition = null, approved_by = null,
             drift = null, drifted_at = null, override_annotations = null, override_pin = null,
             state = case when state = 'blocked' then state else 'pending' end,
             removed_at = coalesce(removed_at, now()), definition = '', rev = $3
         where tenant_id = $1 and server_id = $2",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(rev)
    .execute(&mut **tx)
    .await?;
    Ok(())
}

/// Clears the oldest approved definitions of tools that a server does not offer any more, above a bound.
pub(super) async fn forget_texts(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
) -> Result<(), StoreError> {
    sqlx::query(
        "update tools t set approved_definition = null
         from (select name, sum(octet_length(approved_definition)) over (order by removed_at desc, name) as bytes
               from tools where tenant_id = $1 and server_id = $2 and removed_at is not null
                   and approved_definition is not null) as gone
         where t.tenant_id = $1 and t.server_id = $2 and t.name = gone.name and gone.bytes > $3",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(GONE_TEXTS_BYTES_MAX)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
