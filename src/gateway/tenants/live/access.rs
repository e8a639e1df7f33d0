//! Access rights in one tenant: its keys with their settings, at one revision.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::LiveTenant;
use super::bucket::Bucket;
use super::grants::{HeldGrants, TenantGrants};
use super::login::{Login, read_rules};
use super::policies::{CallerPolicies, TenantPolicies};
use crate::domain::consent::MayNotDecide;
use crate::domain::glob::Globs;
use crate::domain::id::{IdentityId, KeyId, PLATFORM_TENANT, TenantId};
use crate::domain::identity::{CallerToken, IdentityRule, scope_for};
use crate::domain::operation::OperationType;
use crate::domain::person::Person;
use crate::domain::quota::Quotas;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::settings::{Defaults, Effective, Rates, Settings};
use crate::domain::tenant::{Action, Role};
use crate::gateway::catalog::Catalog;
use crate::gateway::error::GatewayError;
use crate::store::{AccessRows, ApiKey, BarredIdentity};

/// Error message for every request of a suspended tenant's keys.
pub const SUSPENDED: &str = "this tenant is suspended; ask the platform operator";

/// An authenticated caller: one key in one tenant, with its effective settings.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Tenant that the caller acts in; `None` for the bootstrap key without `X-Tenant`.
    pub(in crate::gateway) tenant: Option<Arc<LiveTenant>>,
    /// Id of the principal: of the API key, or of the identity of a person who logged in; `None` for the bootstrap key.
    pub key: Option<KeyId>,
    /// Name of the key, as recorded; `None` without one.
    pub key_name: Option<String>,
    /// Owner of the key, as shown and recorded.
    pub owner: String,
    /// Person who holds the key, for separation of duties. Of owners only those count that somebody named.
    pub(in crate::gateway) person: Person,
    /// Role of the key.
    pub role: Role,
    /// Settings of key, tenant and deployment combined.
    pub settings: Effective,
    /// Policies of tenant and key, compiled.
    pub(in crate::gateway) policies: CallerPolicies,
    /// Remembered decisions about calls of the key.
    pub(in crate::gateway) grants: Arc<HeldGrants>,
    /// Expiry of the key; `None` if it does not expire.
    pub expires_at: Option<DateTime<Utc>>,
    /// Rate limits of the key and of its tenant, in attempts per minute.
    pub(in crate::gateway) rates: Rates,
    /// Token bucket of the key's own rate limit; kept as long as the key lives.
    pub(in crate::gateway) bucket: Arc<Bucket>,
    /// Login of a person; `None` for API keys.
    pub login: Option<Arc<Login>>,
    /// Access token that a person came with, where a server of the tenant takes what is given in exchange for it; `None` elsewhere.
    pub(in crate::gateway) sent: Option<Arc<CallerToken>>,
}

impl Caller {
    /// Returns the highest operation of the management tools in the caller's lists; `None` for callers without these tools.
    pub fn manages(&self) -> Option<OperationType> {
        let may = self.role.may(Action::SeeServers) && self.role.may(Action::ChangeServers);
        may.then_some(self.settings.max_operation)
    }

    /// Checks an operation against the scopes of a person's token.
    ///
    /// # Errors
    /// [`Code::InsufficientScope`] if the person has to log in with a broader scope first.
    pub fn check_scope(&self, operation: OperationType) -> Result<(), Refusal> {
        let ceiling = self.login.as_ref().and_then(|login| login.scope_ceiling);
        if ceiling.is_none_or(|ceiling| operation <= ceiling) {
            return Ok(());
        }
        let message = format!("this needs the scope {}", scope_for(operation));
        Err(Refusal::new(Code::InsufficientScope, message).expecting(operation))
    }

    /// Returns who the caller is to servers at which each caller has a login of its own: the principal, and the token that it came with.
    pub(in crate::gateway) fn to_servers(&self) -> (Option<KeyId>, Option<&Arc<CallerToken>>) {
        (self.key, self.sent.as_ref())
    }

    /// Returns the id of the tenant under which the caller's acts are recorded.
    pub fn tenant_id(&self) -> TenantId {
        self.tenant.as_ref().map_or(TenantId::PLATFORM, |tenant| tenant.id)
    }

    /// Returns the catalogue of the caller's tenant; `None` for the bootstrap key without `X-Tenant`.
    pub fn catalogue(&self) -> Option<Arc<Catalog>> {
        self.tenant.as_ref().map(|tenant| tenant.catalogue())
    }

    /// Returns the catalogue of the caller's tenant, if one of its servers may send clients log messages.
    pub(in crate::gateway) fn relaying(&self) -> Option<Arc<Catalog>> {
        let catalogue = self.tenant.as_ref()?.catalogue_now();
        catalogue.relays_logs.then(|| Arc::clone(&catalogue))
    }

    /// Returns the most streams that all keys of the tenant may hold open on this replica. `None` for the
    /// platform's own key.
    pub fn tenant_streams_max(&self) -> Option<usize> {
        let tenant = self.tenant.as_ref().filter(|_| self.key.is_some())?;
        let max = tenant.access().as_ref().as_ref()?.quotas.streams;
        Some(usize::try_from(max).unwrap_or(usize::MAX))
    }

