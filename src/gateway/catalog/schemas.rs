//! Input schemas, compiled when a call needs one, and the check of arguments against them.
//!
//! Compiling, and every check that is not quick, takes the tenant's slot for long work. Each tenant has one, so one tenant's
//! hostile schemas delay its own callers only.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use super::Catalogs;
use super::tool::Tool;
use crate::domain::id::TenantId;
use crate::domain::schema::{Schema, Unfit};
use crate::gateway::kept::{Kept, Owned};

/// Longest arguments, in bytes, that are checked at once if the schema is compiled already.
const QUICK_BYTES_MAX: usize = 64 * 1024;
/// Most steps of a quick check. A check that takes more is restarted in the tenant's slot for long work.
const QUICK_STEPS_MAX: u64 = 20_000;
/// Most schemas kept, however small.
const SCHEMAS_MAX: usize = 16_384;
/// Bytes charged for the key and entry of a schema.
const ENTRY_BYTES: usize = 512;

/// Key of a schema: equal pins are equal definitions.
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

/// A compiled schema, or the reason why it is not used.
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

    /// Drops the schemas of a deleted tenant.
    pub(super) fn forget(&self, tenant: TenantId) {
        self.kept.lock().forget(tenant);
    }

    /// Checks arguments if that is quick: the schema is compiled already, and few steps suffice. `None` otherwise.
    fn check_quickly(&self, tenant: TenantId, tool: &Tool, arguments: &Bytes) -> Option<SchemaCheck> {
        if tool.shape.input_schema().is_none() {
            return Some(SchemaCheck::Fit);
        }
        let made = self.kept.lock().get(&key(tenant, tool)).cloned()?;
        quick(&made, arguments)
    }

    /// Checks arguments, however long it takes.
    fn check_whole(&self, tenant: TenantId, tool: &Tool, arguments: &Bytes) -> SchemaCheck {
        whole(&self.compiled(key(tenant, tool), tool), arguments)
    }

    /// Returns the cached schema, or compiles it. Calls of one tenant come here one at a time.
    fn compiled(&self, key: SchemaKey, tool: &Tool) -> Arc<Made> {
        if let Some(made) = self.kept.lock().get(&key) {
            return Arc::clone(made);
        }
        let most = self.kept.lock().tenant_max();
        let made = Schema::compile(tool.shape.input_schema().unwrap_or("true")).and_then(|schema| {
            let is_kept = schema.bytes() + ENTRY_BYTES <= most;
            is_kept
                .then_some(schema)
                .ok_or_else(|| format!("it takes more than a tenant's share of {most} bytes"))
        });
        let bytes = ENTRY_BYTES + made.as_ref().map_or_else(String::len, Schema::bytes);
        let made = Arc::new(made);
        self.kept.lock().put(key, Arc::clone(&made), bytes);
        made
    }
}

fn key(tenant: TenantId, tool: &Tool) -> SchemaKey {
    SchemaKey { tenant, pin: Arc::clone(tool.shape.pin()) }
}

/// Returns the outcome of a quick check; `None` if this one is not quick.
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

/// Returns the arguments as text: check 1 made sure that they are UTF-8.
fn text(arguments: &Bytes) -> &str {
    std::str::from_utf8(arguments).unwrap_or_default()
}

impl Catalogs {
    /// Checks a call's arguments against its tool's input schema. Also returns whether the call waited for the tenant's
    /// slot. It waits as long as for a slot at the server (`limits.queue_wait_s`): other keys of the tenant may have many calls
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
