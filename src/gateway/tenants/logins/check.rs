//! Check of an issuer: its provider as it is now, and its entry. Nothing is stored.

use chrono::SecondsFormat;
use futures_util::future::join_all;
use serde_json::Value;

use super::book::KnownIssuer;
use super::fetch::{METADATA_BYTES_MAX, metadata_urls};
use super::findings::{IssuerFinding, IssuerFindings};
use crate::domain::identity::{JWKS_BYTES_MAX, KeyFault, KeySet, TokenAlgorithm};
use crate::domain::tenant::Action;
use crate::gateway::clock;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::{Caller, Tenants};
use crate::store::Issuer;

/// Most keys of a set that have a finding of their own.
const KEYS_SHOWN_MAX: usize = 16;
/// Most characters of a text of the provider that are repeated.
const TEXT_CHARS_MAX: usize = 300;

impl Tenants {
    /// Checks an issuer: fetches its metadata and keys, through the egress guard, and explains a token if one is given.
    /// Neither keys nor token are stored, and the token is not logged.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], or [`GatewayError::Unavailable`].
    pub async fn check_issuer_now(
        &self,
        caller: &Caller,
        name: &str,
        token: Option<&str>,
    ) -> Result<Vec<IssuerFinding>, GatewayError> {
        caller.authorise(Action::ManageTenants)?;
        let found = self.store.find_issuer(name).await;
        let row = found.map_err(|error| GatewayError::from_store(error, "issuer"))?;
        self.refresh_issuers().await;
        let issuer = self.logins.book().by_id(row.issuer_id()).cloned();
        let issuer = issuer.ok_or(GatewayError::Unavailable)?;
        let mut findings = IssuerFindings::default();
        let keys = self.check_provider(&issuer, &mut findings).await;
        self.check_entry(&row, &issuer, &mut findings);
        if let Some(token) = token {
            findings.append(self.explain_token(&issuer, keys.as_ref(), token.trim()).await?);
        }
        Ok(findings.into_vec())
    }

    /// Checks metadata and keys of the provider. Returns the keys, if any can be used.
    async fn check_provider(&self, issuer: &KnownIssuer, findings: &mut IssuerFindings) -> Option<KeySet> {
        let url = match &issuer.jwks_uri {
            None => self.check_metadata(&issuer.url, findings).await?,
            Some(url) => {
                findings.good("metadata", format!("not needed: the entry says jwks_uri {url}"));
                url.clone()
            }
        };
        let text = match self.upstreams.fetch_document(None, &url, JWKS_BYTES_MAX).await {
            Ok(text) => text,
            Err(error) => {
                findings.bad("keys", format!("the key set at {}: {error}", clipped(&url)));
                return None;
            }
        };
        check_keys(&url, &text, findings);
        let keys = KeySet::parse(&text).ok()?;
        let names = |algorithms: &[TokenAlgorithm]| {
            algorithms.iter().map(|algorithm| algorithm.as_str()).collect::<Vec<_>>().join(", ")
        };
        let both: Vec<TokenAlgorithm> = keys.algorithms();
        let both: Vec<_> = both.into_iter().filter(|one| issuer.algorithms.contains(one)).collect();
        match both.is_empty() {
            false => findings.good("algorithms", format!("the keys and the entry have {}", names(&both))),
            true => findings.bad(
                "algorithms",
                format!(
                    "the keys are for {}, the entry accepts {}",
                    names(&keys.algorithms()),
                    names(&issuer.algorithms)
                ),
            ),
        }
        Some(keys)
    }

    /// Checks the provider's metadata at all its places. Returns the URL of the key set, if the metadata is of the issuer.
    async fn check_metadata(&self, issuer: &str, findings: &mut IssuerFindings) -> Option<String> {
        let urls = metadata_urls(issuer);
        let fetches = urls.iter().map(|url| self.upstreams.fetch_document(None, url, METADATA_BYTES_MAX));
        let mut failures = Vec::new();
        let mut other = None;
        for (url, answer) in urls.iter().zip(join_all(fetches).await) {
            let metadata = match answer {
                Ok(text) => serde_json::from_str::<Value>(&text).unwrap_or_default(),
                Err(error) => {
                    failures.push(format!("{url}: {error}"));
                    continue;
                }
            };
            let text = |name: &str| metadata.get(name).and_then(Value::as_str);
            match (text("issuer"), text("jwks_uri")) {
                (Some(named), Some(keys)) if named == issuer => {
                    findings.good("metadata", format!("found at {url}"));
                    findings.good(
                        "issuer",
                        format!("the metadata names '{named}', byte by byte that of the entry"),
                    );
                    return Some(keys.to_owned());
                }
                (Some(named), Some(_)) if other.is_none() => other = Some((url, named.to_owned())),
                (Some(_), Some(_)) => {}
                _ => failures.push(format!("{url}: the answer has no issuer and jwks_uri")),
            }
        }
        match other {
            None => findings.bad("metadata", format!("not found; {}", failures.join("; "))),
            Some((url, named)) => {
                findings.good("metadata", format!("found at {url}"));
                findings.bad("issuer", other_issuer(&named, issuer));
            }
        }
        None
    }

