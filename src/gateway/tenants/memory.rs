//! Shares of a caller in memory and processor time, for reading requests and writing answers (`upstream/admission/shares`).

use super::Tenants;
use super::live::access::Caller;
use bytes::Bytes;

use crate::domain::id::TenantId;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::catalog::{ListKey, ListPlan};
use crate::upstream::{MemoryHold, MemoryPurpose};

/// Time after which a client may retry a request refused for want of memory, in seconds.
pub const MEMORY_RETRY_AFTER_S: u64 = 5;

impl Tenants {
    /// Returns a hold for the memory of a request or an answer. It counts in the shares of the caller's API
    /// key, tenant and replica. Nothing is held yet.
    pub fn memory(&self, caller: &Caller, purpose: MemoryPurpose) -> MemoryHold {
        self.upstreams.memory(caller.tenant_id().0, caller.key.map(|key| key.0), purpose)
    }

    /// Parses `bytes` that a caller sent: at once if they are few, otherwise in the tenant's slot for long work.
    pub async fn parse<T: Send>(&self, caller: &Caller, bytes: usize, parse: impl FnOnce() -> T + Send) -> T {
        self.upstreams.aside(caller.tenant_id().0, bytes, parse).await
    }

    /// Returns the list of this key from the cache, or makes it as planned and caches it.
    ///
    /// # Errors
    /// [`Code::Overloaded`] if clients of the tenant leave too many large lists unread.
    pub async fn list_body<F: FnOnce() -> String + Send + 'static>(
        &self,
        key: ListKey,
        caller: &Caller,
        plan: impl FnOnce() -> ListPlan<F> + Send,
    ) -> Result<Bytes, Refusal> {
        let body = self.catalog.list_body(key, caller.key, plan).await;
        self.forget_if_ended(key.tenant);
        body
    }

    /// Drops cached lists and schemas of a tenant that was deleted meanwhile, so that they do not reappear.
    pub(in crate::gateway) fn forget_if_ended(&self, tenant: TenantId) {
        if self.live.get(tenant).is_none() {
            self.catalog.forget(tenant);
        }
    }
}

/// Returns the refusal of a request or an answer for which there is no memory.
pub fn overloaded(purpose: MemoryPurpose) -> Refusal {
    let message = match purpose {
        MemoryPurpose::Request => {
            "Requests of this key, its tenant or all tenants together hold as much memory as they may; try again shortly"
        }
        MemoryPurpose::Answer => {
            "Answers of this key, its tenant or all tenants together hold as much memory as they may until their clients \
             have read them; try again shortly"
        }
    };
    Refusal::new(Code::Overloaded, message).retry_after(MEMORY_RETRY_AFTER_S)
}
