//! Policies of the tenant and of its keys.

use std::collections::HashMap;

use uuid::Uuid;

use super::Tenants;
use crate::domain::id::KeyId;
use crate::domain::policy::{PolicyDocument, PolicyMode, RuleSet};
use crate::domain::settings::Effective;
use crate::domain::tenant::Action;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::live::access::Caller;
use crate::store::{NewPolicy, PolicyVersion, PrincipalName, RevisionKind, StoreError};

/// Policy in force, with warnings about it.
#[derive(Debug)]
pub struct PolicyView {
    /// Number of the version; 0 if there never was one.
    pub version: i64,
    /// Value of `policy_mode` that holds in this scope.
    pub mode: PolicyMode,
    /// Rules as they were written, a JSON array.
    pub rules: String,
    /// Warnings about rules that can never match, match no known tool, or whose asks reach nobody or need a weak answer.
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
        let has_webhook = self.store.get_webhook(tenant).await.map_err(store)?.is_some();
        let warnings = self.upstreams.in_turn(tenant.0, || warnings(caller, &rules, has_webhook)).await;
        Ok(PolicyView { version, mode, rules, warnings })
    }

    /// Returns warnings about rules of the tenant that are not in force, as [`PolicyView`] has them of those that are.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn lint_policy(
        &self,
        caller: &Caller,
        document: &PolicyDocument,
    ) -> Result<Vec<String>, GatewayError> {
        caller.authorise(Action::SeePolicies)?;
        let tenant = caller.tenant()?.id;
        let webhook = self.store.get_webhook(tenant).await;
        let has_webhook = webhook.map_err(|error| GatewayError::from_store(error, "webhook"))?.is_some();
        let lint = || warnings_about(caller, &document.rules, has_webhook);
        Ok(self.upstreams.in_turn(tenant.0, lint).await)
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
        match self.store.put_policy(tenant.id, key, &new).await {
            Err(StoreError::Conflict(_)) => {
                let stored = self.store.get_policy(tenant.id, key).await;
                let stored = stored.map_err(|error| GatewayError::from_store(error, "key"))?;
                let there = stored.map_or(0, |policy| policy.version);
                return Err(GatewayError::Conflict(conflict(new.replaces, there, key)));
            }
            stored => stored.map_err(|error| GatewayError::from_store(error, "key"))?,
        };
        self.refresh(tenant.id, RevisionKind::Access).await;
        self.read_policy(caller, key).await
    }

    /// Returns versions of the policy of the tenant, or of one key, that are older than `before`, the newest first. The page
    /// ends with the version that makes its rules larger than `bytes_max`.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`] for the key, [`GatewayError::Invalid`] without a
    /// tenant, or [`GatewayError::Unavailable`].
    pub async fn list_policies(
        &self,
        caller: &Caller,
        key: Option<KeyId>,
        before: i64,
        limit: i64,
        bytes_max: i64,
    ) -> Result<Vec<PolicyVersion>, GatewayError> {
        caller.authorise(Action::SeePolicies)?;
        let tenant = caller.tenant()?.id;
        let store = |error| GatewayError::from_store(error, "key");
        if let Some(key) = key {
            self.store.get_key(tenant, key).await.map_err(store)?;
        }
        self.store.list_policies(tenant, key, before, limit, bytes_max).await.map_err(store)
    }

    /// Returns the present names of the keys and people who made these versions, by id. Those that are gone are left out.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn policy_makers(
        &self,
        caller: &Caller,
        versions: &[PolicyVersion],
    ) -> Result<HashMap<Uuid, PrincipalName>, GatewayError> {
        caller.authorise(Action::SeePolicies)?;
        let mut ids: Vec<Uuid> = versions.iter().filter_map(|version| version.created_by).collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let makers = self.store.principal_names(caller.tenant()?.id, &ids).await;
        makers.map_err(|error| GatewayError::from_store(error, "key"))
    }

    /// Returns the live keys of the tenant that have rules of their own, with their names, sorted by name.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, or [`GatewayError::Invalid`] without a tenant.
    pub fn keys_with_rules(&self, caller: &Caller) -> Result<Vec<(KeyId, String)>, GatewayError> {
        caller.authorise(Action::SeePolicies)?;
        let access = caller.tenant()?.access();
        let keys = access.as_ref().as_ref().into_iter().flat_map(|access| access.by_id.iter());
        let with_rules = keys.filter(|(_, held)| !held.policies.key.rules.is_empty());
        let mut found: Vec<(KeyId, String)> =
            with_rules.map(|(id, held)| (*id, held.key_name.clone().unwrap_or_default())).collect();
        found.sort_unstable_by(|(a, one), (b, other)| one.cmp(other).then_with(|| a.0.cmp(&b.0)));
        Ok(found)
    }
}

/// Returns the text about a document that replaces another version than the one that is `there`.
fn conflict(replaces: i64, there: i64, key: Option<KeyId>) -> String {
    let (path, flag) = match key {
        Some(KeyId(id)) => (format!("/keys/{id}/policy"), format!(" --key {id}")),
        None => ("/policy".to_owned(), String::new()),
    };
    let is_there = match there {
        0 => "there is no version yet, which is version 0".to_owned(),
        there => format!("version {there} is in force"),
    };
    format!(
        "the policy changed since that version: {is_there}, and this document replaces version {replaces}. Look at it \
         (GET {path}, mcpproxy policy show{flag}), put the change into it, and send it with version {there}"
    )
}

fn warnings(caller: &Caller, rules: &str, has_webhook: bool) -> Vec<String> {
    let Ok(rules) = RuleSet::parse(rules) else {
        return vec!["This release cannot read the stored rules, so every call is denied.".to_owned()];
    };
    warnings_about(caller, &rules, has_webhook)
}

fn warnings_about(caller: &Caller, rules: &RuleSet, has_webhook: bool) -> Vec<String> {
    let catalogue = caller.catalogue();
    let known: Vec<&str> = catalogue.iter().flat_map(|catalogue| catalogue.tool_names()).collect();
    rules.warnings(&known, has_webhook)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_name_the_version_that_is_there() {
        let of_tenant = conflict(7, 2, None);
        for part in ["version 2 is in force", "replaces version 7", "(GET /policy, mcpproxy policy show)"] {
            assert!(of_tenant.contains(part), "{of_tenant}");
        }
        assert!(of_tenant.ends_with("send it with version 2"), "{of_tenant}");
        let of_key = conflict(3, 0, Some(KeyId(Uuid::nil())));
        let id = Uuid::nil();
        for part in ["there is no version yet", &format!("/keys/{id}/policy"), &format!("show --key {id})")] {
            assert!(of_key.contains(part), "{of_key}");
        }
    }
}