    /// Returns the stored keys of an issuer, unless they are too old.
    pub(super) fn usable_keys<'a>(&self, issuer: &'a KnownIssuer) -> Option<&'a KeySet> {
        issuer.fresh_keys(clock::now(), self.options.logins.stale_max)
    }

    /// Checks the stored keys and the entry.
    fn check_entry(&self, row: &Issuer, issuer: &KnownIssuer, findings: &mut IssuerFindings) {
        let at = row.jwks_fetched_at.map(|at| at.to_rfc3339_opts(SecondsFormat::Secs, true));
        let at = at.map_or_else(|| "never".to_owned(), |at| format!("last at {at}"));
        let stored = format!("the gateway fetched the keys {at}");
        let is_fresh = self.usable_keys(issuer).is_some();
        match (&row.jwks_error, is_fresh) {
            (None, true) => findings.good("stored_keys", stored),
            (Some(error), true) => {
                findings.odd("stored_keys", format!("{stored}; the try after that failed: {error}"));
            }
            (error, false) => {
                let why = error.as_deref().unwrap_or("they are too old (identity.jwks_stale_max_s)");
                findings.bad("stored_keys", format!("{stored}, and logins are answered 503: {why}"));
            }
        }
        let accepted: Vec<&str> = issuer.audiences.accepted().take(10).collect();
        match accepted.is_empty() {
            false => findings.good("audiences", format!("tokens must be for one of {}", accepted.join(", "))),
            true => findings
                .bad("audiences", "no token can be for this gateway: set server.public_url or audiences"),
        }
        let assigned = issuer.assigned_claims();
        match (&row.tenant, row.for_tenant) {
            (Some(tenant), _) => findings.good("tenants", format!("all people belong to '{tenant}'")),
            (None, Some(_)) => findings.bad("tenants", "the tenant of all its people is deleted"),
            (None, None) if assigned.is_empty() => {
                findings.bad(
                    "tenants",
                    "nobody belongs to a tenant: mcpproxy issuer tenants assigns people by claims",
                );
            }
            (None, None) => {
                let claims = assigned.join(", ");
                findings.good("tenants", format!("assignments decide, by the claims {}", clipped(&claims)));
            }
        }
    }
}

/// Checks every key of a set.
fn check_keys(url: &str, text: &str, findings: &mut IssuerFindings) {
    let reports = match KeySet::report(text) {
        Ok(reports) => reports,
        Err(fault) => return findings.bad("keys", format!("the key set at {}: {fault}", clipped(url))),
    };
    let usable = reports.iter().filter(|report| report.fault.is_none()).count();
    let says = format!("{usable} of {} keys at {} can verify tokens", reports.len(), clipped(url));
    if usable > 0 {
        findings.good("keys", says);
    } else {
        findings.bad("keys", says);
    }
    for report in reports.iter().take(KEYS_SHOWN_MAX) {
        let kid = report
            .kid
            .as_deref()
            .map_or_else(|| "without kid".to_owned(), |kid| format!("'{}'", clipped(kid)));
        let key = format!("{kid} ({})", clipped(report.kind.trim()));
        match report.fault {
            None if report.kid.is_none() && usable > 1 => {
                findings.odd("key", format!("{key}: tokens with a kid never find it"));
            }
            None => findings.good("key", format!("{key} can be used")),
            // providers publish keys for encryption beside the others
            Some(fault @ KeyFault::Purpose) => findings.good("key", format!("{key} is not used: {fault}")),
            Some(fault) => findings.odd("key", format!("{key} is not used: {fault}")),
        }
    }
}

fn other_issuer(named: &str, expected: &str) -> String {
    let is_slash = named.trim_end_matches('/') == expected.trim_end_matches('/');
    let slash = if is_slash { "; they differ in the slash at the end" } else { "" };
    let named = clipped(named);
    format!(
        "the metadata names '{named}', the entry '{expected}', and they must be the same byte by byte{slash}"
    )
}

fn clipped(text: &str) -> String {
    text.chars().take(TEXT_CHARS_MAX).collect()
}
