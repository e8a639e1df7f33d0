//! Loading of snapshots: keys and catalogues, brought to the database's revision.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Tenants;
use super::live::LiveTenant;
use super::live::access::Access;
use crate::domain::id::TenantId;
use crate::gateway::catalog::{Catalog, ServerEntry};
use crate::store::{Change, RevisionKind, StoreError};

/// Shortest pause between two snapshots of a tenant that notices of changes cause.
const RELOAD_PAUSE: Duration = Duration::from_millis(50);

/// Rows of a catalogue that replace a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Newer {
    /// Rows of a later revision.
    Only,
    /// Rows of the same revision as well, since something besides them has changed.
    OrSame,
}

impl Tenants {
    /// Makes a tenant live, and loads it if it is not loaded yet.
    pub(super) async fn tenant(
        &self,
        tenant: TenantId,
        name: Option<&str>,
    ) -> Result<Arc<LiveTenant>, StoreError> {
        let live = match self.live.get(tenant) {
            Some(live) => live,
            None => self.enter(tenant, name).await?,
        };
        // a second request waits here for the first one's load
        self.reload(&live, RevisionKind::Access, 1).await?;
        Ok(live)
    }

    async fn enter(&self, tenant: TenantId, name: Option<&str>) -> Result<Arc<LiveTenant>, StoreError> {
        let name = match name {
            Some(name) => name.to_owned(),
            None => self.store.load_access(tenant, &HashMap::new()).await?.tenant_name,
        };
        Ok(self.live.enter(tenant, name))
    }

    /// Updates a live tenant's snapshot to at least `rev`. Requests that waited for a load by another find it done. Loading
    /// keys never waits for another tenant's catalogue, except before their first load.
    pub(in crate::gateway) async fn reload(
        &self,
        live: &Arc<LiveTenant>,
        kind: RevisionKind,
        rev: i64,
    ) -> Result<(), StoreError> {
        if live.rev(kind) >= rev {
            return Ok(());
        }
        match kind {
            RevisionKind::Catalogue => self.reload_catalogue(live, rev).await,
            RevisionKind::Vectors => self.reload_vectors(live, rev).await,
            RevisionKind::Issuers => self.reload_issuers(rev).await,
            RevisionKind::Access => {
                // a key that works must find its tools: the first catalogue comes before the first keys
                if live.rev(RevisionKind::Catalogue) == 0 {
                    self.reload_catalogue(live, 1).await?;
                    self.reload_vectors(live, 1).await?;
                }
                let _one_at_a_time = live.reloading_access.lock().await;
                if live.rev(kind) >= rev { Ok(()) } else { self.load_access(live).await }
            }
        }
    }

    async fn reload_catalogue(&self, live: &Arc<LiveTenant>, rev: i64) -> Result<(), StoreError> {
        let _one_at_a_time = live.reloading_catalogue.lock().await;
        if live.rev(RevisionKind::Catalogue) >= rev {
            return Ok(());
        }
        let _permit = self.live.reloads.acquire().await;
        self.load_catalogue(live, Newer::Only).await
    }

    /// Applies other programs of the deployment: servers that run one get it with a new snapshot, and what ran before
    /// ends with its last call. Programs of tenants without a snapshot here end and start again when they are needed.
    pub(in crate::gateway) async fn programs_changed(&self) -> Result<(), StoreError> {
        for live in self.live.all() {
            // also waits for a first snapshot that may still be made with the programs of before
            let _one_at_a_time = live.reloading_catalogue.lock().await;
            let runs_here = |server: &Arc<ServerEntry>| server.target.upstream.is_run_here();
            if live.catalogue().servers().iter().any(runs_here) {
                let _permit = self.live.reloads.acquire().await;
                self.load_catalogue(&live, Newer::OrSame).await?;
            }
        }
        for tenant in self.upstreams.tenants() {
            if self.live.get(TenantId(tenant)).is_none() {
                self.upstreams.keep_programs_of(tenant, &HashMap::new());
            }
        }
        Ok(())
    }

    async fn load_access(&self, live: &Arc<LiveTenant>) -> Result<(), StoreError> {
        let before =
            live.access().as_ref().as_ref().map(|access| access.policies.clone()).unwrap_or_default();
        let mut rows = match self.store.load_access(live.id, &before.known()).await {
            Err(StoreError::NotFound) => {
                self.end(live);
                return Ok(());
            }
            other => other?,
        };
        if rows.rev > live.rev(RevisionKind::Access) {
            let changed = std::mem::take(&mut rows.policies);
            let policies = match changed.iter().any(|policy| policy.rules.is_some()) {
                false => before.follow(live.id, changed),
                // compiling long policies takes milliseconds, so it runs off the threads that serve calls
                true => {
                    let tenant = live.id;
                    match tokio::task::spawn_blocking(move || before.follow(tenant, changed)).await {
                        Ok(policies) => policies,
                        Err(error) => {
                            tracing::error!(%error, tenant = %live.id, "compiling policies failed");
                            return Ok(());
                        }
                    }
                }
            };
            let access = Access::build(live, &rows, policies, &self.options.defaults, &self.options.quotas);
            let is_suspended = access.is_suspended;
            self.live.swap_access(live, Some(access));
            *live.made.lock() = Some(Instant::now());
            live.fanout.check();
            self.find_misled(live);
            if is_suspended {
                self.upstreams.forget_tenant(live.id.0);
            }
        }
        Ok(())
    }

