//! What became of hints since they were trusted: noted with the listing that brought it, whatever is approved by itself.

use std::collections::HashMap;

use sqlx::FromRow;

use super::plan::Plan;
use crate::domain::annotations::Annotations;
use crate::domain::drift::Drift;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::tool::Definition;
use crate::store::StoreError;
use crate::store::unit::Unit;

/// What was trusted under a name before this listing.
#[derive(FromRow)]
struct Trusted {
    name: String,
    approved_pin: String,
    approved_definition: Option<String>,
    drift: Option<String>,
}

impl Trusted {
    /// Of a text that is not kept any more the strictest is taken: that it only read.
    fn annotations(&self) -> Annotations {
        let read = |text: &String| Definition::read(text).map(|read| read.annotations).unwrap_or_default();
        let only_read = Annotations { read_only: Some(true), destructive: Some(false) };
        self.approved_definition.as_ref().map_or(only_read, read)
    }

    /// What is to be flagged of a definition that comes in its place; what is flagged already is not once more.
    fn drift_to(&self, pin: &str, definition: &str) -> Option<Drift> {
        if self.approved_pin == pin {
            return None;
        }
        let after = Definition::read(definition).ok()?.annotations;
        let flagged = self.drift.as_deref().and_then(Drift::parse);
        Drift::between(self.annotations(), after).filter(|drift| Some(*drift) > flagged)
    }
}

/// Finds what drifts with this plan. Before it is written: automatic approval writes over what was trusted.
pub(super) async fn find(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    plan: &Plan<'_>,
) -> Result<Vec<(String, Drift)>, StoreError> {
    let names: Vec<&str> = plan.write.iter().map(|(tool, _)| tool.name.as_str()).collect();
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let trusted: Vec<Trusted> = sqlx::query_as(
        "select name, approved_pin, approved_definition, drift from tools
         where tenant_id = $1 and server_id = $2 and name = any($3) and approved_pin is not null",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(names)
    .fetch_all(&mut **tx)
    .await?;
    let trusted: HashMap<&str, &Trusted> = trusted.iter().map(|tool| (tool.name.as_str(), tool)).collect();
    let drifted = plan.write.iter().filter_map(|(tool, _)| {
        let drift = trusted.get(tool.name.as_str())?.drift_to(&tool.pin, &tool.definition)?;
        Some((tool.name.clone(), drift))
    });
    Ok(drifted.collect())
}

/// Flags them, until a person approves what they are.
pub(super) async fn note(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
    drifted: &[(String, Drift)],
) -> Result<(), StoreError> {
    if drifted.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "update tools t set drift = f.drift, drifted_at = now()
         from unnest($3::text[], $4::text[]) as f (name, drift)
         where t.tenant_id = $1 and t.server_id = $2 and t.name = f.name",
    )
    .bind(tenant.0)
    .bind(server.0)
    .bind(drifted.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>())
    .bind(drifted.iter().map(|(_, drift)| drift.as_str()).collect::<Vec<_>>())
    .execute(&mut **tx)
    .await?;
    Ok(())
}
