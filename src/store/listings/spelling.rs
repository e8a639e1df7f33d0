//! Safe spellings of tools and prompts: assigned at first sight, and kept as long as the server exists. Kept for longer,
//! adding and removing servers would fill the database; a removed server's name is free again as well.

use std::collections::HashSet;

use super::plan::Plan;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::names;
use crate::store::StoreError;
use crate::store::unit::Unit;

/// Most spellings tried per name. From the second on they hold a hash, so that they hardly ever collide.
const ATTEMPTS_MAX: u32 = 16;

/// Queries of the table that holds the spellings of one kind.
pub(super) struct Names {
    /// Query for the given names that have a spelling.
    named: &'static str,
    /// Query for the given spellings that the tenant uses already.
    taken: &'static str,
    give: &'static str,
}

macro_rules! names {
    ($table:literal, $column:literal) => {
        Names {
            named: concat!(
                "select ",
                $column,
                " from ",
                $table,
                " where tenant_id = $1 and server_id = $2 and ",
                $column,
                " = any($3)"
            ),
            taken: concat!("select safe_name from ", $table, " where tenant_id = $1 and safe_name = any($2)"),
            give: concat!(
                "insert into ",
                $table,
                " (tenant_id, safe_name, server_id, ",
                $column,
                ") select $1, safe_name, $2, own from unnest($3::text[], $4::text[]) as f (safe_name, own)"
            ),
        }
    };
}

const TOOL_NAMES: Names = names!("tool_names", "tool");
pub(super) const PROMPT_NAMES: Names = names!("prompt_names", "prompt");

/// Assigns every new tool its safe spelling. The lock on the revision's row keeps other listings of the tenant out.
pub(super) async fn assign_names(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    plan: &Plan<'_>,
) -> Result<(), StoreError> {
    let written = plan.write.iter().map(|(tool, _)| tool.name.as_str()).collect();
    assign(tx, tenant, server, &TOOL_NAMES, written).await
}

/// Assigns a spelling to each of these names that has none. A name whose attempts all collide gets none.
pub(super) async fn assign(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    names: &Names,
    written: Vec<&str>,
) -> Result<(), StoreError> {
    let name: String = sqlx::query_scalar("select name from servers where tenant_id = $1 and server_id = $2")
        .bind(tenant.0)
        .bind(server.0)
        .fetch_one(&mut **tx)
        .await?;
    let named: Vec<String> = sqlx::query_scalar(names.named)
        .bind(tenant.0)
        .bind(server.0)
        .bind(&written)
        .fetch_all(&mut **tx)
        .await?;
    let named: HashSet<&str> = named.iter().map(String::as_str).collect();
    let mut unnamed: Vec<&str> = written.into_iter().filter(|own| !named.contains(own)).collect();
    for attempt in 0..ATTEMPTS_MAX {
        if unnamed.is_empty() {
            break;
        }
        let wanted: Vec<String> = unnamed.iter().map(|own| names::safe_name(&name, own, attempt)).collect();
        let mut used = taken(tx, tenant, names, &wanted).await?;
        let mut given: (Vec<String>, Vec<&str>) = (Vec::new(), Vec::new());
        let mut still = Vec::new();
        for (own, wanted) in unnamed.into_iter().zip(wanted) {
            if used.insert(wanted.clone()) {
                given.0.push(wanted);
                given.1.push(own);
            } else {
                still.push(own);
            }
        }
        give(tx, tenant, server, names, given).await?;
        unnamed = still;
    }
    Ok(())
}

async fn taken(
    tx: &mut Unit,
    tenant: TenantId,
    names: &Names,
    wanted: &[String],
) -> Result<HashSet<String>, StoreError> {
    let taken: Vec<String> =
        sqlx::query_scalar(names.taken).bind(tenant.0).bind(wanted).fetch_all(&mut **tx).await?;
    Ok(taken.into_iter().collect())
}

async fn give(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    names: &Names,
    (spellings, own): (Vec<String>, Vec<&str>),
) -> Result<(), StoreError> {
    sqlx::query(names.give)
        .bind(tenant.0)
        .bind(server.0)
        .bind(spellings)
        .bind(own)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
