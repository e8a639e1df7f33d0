//! Fetches of issuers' keys. One replica fetches for all; the last good set stays until it is too old.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use tokio::time::timeout;

use super::book::KnownIssuer;
use crate::domain::backoff::{chance, jittered};
use crate::domain::id::IssuerId;
use crate::domain::identity::{JWKS_BYTES_MAX, KeySet};
use crate::gateway::tenants::Tenants;
use crate::store::{KeyFetch, KeyFetchCause, StoreError};

/// Interval at which a replica asks the database at most about unknown keys of one issuer.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// Longest wait of a request for a fetch that is under way, here or on another replica.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(6);
/// Longest text of an error that is kept, in characters.
const ERROR_CHARS_MAX: usize = 300;
/// Largest metadata document, in bytes.
const METADATA_BYTES_MAX: usize = 64 * 1024;

/// Part of a provider's metadata (RFC 8414, OpenID Connect Discovery).
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

impl Tenants {
    /// Fetches the keys of an issuer for a token whose key is unknown, unless that was done a short time ago. Waits for a fetch
    /// that is under way.
    pub(super) async fn fetch_for_token(&self, issuer: IssuerId) {
        let asked = Arc::clone(self.logins.asked.lock().entry(issuer).or_default());
        let Ok(mut until) = timeout(FETCH_WAIT_MAX, asked.lock()).await else { return };
        if until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let mut renewed = self.logins.renewed.subscribe();
        let claimed =
            self.store.claim_key_fetch(issuer, KeyFetchCause::UnknownKey, self.options.logins.retry).await;
        match claimed {
            Ok(KeyFetch::Granted) => self.fetch_keys(issuer).await,
            Ok(KeyFetch::UnderWay) => drop(timeout(FETCH_WAIT_MAX, renewed.changed()).await),
            // another replica may have fetched a moment ago
            Ok(KeyFetch::TooSoon) => self.refresh_issuers().await,
            Err(error) => tracing::warn!(%error, "keys of an issuer could not be asked for"),
        }
        *until = Some(Instant::now() + ASK_PAUSE);
    }

    /// Fetches the keys of all issuers whose interval is over, unless another replica does.
    pub(in crate::gateway) async fn fetch_due_keys(&self) -> Result<(), StoreError> {
        if self.logins.book().is_empty() {
            return Ok(());
        }
        let options = &self.options.logins;
        // ±10 %, so that fetches of many issuers drift apart
        let interval = options.refresh.mul_f64(0.9) + jittered(options.refresh.mul_f64(0.2), chance());
        for issuer in self.store.issuers_to_fetch(interval, options.retry).await? {
            self.fetch_if_due(issuer).await?;
        }
        Ok(())
    }

    /// Fetches the keys of an issuer, unless a replica did within the shortest interval.
    pub(super) async fn fetch_if_due(&self, issuer: IssuerId) -> Result<(), StoreError> {
        let shortest = self.options.logins.retry.mul_f64(0.9);
        match self.store.claim_key_fetch(issuer, KeyFetchCause::Periodic, shortest).await {
            Ok(KeyFetch::Granted) => self.fetch_keys(issuer).await,
            Ok(KeyFetch::UnderWay | KeyFetch::TooSoon) | Err(StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Fetches and stores the keys of an issuer, for which this replica has the right.
    async fn fetch_keys(&self, issuer: IssuerId) {
        let known = self.logins.book().by_id(issuer).cloned();
        let known = match known {
            Some(known) => known,
            None => {
                self.refresh_issuers().await;
                let Some(known) = self.logins.book().by_id(issuer).cloned() else { return };
                known
            }
        };
        let fetched = self.fetched(&known).await;
        if let Err(error) = &fetched {
            tracing::warn!(issuer = known.name, %error, "keys of an issuer could not be fetched; the last ones stay");
        }
        let outcome = fetched.as_deref().map_err(String::as_str);
        if let Err(error) = self.store.end_key_fetch(issuer, outcome).await {
            tracing::warn!(%error, issuer = known.name, "keys of an issuer could not be stored");
        }
        self.refresh_issuers().await;
    }

    /// Returns the key set of an issuer. The error is a sentence for administrators.
    async fn fetched(&self, issuer: &KnownIssuer) -> Result<String, String> {
        let url = match &issuer.jwks_uri {
            Some(url) => url.clone(),
            None => self.discovered(&issuer.url).await?,
        };
        let fetched = self.upstreams.fetch_document(&url, JWKS_BYTES_MAX).await;
        let text = fetched.map_err(|error| short(&format!("the key set at {url}: {error}")))?;
        KeySet::parse(&text).map_err(|fault| short(&format!("the key set at {url}: {fault}")))?;
        Ok(text)
    }

    /// Returns the URL of the key set by the provider's metadata, which must name the very issuer.
    async fn discovered(&self, issuer: &str) -> Result<String, String> {
        let mut last = String::new();
        for url in metadata_urls(issuer) {
            match self.upstreams.fetch_document(&url, METADATA_BYTES_MAX).await {
                Ok(text) => match serde_json::from_str::<Metadata>(&text) {
                    Ok(metadata) if metadata.issuer == issuer => return Ok(metadata.jwks_uri),
                    Ok(_) => last = format!("the metadata at {url} is of another issuer"),
                    Err(_) => last = format!("the metadata at {url} has no issuer and jwks_uri"),
                },
                Err(error) => last = format!("the metadata at {url}: {error}"),
            }
        }
        Err(short(&last))
    }
}

fn short(text: &str) -> String {
    text.chars().take(ERROR_CHARS_MAX).collect()
}

/// Returns the places of a provider's metadata, in the order of the MCP authorization specification.
fn metadata_urls(issuer: &str) -> Vec<String> {
    let (scheme, rest) = issuer.split_once("://").unwrap_or(("https", issuer));
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let path = path.trim_end_matches('/');
    let (oauth, openid) = ("oauth-authorization-server", "openid-configuration");
    if path.is_empty() {
        return [openid, oauth].map(|name| format!("{scheme}://{host}/.well-known/{name}")).to_vec();
    }
    vec![
        format!("{scheme}://{host}/.well-known/{oauth}/{path}"),
        format!("{scheme}://{host}/.well-known/{openid}/{path}"),
        format!("{scheme}://{host}/{path}/.well-known/{openid}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::metadata_urls;

    #[test]
    fn metadata_has_its_places() {
        let root = ["openid-configuration", "oauth-authorization-server"]
            .map(|name| format!("https://idp.example/.well-known/{name}"));
        assert_eq!(metadata_urls("https://idp.example"), root);
        assert_eq!(metadata_urls("https://idp.example/"), root);
        assert_eq!(
            metadata_urls("https://idp.example:8443/realms/acme"),
            [
                "https://idp.example:8443/.well-known/oauth-authorization-server/realms/acme",
                "https://idp.example:8443/.well-known/openid-configuration/realms/acme",
                "https://idp.example:8443/realms/acme/.well-known/openid-configuration",
            ]
        );
    }
}
