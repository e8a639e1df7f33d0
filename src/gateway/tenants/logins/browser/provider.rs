//! Metadata of a provider, as far as logins need it.

use std::collections::HashMap;
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

/// Providers whose metadata was read a short time ago, by issuer.
#[derive(Debug, Default)]
pub(in crate::gateway::tenants::logins) struct Providers(Mutex<HashMap<IssuerId, (Instant, Arc<Provider>)>>);

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
        let methods = list("code_challenge_methods_supported").unwrap_or_default();
        if !methods.iter().any(|method| method == "S256") {
            return Err("its metadata does not name PKCE with S256 (code_challenge_methods_supported)");
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
    /// Returns the provider of an issuer, by its metadata.
    pub(super) async fn provider(&self, issuer: &KnownIssuer) -> Result<Arc<Provider>, LoginFault> {
        let kept = self.logins.providers.0.lock().get(&issuer.id).cloned();
        if let Some((since, provider)) = kept
            && since.elapsed() < KEPT_FOR
        {
            return Ok(provider);
        }
        let text = self.discovered(&issuer.url).await.map_err(|error| {
            tracing::warn!(issuer = issuer.name, %error, "a login could not begin");
            LoginFault::Provider
        })?;
        let is_url = |url: &str| self.upstreams.check_issuer_url(url).is_ok();
        let provider = Provider::read(&text.1, is_url).map_err(|error| {
            tracing::warn!(issuer = issuer.name, error, "a login could not begin");
            LoginFault::Provider
        })?;
        let provider = Arc::new(provider);
        let mut kept = self.logins.providers.0.lock();
        // the issuer of the login is one; a name may have been given to another
        kept.clear();
        kept.insert(issuer.id, (Instant::now(), Arc::clone(&provider)));
        Ok(provider)
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
        for bad in [
            json!({"code_challenge_methods_supported": null}),
            json!({"code_challenge_methods_supported": ["plain"]}),
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
