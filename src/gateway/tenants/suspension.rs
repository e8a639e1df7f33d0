//! Suspended tenants: they keep everything and are served nothing, until the platform resumes them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};

use super::Tenants;
use crate::domain::id::{KeyId, TenantId};
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::live::access::Caller;
use crate::store::{RevisionKind, Suspend, Tenant};

/// Keys whose refused requests are counted apart between two writes.
const KEYS_MAX: usize = 100_000;

/// SuspendedRequests requests of one key since the last record of them.
#[derive(Debug)]
pub(in crate::gateway) struct SuspendedRequests {
    pub(in crate::gateway) tenant: TenantId,
    pub(in crate::gateway) owner: String,
    pub(in crate::gateway) first: DateTime<Utc>,
    pub(in crate::gateway) count: u64,
}

/// What suspended tenants' keys went on to ask: counted, since programs ask again and again.
#[derive(Debug, Default)]
pub(in crate::gateway) struct Suspensions(Mutex<HashMap<KeyId, SuspendedRequests>>);

impl Suspensions {
    /// Counts a request for the record of this key's minute.
    pub(in crate::gateway) fn count(&self, caller: &Caller, now: DateTime<Utc>) {
        let Some(key) = caller.key else { return };
        let mut refused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() >= KEYS_MAX && !refused.contains_key(&key) {
            return;
        }
        let new = || SuspendedRequests {
            tenant: caller.tenant_id(),
            owner: caller.owner.clone(),
            first: now,
            count: 0,
        };
        refused.entry(key).or_insert_with(new).count += 1;
    }

    /// Takes what was counted since the last time.
    pub(in crate::gateway) fn take(&self) -> HashMap<KeyId, SuspendedRequests> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tenants {
    /// Suspends a tenant, or resumes it: within a second on every replica.
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
