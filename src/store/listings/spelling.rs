//! Safe spellings of tools: given at first sight, and kept for as long as there is the server.

use std::collections::HashSet;

use super::plan::Plan;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::names;
use crate::store::StoreError;
use crate::store::unit::Unit;

/// Spellings that are tried for a tool. From the second on they hold a hash, so that they hardly ever meet.
const ATTEMPTS_MAX: u32 = 16;

/// Gives every new tool its safe spelling. The revision's row lock keeps other listings of the tenant out.
pub(super) async fn assign_names(
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
    let written: Vec<&str> = plan.write.iter().map(|(tool, _)| tool.name.as_str()).collect();
    let named: Vec<String> = sqlx::query_scalar(
        "select tool from tool_names where tenant_id = $1 and server_id = $2 and tool = any($3)",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(&written)
    .fetch_all(&mut **tx)
    .await?;
    let named: HashSet<&str> = named.iter().map(String::as_str).collect();
    let mut unnamed: Vec<&str> = written.into_iter().filter(|tool| !named.contains(tool)).collect();
    for attempt in 0..ATTEMPTS_MAX {
        if unnamed.is_empty() {
            break;
        }
        let wanted: Vec<String> = unnamed.iter().map(|tool| names::safe_name(&name, tool, attempt)).collect();
        let mut used = taken(tx, tenant, &wanted).await?;
        let mut given: (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
        let mut still = Vec::new();
        for (tool, wanted) in unnamed.into_iter().zip(wanted) {
            if used.insert(wanted.clone()) {
                given.0.push(wanted);
                given.1.push(tool);
            } else {
                still.push(tool);
            }
        }
        give(tx, tenant, server, given).await?;
        unnamed = still;
    }
    Ok(())
}

/// Which of these spellings the tenant has.
async fn taken(tx: &mut Unit, tenant: TenantId, wanted: &[String]) -> Result<HashSet<String>, StoreError> {
    let taken: Vec<String> =
        sqlx::query_scalar("select safe_name from tool_names where tenant_id = $1 and safe_name = any($2)")
            .bind(tenant.0)
            .bind(wanted)
            .fetch_all(&mut **tx)
            .await?;
    Ok(taken.into_iter().collect())
}

async fn give(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    (spellings, tools): (Vec<String>, Vec<&str>),
) -> Result<(), StoreError> {
    sqlx::query(
        "insert into tool_names (tenant_id, safe_name, server_id, tool)
         select $1, safe_name, $2, tool from unnest($3::text[], $4::text[]) as f (safe_name, tool)",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(spellings)
    .bind(tools)
    .execute(&mut **tx)
    .await?;
    Ok(())
}
