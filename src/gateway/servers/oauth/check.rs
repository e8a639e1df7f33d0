//! Checks of the fields of a login.

use super::OauthRequest;
use crate::domain::server_login::{ClientAuthWay, LoginKind, is_scope};
use crate::gateway::GatewayError;

/// Longest client id, in bytes.
const CLIENT_ID_BYTES_MAX: usize = 500;
/// Longest client secret, in bytes.
const CLIENT_SECRET_BYTES_MAX: usize = 4096;
/// Most scopes, and the longest one in bytes.
const SCOPES_MAX: (usize, usize) = (50, 200);
/// Longest URL, in bytes.
const URL_BYTES_MAX: usize = 2000;

fn is_plain(text: &str, max: usize) -> bool {
    !text.is_empty() && text.len() <= max && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
}

/// Returns whether a client's id and secret can be stored and sent.
pub(super) fn is_client(id: &str, secret: Option<&str>) -> bool {
    is_plain(id, CLIENT_ID_BYTES_MAX) && secret.is_none_or(|secret| is_plain(secret, CLIENT_SECRET_BYTES_MAX))
}

/// Checks the fields of a request, and returns the kind of login.
pub(super) fn check(request: &OauthRequest) -> Result<LoginKind, GatewayError> {
    let kind = LoginKind::parse(&request.kind).ok_or_else(|| {
        let known = LoginKind::WORDS.join(" or ");
        GatewayError::invalid("kind", format!("kind must be {known}: this release knows no other login"))
    })?;
    // with a secret of its own, and without a browser
    let is_own = kind != LoginKind::AuthorizationCode;
    for (name, is_missing) in
        [("client_id", request.client_id.is_none()), ("client_secret", request.client_secret.is_none())]
    {
        if is_own && is_missing {
            return Err(GatewayError::invalid(name, format!("{name} is missing")));
        }
    }
    if request.client_id.is_none() && request.client_secret.is_some() {
        return Err(GatewayError::invalid("client_id", "client_id is missing: the secret belongs to one"));
    }
    if is_own && request.authorization_endpoint.is_some() {
        let message = format!("a login of kind {} has no authorization_endpoint", kind.as_str());
        return Err(GatewayError::invalid("authorization_endpoint", message));
    }
    let is_exchange = kind == LoginKind::TokenExchange;
    if is_exchange && request.token_endpoint.is_some() {
        let message = "people's tokens go to the token endpoint of their issuer's metadata and nowhere else: give issuer alone";
        return Err(GatewayError::invalid("token_endpoint", message));
    }
    if !is_exchange && request.exchange_grant.is_some() {
        let message = "exchange_grant is for logins of kind token_exchange";
        return Err(GatewayError::invalid("exchange_grant", message));
    }
    if request.authorization_endpoint.is_some() && request.token_endpoint.is_none() {
        let message = "give token_endpoint as well, or an issuer whose metadata names both";
        return Err(GatewayError::invalid("token_endpoint", message));
    }
    if !is_own && request.token_endpoint.is_some() && request.authorization_endpoint.is_none() {
        let message = "give authorization_endpoint as well, or an issuer whose metadata names both";
        return Err(GatewayError::invalid("authorization_endpoint", message));
    }
    if !is_own && request.token_endpoint.is_some() && request.issuer.is_none() {
        let message = "give issuer as well: what a login service answers is compared with it";
        return Err(GatewayError::invalid("issuer", message));
    }
    let has_secret = request.client_secret.is_some();
    match request.client_auth {
        Some(ClientAuthWay::Public) if has_secret => {
            let message = "client_auth none is for clients without a secret";
            return Err(GatewayError::invalid("client_auth", message));
        }
        Some(ClientAuthWay::Basic | ClientAuthWay::Post) if request.client_id.is_some() && !has_secret => {
            return Err(GatewayError::invalid("client_secret", "this client_auth needs a client_secret"));
        }
        _ => {}
    }
    if request.client_id.as_ref().is_some_and(|id| !is_plain(id, CLIENT_ID_BYTES_MAX)) {
        let message = format!("client_id must be 1 to {CLIENT_ID_BYTES_MAX} visible ASCII characters");
        return Err(GatewayError::invalid("client_id", message));
    }
    if request.client_secret.as_ref().is_some_and(|secret| !is_plain(secret, CLIENT_SECRET_BYTES_MAX)) {
        let message =
            format!("client_secret must be 1 to {CLIENT_SECRET_BYTES_MAX} visible ASCII characters");
        return Err(GatewayError::invalid("client_secret", message));
    }
    for (name, url) in [
        ("issuer", &request.issuer),
        ("token_endpoint", &request.token_endpoint),
        ("authorization_endpoint", &request.authorization_endpoint),
    ] {
        let is_url =
            |url: &String| url.len() <= URL_BYTES_MAX && !url.contains('#') && url::Url::parse(url).is_ok();
        if url.as_ref().is_some_and(|url| !is_url(url)) {
            return Err(GatewayError::invalid(name, format!("{name} must be a URL without a fragment")));
        }
    }
    let is_resource = |text: &String| {
        let is_uri = text.len() <= URL_BYTES_MAX && !text.contains('#') && url::Url::parse(text).is_ok();
        text.is_empty() || is_uri
    };
    if request.resource.as_ref().is_some_and(|resource| !is_resource(resource)) {
        let message = "resource must be an absolute URI without a fragment, or empty for none";
        return Err(GatewayError::invalid("resource", message));
    }
    let is_audience = |text: &String| text.is_empty() || is_plain(text, URL_BYTES_MAX);
    if request.audience.as_ref().is_some_and(|audience| !is_audience(audience)) {
        let message =
            format!("audience must be at most {URL_BYTES_MAX} visible ASCII characters, or empty for none");
        return Err(GatewayError::invalid("audience", message));
    }
    let (count, bytes) = SCOPES_MAX;
    let scopes = request.scopes.as_deref().unwrap_or_default();
    if scopes.len() > count || !scopes.iter().all(|scope| scope.len() <= bytes && is_scope(scope)) {
        let message = format!(
            "scopes must be at most {count} texts of at most {bytes} visible ASCII characters without spaces, quotes and backslashes"
        );
        return Err(GatewayError::invalid("scopes", message));
    }
    Ok(kind)
}
