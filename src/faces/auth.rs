//! Authentication: finds the caller of a request from its headers.

use std::net::IpAddr;
use std::sync::Arc;

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{Faces, wire};
use crate::domain::identity::scope_for;
use crate::domain::operation::OperationType;
use crate::gateway::{AuthError, Caller, PresentedCredential, SUSPENDED};

/// Seconds after which to try again where there was no room.
const CROWDED_RETRY_S: u64 = 5;

/// Fault in a header that decides who is served. The request is refused before any key is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFault {
    /// Name of the header.
    pub name: &'static str,
    /// Description of the fault, for the client.
    pub message: &'static str,
}

impl HeaderFault {
    /// Returns the 400 response that names the header.
    pub fn refuse(self, request_id: &str) -> Response {
        let HeaderFault { name, message } = self;
        wire::error::render(StatusCode::BAD_REQUEST, "invalid_request", message, Some(name), Some(request_id))
    }
}

/// Returns the only value of a header; `None` if the header is absent.
///
/// # Errors
/// [`HeaderFault`] if the header is repeated: readers of the first value and readers of the last would serve
/// different callers.
pub fn single<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a HeaderValue>, HeaderFault> {
    let mut values = headers.get_all(name).iter();
    let value = values.next();
    if values.next().is_some() {
        return Err(HeaderFault { name, message: "this header is repeated: send it once" });
    }
    Ok(value)
}

/// Credential and tenant that a request presents.
#[derive(Clone, Copy, Debug)]
pub struct Presented<'a> {
    /// API key or bearer token; `None` if absent or unreadable.
    credential: Option<PresentedCredential<'a>>,
    /// Value of `X-Tenant`.
    tenant: Option<&'a str>,
}

impl Presented<'_> {
    /// Returns whether the request presents a credential, or something in the place of one.
    pub fn has_credential(&self) -> bool {
        self.credential.is_some()
    }

    /// Presents the session of this cookie, if the request presents nothing else.
    pub fn or_session<'a>(self, cookie: Option<&'a str>) -> Presented<'a>
    where
        Self: 'a,
    {
        Presented {
            credential: self.credential.or(cookie.map(PresentedCredential::Session)),
            tenant: self.tenant,
        }
    }

    /// Reads `X-API-Key`, `Authorization: Bearer` and `X-Tenant`.
    ///
    /// # Errors
    /// A header is repeated, the first two hold different credentials, or the tenant is no text.
    pub fn read(headers: &HeaderMap) -> Result<Presented<'_>, HeaderFault> {
        let own = single(headers, "X-API-Key")?;
        let bearer =
            single(headers, "Authorization")?.and_then(|value| value.to_str().ok()).and_then(bearer_token);
        let credential = match (own, bearer) {
            (Some(own), Some(bearer)) if own.to_str().is_ok_and(|own| own != bearer) => {
                let message = "X-API-Key and Authorization hold different credentials: send one of them";
                return Err(HeaderFault { name: "Authorization", message });
            }
            // a header that cannot be read is not passed over for the other
            (Some(own), bearer) => own.to_str().ok().map(|own| match bearer {
                Some(_) => PresentedCredential::Bearer(own),
                None => PresentedCredential::ApiKey(own),
            }),
            (None, bearer) => bearer.map(PresentedCredential::Bearer),
        };
        let tenant = single(headers, "X-Tenant")?.map(HeaderValue::to_str).transpose();
        let tenant =
            tenant.map_err(|_| HeaderFault { name: "X-Tenant", message: "must be a tenant's name" })?;
        Ok(Presented { credential, tenant })
    }
}

