//! Fetches of issuers' keys. One replica fetches for all; the last good set stays until it is too old.

use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use serde::Deserialize;
use tokio::time::timeout;

use super::Asked;
use super::book::KnownIssuer;
use crate::domain::backoff::{chance, jittered};
use crate::domain::id::IssuerId;
use crate::domain::identity::{JWKS_BYTES_MAX, KeySet};
use crate::gateway::tenants::Tenants;
use crate::store::{KeyFetch, KeyFetchCause, KeyFetchClaim, StoreError};

/// Interval at which a replica asks the database at most about unknown keys of one issuer.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// Deadline of a fetch: of metadata and keys together.
const FETCH_MAX: Duration = Duration::from_secs(5);
/// Deadline of one metadata document.
const METADATA_MAX: Duration = Duration::from_secs(3);
/// Longest time for which one question about unknown keys is under way.
const ASK_MAX: Duration = Duration::from_secs(15);
/// Longest wait of a request for a fetch that is under way, here or on another replica.
const FETCH_WAIT_MAX: Duration = Duration::from_secs(6);
/// Most fetches at the same time.
const FETCHES_MAX: usize = 8;
/// Longest text of an error that is kept, in characters.
const ERROR_CHARS_MAX: usize = 300;
/// Largest metadata document, in bytes.
pub(super) const METADATA_BYTES_MAX: usize = 64 * 1024;

/// Part of a provider's metadata (RFC 8414, OpenID Connect Discovery).
#[derive(Deserialize)]
struct Metadata {
    issuer: String,
    jwks_uri: String,
}

impl Tenants {
    /// Has the keys of an issuer fetched for a token whose key is unknown, unless that was done a short time ago, and waits for
    /// their end. The fetch is a task of its own: a client that hangs up takes only its own wait with it.
    pub(super) async fn fetch_for_token(self: &Arc<Self>, issuer: &KnownIssuer) {
        let mut renewed = self.logins.renewed.subscribe();
        if self.begins_to_ask(issuer.id) {
            let tenants = Arc::clone(self);
            let id = issuer.id;
            self.life.tasks.spawn(async move { tenants.ask_for_keys(id).await });
        }
        let ended = async {
            while self.has_ended_at(issuer.id) == issuer.ended_at && self.is_fetching(issuer.id) {
                if renewed.changed().await.is_err() {
                    return;
                }
            }
        };
        // too late: the token is refused, and its sender asks again
        drop(timeout(FETCH_WAIT_MAX, ended).await);
    }

    /// Returns whether the database is to be asked about an unknown key now: not if it just was.
    fn begins_to_ask(&self, issuer: IssuerId) -> bool {
        let now = Instant::now();
        let mut asked = self.logins.asked.lock();
        if asked.get(&issuer).is_some_and(|asked| now < asked.until) {
            return false;
        }
        asked.insert(issuer, Asked { until: now + ASK_MAX, is_fetching: true });
        true
    }

    fn is_fetching(&self, issuer: IssuerId) -> bool {
        let now = Instant::now();
        self.logins.asked.lock().get(&issuer).is_some_and(|asked| asked.is_fetching && now < asked.until)
    }

    fn has_ended_at(&self, issuer: IssuerId) -> Option<DateTime<Utc>> {
        self.logins.book().by_id(issuer).and_then(|known| known.ended_at)
    }

    /// Asks the database whether to fetch, and fetches, or waits for the replica that does.
    async fn ask_for_keys(&self, issuer: IssuerId) {
        let before = self.has_ended_at(issuer);
        let mut renewed = self.logins.renewed.subscribe();
        let claimed =
            self.store.claim_key_fetch(issuer, KeyFetchCause::UnknownKey, self.options.logins.retry).await;
        match claimed {
            Ok(KeyFetch::Granted(claim)) => self.fetch_keys(claim).await,
            Ok(KeyFetch::UnderWay) => {
                let ended =
                    async { while self.has_ended_at(issuer) == before && renewed.changed().await.is_ok() {} };
                drop(timeout(FETCH_WAIT_MAX, ended).await);
            }
            // another replica may have fetched a moment ago
            Ok(KeyFetch::TooSoon) => self.refresh_issuers().await,
            Err(error) => tracing::warn!(%error, "keys of an issuer could not be asked for"),
        }
        let done = Asked { until: Instant::now() + ASK_PAUSE, is_fetching: false };
        self.logins.asked.lock().insert(issuer, done);
        self.logins.renewed.send_replace(());
    }

