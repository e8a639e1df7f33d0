//! Policies of the tenant and of its keys.

use super::Tenants;
use crate::domain::id::KeyId;
use crate::domain::policy::{PolicyDocument, PolicyMode, RuleSet};
use crate::domain::settings::Effective;
use crate::domain::tenant::Action;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::live::access::Caller;
use crate::store::{NewPolicy, PolicyVersion, RevisionKind};

/// Policy in force, with warnings about it.
#[derive(Debug)]
pub struct PolicyView {
    /// Number of the version; 0 if there never was one.
    pub version: i64,
    /// Value of `policy_mode` that holds in this scope.
    pub mode: PolicyMode,
    /// Rules as they were written, a JSON array.
    pub rules: String,
    /// Warnings about rules that can never match, or match no known tool.
    pub warnings: Vec<String>,
}

impl Tenants {
    /// Returns the policy in force of the tenant, or of one key.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`] for the key, [`GatewayError::Invalid`] without a
    /// tenant, or [`GatewayError::Unavailable`].
    pub async fn read_policy(&self, caller: &Caller, key: Option<KeyId>) -> Result<PolicyView, GatewayError> {
        caller.authorise(Action::SeePolicies)?;
        let tenant = caller.tenant()?.id;
        let store = |error| GatewayError::from_store(error, "key");
        if let Some(key) = key {
            self.store.get_key(tenant, key).await.map_err(store)?;
        }
        let stored = self.store.get_policy(tenant, key).await.map_err(store)?;
        let own = self.store.get_settings(tenant, None).await.map_err(store)?.settings;
        let of_key = match key {
            Some(_) => self.store.get_settings(tenant, key).await.map_err(store)?.settings,
            None => Default::default(),
        };
        let mode = Effective::resolve(&of_key, &own, &self.options.defaults).policy_mode;
        let Some(PolicyVersion { version, rules, .. }) = stored else {
            return Ok(PolicyView { version: 0, mode, rules: "[]".to_owned(), warnings: Vec::new() });
        };
        let warnings = self.upstreams.in_turn(tenant.0, || warnings(caller, &rules)).await;
        Ok(PolicyView { version, mode, rules, warnings })
    }

    /// Replaces the policy of the tenant, or of one key, by a document that names the version it replaces. A mode in the
    /// document sets `policy_mode` of the same scope in the same change.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a version or a tenant,
    /// [`GatewayError::NotFound`] for the key, [`GatewayError::Conflict`] for another version, [`GatewayError::Limit`] for too
    /// many or too large policies, or [`GatewayError::Unavailable`].
    pub async fn put_policy(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        document: PolicyDocument,
    ) -> Result<PolicyView, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?;
        let replaces = document.version.ok_or_else(|| {
            GatewayError::invalid(
                "version",
                "version is needed: the one that this document replaces, 0 for the first",
            )
        })?;
        let PolicyDocument { mode, rules_text: rules, .. } = document;
        let new = NewPolicy { replaces: replaces.into(), mode, rules, created_by: caller.key };
        let stored = self.store.put_policy(tenant.id, key, &new).await;
        stored.map_err(|error| GatewayError::from_store(error, "key"))?;
        self.refresh(tenant.id, RevisionKind::Access).await;
        self.read_policy(caller, key).await
    }

    /// Returns versions of the tenant's policy that are older than `before`, the newest first. The page ends with the
    /// version that makes its rules larger than `bytes_max`.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn list_policies(
        &self,
        caller: &Caller,
        before: i64,
        limit: i64,
        bytes_max: i64,
    ) -> Result<Vec<PolicyVersion>, GatewayError> {
        caller.authorise(Action::SeePolicies)?;
        let tenant = caller.tenant()?.id;
        let versions = self.store.list_policies(tenant, before, limit, bytes_max).await;
        versions.map_err(|error| GatewayError::from_store(error, "policy"))
    }
}

fn warnings(caller: &Caller, rules: &str) -> Vec<String> {
    let Ok(rules) = RuleSet::parse(rules) else {
        return vec!["This release cannot read the stored rules, so every call is denied.".to_owned()];
    };
    let catalogue = caller.catalogue();
    let known: Vec<&str> = catalogue.iter().flat_map(|catalogue| catalogue.tool_names()).collect();
    rules.warnings(&known)
}