/// Returns the caller of a request from `address`. Clients without a valid key cannot tell the failures apart.
///
/// # Errors
/// The credential is missing or not valid, its tenant is suspended or does not exist, or keys cannot be confirmed now.
pub async fn caller(
    faces: &Faces,
    presented: Presented<'_>,
    address: Option<IpAddr>,
) -> Result<Arc<Caller>, AuthError> {
    let Some(credential) = presented.credential else {
        faces.gateway.tenants.count_auth_failure(None, address);
        return Err(AuthError::Unauthenticated);
    };
    let caller = faces.gateway.tenants.authenticate(credential, presented.tenant).await;
    if let Err(error) = &caller {
        faces.gateway.tenants.count_refusal(error, Some(credential.text()), address);
    }
    caller
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Answer to a request without a valid credential: what a client can do about it (RFC 6750, RFC 9728).
#[derive(Clone, Debug, Default)]
pub struct Challenge {
    /// URL of the metadata of the endpoint that was asked; `None` where clients cannot log in.
    pub metadata: Option<String>,
    /// Scopes to ask for when logging in, separated by spaces; `None` for none.
    pub scopes: Option<String>,
    /// True if people can log in at the host that was asked.
    pub has_logins: bool,
    /// True if the request presented a credential.
    pub is_presented: bool,
}

impl Challenge {
    /// Returns the 401 response. The metadata goes to those whom a login helps: not to the holder of a bad API key.
    fn respond(&self, message: &str, is_key: bool, request_id: &str) -> Response {
        let status = StatusCode::UNAUTHORIZED;
        let mut response = wire::error::render(status, "unauthenticated", message, None, Some(request_id));
        let fault = self.is_presented.then(|| "error=\"invalid_token\"".to_owned());
        let metadata = self.metadata.as_ref().filter(|_| !(is_key && self.is_presented));
        let scopes = self.scopes.as_ref().filter(|_| metadata.is_some());
        let scopes = scopes.map(|scopes| format!("scope=\"{scopes}\""));
        let metadata = metadata.map(|url| format!("resource_metadata=\"{url}\""));
        let parts: Vec<String> = fault.into_iter().chain(metadata).chain(scopes).collect();
        let challenge =
            if parts.is_empty() { "Bearer".to_owned() } else { format!("Bearer {}", parts.join(", ")) };
        let challenge =
            HeaderValue::try_from(challenge).unwrap_or_else(|_| HeaderValue::from_static("Bearer"));
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        response
    }
}

/// Operation for which a person has to log in with a broader scope: an extension of the response that refuses it.
#[derive(Clone, Copy, Debug)]
pub struct NeededScope(pub OperationType);

impl NeededScope {
    /// Makes a response the 403 that asks for the scope.
    pub fn refuse(self, mut response: Response) -> Response {
        *response.status_mut() = StatusCode::FORBIDDEN;
        response.extensions_mut().insert(self);
        response
    }

    /// Adds the challenge that names all scopes to ask for: clients ask for these and no others (MCP 2025-11-25,
    /// authorization).
    pub fn challenge(self, response: &mut Response, advertised: Option<&str>, metadata: Option<&str>) {
        let needed = scope_for(self.0);
        let others =
            advertised.into_iter().flat_map(str::split_ascii_whitespace).filter(|scope| *scope != needed);
        let scopes: Vec<&str> = others.chain([needed]).collect();
        let mut challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{}\"", scopes.join(" "));
        if let Some(url) = metadata {
            challenge.push_str(&format!(", resource_metadata=\"{url}\""));
        }
        if let Ok(challenge) = HeaderValue::try_from(challenge) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
        }
    }
}

/// Text for a request without a credential, where people can log in.
const LOG_IN: &str =
    "log in with your organisation's account, or send an API key as X-API-Key or Authorization: Bearer";
/// Text for a request without a valid API key.
const KEY_NEEDED: &str = "a valid API key is needed: send it as X-API-Key or Authorization: Bearer";
/// Seconds after which to try again while an issuer's keys cannot be fetched.
const KEYS_RETRY_S: u64 = 30;

