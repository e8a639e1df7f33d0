//! Vectors of definitions, where the deployment has an embeddings service: their loading, and whose are to be made.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use super::Tenants;
use super::live::LiveTenant;
use super::live::vectors::TooMany;
use crate::domain::id::TenantId;
use crate::store::StoreError;

/// Tenants with new definitions that are remembered by name; if there are more, all are looked at.
const CHANGED_MAX: usize = 10_000;

/// Whose definitions may have changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::gateway) struct Changed {
    /// More than can be named.
    pub(in crate::gateway) is_everybody: bool,
    /// By name.
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

/// What is known of the service here: where its vectors can be compared, and whose definitions are to be sent to it.
#[derive(Debug)]
pub(in crate::gateway) struct Embedded {
    /// The model, and how texts are made for it.
    pub(in crate::gateway) space: String,
    changed: Mutex<Changed>,
    /// Wakes whoever sends definitions.
    pub(in crate::gateway) wake: Notify,
}

impl Embedded {
    pub(super) fn new(space: String) -> Embedded {
        Embedded { space, changed: Mutex::default(), wake: Notify::new() }
    }

    /// Notes that a tenant's catalogue changed.
    pub(super) fn note(&self, tenant: TenantId) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).add(tenant);
        self.wake.notify_one();
    }

    /// What was noted since the last time.
    pub(in crate::gateway) fn take_changed(&self) -> Changed {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Tenants {
    /// Brings a live tenant's vectors to at least `rev`.
    pub(super) async fn reload_vectors(&self, live: &LiveTenant, rev: i64) -> Result<(), StoreError> {
        let Some(embedded) = &self.embedded else { return Ok(()) };
        let _one_at_a_time = live.vectors.reloading.lock().await;
        if live.vectors.rev() >= rev {
            return Ok(());
        }
        let after = live.vectors.rev();
        let rows = self.store.load_embeddings(live.id, &embedded.space, after).await?;
        if let Err(TooMany) = live.vectors.add(rows) {
            // most of what is known here is of definitions that are gone
            let rows = self.store.load_embeddings(live.id, &embedded.space, 0).await?;
            live.vectors.replace(rows);
        }
        Ok(())
    }
}
