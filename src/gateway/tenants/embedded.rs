//! Vectors of definitions, if the deployment has an embeddings service: loading, and noting which tenants need new ones.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Tenants;
use super::live::LiveTenant;
use super::live::vectors::TooMany;
use crate::domain::id::TenantId;
use crate::store::StoreError;

/// Most tenants with changed catalogues that are noted individually; beyond that all tenants are checked.
const CHANGED_MAX: usize = 10_000;

/// Tenants whose definitions may have changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) struct Changed {
    /// True if more tenants changed than are noted individually.
    pub(in crate::gateway) is_everybody: bool,
    /// Tenants noted individually.
    pub(in crate::gateway) tenants: BTreeSet<TenantId>,
}

impl Changed {
    fn add(&mut self, tenant: TenantId) {
        if self.tenants.len() < CHANGED_MAX {
            self.tenants.insert(tenant);
        } else {
            self.is_everybody = true;
        }
    }
}

/// Vector space of the embeddings service, and the tenants with new definitions for it.
#[derive(Debug)]
pub(in crate::gateway) struct Embedded {
    /// Name of the vector space: the model, and the version of the texts made for it.
    pub(in crate::gateway) space: String,
    changed: Mutex<Changed>,
    /// Wakes the task that sends definitions.
    pub(in crate::gateway) wake: Notify,
}

impl Embedded {
    pub(super) fn new(space: String) -> Embedded {
        Embedded { space, changed: Mutex::default(), wake: Notify::new() }
    }

    /// Notes that a tenant's catalogue changed.
    pub(super) fn note(&self, tenant: TenantId) {
        self.changed.lock().add(tenant);
        self.wake.notify_one();
    }

    /// Returns the changes noted since the last call.
    pub(in crate::gateway) fn take_changed(&self) -> Changed {
        std::mem::take(&mut *self.changed.lock())
    }
}

impl Tenants {
    /// Updates a live tenant's vectors to at least revision `rev`.
    pub(super) async fn reload_vectors(&self, live: &LiveTenant, rev: i64) -> Result<(), StoreError> {
        let Some(embedded) = &self.embedded else { return Ok(()) };
        let _one_at_a_time = live.vectors.reloading.lock().await;
        if live.vectors.rev() >= rev {
            return Ok(());
        }
        let after = live.vectors.rev();
        let rows = self.store.load_embeddings(live.id, &embedded.space, after).await?;
        if let Err(TooMany) = live.vectors.add(rows) {
            // most known vectors are of removed definitions: load all current ones instead
            let rows = self.store.load_embeddings(live.id, &embedded.space, 0).await?;
            live.vectors.replace(rows);
        }
        Ok(())
    }
}
