//! Requests to token endpoints (RFC 6749): the one way in which codes, refresh tokens and client credentials are exchanged. Each passes
//! the egress guard, on a connection of its own, and follows no redirect. Nothing that is sent or answered gets into an error.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, StatusCode};
use serde::{Deserialize, Deserializer};
use tokio::time::timeout;
use url::form_urlencoded;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::domain::json;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::http::post::{Http, read_all};
use crate::upstream::http::wires::{Timeouts, Wires};

/// Largest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 128 * 1024;
/// Longest error code of a provider that is kept, in bytes.
const CODE_BYTES_MAX: usize = 60;

/// Authentication of the gateway at a token endpoint.
#[derive(Clone, Copy)]
pub enum ClientAuth<'a> {
    /// A public client: its id alone.
    Public(&'a str),
    /// Id and secret in the header `Authorization` (`client_secret_basic`).
    Basic(&'a str, &'a str),
    /// Id and secret in the form (`client_secret_post`).
    Post(&'a str, &'a str),
}

impl fmt::Debug for ClientAuth<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ClientAuth::Public(_) => "Public",
            ClientAuth::Basic(..) => "Basic",
            ClientAuth::Post(..) => "Post",
        })
    }
}

/// Request to a token endpoint.
#[derive(Clone, Copy)]
pub struct TokenRequest<'a> {
    /// Tenant in whose share the request is sent; `None` for the platform's own.
    pub tenant: Option<Uuid>,
    /// URL of the endpoint.
    pub url: &'a str,
    /// Authentication of the gateway.
    pub client: ClientAuth<'a>,
    /// Fields of the form, `grant_type` among them.
    pub fields: &'a [(&'a str, &'a str)],
    /// Time limit of the whole request.
    pub timeout: Duration,
}

/// Answer of a token endpoint. `Debug` shows no token.
#[derive(Clone, Deserialize)]
pub struct TokenAnswer {
    /// Access token.
    pub access_token: Option<Zeroizing<String>>,
    /// ID token; `None` without one.
    pub id_token: Option<Zeroizing<String>>,
    /// Refresh token; `None` without one.
    pub refresh_token: Option<Zeroizing<String>>,
    /// Lifetime of the access token in seconds; `None` if the provider does not say. Some write it as a text.
    #[serde(default, deserialize_with = "seconds")]
    pub expires_in: Option<f64>,
    /// Scopes of the access token; `None` if they are those that were asked for.
    pub scope: Option<String>,
    /// Type of the access token.
    pub token_type: Option<String>,
}

fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    Ok(match Option::<serde_json::Value>::deserialize(deserializer)? {
        Some(serde_json::Value::String(text)) => text.parse().ok(),
        Some(other) => other.as_f64(),
        None => None,
    })
}

impl fmt::Debug for TokenAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenAnswer").field("expires_in", &self.expires_in).finish_non_exhaustive()
    }
}

/// Reason why a token endpoint gave no tokens.
#[derive(Clone, Debug, thiserror::Error)]
pub enum TokenError {
    /// No answer came, or not a whole one.
    #[error("no answer: {}", .0.kind.sentence())]
    NoAnswer(UpstreamError),
    /// The endpoint refused, with this status and, if it is plain, this `error` code.
    #[error("HTTP {}{}", .0.as_u16(), code(.1.as_deref()))]
    Refused(StatusCode, Option<String>),
    /// The answer is not one of a token endpoint.
    #[error("the answer is not one of a token endpoint")]
    Malformed,
}

fn code(code: Option<&str>) -> String {
    code.map(|code| format!(" ({code})")).unwrap_or_default()
}

/// Error answer of a token endpoint.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// Sends a request to a token endpoint.
pub(in crate::upstream) async fn request(
    dialer: &Dialer,
    request: TokenRequest<'_>,
) -> Result<TokenAnswer, TokenError> {
    let sent = timeout(request.timeout, send(dialer.for_issuers_of(request.tenant), request)).await;
    sent.unwrap_or_else(|_| Err(TokenError::NoAnswer(UpstreamError::timeout(true))))
}

/// Sends a request to a revocation endpoint (RFC 7009), whose answer has no content that counts.
pub(in crate::upstream) async fn revoke(
    dialer: &Dialer,
    request: TokenRequest<'_>,
) -> Result<(), TokenError> {
    let sent = timeout(request.timeout, ask(dialer.for_issuers_of(request.tenant), request)).await;
    let (status, bytes) = sent.unwrap_or_else(|_| Err(TokenError::NoAnswer(UpstreamError::timeout(true))))?;
    if status == StatusCode::OK { Ok(()) } else { read(status, &bytes).map(drop) }
}

async fn send(dialer: Dialer, request: TokenRequest<'_>) -> Result<TokenAnswer, TokenError> {
    let (status, bytes) = ask(dialer, request).await?;
    read(status, &bytes)
}

