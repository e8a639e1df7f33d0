//! Policies in force of a tenant and its keys, compiled once per version and kept from snapshot to snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use crate::domain::id::{KeyId, TenantId};
use crate::domain::policy::RuleSet;
use crate::store::PolicyInForce;

/// Compiled version of a policy.
#[derive(Debug, Default)]
pub struct CompiledPolicy {
    /// Number of the version; 0 if there never was one.
    pub version: i64,
    /// Rules of the version.
    pub rules: RuleSet,
}

/// Policies of the tenant and the key that apply to a caller.
#[derive(Clone, Debug, Default)]
pub struct CallerPolicies {
    /// Policy of the tenant.
    pub tenant: Arc<CompiledPolicy>,
    /// Policy of the API key.
    pub key: Arc<CompiledPolicy>,
}

/// Policies in force of a tenant and its live keys. `None` stands for the tenant itself.
#[derive(Clone, Debug, Default)]
pub(in crate::gateway) struct TenantPolicies {
    compiled: HashMap<Option<KeyId>, Arc<CompiledPolicy>>,
    none: Arc<CompiledPolicy>,
}

impl TenantPolicies {
    /// Returns the versions that are compiled.
    pub(in crate::gateway) fn known(&self) -> HashMap<Option<KeyId>, i64> {
        self.compiled.iter().map(|(key, policy)| (*key, policy.version)).collect()
    }

    /// Returns the policies of a newer snapshot: those whose rules came along are compiled, the others taken over. Takes
    /// milliseconds for long policies.
    pub(in crate::gateway) fn follow(&self, tenant: TenantId, rows: Vec<PolicyInForce>) -> TenantPolicies {
        let compiled = rows.into_iter().map(|row| {
            let known = self.compiled.get(&row.key).filter(|known| known.version == row.version);
            let policy = match (row.rules, known) {
                (None, Some(known)) => Arc::clone(known),
                (rules, _) => {
                    let rules = compile(tenant, &row.key, rules.as_deref().unwrap_or_default());
                    Arc::new(CompiledPolicy { version: row.version, rules })
                }
            };
            (row.key, policy)
        });
        TenantPolicies { compiled: compiled.collect(), none: Arc::clone(&self.none) }
    }

    /// Returns the policies that apply to a key; of the bootstrap key, the tenant's alone.
    pub(in crate::gateway) fn of(&self, key: Option<KeyId>) -> CallerPolicies {
        let policy = |key: &Option<KeyId>| Arc::clone(self.compiled.get(key).unwrap_or(&self.none));
        let own = key.map_or_else(|| Arc::clone(&self.none), |key| policy(&Some(key)));
        CallerPolicies { tenant: policy(&None), key: own }
    }
}

/// Compiles stored rules. Rules of a newer release that this one cannot read deny every call.
fn compile(tenant: TenantId, key: &Option<KeyId>, rules: &str) -> RuleSet {
    RuleSet::parse(rules).unwrap_or_else(|fault| {
        tracing::warn!(%tenant, ?key, %fault, "a stored policy cannot be read, and denies every call");
        RuleSet::unreadable()
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn row(key: Option<u128>, version: i64, rules: Option<&str>) -> PolicyInForce {
        let key = key.map(|key| KeyId(Uuid::from_u128(key)));
        PolicyInForce { key, version, rules: rules.map(str::to_owned) }
    }

    #[test]
    fn versions_are_compiled_once_and_go_with_their_key() {
        let (tenant, deny) = (TenantId(Uuid::from_u128(1)), r#"[{"id":"a","effect":"deny"}]"#);
        let first = TenantPolicies::default().follow(
            tenant,
            vec![row(None, 1, Some(deny)), row(Some(7), 3, Some("[]")), row(Some(8), 1, Some("?"))],
        );
        let key = |n| Some(KeyId(Uuid::from_u128(n)));
        assert_eq!(first.known(), HashMap::from([(None, 1), (key(7), 3), (key(8), 1)]));
        assert_eq!((first.of(key(7)).tenant.rules.len(), first.of(key(7)).key.version), (1, 3));
        assert_eq!(first.of(key(8)).key.rules.len(), 1, "what cannot be read denies");
        assert_eq!((first.of(key(9)).tenant.version, first.of(key(9)).key.version), (1, 0));
        assert_eq!(first.of(None).key.version, 0);
        let second = first.follow(tenant, vec![row(None, 1, None), row(Some(7), 4, Some(deny))]);
        assert!(Arc::ptr_eq(&first.of(None).tenant, &second.of(None).tenant));
        assert_eq!((second.of(key(7)).key.rules.len(), second.of(key(8)).key.version), (1, 0));
    }
}
