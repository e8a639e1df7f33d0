//! Administration of tenants by the platform.

use serde_json::{Map, Value};

use super::Tenants;
use crate::domain::id::{PLATFORM_TENANT, TenantId, is_name};
use crate::domain::quota::{OwnQuotas, Quotas};
use crate::domain::tenant::Action;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::live::access::Caller;
use crate::store::{RevisionKind, Tenant, Usage};

/// Quotas and usage of a tenant.
#[derive(Clone, Copy, Debug)]
pub struct QuotaView {
    /// Quotas set for this tenant; the deployment's defaults apply to the others.
    pub own: OwnQuotas,
    /// Quotas in force.
    pub quotas: Quotas,
    /// Present usage.
    pub usage: Usage,
}

impl Tenants {
    /// Creates a tenant.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] for the name, [`GatewayError::Conflict`] for a
    /// taken or reserved name, [`GatewayError::Limit`], or [`GatewayError::Unavailable`].
    pub async fn create_tenant(&self, caller: &Caller, name: &str) -> Result<Tenant, GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        if !is_name(name) {
            return Err(GatewayError::invalid(
                "name",
                "name must be 1 to 32 of a-z, 0-9 and single hyphens, and start and end with a letter or digit",
            ));
        }
        if name == PLATFORM_TENANT {
            return Err(GatewayError::Conflict("the name platform is reserved".to_owned()));
        }
        let made = self.store.create_tenant(name, self.options.tenants_max).await;
        made.map_err(|error| GatewayError::from_store(error, "tenant"))
    }

    /// Returns a page of tenants in name order, after the name `after`.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, or [`GatewayError::Unavailable`].
    pub async fn list_tenants(
        &self,
        caller: &Caller,
        after: &str,
        limit: i64,
    ) -> Result<Vec<Tenant>, GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        self.store.list_tenants(after, limit).await.map_err(|error| GatewayError::from_store(error, "tenant"))
    }

    /// Returns one tenant by name.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], or [`GatewayError::Unavailable`].
    pub async fn get_tenant(&self, caller: &Caller, name: &str) -> Result<Tenant, GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        self.store.find_tenant(name).await.map_err(|error| GatewayError::from_store(error, "tenant"))
    }

    /// Returns the quotas and usage of a tenant.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, or [`GatewayError::Unavailable`].
    pub async fn tenant_quotas(&self, caller: &Caller, tenant: &Tenant) -> Result<QuotaView, GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        let usage = self.store.usage(tenant.tenant_id()).await;
        let usage = usage.map_err(|error| GatewayError::from_store(error, "tenant"))?;
        let own = tenant.quotas;
        Ok(QuotaView { own, quotas: own.resolve(&self.options.quotas), usage })
    }

    /// Changes a tenant's quotas; `null` restores the deployment's default. Existing items stay, even above a lower quota.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] for a field, or
    /// [`GatewayError::Unavailable`].
    pub async fn patch_quotas(
        &self,
        caller: &Caller,
        name: &str,
        patch: &Map<String, Value>,
    ) -> Result<Tenant, GatewayError> {
        let tenant = self.get_tenant(caller, name).await?.tenant_id();
        let checked = OwnQuotas::default().patched(patch);
        checked.map_err(|error| GatewayError::invalid(error.field, error.message))?;
        let changed = self.store.update_quotas(tenant, patch).await;
        changed.map_err(|error| GatewayError::from_store(error, "tenant"))?;
        self.refresh(tenant, RevisionKind::Access).await;
        self.get_tenant(caller, name).await
    }

    /// Deletes a tenant. Its keys stop working within a second on every replica, and its streams and connections end. Calls
    /// under way finish.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], or [`GatewayError::Unavailable`].
    pub async fn delete_tenant(&self, caller: &Caller, name: &str) -> Result<(), GatewayError> {
        let tenant = self.get_tenant(caller, name).await?;
        let deleted = self.store.delete_tenant(tenant.tenant_id()).await;
        deleted.map_err(|error| GatewayError::from_store(error, "tenant"))?;
        self.refresh(tenant.tenant_id(), RevisionKind::Access).await;
        Ok(())
    }

    /// Updates this replica's snapshot with a change that was just committed here.
    pub(in crate::gateway) async fn refresh(&self, tenant: TenantId, kind: RevisionKind) {
        match self.store.revisions(&[tenant]).await {
            Ok(changes) => {
                for change in changes.into_iter().filter(|change| change.kind == kind) {
                    self.follow(change).await;
                }
            }
            Err(error) => tracing::warn!(%error, %tenant, "a change made here is not applied here yet"),
        }
    }
}
