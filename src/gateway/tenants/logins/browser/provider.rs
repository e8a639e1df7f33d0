//! Metadata of a provider, as far as logins need it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::Value;

use super::LoginFault;
use crate::domain::id::IssuerId;
use crate::gateway::tenants::Tenants;
use crate::gateway::tenants::logins::book::KnownIssuer;
use crate::upstream::ClientAuth;

/// Time for which metadata is used again.
const KEPT_FOR: Duration = Duration::from_secs(300);
/// Longest URL of an endpoint, in bytes.
const URL_BYTES_MAX: usize = 2000;

/// Endpoints of a provider, and what it can do.
#[derive(Debug)]
pub(super) struct Provider {
    pub(super) authorization: url::Url,
    pub(super) token: String,
    /// URL where the provider ends its own session; `None` if it has none.
    pub(super) end_session: Option<String>,
    /// True if the provider names itself in its answers (RFC 9207).
    pub(super) names_itself: bool,
    /// Ways of authentication at the token endpoint; `None` if the metadata does not say.
    ways: Option<Vec<String>>,
}

/// Time for which a provider that could not be read is left alone.
const FAILED_FOR: Duration = Duration::from_secs(2);

/// Providers whose metadata was read a short time ago, by issuer.
#[derive(Debug, Default)]
pub(in crate::gateway::tenants::logins) struct Providers {
    kept: Mutex<HashMap<IssuerId, (Instant, Arc<Provider>)>>,
    /// Last time that metadata could not be read.
    failed: Mutex<Option<(IssuerId, Instant)>>,
    /// Held by whoever reads: others wait for its answer.
    reading: tokio::sync::Mutex<()>,
}

/// Logins that may begin at one client address in a minute.
const BEGINS_PER_ADDRESS_MAX: u32 = 60;
/// Most client addresses whose logins are counted.
const ADDRESSES_MAX: usize = 10_000;
const MINUTE: Duration = Duration::from_secs(60);

/// Logins that began in the last minute, by client address: one that begins them without end takes no room from others.
#[derive(Debug)]
pub(in crate::gateway::tenants::logins) struct Begins(Mutex<(Instant, HashMap<IpAddr, u32>)>);

impl Default for Begins {
    fn default() -> Begins {
        Begins(Mutex::new((Instant::now(), HashMap::new())))
    }
}

impl Begins {
    /// Returns whether a login may begin at this address, and counts it.
    pub(super) fn may_begin(&self, address: Option<IpAddr>) -> bool {
        let Some(address) = address else { return true };
        let mut counted = self.0.lock();
        if counted.0.elapsed() >= MINUTE {
            *counted = (Instant::now(), HashMap::new());
        }
        let counts = &mut counted.1;
        if counts.len() >= ADDRESSES_MAX && !counts.contains_key(&address) {
            return true;
        }
        let count = counts.entry(address).or_default();
        *count = count.saturating_add(1);
        *count <= BEGINS_PER_ADDRESS_MAX
    }
}

impl Providers {
    /// Returns the metadata of an issuer, if it is not older than `age`.
    fn kept(&self, issuer: IssuerId, age: Duration) -> Option<Arc<Provider>> {
        let kept = self.kept.lock().get(&issuer).cloned();
        kept.filter(|(since, _)| since.elapsed() < age).map(|(_, provider)| provider)
    }

    fn has_just_failed(&self, issuer: IssuerId) -> bool {
        self.failed.lock().is_some_and(|(failed, at)| failed == issuer && at.elapsed() < FAILED_FOR)
    }
}

impl Provider {
    /// Reads the metadata of a provider. The error is a sentence for administrators.
    fn read(text: &str, is_url: impl Fn(&str) -> bool) -> Result<Provider, &'static str> {
        let metadata: Value = serde_json::from_str(text).map_err(|_| "its metadata is no JSON")?;
        let url = |name: &str| {
            let url = metadata.get(name).and_then(Value::as_str)?;
            (url.len() <= URL_BYTES_MAX && !url.contains('#') && is_url(url)).then(|| url.to_owned())
        };
        let list = |name: &str| {
            let items = metadata.get(name)?.as_array()?;
            Some(items.iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<String>>())
        };
        // some providers take PKCE and do not say so; the nonce binds the login there as well
        let methods = list("code_challenge_methods_supported");
        if methods.is_some_and(|methods| !methods.iter().any(|method| method == "S256")) {
            return Err("its metadata names PKCE without S256 (code_challenge_methods_supported)");
        }
        let authorization = url("authorization_endpoint").and_then(|url| url::Url::parse(&url).ok());
        Ok(Provider {
            authorization: authorization.ok_or("its metadata has no usable authorization_endpoint")?,
            token: url("token_endpoint").ok_or("its metadata has no usable token_endpoint")?,
            end_session: url("end_session_endpoint"),
            names_itself: metadata.get("authorization_response_iss_parameter_supported")
                == Some(&Value::Bool(true)),
            ways: list("token_endpoint_auth_methods_supported"),
        })
    }

    /// Returns the authentication at the token endpoint; `None` if the provider takes a secret in neither way.
    pub(super) fn client_auth<'a>(&self, id: &'a str, secret: Option<&'a str>) -> Option<ClientAuth<'a>> {
        let Some(secret) = secret else { return Some(ClientAuth::Public(id)) };
        let takes = |way: &str| self.ways.as_ref().is_some_and(|ways| ways.iter().any(|own| own == way));
        // without a word about it, the first is meant (RFC 8414)
        match () {
            () if self.ways.is_none() || takes("client_secret_basic") => Some(ClientAuth::Basic(id, secret)),
            () if takes("client_secret_post") => Some(ClientAuth::Post(id, secret)),
            () => None,
        }
    }
}

