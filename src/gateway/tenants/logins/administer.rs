//! Administration of logins: issuers and assignments by the platform, rules by a tenant's admin.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::domain::host::may_be_named;
use crate::domain::id::{TenantId, is_name};
use crate::domain::identity::{Audiences, IdentityRule, TokenAlgorithm, TokenType};
use crate::domain::tenant::Action;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::live::login::read_rules;
use crate::gateway::tenants::{Caller, Tenants};
use crate::store::{Issuer, IssuerAssignment, IssuerPatch, NewIssuer, RevisionKind, StoreError};

/// Longest URL, claim or value, in bytes.
const TEXT_BYTES_MAX: usize = 500;
/// Most audiences of an issuer.
const AUDIENCES_MAX: usize = 50;
/// Most scopes that clients are told to ask for.
const SCOPES_MAX: usize = 20;
/// Longest scope, in bytes.
const SCOPE_BYTES_MAX: usize = 200;
/// Most assignments of an issuer.
const ASSIGNMENTS_MAX: usize = 1000;
/// Largest rules of a tenant, in bytes.
const RULES_BYTES_MAX: usize = 256 * 1024;

/// Fields of an issuer, to create it or to change it. `None` leaves a field or takes its default; `Some(None)` removes it.
#[derive(Clone, Debug, Default)]
pub struct IssuerRequest {
    /// Name of the host whose metadata lists the issuer.
    pub host: Option<Option<String>>,
    /// Name of the tenant of all its people.
    pub tenant: Option<Option<String>>,
    /// Audiences besides the gateway's URLs.
    pub audiences: Option<Vec<String>>,
    /// Accepted signature algorithms; default all.
    pub algorithms: Option<Vec<String>>,
    /// Accepted kinds of tokens; default all, and tokens that do not say theirs.
    pub token_types: Option<Option<Vec<String>>>,
    /// Scopes that clients are told to ask the issuer for; default none.
    pub advertised_scopes: Option<Vec<String>>,
    /// Claim that identifies a person; default `sub`.
    pub subject_claim: Option<Option<String>>,
    /// Claim that names a person.
    pub owner_claim: Option<Option<String>>,
    /// Claim of assignments that name none.
    pub tenant_claim: Option<Option<String>>,
    /// URL of the key set; discovered if absent.
    pub jwks_uri: Option<Option<String>>,
    /// Version that the issuer must still have; `None` for any.
    pub version: Option<i64>,
}

/// Rules of a tenant.
#[derive(Clone, Debug)]
pub struct RulesView {
    /// Number of changes; 0 before the first.
    pub version: i64,
    /// Rules, in which issuers have their names.
    pub rules: Vec<IdentityRule>,
}

fn text(field: &str, value: &str) -> Result<(), GatewayError> {
    let good =
        !value.trim().is_empty() && value.len() <= TEXT_BYTES_MAX && !value.chars().any(char::is_control);
    let wrong = || {
        let message =
            format!("{field} must be a text of 1 to {TEXT_BYTES_MAX} bytes without control characters");
        GatewayError::invalid(field, message)
    };
    if good { Ok(()) } else { Err(wrong()) }
}

/// Checks the scopes that clients are told to ask for: scope tokens of RFC 6749.
fn check_scopes(scopes: &[String]) -> Result<(), GatewayError> {
    let is_char = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    let is_scope =
        |scope: &String| !scope.is_empty() && scope.len() <= SCOPE_BYTES_MAX && scope.bytes().all(is_char);
    if scopes.len() > SCOPES_MAX || !scopes.iter().all(is_scope) {
        let message = "advertised_scopes must be at most 20 scopes of 1 to 200 printable characters, without spaces, \" and \\";
        return Err(GatewayError::invalid("advertised_scopes", message));
    }
    if scopes.iter().any(|scope| scope == "offline_access") {
        let message = "offline_access is not for a gateway to ask for: clients do that themselves";
        return Err(GatewayError::invalid("advertised_scopes", message));
    }
    Ok(())
}

fn issuer_error(error: StoreError) -> GatewayError {
    GatewayError::from_store(error, "issuer")
}

impl Tenants {
    /// Checks the URL of an issuer, or of its keys.
    fn check_login_url(&self, field: &str, url: &str) -> Result<(), GatewayError> {
        text(field, url)?;
        if url.contains(['?', '#', '@']) {
            let message = format!("{field} must be a URL without user name, query or fragment");
            return Err(GatewayError::invalid(field, message));
        }
        self.upstreams
            .check_issuer_url(url)
            .map_err(|error| GatewayError::invalid(field, error.detail.to_string()))
    }

