//! Cache of finished lists, evicted by least recent use. A large list stays in memory while clients read it, cached or not.
//! It is therefore charged to its tenant's share of memory for answers, once for all clients that are sent the same bytes.

mod pages;

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use self::pages::{Found, Pages};
use super::Catalogs;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::id::{KeyId, TenantId};
use crate::domain::operation::OperationType;
use crate::domain::publish::Reader;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::settings::ToolNames;
use crate::upstream::{FREE_BYTES_MAX, MemoryHold, MemoryPurpose};

/// Longest wait for another request that makes the same list.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Suggested retry delay when there was no memory for a list, in seconds.
const RETRY_AFTER_S: u64 = 5;

/// Identity of a list: equal keys have equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListKey {
    /// Tenant of the list.
    pub tenant: TenantId,
    /// Fingerprint of the view that the list shows.
    pub print: Fingerprint,
    /// Kind of client that reads the list.
    pub reader: Reader,
    /// Spelling of the tool names.
    pub names: ToolNames,
    /// Operations that the caller may do with management tools; `None` for none.
    pub manages: Option<OperationType>,
    /// Position of the page's first entry; `None` for the first page, which also has the gateway's own tools.
    pub from: Option<usize>,
}

/// Plan for making a list that is not cached.
pub struct ListPlan<F> {
    /// Approximate size of the list, in bytes.
    pub bytes: usize,
    /// Position where the next page begins; `None` for the last page.
    pub next: Option<usize>,
    /// Function that makes the list.
    pub make: F,
    /// Permit for making a large list, one at a time per catalogue.
    pub turn: Arc<Semaphore>,
}

/// Finished lists of all tenants, and those being made.
#[derive(Debug)]
pub(super) struct Lists {
    kept: Mutex<Pages>,
    /// Locks of large lists that a request is making, or finding memory for. Requests for the same list wait for it.
    under_way: Mutex<HashMap<ListKey, Weak<Turn>>>,
}

type Turn = tokio::sync::Mutex<()>;

impl Lists {
    pub(super) fn new(bytes_max: usize) -> Lists {
        Lists { kept: Mutex::new(Pages::new(bytes_max)), under_way: Mutex::default() }
    }

    /// Drops the lists of a deleted tenant.
    pub(super) fn forget(&self, tenant: TenantId) {
        self.kept.lock().forget(tenant);
    }

    fn alone(&self, key: ListKey) -> Arc<Turn> {
        let mut under_way = self.under_way.lock();
        if let Some(turn) = under_way.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        // entries stay at most as many as the waiting requests
        under_way.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::default());
        under_way.insert(key, Arc::downgrade(&turn));
        turn
    }
}

/// A body with its tenant's share of memory, which is held until the last client has read it.
struct Lent {
    body: Bytes,
    _held: Arc<MemoryHold>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

fn lend(body: Bytes, held: Arc<MemoryHold>) -> Bytes {
    Bytes::from_owner(Lent { body, _held: held })
}

impl Catalogs {
    /// Returns the list of this key from the cache, or makes it as planned and caches it.
    ///
    /// # Errors
    /// A refusal if there is no memory for it: the tenant's clients leave too many large lists unread.
    pub(in crate::gateway) async fn list_body<F: FnOnce() -> String + Send + 'static>(
        &self,
        key: ListKey,
        caller: Option<KeyId>,
        plan: impl FnOnce() -> ListPlan<F> + Send,
    ) -> Result<Bytes, Refusal> {
        let found = self.lists.kept.lock().get(&key);
        let plan = match found {
            Some(Found { body, .. }) if body.len() <= FREE_BYTES_MAX => return Ok(body),
            Some(Found { body, held: Some(held) }) => return Ok(lend(body, held)),
            Some(_) => None,
            None => Some(plan()),
        };
        match plan {
            Some(ListPlan { bytes, next, make, .. }) if bytes <= FREE_BYTES_MAX => {
                let body = Bytes::from(make());
                self.keep_list(key, &body, Weak::new(), next);
                Ok(body)
            }
            plan => self.large_list(key, caller, plan).await,
        }
    }

    /// Returns a large list. Memory is taken once, however many requests want the same list.
    async fn large_list<F: FnOnce() -> String + Send + 'static>(
        &self,
        key: ListKey,
        caller: Option<KeyId>,
        plan: Option<ListPlan<F>>,
    ) -> Result<Bytes, Refusal> {
        let alone = self.lists.alone(key);
        let _alone = timeout(WAIT_MAX, alone.lock()).await.map_err(|_| crowded())?;
        // the request before usually made it, unless it was evicted since
        let found = self.lists.kept.lock().get(&key);
        let (body, plan) = match (found, plan) {
            (Some(Found { body, held: Some(held) }), _) => return Ok(lend(body, held)),
            (Some(Found { body, held: None }), _) => (Some(body), None),
            (None, plan) => (None, plan),
        };
        let bytes = body.as_ref().map(Bytes::len).or(plan.as_ref().map(|plan| plan.bytes));
        // the list was evicted between two lookups, which takes a cache that is much too small
        let held = self.hold(key.tenant, caller, bytes.ok_or_else(crowded)?).await?;
        if let Some(body) = body {
            self.lists.kept.lock().hold(&key, &held);
            return Ok(lend(body, held));
        }
        let ListPlan { next, make, turn, .. } = plan.ok_or_else(crowded)?;
        let turn = turn.acquire_owned().await;
        let made = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            make()
        });
        let body = Bytes::from(made.await.map_err(|_| crowded())?);
        self.keep_list(key, &body, Arc::downgrade(&held), next);
        Ok(lend(body, held))
    }

    /// Takes memory from the shares of the first caller.
    async fn hold(
        &self,
        tenant: TenantId,
        caller: Option<KeyId>,
        bytes: usize,
    ) -> Result<Arc<MemoryHold>, Refusal> {
        let mut memory = self.upstreams.memory(tenant.0, caller.map(|key| key.0), MemoryPurpose::Answer);
        memory.grow(bytes).await.map_err(|_| crowded())?;
        Ok(Arc::new(memory))
    }

    fn keep_list(&self, key: ListKey, body: &Bytes, held: Weak<MemoryHold>, next: Option<usize>) {
        self.lists.kept.lock().put(key, body.clone(), held, next);
    }
}

fn crowded() -> Refusal {
    let message = "Clients of this tenant have too many large lists unread; try again shortly";
    Refusal::new(Code::Overloaded, message).retry_after(RETRY_AFTER_S)
}