    /// Ends a deleted tenant: removes its snapshots and rate limits, and closes its connections.
    pub(in crate::gateway) fn end(&self, live: &LiveTenant) {
        self.live.forget(live);
        self.catalog.forget(live.id);
        self.upstreams.forget_tenant(live.id.0);
    }

    async fn load_catalogue(&self, live: &Arc<LiveTenant>, newer: Newer) -> Result<(), StoreError> {
        let rows = match self.store.load_catalogue(live.id).await {
            Err(StoreError::NotFound) => {
                self.end(live);
                return Ok(());
            }
            other => other?,
        };
        let known = live.rev(RevisionKind::Catalogue);
        if rows.rev < known || (rows.rev == known && newer == Newer::Only) {
            return Ok(());
        }
        let old = live.catalogue();
        let (tenant, limits) = (live.id, self.options.upstream);
        let (keyring, commands) = (Arc::clone(&self.options.keyring), Arc::clone(&self.options.commands));
        // parsing a large catalogue takes milliseconds, so it runs off the threads that serve calls
        let is_followed = live.fanout.is_followed();
        let build = move || {
            let catalogue = Catalog::build(tenant, &rows, &old, &limits, &keyring, &commands);
            if is_followed {
                drop(catalogue.states());
            }
            catalogue
        };
        let built = tokio::task::spawn_blocking(build).await;
        match built {
            Ok(catalogue) => {
                let catalogue = Arc::new(catalogue);
                live.catalogue.store(Arc::clone(&catalogue));
                *live.made.lock() = Some(Instant::now());
                live.fanout.moved(live);
                self.find_misled(live);
                // after the swap, so that no request connects again with a dropped credential
                for server in &catalogue.gone {
                    self.upstreams.forget(live.id.0, server.0);
                }
                // last, because only searches need it, and the first search should not have to wait for it
                live.index_soon(&self.live.indexing);
            }
            Err(error) => tracing::error!(%error, tenant = %live.id, "building a catalogue failed"),
        }
        Ok(())
    }

    /// Follows a change that a notice announced. A burst of changes is followed at its beginning, at its end, and at
    /// intervals of [`RELOAD_PAUSE`] in between.
    pub(in crate::gateway) async fn heard(&self, change: Change) {
        if change.kind == RevisionKind::Access {
            self.live.lookups.keys_changed();
        }
        if let Some(live) = self.live.get(change.tenant) {
            let made = *live.made.lock();
            if let Some(made) = made
                && live.rev(change.kind) < change.rev
            {
                tokio::time::sleep_until((made + RELOAD_PAUSE).into()).await;
            }
        }
        self.follow(change).await;
    }

    /// Updates this replica's state to a change: the snapshot if the tenant is live, otherwise its connections and programs.
    pub(in crate::gateway) async fn follow(&self, change: Change) {
        if change.kind == RevisionKind::Access {
            self.live.lookups.keys_changed();
        }
        if change.kind == RevisionKind::Issuers {
            if let Err(error) = self.reload_issuers(change.rev).await {
                tracing::warn!(%error, "issuers could not be reloaded");
            }
            return;
        }
        if let (RevisionKind::Catalogue, Some(embedded)) = (change.kind, &self.embedded) {
            embedded.note(change.tenant);
        }
        let Some(live) = self.live.get(change.tenant) else {
            // a replica that only lists the tenant's servers has no snapshot that says what is switched off
            match change.kind {
                RevisionKind::Catalogue => {
                    if let Err(error) = self.end_programs(change.tenant).await {
                        tracing::warn!(%error, tenant = %change.tenant, "programs that may be switched off go on");
                    }
                }
                RevisionKind::Access => self.forget_unless_served(change.tenant).await,
                RevisionKind::Vectors | RevisionKind::Issuers => {}
            }
            return;
        };
        if let Err(error) = self.reload(&live, change.kind, change.rev).await {
            tracing::warn!(%error, tenant = %change.tenant, kind = ?change.kind, "a snapshot could not be reloaded");
        }
    }

    /// Applies a change made by this replica, so that the replica that answers has it.
    pub(in crate::gateway) async fn applied(&self, tenant: TenantId, kind: RevisionKind, rev: i64) {
        self.follow(Change { tenant, kind, rev }).await;
    }
}
