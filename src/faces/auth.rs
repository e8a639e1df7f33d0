//! From request headers to a caller.

use std::sync::Arc;

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::{Faces, wire};
use crate::gateway::{AuthError, Caller, Gateway};

/// The caller of a request. Every failure looks the same to whoever has no valid key.
pub async fn caller(faces: &Faces, headers: &HeaderMap) -> Result<Arc<Caller>, AuthError> {
    let presented = presented_key(headers);
    let Some(secret) = presented else {
        faces.gateway.count_auth_failure(None);
        return Err(AuthError::Unauthenticated);
    };
    let tenant = headers.get("x-tenant").and_then(|value| value.to_str().ok());
    let caller = faces.gateway.authenticate(secret, tenant).await;
    if caller.as_ref().is_err_and(|error| *error == AuthError::Unauthenticated) {
        faces.gateway.count_auth_failure(Some(secret));
    }
    caller
}

/// `X-API-Key`, or `Authorization: Bearer`. Two different keys are as good as none.
fn presented_key(headers: &HeaderMap) -> Option<&str> {
    let own = headers.get("x-api-key").and_then(|value| value.to_str().ok());
    let bearer =
        headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).and_then(bearer_token);
    match (own, bearer) {
        (Some(own), Some(bearer)) if own != bearer => None,
        (own, bearer) => own.or(bearer),
    }
}

fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The answer to a request without a caller.
pub fn refuse(error: AuthError, request_id: &str) -> Response {
    let id = Some(request_id);
    match error {
        AuthError::Unauthenticated => {
            let message = "a valid API key is needed: send it as X-API-Key or Authorization: Bearer";
            let mut response =
                wire::error::render(StatusCode::UNAUTHORIZED, "unauthenticated", message, None, id);
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            response
        }
        AuthError::Suspended => {
            wire::error::render(StatusCode::FORBIDDEN, "forbidden", Gateway::suspended_text(), None, id)
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_in_two_headers() {
        let headers = |pairs: &[(&'static str, &'static str)]| {
            pairs
                .iter()
                .map(|(n, v)| (n.parse().unwrap(), HeaderValue::from_static(v)))
                .collect::<HeaderMap>()
        };
        assert_eq!(presented_key(&headers(&[("x-api-key", "a")])), Some("a"));
        assert_eq!(presented_key(&headers(&[("authorization", "bearer a")])), Some("a"));
        assert_eq!(presented_key(&headers(&[("authorization", "Basic a")])), None);
        assert_eq!(presented_key(&headers(&[("x-api-key", "a"), ("authorization", "Bearer b")])), None);
        assert_eq!(presented_key(&headers(&[])), None);
    }
}
