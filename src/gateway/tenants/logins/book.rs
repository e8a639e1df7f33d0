//! Snapshot of all issuers, with their keys and assignments.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::domain::id::{IssuerId, TenantId};
use crate::domain::identity::{Audiences, KeySet, TokenAlgorithm, TokenType, claim_has};
use crate::gateway::LoginOptions;
use crate::gateway::tenants::Tenants;
use crate::gateway::tenants::live::login::IssuerStamp;
use crate::store::{Issuer, IssuerRows, StoreError};

/// Issuer with its keys, ready to verify tokens.
#[derive(Debug)]
pub(in crate::gateway) struct KnownIssuer {
    pub(super) id: IssuerId,
    pub(super) name: String,
    /// Issuer URL, compared byte by byte.
    pub(super) url: String,
    /// Host whose metadata lists the issuer; `None` for every host.
    pub(super) host: Option<String>,
    /// URL of the key set, as configured; `None` to discover it.
    pub(super) jwks_uri: Option<String>,
    /// Tenant of all its people; `None` if assignments decide.
    tenant: Option<NamedTenant>,
    /// Claim, value and tenant of each assignment.
    assignments: Vec<(String, String, NamedTenant)>,
    pub(super) audiences: Arc<Audiences>,
    pub(super) algorithms: Vec<TokenAlgorithm>,
    /// Scopes that clients are told to ask for.
    pub(super) scopes: Vec<String>,
    /// Accepted kinds of tokens; `None` for all.
    pub(super) token_types: Option<Vec<TokenType>>,
    pub(super) subject_claim: String,
    pub(super) owner_claim: Option<String>,
    pub(super) keys: Option<KeySet>,
    fetched_at: Option<DateTime<Utc>>,
    /// End of the last fetch of the keys, good or not.
    pub(super) ended_at: Option<DateTime<Utc>>,
    pub(super) stamp: IssuerStamp,
}

/// Tenant with its name; that of a deleted one is `None`.
type NamedTenant = (TenantId, Option<String>);

/// All issuers at one revision.
#[derive(Debug, Default)]
pub(super) struct IssuerBook {
    pub(super) rev: i64,
    by_url: HashMap<String, Arc<KnownIssuer>>,
    by_id: HashMap<IssuerId, Arc<KnownIssuer>>,
}

impl IssuerBook {
    fn build(rows: IssuerRows, options: &LoginOptions) -> IssuerBook {
        let mut assignments: HashMap<IssuerId, Vec<(String, String, NamedTenant)>> = HashMap::new();
        for row in rows.assignments {
            let of_issuer = assignments.entry(IssuerId(row.issuer_id)).or_default();
            of_issuer.push((row.claim, row.value, (TenantId(row.for_tenant), row.tenant)));
        }
        let known = rows.issuers.into_iter().map(|row| {
            let assignments = assignments.remove(&row.issuer_id()).unwrap_or_default();
            Arc::new(KnownIssuer::new(row, assignments, options))
        });
        let known: Vec<_> = known.collect();
        IssuerBook {
            rev: rows.rev,
            by_url: known.iter().map(|issuer| (issuer.url.clone(), Arc::clone(issuer))).collect(),
            by_id: known.into_iter().map(|issuer| (issuer.id, issuer)).collect(),
        }
    }

    /// Returns whether tokens are verified, and people assigned, as by the other book.
    fn decides_as(&self, other: &IssuerBook) -> bool {
        // an assignment changes the version of its issuer
        let same = |(id, issuer): (&IssuerId, &Arc<KnownIssuer>)| {
            other.by_id.get(id).is_some_and(|other| other.stamp == issuer.stamp)
        };
        self.by_id.len() == other.by_id.len() && self.by_id.iter().all(same)
    }

    /// Returns the issuer with exactly this URL.
    pub(super) fn by_url(&self, url: &str) -> Option<&Arc<KnownIssuer>> {
        self.by_url.get(url)
    }

    /// Returns an issuer by id.
    pub(super) fn by_id(&self, id: IssuerId) -> Option<&Arc<KnownIssuer>> {
        self.by_id.get(&id)
    }

    /// Returns all issuers, in no order.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<KnownIssuer>> {
        self.by_url.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_url.is_empty()
    }
}

fn known_types(names: &[String]) -> Vec<TokenType> {
    names.iter().filter_map(|name| TokenType::parse(name)).collect()
}