/// Returns the response to a request without a caller.
pub fn refuse(error: &AuthError, challenge: &Challenge, request_id: &str) -> Response {
    let id = Some(request_id);
    let token = |message| challenge.respond(message, false, request_id);
    let forbidden = |message| wire::error::render(StatusCode::FORBIDDEN, "forbidden", message, None, id);
    match error {
        AuthError::Unauthenticated if challenge.has_logins && !challenge.is_presented => token(LOG_IN),
        AuthError::Unauthenticated => challenge.respond(KEY_NEEDED, true, request_id),
        AuthError::TokenUnverifiable => token("the access token is not valid here"),
        AuthError::TokenExpired => token("the access token has expired"),
        AuthError::TokenAudience => {
            token("the access token was issued for something other than this gateway")
        }
        AuthError::NoRule(_) => forbidden(
            "this account is known, but no rule gives it access here; ask whoever runs this gateway",
        ),
        AuthError::Blocked(_) => forbidden("this account is blocked here"),
        AuthError::SeveralTenants => {
            let message = "this account belongs to several tenants: name one with the header X-Tenant";
            wire::error::render(StatusCode::BAD_REQUEST, "invalid_request", message, None, id)
        }
        AuthError::KeysUnavailable => {
            let message = "logins cannot be checked now because the identity provider is out of reach; API keys work; \
                           try again shortly";
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let mut response = wire::error::render(status, "unavailable", message, None, id);
            response.headers_mut().insert(header::RETRY_AFTER, KEYS_RETRY_S.into());
            response
        }
        AuthError::LoginsBusy => busy(
            "too many access tokens of this identity provider are being verified; try again shortly",
            request_id,
        ),
        AuthError::Suspended => wire::error::render(StatusCode::FORBIDDEN, "forbidden", SUSPENDED, None, id),
        AuthError::NoSuchTenant => {
            wire::error::render(StatusCode::NOT_FOUND, "not_found", "tenant not found", Some("X-Tenant"), id)
        }
        AuthError::Unavailable => {
            let message =
                "the gateway cannot confirm keys now because its database is out of reach; try again shortly";
            wire::error::render(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message, None, id)
        }
    }
}

/// The answer to a request on one connection more than its key, or its tenant, may have.
pub fn crowded(request_id: &str) -> Response {
    busy(
        "too many connections of this key or its tenant are open: use fewer, or try again shortly",
        request_id,
    )
}

fn busy(message: &str, request_id: &str) -> Response {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let mut response = wire::error::render(status, "overloaded", message, None, Some(request_id));
    response.headers_mut().insert(header::RETRY_AFTER, CROWDED_RETRY_S.into());
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_two_headers() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs
                .iter()
                .map(|(n, v)| (n.parse::<http::HeaderName>().unwrap(), HeaderValue::from_static(v)))
                .collect::<HeaderMap>()
        };
        let credential = |pairs| {
            let headers = headers(pairs);
            Presented::read(&headers)
                .map(|presented| presented.credential.map(|credential| credential.text().to_owned()))
        };
        let found = |text: &str| Ok(Some(text.to_owned()));
        assert_eq!(credential(&[("x-api-key", "a")]), found("a"));
        assert_eq!(credential(&[("authorization", "bearer a")]), found("a"));
        assert_eq!(credential(&[("authorization", "Basic a")]), Ok(None));
        assert_eq!(credential(&[("x-api-key", "a"), ("authorization", "Bearer a")]), found("a"));
        assert_eq!(credential(&[("x-api-key", "a"), ("authorization", "Basic b")]), found("a"));
        assert_eq!(credential(&[]), Ok(None));
        for (name, pairs) in [
            ("Authorization", &[("x-api-key", "a"), ("authorization", "Bearer b")]),
            ("Authorization", &[("authorization", "Bearer a"), ("authorization", "Bearer a")]),
            ("X-API-Key", &[("x-api-key", "a"), ("x-api-key", "a")]),
            ("X-Tenant", &[("x-tenant", "a"), ("x-tenant", "b")]),
        ] {
            assert_eq!(credential(pairs).unwrap_err().name, name, "{pairs:?}");
        }
    }
}