    /// Returns the persons who hold a key of the caller's tenant, or a rotation of it, now; `root` is the first key of its line.
    /// None are left when these keys have ended.
    pub(in crate::gateway) fn persons_of(&self, key: KeyId, root: KeyId) -> Vec<Person> {
        let Some(access) = self.tenant.as_ref().map(|tenant| tenant.access()) else { return Vec::new() };
        let Some(access) = access.as_ref().as_ref() else { return Vec::new() };
        let root = access.by_id.get(&key).and_then(|held| held.person.root).unwrap_or(root);
        let persons = access.by_id.values().map(|held| &held.person);
        persons.filter(|person| person.root == Some(root)).cloned().collect()
    }

    /// Returns the name of the tenant that the caller acts in.
    pub fn tenant_name(&self) -> &str {
        self.tenant.as_ref().map_or(PLATFORM_TENANT, |tenant| tenant.name.as_str())
    }

    /// Returns the tenant that the caller acts in.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] for a platform caller that named none.
    pub(in crate::gateway) fn tenant(&self) -> Result<&Arc<LiveTenant>, GatewayError> {
        self.tenant.as_ref().ok_or_else(|| {
            GatewayError::invalid("X-Tenant", "name the tenant to act in with the header X-Tenant: NAME")
        })
    }

    /// Checks by role and suspension that the caller may do an action. All authorisation goes through this function
    /// (behaviour, section 3).
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] or [`GatewayError::MayNotDecide`], with the roles that may.
    pub fn authorise(&self, action: Action) -> Result<(), GatewayError> {
        if self.role.may(action) {
            let is_open = action.is_open_while_suspended() || !self.is_suspended();
            return if is_open { Ok(()) } else { Err(GatewayError::Forbidden(SUSPENDED.to_owned())) };
        }
        if action == Action::DecideConsent {
            return Err(GatewayError::MayNotDecide(MayNotDecide::NotApprover));
        }
        let may: Vec<&str> =
            Role::ALL.into_iter().filter(|role| role.may(action)).map(Role::as_str).collect();
        Err(GatewayError::Forbidden(format!(
            "a key of role {} may not do this; it takes one of {}",
            self.role.as_str(),
            may.join(", ")
        )))
    }

    /// Returns the attempts per minute of the key, or of all keys of its tenant if that is fewer. `None`
    /// without a limit.
    pub fn rate_limit(&self) -> Option<u32> {
        [self.rates.key, self.rates.tenant].into_iter().flatten().min()
    }

    /// Returns whether the caller's tenant is suspended.
    pub fn is_suspended(&self) -> bool {
        let is_suspended = |tenant: &Arc<LiveTenant>| {
            tenant.access_now().as_ref().as_ref().is_some_and(|access| access.is_suspended)
        };
        self.tenant.as_ref().is_some_and(is_suspended)
    }

    /// Returns the id of the API key; `None` for the bootstrap key, and for a person who logged in.
    pub fn key_id(&self) -> Option<KeyId> {
        self.key.filter(|_| self.login.is_none())
    }

    /// Returns the identity of the person who logged in, or whom an administrator named for the key.
    pub fn identity_id(&self) -> Option<IdentityId> {
        self.person.identity
    }

    /// Returns whether the key has expired at `now`.
    pub(in crate::gateway) fn is_expired(&self, now: DateTime<Utc>) -> bool {
        self.expires_at.is_some_and(|at| at <= now)
    }
}

/// A tenant's keys and settings at one revision.
#[derive(Debug)]
pub struct Access {
    /// Revision of keys and settings.
    pub rev: i64,
    /// True if the tenant is suspended.
    pub is_suspended: bool,
    /// Quotas in force for the tenant.
    pub quotas: Quotas,
    /// The tenant's own settings.
    pub tenant_settings: Settings,
    /// Compiled policies of the tenant and its keys.
    pub(in crate::gateway) policies: TenantPolicies,
    /// Rules that map claims of tokens to a role.
    pub(in crate::gateway) rules: Vec<IdentityRule>,
    /// People who are blocked, or some of whose tokens are refused.
    pub(in crate::gateway) barred: HashMap<IdentityId, BarredIdentity>,
    /// Remembered decisions about calls of the tenant's keys.
    pub(in crate::gateway) grants: TenantGrants,
    /// Caller of every live key, with the key's hash.
    pub(in crate::gateway) keys: Vec<([u8; 32], Arc<Caller>)>,
    /// Caller of every live key, by the key's id.
    pub(in crate::gateway) by_id: HashMap<KeyId, Arc<Caller>>,
}

