//! Finished lists, kept for whoever asks for the same: the least used give way.
//!
//! What a client has not read yet stays in memory whether it is kept here or not. Large bodies on their way therefore take
//! from their tenant's share of memory for answers, once for all who are sent the same.

mod kept;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use tokio::sync::Semaphore;

use self::kept::{Found, Kept};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::id::TenantId;
use crate::domain::intent::OperationType;
use crate::domain::publish::Reader;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::settings::ToolNames;
use crate::gateway::Gateway;
use crate::upstream::Reserved;

/// Up to this size a body takes nothing from its tenant's share, in bytes: it is copied into its response.
const FREE_BYTES_MAX: usize = 64 * 1024;
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
pub(in crate::gateway) struct Lists(Mutex<Kept>);

impl Lists {
    pub(in crate::gateway) fn new(bytes_max: usize) -> Lists {
        Lists(Mutex::new(Kept::new(bytes_max)))
    }

    /// Forgets the lists of a tenant that is no more.
    pub(in crate::gateway) fn forget(&self, tenant: TenantId) {
        self.kept().forget(tenant);
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body with its tenant's share of memory: as long as anybody is sent it.
struct Lent {
    body: Bytes,
    _held: Arc<Reserved>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

fn lend(body: Bytes, held: Arc<Reserved>) -> Bytes {
    Bytes::from_owner(Lent { body, _held: held })
}

impl Gateway {
    /// The list of this key: one that is kept, or one that is made as planned and kept for the next.
    ///
    /// # Errors
    /// A refusal when clients of the tenant leave too many large ones unread.
    pub async fn list_body<F: FnOnce() -> String + Send + 'static>(
        &self,
        key: ListKey,
        plan: impl FnOnce() -> ListPlan<F> + Send,
    ) -> Result<Bytes, Refusal> {
        let found = self.lists.kept().get(&key);
        if let Some(found) = found {
            return self.lend_kept(key, found).await;
        }
        let ListPlan { bytes, next, make, turn } = plan();
        if bytes <= FREE_BYTES_MAX {
            let body = Bytes::from(make());
            self.keep_list(key, &body, Weak::new(), next);
            return Ok(body);
        }
        let held = self.hold(key.tenant, bytes).await?;
        let turn = turn.acquire_owned().await;
        // whoever had the turn before may have made it
        if let Some(found) = self.lists.kept().get(&key) {
            return Ok(lend(found.body, found.held.unwrap_or(held)));
        }
        let made = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            make()
        });
        let body = Bytes::from(made.await.map_err(|_| crowded())?);
        self.keep_list(key, &body, Arc::downgrade(&held), next);
        Ok(lend(body, held))
    }

    async fn lend_kept(&self, key: ListKey, found: Found) -> Result<Bytes, Refusal> {
        if found.body.len() <= FREE_BYTES_MAX {
            return Ok(found.body);
        }
        if let Some(held) = found.held {
            return Ok(lend(found.body, held));
        }
        let held = self.hold(key.tenant, found.body.len()).await?;
        self.lists.kept().hold(&key, &held);
        Ok(lend(found.body, held))
    }

    /// Takes from a tenant's share of memory for answers.
    async fn hold(&self, tenant: TenantId, bytes: usize) -> Result<Arc<Reserved>, Refusal> {
        self.upstreams.reserve(tenant.0, bytes).await.map(Arc::new).ok_or_else(crowded)
    }

    fn keep_list(&self, key: ListKey, body: &Bytes, held: Weak<Reserved>, next: Option<usize>) {
        self.lists.kept().put(key, body.clone(), held, next);
        // deleted meanwhile: what was forgotten must not come back
        if self.tenants.get(key.tenant).is_none() {
            self.lists.forget(key.tenant);
        }
    }
}

fn crowded() -> Refusal {
    let message = "Clients of this tenant have too many large lists unread; try again shortly";
    Refusal::new(Code::Overloaded, message).retry_after(RETRY_AFTER_S)
}
