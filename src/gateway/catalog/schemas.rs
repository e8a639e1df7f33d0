//! Input schemas, compiled when a call needs one, and the check of arguments against them.
//!
//! Compiling, and every check that is not quick, happens in the tenant's turn for long work: each tenant has one such piece at
//! a time, so one tenant's hostile schemas cost its own callers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::Catalogs;
use super::tool::Tool;
use crate::domain::id::TenantId;
use crate::domain::schema::{Schema, Unfit};
use crate::gateway::kept::{Kept, Owned};

/// Longest arguments that are checked at once, where the schema is compiled already, in bytes.
const QUICK_BYTES_MAX: usize = 64 * 1024;
/// Most steps of such a check. One that takes more is begun again in the tenant's turn.
const QUICK_STEPS_MAX: u64 = 20_000;
/// Most schemas kept, however small.
const SCHEMAS_MAX: usize = 16_384;
/// Counted for a schema's key and entry, in bytes.
const ENTRY_BYTES: usize = 512;

/// Names a schema: equal pins are equal definitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SchemaKey {
    tenant: TenantId,
    pin: Arc<str>,
}

impl Owned for SchemaKey {
    fn tenant(&self) -> TenantId {
        self.tenant
    }
}

/// A compiled schema, or why it is not used.
type Made = Result<Schema, String>;

/// Compiled schemas of all tenants.
#[derive(Debug)]
pub(super) struct Schemas {
    kept: Mutex<Kept<SchemaKey, Arc<Made>>>,
}

/// Outcome of a check.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::gateway) enum SchemaCheck {
    /// The arguments fit, or there is no schema.
    Fit,
    /// The schema is not used, for this reason.
    Unchecked(String),
    /// The arguments do not fit.
    Unfit(Unfit),
    /// The tenant's turn for long work did not come in time: nothing was checked.
    Late,
}

impl Schemas {
    /// Keeps compiled schemas of at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Schemas {
        Schemas { kept: Mutex::new(Kept::new(bytes_max, SCHEMAS_MAX)) }
    }

    /// Forgets the schemas of a tenant that is no more.
    pub(super) fn forget(&self, tenant: TenantId) {
        self.kept().forget(tenant);
    }

    /// Checks arguments if that is quick: with a schema that is compiled already, in few steps.
    fn check_quickly(&self, tenant: TenantId, tool: &Tool, arguments: &Bytes) -> Option<SchemaCheck> {
        if tool.shape.input_schema().is_none() {
            return Some(SchemaCheck::Fit);
        }
        let made = self.kept().get(&key(tenant, tool)).cloned()?;
        quick(&made, arguments)
    }

    /// Checks arguments, however long it takes.
    fn check_whole(&self, tenant: TenantId, tool: &Tool, arguments: &Bytes) -> SchemaCheck {
        whole(&self.compiled(key(tenant, tool), tool), arguments)
    }

    /// Returns the kept schema, or compiles it: a tenant's calls come here one by one.
    fn compiled(&self, key: SchemaKey, tool: &Tool) -> Arc<Made> {
        if let Some(made) = self.kept().get(&key) {
            return Arc::clone(made);
        }
        let most = self.kept().tenant_max();
        let made = Schema::compile(tool.shape.input_schema().unwrap_or("true")).and_then(|schema| {
            let is_kept = schema.bytes() + ENTRY_BYTES <= most;
            is_kept
                .then_some(schema)
                .ok_or_else(|| format!("it takes more than a tenant's share of {most} bytes"))
        });
        let bytes = ENTRY_BYTES + made.as_ref().map_or_else(String::len, Schema::bytes);
        let made = Arc::new(made);
        self.kept().put(key, Arc::clone(&made), bytes);
        made
    }

    fn kept(&self) -> MutexGuard<'_, Kept<SchemaKey, Arc<Made>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn key(tenant: TenantId, tool: &Tool) -> SchemaKey {
    SchemaKey { tenant, pin: Arc::clone(tool.shape.pin()) }
}

/// The outcome of a check that is quick; `None` when this one is not.
fn quick(made: &Made, arguments: &Bytes) -> Option<SchemaCheck> {
    match made {
        Ok(schema) if arguments.len() <= QUICK_BYTES_MAX => {
            match schema.check_within(text(arguments), QUICK_STEPS_MAX) {
                Err(Unfit::Steps(_)) => None,
                ended => Some(ended.map_or_else(SchemaCheck::Unfit, |()| SchemaCheck::Fit)),
            }
        }
        Ok(_) => None,
        Err(why) => Some(SchemaCheck::Unchecked(why.clone())),
    }
}

fn whole(made: &Made, arguments: &Bytes) -> SchemaCheck {
    match made {
        Ok(schema) => schema.check(text(arguments)).map_or_else(SchemaCheck::Unfit, |()| SchemaCheck::Fit),
        Err(why) => SchemaCheck::Unchecked(why.clone()),
    }
}

/// Arguments are UTF-8: they passed check 1.
fn text(arguments: &Bytes) -> &str {
    std::str::from_utf8(arguments).unwrap_or_default()
}

impl Catalogs {
    /// Checks a call's arguments against its tool's input schema; whether that took a turn comes with it. A call waits for the
    /// turn as long as it would wait for one at the server (`limits.queue_wait_s`): other keys of the tenant may have many
    /// before it.
    pub(in crate::gateway) async fn check_schema(
        &self,
        tenant: TenantId,
        tool: &Tool,
        arguments: &Bytes,
    ) -> (SchemaCheck, bool) {
        if let Some(checked) = self.schemas.check_quickly(tenant, tool, arguments) {
            return (checked, false);
        }
        let check = || self.schemas.check_whole(tenant, tool, arguments);
        let wait = tool.server.target.limits.queue_wait;
        let checked = tokio::time::timeout(wait, self.upstreams.in_turn(tenant.0, check)).await;
        (checked.unwrap_or(SchemaCheck::Late), true)
    }
}

#[cfg(test)]
mod tests;
