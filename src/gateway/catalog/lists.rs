//! Finished lists, kept for whoever asks for the same: the least used give way.
//!
//! What a client has not read yet stays in memory whether it is kept here or not. Large bodies on their way therefore take
//! from their tenant's share of memory for answers, once for all who are sent the same.

mod pages;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bytes::Bytes;
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
/// When to ask again for a list that there was no memory for, in seconds.
const RETRY_AFTER_S: u64 = 5;

/// Which list: equal keys are equal bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ListKey {
    /// Whose it is.
    pub tenant: TenantId,
    /// What is seen.
    pub print: Fingerprint,
    /// Who reads it.
    pub reader: Reader,
    /// The spelling.
    pub names: ToolNames,
    /// What the caller may do with management tools; `None` for nothing.
    pub manages: Option<OperationType>,
    /// Where the page begins; `None` for the first, which also has the gateway's own tools.
    pub from: Option<usize>,
}

/// How a list is made that is not kept.
pub struct ListPlan<F> {
    /// About its size.
    pub bytes: usize,
    /// Where the page after it begins.
    pub next: Option<usize>,
    /// Makes it.
    pub make: F,
    /// For who makes a large one.
    pub turn: Arc<Semaphore>,
}

/// The lists of all tenants.
#[derive(Debug)]
pub(super) struct Lists {
    kept: Mutex<Pages>,
    /// Large ones that a request is making, or finding memory for: others who want the same wait for it.
    under_way: Mutex<HashMap<ListKey, Weak<Turn>>>,
}

type Turn = tokio::sync::Mutex<()>;

impl Lists {
    pub(super) fn new(bytes_max: usize) -> Lists {
        Lists { kept: Mutex::new(Pages::new(bytes_max)), under_way: Mutex::default() }
    }

    /// Forgets the lists of a tenant that is no more.
    pub(super) fn forget(&self, tenant: TenantId) {
        self.kept().forget(tenant);
    }

    fn kept(&self) -> MutexGuard<'_, Pages> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn alone(&self, key: ListKey) -> Arc<Turn> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = under_way.get(&key).and_then(Weak::upgrade) {
            return turn;
        }
        // as many as there are requests that wait, at most
        under_way.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::default());
        under_way.insert(key, Arc::downgrade(&turn));
        turn
    }
}

/// A body with its tenant's share of memory: as long as anybody is sent it.
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
    /// The list of this key: one that is kept, or one that is made as planned and kept for the next.
    ///
    /// # Errors
    /// A refusal when clients of the tenant leave too many large ones unread.
    pub(in crate::gateway) async fn list_body<F: FnOnce() -> String + Send + 'static>(
        &self,
        key: ListKey,
        caller: Option<KeyId>,
        plan: impl FnOnce() -> ListPlan<F> + Send,
    ) -> Result<Bytes, Refusal> {
        let found = self.lists.kept().get(&key);
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

    /// A large list, which takes memory: once, however many ask for the same.
    async fn large_list<F: FnOnce() -> String + Send + 'static>(
        &self,
        key: ListKey,
        caller: Option<KeyId>,
        plan: Option<ListPlan<F>>,
    ) -> Result<Bytes, Refusal> {
        let alone = self.lists.alone(key);
        let _alone = timeout(WAIT_MAX, alone.lock()).await.map_err(|_| crowded())?;
        // whoever was here before has it, unless that was too long ago
        let found = self.lists.kept().get(&key);
        let (body, plan) = match (found, plan) {
            (Some(Found { body, held: Some(held) }), _) => return Ok(lend(body, held)),
            (Some(Found { body, held: None }), _) => (Some(body), None),
            (None, plan) => (None, plan),
        };
        let bytes = body.as_ref().map(Bytes::len).or(plan.as_ref().map(|plan| plan.bytes));
        // gone between two looks, which takes a cache that is much too small
        let held = self.hold(key.tenant, caller, bytes.ok_or_else(crowded)?).await?;
        if let Some(body) = body {
            self.lists.kept().hold(&key, &held);
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

    /// Takes memory from the shares of whoever asks first.
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
        self.lists.kept().put(key, body.clone(), held, next);
    }
}

fn crowded() -> Refusal {
    let message = "Clients of this tenant have too many large lists unread; try again shortly";
    Refusal::new(Code::Overloaded, message).retry_after(RETRY_AFTER_S)
}