impl Tenants {
    /// Returns the provider of an issuer, by its metadata. One request reads it for all; where that fails, older metadata counts.
    pub(super) async fn provider(&self, issuer: &KnownIssuer) -> Result<Arc<Provider>, LoginFault> {
        let providers = &self.logins.providers;
        if let Some(provider) = providers.kept(issuer.id, KEPT_FOR) {
            return Ok(provider);
        }
        let _reading = providers.reading.lock().await;
        if let Some(provider) = providers.kept(issuer.id, KEPT_FOR) {
            return Ok(provider);
        }
        let read = match providers.has_just_failed(issuer.id) {
            true => None,
            false => self.read_provider(issuer).await,
        };
        if let Some(provider) = read {
            let mut kept = providers.kept.lock();
            // the issuer of the login is one; a name may have been given to another
            kept.clear();
            kept.insert(issuer.id, (Instant::now(), Arc::clone(&provider)));
            return Ok(provider);
        }
        providers.kept(issuer.id, Duration::MAX).ok_or(LoginFault::Provider)
    }

    /// Reads the metadata of a provider; `None` after a warning if it cannot be used.
    async fn read_provider(&self, issuer: &KnownIssuer) -> Option<Arc<Provider>> {
        let is_url = |url: &str| self.upstreams.check_issuer_url(url).is_ok();
        let read = self.discovered(&issuer.url).await;
        let read = read.and_then(|(_, text)| Provider::read(&text, is_url).map_err(str::to_owned));
        match read {
            Ok(provider) => Some(Arc::new(provider)),
            Err(error) => {
                tracing::warn!(issuer = issuer.name, %error, "the metadata of the provider of logins cannot be used");
                *self.logins.providers.failed.lock() = Some((issuer.id, Instant::now()));
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(more: Value) -> Result<Provider, &'static str> {
        let mut metadata = json!({
            "authorization_endpoint": "https://idp.example/a?x=1", "token_endpoint": "https://idp.example/t",
            "code_challenge_methods_supported": ["plain", "S256"],
        });
        let Value::Object(more) = more else { panic!("members") };
        metadata.as_object_mut().unwrap().extend(more);
        Provider::read(&metadata.to_string(), |url| url.starts_with("https://"))
    }

    #[test]
    fn a_provider_without_pkce_or_endpoints_is_not_used() {
        assert!(read(json!({})).is_ok());
        assert!(read(json!({"code_challenge_methods_supported": null})).is_ok());
        for bad in [
            json!({"code_challenge_methods_supported": ["plain"]}),
            json!({"code_challenge_methods_supported": []}),
            json!({"authorization_endpoint": "http://idp.example/a"}),
            json!({"authorization_endpoint": "https://idp.example/a#b"}),
            json!({"token_endpoint": 7}),
        ] {
            assert!(read(bad.clone()).is_err(), "{bad}");
        }
        let odd = json!({"end_session_endpoint": "javascript:alert(1)", "authorization_response_iss_parameter_supported": "true"});
        let odd = read(odd).unwrap();
        assert_eq!((odd.end_session, odd.names_itself), (None, false));
    }

    #[test]
    fn one_address_begins_so_many_logins_a_minute() {
        let begins = Begins::default();
        let (one, other) = (Some(IpAddr::from([192, 0, 2, 1])), Some(IpAddr::from([192, 0, 2, 2])));
        let begun = (0..1000).filter(|_| begins.may_begin(one)).count();
        assert_eq!(begun, BEGINS_PER_ADDRESS_MAX as usize);
        assert!(begins.may_begin(other) && begins.may_begin(None));
    }

    #[test]
    fn the_secret_goes_where_the_provider_takes_it() {
        let way = |ways: Value, secret| {
            let provider = read(json!({"token_endpoint_auth_methods_supported": ways})).unwrap();
            provider.client_auth("id", secret).map(|auth| format!("{auth:?}"))
        };
        assert_eq!(way(json!(null), Some("s")).as_deref(), Some("Basic"));
        assert_eq!(
            way(json!(["client_secret_post", "client_secret_basic"]), Some("s")).as_deref(),
            Some("Basic")
        );
        assert_eq!(way(json!(["client_secret_post"]), Some("s")).as_deref(), Some("Post"));
        assert_eq!(way(json!(["private_key_jwt"]), Some("s")), None);
        assert_eq!(way(json!(["private_key_jwt"]), None).as_deref(), Some("Public"));
    }
}
