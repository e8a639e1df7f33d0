//! Suspended tenants: they keep all their data, and their requests are refused until the platform resumes them.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;

use super::Tenants;
use crate::domain::id::{KeyId, TenantId};
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::live::access::Caller;
use crate::store::{RevisionKind, Suspend, Tenant};

/// Keys whose refused requests are counted individually between two writes.
const KEYS_MAX: usize = 100_000;

/// Refused requests of one suspended tenant's key since its last record.
#[derive(Debug)]
pub(in crate::gateway) struct SuspendedRequests {
    pub(in crate::gateway) tenant: TenantId,
    pub(in crate::gateway) key_name: Option<String>,
    pub(in crate::gateway) owner: String,
    pub(in crate::gateway) first: DateTime<Utc>,
    pub(in crate::gateway) count: u64,
}

/// Counters of suspended tenants' requests. They are counted, not recorded one by one, because programs repeat them.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Suspensions(Mutex<HashMap<KeyId, SuspendedRequests>>);

impl Suspensions {
    /// Counts a request in the record of the key's minute.
    pub(in crate::gateway) fn count(&self, caller: &Caller, now: DateTime<Utc>) {
        let Some(key) = caller.key else { return };
        let mut refused = self.0.lock();
        if refused.len() >= KEYS_MAX && !refused.contains_key(&key) {
            return;
        }
        let new = || SuspendedRequests {
            tenant: caller.tenant_id(),
            key_name: caller.key_name.clone(),
            owner: caller.owner.clone(),
            first: now,
            count: 0,
        };
        refused.entry(key).or_insert_with(new).count += 1;
    }

    /// Takes the counters since the last call.
    pub(in crate::gateway) fn take(&self) -> HashMap<KeyId, SuspendedRequests> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Tenants {
    /// Suspends or resumes a tenant, within a second on every replica.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], or [`GatewayError::Unavailable`].
    pub async fn suspend_tenant(
        &self,
        caller: &Caller,
        name: &str,
        suspend: Suspend,
    ) -> Result<Tenant, GatewayError> {
        let tenant = self.get_tenant(caller, name).await?.tenant_id();
        let changed = self.store.suspend_tenant(tenant, suspend).await;
        changed.map_err(|error| GatewayError::from_store(error, "tenant"))?;
        self.refresh(tenant, RevisionKind::Access).await;
        self.get_tenant(caller, name).await
    }
}
