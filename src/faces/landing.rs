//! The page at `/`, for people who open the gateway's address in a browser. It says nothing about tenants, versions or replicas.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, Method, Uri, header};

/// Text of the page. Links lead to the gateway itself alone, so it is the same in a network without a way out.
const PAGE: &str = include_str!("landing.html");

/// Headers of the page: it runs nothing, loads nothing and stands in no frame.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::CONTENT_TYPE, "text/html; charset=utf-8"),
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Returns the page for a request that asks for it; `None` for any other.
pub(super) fn page(method: &Method, uri: &Uri) -> Option<Response> {
    let is_asked = uri.path() == "/" && (method == Method::GET || method == Method::HEAD);
    is_asked.then(|| (HEADERS, PAGE).into_response())
}