    /// Fetches the keys of all issuers whose interval is over, unless another replica does.
    pub(in crate::gateway) async fn fetch_due_keys(&self) -> Result<(), StoreError> {
        if self.logins.book().is_empty() {
            return Ok(());
        }
        let options = &self.options.logins;
        // ±10 %, so that fetches of many issuers drift apart
        let interval = options.refresh.mul_f64(0.9) + jittered(options.refresh.mul_f64(0.2), chance());
        let due = self.store.issuers_to_fetch(interval, options.retry).await?;
        // side by side: one that does not answer delays no other
        let fetches = due.into_iter().map(|issuer| self.fetch_if_due(issuer));
        let ended: Vec<_> = stream::iter(fetches).buffer_unordered(FETCHES_MAX).collect().await;
        ended.into_iter().collect()
    }

    /// Fetches the keys of an issuer, unless a replica did within the shortest interval.
    pub(super) async fn fetch_if_due(&self, issuer: IssuerId) -> Result<(), StoreError> {
        let shortest = self.options.logins.retry.mul_f64(0.9);
        match self.store.claim_key_fetch(issuer, KeyFetchCause::Periodic, shortest).await {
            Ok(KeyFetch::Granted(claim)) => self.fetch_keys(claim).await,
            Ok(KeyFetch::UnderWay | KeyFetch::TooSoon) | Err(StoreError::NotFound) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Fetches and stores the keys of an issuer, for which this replica has the right.
    async fn fetch_keys(&self, claim: KeyFetchClaim) {
        let known = self.logins.book().by_id(claim.issuer).cloned();
        let known = match known {
            Some(known) => known,
            None => {
                self.refresh_issuers().await;
                let Some(known) = self.logins.book().by_id(claim.issuer).cloned() else { return };
                known
            }
        };
        let fetched = timeout(FETCH_MAX, self.fetched(&known.url, claim.jwks_uri.as_deref())).await;
        let fetched = fetched.unwrap_or_else(|_| Err("the provider did not answer in time".to_owned()));
        if let Err(error) = &fetched {
            tracing::warn!(issuer = known.name, %error, "keys of an issuer could not be fetched; the last ones stay");
        }
        let outcome = fetched.as_deref().map_err(String::as_str);
        if let Err(error) = self.store.end_key_fetch(&claim, outcome).await {
            tracing::warn!(%error, issuer = known.name, "keys of an issuer could not be stored");
        }
        self.refresh_issuers().await;
    }

    /// Returns the key set of an issuer. The error is a sentence for administrators.
    async fn fetched(&self, issuer: &str, jwks_uri: Option<&str>) -> Result<String, String> {
        let url = match jwks_uri {
            Some(url) => url.to_owned(),
            None => self.discovered(issuer).await?.0,
        };
        let fetched = self.upstreams.fetch_document(None, &url, JWKS_BYTES_MAX).await;
        let text = fetched.map_err(|error| short(&format!("the key set at {url}: {error}")))?;
        KeySet::parse(&text).map_err(|fault| short(&format!("the key set at {url}: {fault}")))?;
        Ok(text)
    }

    /// Returns the URL of the key set by the provider's metadata, which must name the very issuer, and the text of the metadata.
    pub(super) async fn discovered(&self, issuer: &str) -> Result<(String, String), String> {
        let urls = metadata_urls(issuer);
        // side by side: a place that does not answer leaves time for the keys
        let asked = urls
            .iter()
            .map(|url| timeout(METADATA_MAX, self.upstreams.fetch_document(None, url, METADATA_BYTES_MAX)));
        let mut last = String::new();
        for (url, answer) in urls.iter().zip(join_all(asked).await) {
            match answer {
                Ok(Ok(text)) => match serde_json::from_str::<Metadata>(&text) {
                    Ok(metadata) if metadata.issuer == issuer => return Ok((metadata.jwks_uri, text)),
                    Ok(_) => last = format!("the metadata at {url} is of another issuer"),
                    Err(_) => last = format!("the metadata at {url} has no issuer and jwks_uri"),
                },
                Ok(Err(error)) => last = format!("the metadata at {url}: {error}"),
                Err(_) => last = format!("the metadata at {url}: no answer in time"),
            }
        }
        Err(short(&last))
    }
}

fn short(text: &str) -> String {
    text.chars().take(ERROR_CHARS_MAX).collect()
}

/// Returns the places of a provider's metadata, in the order of the MCP authorization specification.
pub(super) fn metadata_urls(issuer: &str) -> Vec<String> {
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