    fn check_issuer(&self, request: &IssuerRequest) -> Result<(), GatewayError> {
        let given = |field: &Option<Option<String>>| field.as_ref().and_then(Clone::clone);
        for (field, value) in [
            ("host", &request.host),
            ("subject_claim", &request.subject_claim),
            ("owner_claim", &request.owner_claim),
            ("tenant_claim", &request.tenant_claim),
        ] {
            given(value).map_or(Ok(()), |value| text(field, &value))?;
        }
        if let Some(url) = given(&request.jwks_uri) {
            self.check_login_url("jwks_uri", &url)?;
        }
        let audiences = request.audiences.iter().flatten();
        audiences.clone().try_for_each(|audience| text("audiences", audience))?;
        if audiences.count() > AUDIENCES_MAX {
            return Err(GatewayError::invalid("audiences", "audiences must have at most 50 entries"));
        }
        let algorithms = request.algorithms.as_deref();
        let is_known = |name: &String| TokenAlgorithm::parse(name).is_some();
        if algorithms.is_some_and(|names| names.is_empty() || !names.iter().all(is_known)) {
            let message = format!("algorithms must be a list of: {}", TokenAlgorithm::WORDS.join(", "));
            return Err(GatewayError::invalid("algorithms", message));
        }
        let types = request.token_types.as_ref().and_then(Option::as_deref);
        let is_type = |name: &String| TokenType::parse(name).is_some();
        if types.is_some_and(|names| names.is_empty() || !names.iter().all(is_type)) {
            let message = format!("token_types must be null, or a list of: {}", TokenType::WORDS.join(", "));
            return Err(GatewayError::invalid("token_types", message));
        }
        request.advertised_scopes.as_deref().map_or(Ok(()), check_scopes)?;
        self.check_host(request.host.as_ref().and_then(Option::as_deref))
    }

    /// Checks that clients can reach the gateway under an issuer's own host.
    fn check_host(&self, host: Option<&str>) -> Result<(), GatewayError> {
        match host {
            Some(host) if !may_be_named(&self.options.logins.allowed_hosts, host) => {
                let message =
                    format!("requests for '{host}' are refused: add it to server.allowed_hosts first");
                Err(GatewayError::invalid("host", message))
            }
            _ => Ok(()),
        }
    }

    async fn tenant_named(&self, field: &str, name: &str) -> Result<TenantId, GatewayError> {
        match self.store.find_tenant(name).await {
            Ok(tenant) => Ok(tenant.tenant_id()),
            Err(StoreError::NotFound) => {
                Err(GatewayError::invalid(field, format!("there is no tenant '{name}'")))
            }
            Err(error) => Err(GatewayError::from_store(error, "tenant")),
        }
    }

