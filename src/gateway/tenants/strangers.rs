//! Tenants that are not live here, but have open connections, because this replica lists their servers.

use std::collections::HashMap;

use super::Tenants;
use crate::domain::id::TenantId;
use crate::store::StoreError;

/// Servers per page when their switches are read.
const PROGRAMS_PAGE: i64 = 500;

impl Tenants {
    /// Closes the connections of tenants that are suspended or deleted. This covers lost notices, and listings that were
    /// under way.
    pub(in crate::gateway) async fn forget_unserved(&self) -> Result<(), StoreError> {
        let connected: Vec<TenantId> = self.upstreams.tenants().into_iter().map(TenantId).collect();
        if connected.is_empty() {
            return Ok(());
        }
        for tenant in self.store.unserved(&connected).await? {
            self.upstreams.forget_tenant(tenant.0);
        }
        Ok(())
    }

    /// Ends programs of tenants that are not live here, if they were switched off while notices were lost.
    pub(in crate::gateway) async fn end_unheard_programs(&self) -> Result<(), StoreError> {
        for tenant in self.upstreams.tenants().into_iter().map(TenantId) {
            if self.live.get(tenant).is_none() {
                self.end_programs(tenant).await?;
            }
        }
        Ok(())
    }

    /// Closes the connections of a tenant that is not live here, if it is suspended or deleted.
    pub(super) async fn forget_unless_served(&self, tenant: TenantId) {
        if !self.upstreams.knows(tenant.0) {
            return;
        }
        match self.store.is_served(tenant).await {
            Ok(true) => {}
            Ok(false) => self.upstreams.forget_tenant(tenant.0),
            Err(error) => tracing::warn!(%error, %tenant, "nobody says whether a tenant is still served"),
        }
    }

    /// Ends the programs of a tenant's servers that were removed, switched off or changed.
    pub(super) async fn end_programs(&self, tenant: TenantId) -> Result<(), StoreError> {
        if !self.upstreams.has_programs_of(tenant.0) {
            return Ok(());
        }
        let (mut stay, mut after) = (HashMap::new(), String::new());
        loop {
            let page = self.store.list_servers(tenant, &after, PROGRAMS_PAGE).await?;
            let Some(last) = page.last() else { break };
            after.clone_from(&last.name);
            let on = page.iter().filter(|server| server.enabled);
            stay.extend(on.map(|server| (server.id().0, server.version)));
        }
        self.upstreams.keep_programs_of(tenant.0, &stay);
        Ok(())
    }
}
