//! Snapshot of all issuers, with their keys and assignments.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::{Map, Value};

use crate::domain::id::{IssuerId, TenantId};
use crate::domain::identity::{Audiences, KeySet, TokenAlgorithm, claim_has};
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
    tenant: Option<TenantId>,
    /// Claim, value and tenant of each assignment.
    assignments: Vec<(String, String, TenantId)>,
    pub(super) audiences: Audiences,
    pub(super) algorithms: Vec<TokenAlgorithm>,
    pub(super) subject_claim: String,
    pub(super) owner_claim: Option<String>,
    pub(super) keys: Option<KeySet>,
    fetched_at: Option<DateTime<Utc>>,
    pub(super) stamp: IssuerStamp,
}

/// All issuers at one revision.
#[derive(Debug, Default)]
pub(super) struct IssuerBook {
    pub(super) rev: i64,
    by_url: HashMap<String, Arc<KnownIssuer>>,
    by_id: HashMap<IssuerId, Arc<KnownIssuer>>,
}

impl IssuerBook {
    fn build(rows: IssuerRows, options: &LoginOptions) -> IssuerBook {
        let mut assignments: HashMap<IssuerId, Vec<(String, String, TenantId)>> = HashMap::new();
        for row in rows.assignments {
            let of_issuer = assignments.entry(IssuerId(row.issuer_id)).or_default();
            of_issuer.push((row.claim, row.value, TenantId(row.for_tenant)));
        }
        let known = rows.issuers.into_iter().map(|row| {
            let assignments = assignments.remove(&row.issuer_id()).unwrap_or_default();
            let issuer = KnownIssuer::new(row, assignments, options);
            (issuer.url.clone(), Arc::new(issuer))
        });
        let by_url: HashMap<String, Arc<KnownIssuer>> = known.collect();
        let by_id = by_url.values().map(|issuer| (issuer.id, Arc::clone(issuer))).collect();
        IssuerBook { rev: rows.rev, by_url, by_id }
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

impl KnownIssuer {
    fn new(row: Issuer, assignments: Vec<(String, String, TenantId)>, options: &LoginOptions) -> KnownIssuer {
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
            audiences: Audiences::new(&urls, &row.audiences),
            algorithms: row.algorithms.iter().filter_map(|name| TokenAlgorithm::parse(name)).collect(),
            tenant: row.for_tenant.map(TenantId),
            assignments,
            name: row.name,
            url: row.issuer,
            host: row.host,
            jwks_uri: row.jwks_uri,
            subject_claim: row.subject_claim,
            owner_claim: row.owner_claim,
            keys,
            fetched_at: row.jwks_fetched_at,
        }
    }

    /// Returns the tenants that a person belongs to, each once.
    pub(super) fn tenants_of(&self, claims: &Map<String, Value>) -> Vec<TenantId> {
        if let Some(tenant) = self.tenant {
            return vec![tenant];
        }
        let mut tenants: Vec<TenantId> = Vec::new();
        for (claim, value, tenant) in &self.assignments {
            if !tenants.contains(tenant) && claim_has(claims, claim, value) {
                tenants.push(*tenant);
            }
        }
        tenants
    }

    /// Returns whether people of a tenant may come from this issuer.
    pub(super) fn serves(&self, tenant: TenantId) -> bool {
        self.tenant == Some(tenant) || self.assignments.iter().any(|(_, _, assigned)| *assigned == tenant)
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
            self.logins.book.store(Arc::new(IssuerBook::build(rows, &self.options.logins)));
            self.logins.renewed.send_replace(());
            // streams of people whose issuer is gone end now
            self.live.all().iter().for_each(|live| live.fanout.check());
        }
        Ok(())
    }

    /// Loads the issuers anew, after a change that this replica made or awaits.
    pub(super) async fn refresh_issuers(&self) {
        let next = self.logins.book().rev + 1;
        if let Err(error) = self.reload_issuers(next).await {
            tracing::warn!(%error, "issuers could not be reloaded");
        }
    }
}