async fn ask(dialer: Dialer, request: TokenRequest<'_>) -> Result<(StatusCode, Bytes), TokenError> {
    let uri = dialer.check_url(request.url).map_err(TokenError::NoAnswer)?;
    let unsendable = || {
        let error = UpstreamError::unsent(FailureKind::Unsendable, "the request cannot be sent");
        TokenError::NoAnswer(error)
    };
    let target = uri.path_and_query().map_or("/", |path| path.as_str()).parse().map_err(|_| unsendable())?;
    let host = uri.authority().map_or("", |authority| authority.as_str());
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(host).map_err(|_| unsendable())?);
    headers.insert(USER_AGENT, HeaderValue::from_static(crate::upstream::target::USER_AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded"));
    if let ClientAuth::Basic(id, secret) = request.client {
        headers.insert(AUTHORIZATION, basic(id, secret).ok_or_else(unsendable)?);
    }
    let timeouts = Timeouts { connect: request.timeout, idle: Duration::ZERO };
    let http = Http { wires: Arc::new(Wires::new(dialer, uri, 1, timeouts)), target, login: None };
    let sent = AtomicBool::new(false);
    let exchanged = http.exchange(Method::POST, headers, Bytes::from(form(&request)), &sent).await;
    let (mut lease, response) = exchanged.map_err(TokenError::NoAnswer)?;
    let status = response.status();
    let mut body = response.into_body();
    let bytes =
        read_all(&mut lease, &mut body, ANSWER_BYTES_MAX, None).await.map_err(TokenError::NoAnswer)?;
    Ok((status, bytes))
}

/// Reads an answer.
fn read(status: StatusCode, bytes: &[u8]) -> Result<TokenAnswer, TokenError> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| json::members_of_text(text).is_ok());
    if status != StatusCode::OK {
        let refusal = text.and_then(|text| serde_json::from_str::<Refusal>(text).ok());
        let is_plain = |code: &String| {
            code.len() <= CODE_BYTES_MAX && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        return Err(TokenError::Refused(status, refusal.map(|refusal| refusal.error).filter(is_plain)));
    }
    let text = text.ok_or(TokenError::Malformed)?;
    serde_json::from_str(text).map_err(|_| TokenError::Malformed)
}

/// Returns the body of a request.
fn form(request: &TokenRequest<'_>) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.extend_pairs(request.fields);
    match request.client {
        ClientAuth::Public(id) => {
            form.append_pair("client_id", id);
        }
        ClientAuth::Post(id, secret) => {
            form.append_pair("client_id", id).append_pair("client_secret", secret);
        }
        ClientAuth::Basic(..) => {}
    }
    form.finish()
}

/// Returns the header of `client_secret_basic`: id and secret are encoded as in a form first (RFC 6749, section 2.3.1).
fn basic(id: &str, secret: &str) -> Option<HeaderValue> {
    let encoded = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
    let pair = Zeroizing::new(format!("{}:{}", encoded(id), encoded(secret)));
    let mut value = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair.as_bytes()))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_authenticate_in_one_way() {
        let fields = [("grant_type", "authorization_code"), ("code", "a b&c")];
        let request = |client| TokenRequest {
            tenant: None,
            url: "",
            client,
            fields: &fields,
            timeout: Duration::from_secs(1),
        };
        let plain = "grant_type=authorization_code&code=a+b%26c";
        assert_eq!(form(&request(ClientAuth::Public("id/1"))), format!("{plain}&client_id=id%2F1"));
        assert_eq!(form(&request(ClientAuth::Basic("id", "s3cret"))), plain);
        let posted = format!("{plain}&client_id=id&client_secret=s%3Acret");
        assert_eq!(form(&request(ClientAuth::Post("id", "s:cret"))), posted);
        let header = basic("a:b", "c d").unwrap();
        assert_eq!(header, format!("Basic {}", STANDARD.encode("a%3Ab:c+d")));
        assert!(!format!("{header:?} {:?}", ClientAuth::Basic("id", "s3cret")).contains("s3cret"));
    }

    #[test]
    fn answers_are_read_and_never_repeated() {
        let good = read(StatusCode::OK, br#"{"access_token":"s3cret","id_token":"a.b.c","expires_in":3600}"#);
        let odd = read(StatusCode::OK, br#"{"id_token":"a.b.c","expires_in":"3600"}"#);
        assert_eq!(odd.unwrap().expires_in, Some(3600.0));
        let good = good.unwrap();
        assert_eq!(good.id_token.as_ref().map(|token| token.as_str()), Some("a.b.c"));
        assert!(!format!("{good:?}").contains("s3cret"));
        let refused = |status, body: &[u8]| read(status, body).unwrap_err().to_string();
        let bad = StatusCode::BAD_REQUEST;
        assert_eq!(
            refused(bad, br#"{"error":"invalid_grant","error_description":"s3cret"}"#),
            "HTTP 400 (invalid_grant)"
        );
        assert_eq!(refused(bad, br#"{"error":"S3CRET x"}"#), "HTTP 400");
        assert_eq!(refused(bad, b"s3cret"), "HTTP 400");
        assert_eq!(refused(StatusCode::FOUND, b""), "HTTP 302");
        for body in [&b"s3cret"[..], br#"{"id_token":"a","id_token":"b"}"#, b"[]", b"\xff"] {
            assert!(matches!(read(StatusCode::OK, body), Err(TokenError::Malformed)));
        }
    }
}
