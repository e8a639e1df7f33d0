//! Tools as they are stored, and what people decide about them.

use sqlx::FromRow;
use uuid::Uuid;

use super::revisions::{self, Kind};
use super::tx::{Access, Lane};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, ServerId, TenantId};
use crate::domain::tool::PinState;

/// Bytes of approved definitions kept of a server's tools that it does not offer any more, the last ones: they may come
/// back, and then it is to be seen what was changed. Pins are kept of all.
const GONE_TEXTS_BYTES_MAX: i64 = 1 << 20;

/// What definitions take up: the longer of what is offered and what was approved in its place.
macro_rules! stored_bytes {
    () => {
        "coalesce(sum(greatest(octet_length(definition), octet_length(approved_definition))), 0)::bigint"
    };
}
pub(super) use stored_bytes;

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

impl Store {
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

/// The tools of a removed server go with it: what they say now, the rest in the background.
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

/// Of what a server does not offer any more, no more than a bound is kept.
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