impl KnownIssuer {
    fn new(
        row: Issuer,
        assignments: Vec<(String, String, NamedTenant)>,
        options: &LoginOptions,
    ) -> KnownIssuer {
        let keys = row.jwks.as_deref().and_then(|jwks| match KeySet::parse(jwks) {
            Ok(keys) => Some(keys),
            Err(fault) => {
                tracing::error!(issuer = row.name, %fault, "stored keys of an issuer cannot be used");
                None
            }
        });
        let own_url = options.public_url.as_ref();
        let at_host = own_url.zip(row.host.as_deref()).map(|(url, host)| url.at_host(host));
        let urls: Vec<_> = own_url.cloned().into_iter().chain(at_host).collect();
        KnownIssuer {
            id: row.issuer_id(),
            stamp: IssuerStamp { version: row.version, keys: keys.as_ref().map(KeySet::digest) },
            audiences: Arc::new(Audiences::new(&urls, &row.audiences)),
            algorithms: row.algorithms.iter().filter_map(|name| TokenAlgorithm::parse(name)).collect(),
            // one of a newer release that this one does not know is never accepted
            token_types: row.token_types.as_deref().map(known_types),
            tenant: row.for_tenant.map(|tenant| (TenantId(tenant), row.tenant)),
            assignments,
            scopes: row.advertised_scopes,
            name: row.name,
            url: row.issuer,
            host: row.host,
            jwks_uri: row.jwks_uri,
            subject_claim: row.subject_claim,
            owner_claim: row.owner_claim,
            keys,
            fetched_at: row.jwks_fetched_at,
            ended_at: row.jwks_ended_at,
        }
    }

    /// Returns the tenants that a person belongs to, with their names, each once. Deleted ones are left out.
    pub(super) fn tenants_of(&self, claims: &Map<String, Value>) -> Vec<(TenantId, &str)> {
        fn named((id, name): &NamedTenant) -> Option<(TenantId, &str)> {
            Some((*id, name.as_deref()?))
        }
        let mut tenants: Vec<(TenantId, &str)> = Vec::new();
        if let Some(tenant) = &self.tenant {
            tenants.extend(named(tenant));
            return tenants;
        }
        for (claim, value, tenant) in &self.assignments {
            if !tenants.iter().any(|(known, _)| *known == tenant.0) && claim_has(claims, claim, value) {
                tenants.extend(named(tenant));
            }
        }
        tenants
    }

    /// Returns the names of the claims that assignments look at, each once.
    pub(super) fn assigned_claims(&self) -> Vec<&str> {
        let mut claims: Vec<&str> = Vec::new();
        for (claim, _, _) in &self.assignments {
            if !claims.contains(&claim.as_str()) {
                claims.push(claim);
            }
        }
        claims
    }

    /// Returns whether people of a tenant may come from this issuer.
    pub(super) fn serves(&self, tenant: TenantId) -> bool {
        self.tenant.as_ref().is_some_and(|(own, _)| *own == tenant)
            || self.assignments.iter().any(|(_, _, (assigned, _))| *assigned == tenant)
    }

    /// Returns the keys, unless they are older than `stale_max` at `now`.
    pub(super) fn fresh_keys(&self, now: DateTime<Utc>, stale_max: Duration) -> Option<&KeySet> {
        let age = (now - self.fetched_at?).to_std().unwrap_or_default();
        self.keys.as_ref().filter(|_| age <= stale_max)
    }
}

impl Tenants {
    /// Loads the issuers if they are older than `rev`.
    pub(in crate::gateway) async fn reload_issuers(&self, rev: i64) -> Result<(), StoreError> {
        if self.logins.book().rev >= rev {
            return Ok(());
        }
        let _one_at_a_time = self.logins.reloading.lock().await;
        if self.logins.book().rev >= rev {
            return Ok(());
        }
        let rows = self.store.load_issuers().await?;
        if rows.rev > self.logins.book().rev {
            let book = Arc::new(IssuerBook::build(rows, &self.options.logins));
            let before = self.logins.book.swap(Arc::clone(&book));
            self.logins.renewed.send_replace(());
            if !book.decides_as(&before) {
                // streams of people who may not come in any more end now
                self.live.all().iter().for_each(|live| live.fanout.check());
            }
        }
        Ok(())
    }

    /// Loads the issuers if they have changed, after a change that this replica made or awaits.
    pub(super) async fn refresh_issuers(&self) {
        let reloaded = match self.store.issuers_rev().await {
            Ok(rev) => self.reload_issuers(rev).await,
            Err(error) => Err(error),
        };
        if let Err(error) = reloaded {
            tracing::warn!(%error, "issuers could not be reloaded");
        }
    }
}
