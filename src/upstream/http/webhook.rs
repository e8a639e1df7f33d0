//! Deliveries to the receivers of webhooks. Their addresses are tenants' choices: each delivery passes the egress guard, on a
//! connection of its own, and follows no redirect.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use http::{Method, StatusCode};
use uuid::Uuid;

use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::http::post::Http;
use crate::upstream::http::wires::{Timeouts, Wires};

/// Longest time to open a connection, name look-up and TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Delivery of an event.
#[derive(Clone, Debug)]
pub struct WebhookPost<'a> {
    /// Tenant whose receiver it is.
    pub tenant: Uuid,
    /// URL of the receiver.
    pub url: &'a str,
    /// Headers of the event, besides those of every request.
    pub headers: [(&'static str, String); 3],
    /// Body, a JSON text.
    pub body: Bytes,
}

/// Reason why a receiver did not confirm an event. The text names no secret and repeats nothing that was sent or answered.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WebhookError {
    /// The receiver gave no answer.
    #[error("the receiver gave no answer: {}", reason(.0))]
    NoAnswer(UpstreamError),
    /// The receiver answered with a redirect.
    #[error("the receiver answered HTTP {}, a redirect, which is never followed", .0.as_u16())]
    Redirect(StatusCode),
    /// The receiver answered with this status.
    #[error("the receiver answered HTTP {}", .0.as_u16())]
    Status(StatusCode),
}

fn reason(error: &UpstreamError) -> Cow<'static, str> {
    match error.kind {
        _ if !error.detail.is_empty() => error.detail.clone(),
        FailureKind::Timeout => "its time is over".into(),
        FailureKind::Lost => "the connection was lost".into(),
        other => other.sentence().into(),
    }
}

impl WebhookError {
    /// Creates the error of a delivery whose time is over.
    pub fn timeout() -> WebhookError {
        WebhookError::NoAnswer(UpstreamError::timeout(true))
    }
}

/// Posts an event. The connection ends with the head of the answer: its body is never read. The caller bounds the time.
pub(in crate::upstream) async fn deliver(dialer: &Dialer, post: WebhookPost<'_>) -> Result<(), WebhookError> {
    let uri = dialer.check_url(post.url).map_err(WebhookError::NoAnswer)?;
    let unsendable = || {
        let error = UpstreamError::unsent(FailureKind::Unsendable, "the URL cannot be sent");
        WebhookError::NoAnswer(error)
    };
    let target = uri.path_and_query().map_or("/", |path| path.as_str()).parse().map_err(|_| unsendable())?;
    let value = |text: &str| HeaderValue::from_str(text).map_err(|_| unsendable());
    let mut headers = HeaderMap::new();
    headers.insert(HOST, value(uri.authority().map_or("", |authority| authority.as_str()))?);
    headers.insert(USER_AGENT, HeaderValue::from_static(crate::upstream::target::USER_AGENT));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, text) in &post.headers {
        headers.insert(HeaderName::from_static(name), value(text)?);
    }
    let dialer = dialer.for_upstream_of(post.tenant);
    let timeouts = Timeouts { connect: CONNECT_MAX, idle: Duration::ZERO };
    let http = Http { wires: Arc::new(Wires::new(dialer, uri, 1, timeouts)), target, login: None };
    let sent = AtomicBool::new(false);
    let exchanged = http.exchange(Method::POST, headers, post.body, &sent).await;
    let (_lease, response) = exchanged.map_err(WebhookError::NoAnswer)?;
    match response.status() {
        status if status.is_success() => Ok(()),
        status if status.is_redirection() => Err(WebhookError::Redirect(status)),
        status => Err(WebhookError::Status(status)),
    }
}
