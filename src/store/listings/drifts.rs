//! Drift: hints that got worse since they were trusted. It is recorded with the listing that brings it, also under
//! automatic approval.

use std::collections::HashMap;

use sqlx::FromRow;

use super::plan::Plan;
use crate::domain::annotations::Annotations;
use crate::domain::drift::Drift;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::tool::Definition;
use crate::store::unit::Unit;
use crate::store::{StoreError, Stored};

/// Definition that was trusted under a name before this listing.
#[derive(FromRow)]
struct Trusted {
    name: String,
    approved_pin: String,
    approved_definition: Option<String>,
    drift: Option<Stored<Drift>>,
}

impl Trusted {
    /// Returns the trusted hints. A definition that is not kept any more counts as the strictest: read-only.
    fn annotations(&self) -> Annotations {
        let read = |text: &String| Definition::read(text).map(|read| read.annotations).unwrap_or_default();
        let only_read = Annotations { read_only: Some(true), destructive: Some(false), by_admin: false };
        self.approved_definition.as_ref().map_or(only_read, read)
    }

    /// Returns the drift from the trusted definition to a new one; `None` if there is none that is not flagged already.
    fn drift_to(&self, pin: &str, definition: &str) -> Option<Drift> {
        if self.approved_pin == pin {
            return None;
        }
        let after = Definition::read(definition).ok()?.annotations;
        let flagged = self.drift.as_ref().and_then(Stored::known);
        Drift::between(self.annotations(), after).filter(|drift| Some(*drift) > flagged)
    }
}

/// Finds the drifts in a plan. Must run before the plan is written: automatic approval overwrites the trusted
/// definitions.
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

/// Flags drifts, until a person approves the definitions.
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