impl Access {
    /// Combines the loaded rows with the deployment's defaults.
    pub(in crate::gateway) fn build(
        tenant: &Arc<LiveTenant>,
        rows: &AccessRows,
        policies: TenantPolicies,
        defaults: &Defaults,
        quotas: &Quotas,
    ) -> Access {
        let scope = |id: Uuid| {
            rows.settings
                .iter()
                .find(|(scope, _)| *scope == id)
                .map(|(_, settings)| settings.clone())
                .unwrap_or_default()
        };
        let tenant_settings = scope(Uuid::nil());
        let by_key: HashMap<Uuid, &Settings> =
            rows.settings.iter().map(|(id, settings)| (*id, settings)).collect();
        let none = Settings::default();
        let before = tenant.access();
        let bucket = |key: KeyId| {
            let known = before.as_ref().as_ref().and_then(|access| access.by_id.get(&key));
            known.map(|caller| Arc::clone(&caller.bucket)).unwrap_or_default()
        };
        let grants = TenantGrants::of(&rows.grants);
        let shared = Globs::shared(defaults, &tenant_settings);
        let caller = |key: &ApiKey| {
            let own = by_key.get(&key.id.0).copied().unwrap_or(&none);
            Caller {
                tenant: Some(Arc::clone(tenant)),
                key: Some(key.id),
                key_name: Some(key.name.clone()).filter(|name| !name.is_empty()),
                owner: key.owner.clone(),
                person: Person {
                    key: Some(key.id),
                    root: Some(key.root()),
                    owner: key.owner_given.then(|| key.owner.clone()),
                    email: None,
                    identity: key.identity_id,
                    creator: key.created_by,
                    line_creators: key.line_creators.clone(),
                },
                role: key.role,
                settings: Effective::resolve_within(&shared, own, &tenant_settings, defaults),
                policies: policies.of(Some(key.id)),
                grants: grants.of_key(Some(key.id)),
                expires_at: key.expires_at,
                rates: Rates::resolve(own, &tenant_settings, defaults),
                bucket: bucket(key.id),
                login: None,
                sent: None,
            }
        };
        let keys: Vec<([u8; 32], Arc<Caller>)> =
            rows.keys.iter().map(|key| (key.hash, Arc::new(caller(key)))).collect();
        let by_id = keys.iter().filter_map(|(_, caller)| Some((caller.key?, Arc::clone(caller)))).collect();
        let quotas = rows.quotas.resolve(quotas);
        let (rev, is_suspended) = (rows.rev, rows.is_suspended);
        let rules = read_rules(tenant.id, &rows.rules.rules);
        let barred = rows.barred.iter().map(|barred| (barred.id, *barred)).collect();
        Access { rules, barred, rev, is_suspended, quotas, tenant_settings, policies, grants, keys, by_id }
    }
}

#[cfg(test)]
pub(in crate::gateway) mod tests {
    use super::*;
    use crate::domain::quota::OwnQuotas;
    use crate::store::StoredRules;

    /// Builds a snapshot with these keys, each named by a byte, under example defaults.
    pub fn access(live: &Arc<LiveTenant>, keys: &[u8], settings: Vec<(Uuid, Settings)>) -> Access {
        let key = |n: &u8| ApiKey {
            id: KeyId(Uuid::from_u128((*n).into())),
            role: Role::Agent,
            name: String::new(),
            owner: String::new(),
            owner_given: false,
            identity_id: None,
            created_by: None,
            rotated_root: None,
            predecessor: None,
            successor: None,
            rotation_end: None,
            line_creators: Vec::new(),
            prefix: String::new(),
            hash: [*n; 32],
            created_at: DateTime::UNIX_EPOCH,
            expires_at: None,
            revoked_at: None,
            last_used_at: None,
            version: 1,
        };
        let rows = AccessRows {
            tenant_name: live.name.clone(),
            rev: 1,
            is_suspended: false,
            quotas: OwnQuotas::default(),
            keys: keys.iter().map(key).collect(),
            settings,
            policies: Vec::new(),
            grants: Vec::new(),
            rules: StoredRules::default(),
            barred: Vec::new(),
        };
        let quotas = Quotas { servers: 1, tools: 1, definition_bytes: 1, keys: 1, streams: 1 };
        Access::build(live, &rows, TenantPolicies::default(), &Defaults::example(), &quotas)
    }

    /// Returns the caller of a tenant with one key.
    pub fn caller() -> Arc<Caller> {
        let live = LiveTenant::new(TenantId(Uuid::from_u128(1)), "acme".to_owned());
        Arc::clone(&access(&live, &[1], Vec::new()).keys[0].1)
    }

    #[test]
    fn the_lists_of_a_tenant_are_there_once() {
        let live = LiveTenant::new(TenantId(Uuid::from_u128(1)), "acme".to_owned());
        let allows =
            |pattern: &str| Settings { allowed_tools: Some(vec![pattern.to_owned()]), ..Settings::default() };
        let own = Uuid::from_u128(3);
        let access = access(&live, &[1, 2, 3], vec![(Uuid::nil(), allows("a:*")), (own, allows("a:b"))]);
        let lists: Vec<&Globs> =
            access.keys.iter().map(|(_, caller)| &caller.settings.allowed_tools).collect();
        assert!(lists[0].share(lists[1]) && lists[0].share(lists[2]), "{lists:?}");
        assert!(lists[1].allows("a:c") && !lists[1].allows("b:b"));
        assert!(lists[2].allows("a:b") && !lists[2].allows("a:c"));
    }
}
