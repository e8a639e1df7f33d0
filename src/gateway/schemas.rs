//! Input schemas, compiled when a call needs one, and the check of arguments against them.
//!
//! Compiling, and every check that is not quick, happens off the threads that serve requests. Tenants take turns there:
//! each has one such piece of work at a time, so one tenant's hostile schemas cost its own callers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::available_parallelism;

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::Gateway;
use super::catalog::Tool;
use super::kept::{Kept, Owned};
use crate::domain::id::TenantId;
use crate::domain::schema::{Schema, Unfit};

/// Longest arguments that are checked at once, where the schema is compiled already, in bytes.
const QUICK_BYTES_MAX: usize = 64 * 1024;
/// Most steps of such a check. One that takes more is begun again off the threads that serve.
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
    kept: Arc<Mutex<Kept<SchemaKey, Arc<Made>>>>,
    /// One place for each tenant that works or waits.
    turns: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
    /// Pieces of work at the same time; tenants are served in the order in which their next piece came up.
    places: Arc<Semaphore>,
}

/// Outcome of a check.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Checked {
    /// The arguments fit, or there is no schema.
    Fit,
    /// The schema is not used, for this reason.
    Unchecked(String),
    /// The arguments do not fit.
    Unfit(Unfit),
}

impl Schemas {
    /// Keeps compiled schemas of at most `bytes_max` bytes.
    pub(super) fn new(bytes_max: usize) -> Schemas {
        let places = available_parallelism().map_or(1, |cores| (cores.get() / 2).max(1));
        Schemas {
            kept: Arc::new(Mutex::new(Kept::new(bytes_max, SCHEMAS_MAX))),
            turns: Mutex::default(),
            places: Arc::new(Semaphore::new(places)),
        }
    }

    /// Forgets the schemas of a tenant that is no more.
    pub(super) fn forget(&self, tenant: TenantId) {
        kept(&self.kept).forget(tenant);
    }

    fn turn(&self, tenant: TenantId) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(&tenant).and_then(Weak::upgrade) {
            return turn;
        }
        // as many as there are tenants that wait, at most
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Semaphore::new(1));
        turns.insert(tenant, Arc::downgrade(&turn));
        turn
    }

    /// Checks arguments; whether that took a turn comes with it.
    async fn check(&self, tenant: TenantId, tool: &Arc<Tool>, arguments: &Bytes) -> (Checked, bool) {
        if tool.shape.input_schema().is_none() {
            return (Checked::Fit, false);
        }
        let key = SchemaKey { tenant, pin: Arc::clone(tool.shape.pin()) };
        let made = kept(&self.kept).get(&key).cloned();
        if let Some(made) = made
            && let Some(checked) = quick(&made, arguments)
        {
            return (checked, false);
        }
        // neither semaphore is ever closed
        let turn = self.turn(tenant);
        let turn = turn.acquire_owned().await.ok();
        let place = Arc::clone(&self.places).acquire_owned().await.ok();
        let (schemas, tool, arguments) = (Arc::clone(&self.kept), Arc::clone(tool), arguments.clone());
        let work = tokio::task::spawn_blocking(move || {
            let _held = (turn, place);
            whole(&made_of(&schemas, key, &tool), &arguments)
        });
        // a check that broke off must not pass for one that was made
        let broken = |_| Checked::Unfit(Unfit::Rule("their check broke off".to_owned()));
        (work.await.unwrap_or_else(broken), true)
    }
}

fn kept<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The schema as it is kept, or made now: a tenant's calls come here one by one.
fn made_of(schemas: &Mutex<Kept<SchemaKey, Arc<Made>>>, key: SchemaKey, tool: &Tool) -> Arc<Made> {
    if let Some(made) = kept(schemas).get(&key) {
        return Arc::clone(made);
    }
    let most = kept(schemas).tenant_max();
    let made = Schema::compile(tool.shape.input_schema().unwrap_or("true")).and_then(|schema| {
        let is_kept = schema.bytes() + ENTRY_BYTES <= most;
        is_kept
            .then_some(schema)
            .ok_or_else(|| format!("it takes more than a tenant's share of {most} bytes"))
    });
    let bytes = ENTRY_BYTES + made.as_ref().map_or_else(String::len, Schema::bytes);
    let made = Arc::new(made);
    kept(schemas).put(key, Arc::clone(&made), bytes);
    made
}

/// The outcome of a check that is quick; `None` when this one is not.
fn quick(made: &Made, arguments: &Bytes) -> Option<Checked> {
    match made {
        Ok(schema) if arguments.len() <= QUICK_BYTES_MAX => {
            match schema.check_within(text(arguments), QUICK_STEPS_MAX) {
                Err(Unfit::Steps(_)) => None,
                ended => Some(ended.map_or_else(Checked::Unfit, |()| Checked::Fit)),
            }
        }
        Ok(_) => None,
        Err(why) => Some(Checked::Unchecked(why.clone())),
    }
}

fn whole(made: &Made, arguments: &Bytes) -> Checked {
    match made {
        Ok(schema) => schema.check(text(arguments)).map_or_else(Checked::Unfit, |()| Checked::Fit),
        Err(why) => Checked::Unchecked(why.clone()),
    }
}

/// Arguments are UTF-8: they passed check 1.
fn text(arguments: &Bytes) -> &str {
    std::str::from_utf8(arguments).unwrap_or_default()
}

impl Gateway {
    /// Checks a call's arguments against its tool's input schema; whether that took a turn comes with it.
    pub(super) async fn check_schema(
        &self,
        tenant: TenantId,
        tool: &Arc<Tool>,
        arguments: &Bytes,
    ) -> (Checked, bool) {
        let checked = self.schemas.check(tenant, tool, arguments).await;
        // deleted meanwhile: what was forgotten must not come back
        if self.tenants.get(tenant).is_none() {
            self.schemas.forget(tenant);
        }
        checked
    }
}

#[cfg(test)]
mod tests;