    /// Returns a page of issuers in name order, after the name `after`.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, or [`GatewayError::Unavailable`].
    pub async fn list_issuers(
        &self,
        caller: &Caller,
        after: &str,
        limit: i64,
    ) -> Result<Vec<Issuer>, GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        self.store.list_issuers(after, limit).await.map_err(issuer_error)
    }

    /// Returns one issuer.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], or [`GatewayError::Unavailable`].
    pub async fn get_issuer(&self, caller: &Caller, name: &str) -> Result<Issuer, GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        self.store.find_issuer(name).await.map_err(issuer_error)
    }

    /// Creates an issuer, and fetches its keys. An issuer whose keys cannot be fetched now is created all the same.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] for a field, [`GatewayError::Conflict`] for a taken name or
    /// URL, [`GatewayError::Limit`], or [`GatewayError::Unavailable`].
    pub async fn create_issuer(
        &self,
        caller: &Caller,
        (name, issuer): (String, String),
        request: IssuerRequest,
    ) -> Result<Issuer, GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        if !is_name(&name) {
            let message = "name must be 1 to 32 of a-z, 0-9 and single hyphens, and start and end with a letter or digit";
            return Err(GatewayError::invalid("name", message));
        }
        self.check_login_url("issuer", &issuer)?;
        self.check_issuer(&request)?;
        let audiences = request.audiences.unwrap_or_default();
        if audiences.is_empty() && self.options.logins.public_url.is_none() {
            let message = "name an audience, or set server.public_url: without either, no token could be for this gateway";
            return Err(GatewayError::invalid("audiences", message));
        }
        let tenant = match request.tenant.flatten() {
            Some(name) => Some(self.tenant_named("tenant", &name).await?),
            None => None,
        };
        let all = || TokenAlgorithm::WORDS.map(str::to_owned).to_vec();
        let new = NewIssuer {
            name,
            issuer,
            host: request.host.flatten(),
            tenant,
            audiences,
            algorithms: request.algorithms.unwrap_or_else(all),
            token_types: request.token_types.flatten(),
            advertised_scopes: request.advertised_scopes.unwrap_or_default(),
            subject_claim: request.subject_claim.flatten().unwrap_or_else(|| "sub".to_owned()),
            owner_claim: request.owner_claim.flatten(),
            tenant_claim: request.tenant_claim.flatten(),
            jwks_uri: request.jwks_uri.flatten(),
        };
        let made = self.store.create_issuer(&new).await.map_err(issuer_error)?;
        self.follow_issuer(&made).await;
        self.store.find_issuer(&made.name).await.map_err(issuer_error)
    }

    /// Changes an issuer.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] for a field, [`GatewayError::NotFound`],
    /// [`GatewayError::Conflict`], or [`GatewayError::Unavailable`].
    pub async fn update_issuer(
        &self,
        caller: &Caller,
        name: &str,
        request: IssuerRequest,
    ) -> Result<Issuer, GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        self.check_issuer(&request)?;
        let tenant = match &request.tenant {
            None => None,
            Some(None) => Some(None),
            Some(Some(name)) => Some(Some(self.tenant_named("tenant", name).await?)),
        };
        let patch = IssuerPatch {
            host: request.host,
            tenant,
            audiences: request.audiences,
            algorithms: request.algorithms,
            token_types: request.token_types,
            advertised_scopes: request.advertised_scopes,
            subject_claim: request.subject_claim.map(|claim| claim.unwrap_or_else(|| "sub".to_owned())),
            owner_claim: request.owner_claim,
            tenant_claim: request.tenant_claim,
            jwks_uri: request.jwks_uri,
            version: request.version,
        };
        let changed = self.store.update_issuer(name, &patch).await.map_err(issuer_error)?;
        self.follow_issuer(&changed).await;
        self.store.find_issuer(name).await.map_err(issuer_error)
    }

    /// Applies a change of an issuer here, and fetches its keys if there are none.
    async fn follow_issuer(&self, issuer: &Issuer) {
        self.refresh_issuers().await;
        if issuer.jwks.is_none()
            && let Err(error) = self.fetch_if_due(issuer.issuer_id()).await
        {
            tracing::warn!(%error, issuer = issuer.name, "keys of an issuer could not be fetched yet");
        }
    }

    /// Deletes an issuer: its tokens are refused within a second on every replica.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], or [`GatewayError::Unavailable`].
    pub async fn delete_issuer(&self, caller: &Caller, name: &str) -> Result<(), GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        self.store.delete_issuer(name).await.map_err(issuer_error)?;
        self.refresh_issuers().await;
        Ok(())
    }

    /// Returns the assignments of an issuer's people to tenants, with the issuer's version.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], or [`GatewayError::Unavailable`].
    pub async fn issuer_tenants(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<(i64, Vec<IssuerAssignment>), GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        self.store.issuer_tenants(name).await.map_err(issuer_error)
    }

    /// Replaces the assignments of an issuer's people to tenants: claim (`None` for the issuer's `tenant_claim`), value and name of the
    /// tenant of each. `version` is the one that the issuer must still have; `None` for any.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] for an item, [`GatewayError::NotFound`],
    /// [`GatewayError::Conflict`] for another version, or [`GatewayError::Unavailable`].
    pub async fn put_issuer_tenants(
        &self,
        caller: &Caller,
        (name, version): (&str, Option<i64>),
        items: Vec<(Option<String>, String, String)>,
    ) -> Result<(i64, Vec<IssuerAssignment>), GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        let issuer = self.store.find_issuer(name).await.map_err(issuer_error)?;
        if items.len() > ASSIGNMENTS_MAX {
            return Err(GatewayError::invalid("items", "items must have at most 1000 entries"));
        }
        let mut checked = Vec::new();
        let mut known: HashMap<String, TenantId> = HashMap::new();
        for (at, (claim, value, tenant)) in items.into_iter().enumerate() {
            let claim = claim.or_else(|| issuer.tenant_claim.clone()).ok_or_else(|| {
                let message = "name the claim, or give the issuer a tenant_claim";
                GatewayError::invalid(format!("items[{at}].claim"), message)
            })?;
            text(&format!("items[{at}].claim"), &claim)?;
            text(&format!("items[{at}].value"), &value)?;
            let id = match known.get(&tenant) {
                Some(id) => *id,
                None => self.tenant_named(&format!("items[{at}].tenant"), &tenant).await?,
            };
            known.insert(tenant, id);
            checked.push((claim, value, id));
        }
        self.store.put_issuer_tenants(name, version, &checked).await.map_err(issuer_error)?;
        self.refresh_issuers().await;
        self.store.issuer_tenants(name).await.map_err(issuer_error)
    }

    /// Returns the audiences of tokens that open the gateway, of the issuer of exactly this URL; `None` if no people of the tenant
    /// log in with it.
    pub(in crate::gateway) async fn audiences_of(
        &self,
        tenant: TenantId,
        issuer: &str,
    ) -> Option<Arc<Audiences>> {
        self.refresh_issuers().await;
        let book = self.logins.book();
        let issuer = book.by_url(issuer).filter(|issuer| issuer.serves(tenant))?;
        Some(Arc::clone(&issuer.audiences))
    }

    /// Returns the names of the issuers whose people may be the tenant's, by id.
    pub(super) fn issuers_of(&self, tenant: TenantId) -> HashMap<String, String> {
        let book = self.logins.book();
        let own = book.all().filter(|issuer| issuer.serves(tenant));
        own.map(|issuer| (issuer.id.to_string(), issuer.name.clone())).collect()
    }

    /// Returns the rules of the caller's tenant.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn identity_rules(&self, caller: &Caller) -> Result<RulesView, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?.id;
        let stored = self.store.identity_rules(tenant).await;
        let stored = stored.map_err(|error| GatewayError::from_store(error, "rules"))?;
        let names = self.issuers_of(tenant);
        let mut rules = read_rules(tenant, &stored.rules);
        for issuer in rules.iter_mut().filter_map(|rule| rule.issuer.as_mut()) {
            // an issuer that is gone, or no longer the tenant's, has no name here
            *issuer = names.get(issuer).unwrap_or(issuer).clone();
        }
        Ok(RulesView { version: stored.version, rules })
    }

    /// Replaces the rules of the caller's tenant.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] for a rule or without a tenant,
    /// [`GatewayError::Conflict`] for another version, or [`GatewayError::Unavailable`].
    pub async fn put_identity_rules(
        &self,
        caller: &Caller,
        version: i64,
        rules: &[Value],
    ) -> Result<RulesView, GatewayError> {
        caller.authorise(Action::ManageKeys)?;
        let tenant = caller.tenant()?.id;
        let mut parsed = Vec::new();
        for (at, rule) in rules.iter().enumerate() {
            let read = serde_json::from_value::<IdentityRule>(rule.clone());
            parsed.push(
                read.map_err(|error| GatewayError::invalid(format!("rules[{at}]"), error.to_string()))?,
            );
        }
        IdentityRule::check_all(&parsed)
            .map_err(|fault| GatewayError::invalid(fault.path.clone(), fault.to_string()))?;
        let ids: HashMap<String, String> =
            self.issuers_of(tenant).into_iter().map(|(id, name)| (name, id)).collect();
        for (at, rule) in parsed.iter_mut().enumerate() {
            let Some(name) = &mut rule.issuer else { continue };
            let unknown = || {
                let message = format!("no issuer '{name}' has people of this tenant");
                GatewayError::invalid(format!("rules[{at}].issuer"), message)
            };
            *name = ids.get(name.as_str()).ok_or_else(unknown)?.clone();
        }
        let stored = serde_json::to_string(&parsed).map_err(|_| GatewayError::Unavailable)?;
        if stored.len() > RULES_BYTES_MAX {
            return Err(GatewayError::invalid("rules", "the rules must have at most 256 KiB"));
        }
        let done = self.store.put_identity_rules(tenant, version, &stored).await;
        done.map_err(|error| GatewayError::from_store(error, "rules"))?;
        self.refresh(tenant, RevisionKind::Access).await;
        self.identity_rules(caller).await
    }
}
