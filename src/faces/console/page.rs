//! Pages, and the headers under which they are shown.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

/// Headers of every answer: pages run and load nothing but the console's own, stand in no frame, and are kept nowhere. Addresses of
/// pages go to no other site; `no-referrer` would also take the `Origin` from forms, by which they are known as the console's own.
const HEADERS: [(HeaderName, &str); 3] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "same-origin"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Policy of every page, up to the places that forms may lead to.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; frame-ancestors 'none'; form-action 'self'";

/// Adds the headers of every answer, where the answer has none of its own. Forms lead to the console, and the logout of a person on to
/// `provider`, the origin where the provider ends its own session.
pub(super) fn guard(headers: &mut HeaderMap, provider: Option<&str>) {
    let policy = match provider {
        Some(origin) => HeaderValue::try_from(format!("{POLICY} {origin}")),
        None => Ok(HeaderValue::from_static(POLICY)),
    };
    headers.insert(header::CONTENT_SECURITY_POLICY, policy.unwrap_or(HeaderValue::from_static(POLICY)));
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Renders a page.
pub(super) fn render(status: StatusCode, page: &impl Template) -> Response {
    match page.render() {
        Ok(text) => (status, Html(text)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page of the console could not be written");
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}

#[derive(Template)]
#[template(path = "message.html", config = "src/faces/console/askama.toml")]
struct MessagePage<'a> {
    title: &'a str,
    text: &'a str,
    href: &'a str,
    link: &'a str,
    request_id: Option<&'a str>,
}

/// Returns a page that says one thing, with a link to the console.
pub(super) fn message(status: StatusCode, title: &str, text: &str, request_id: Option<&str>) -> Response {
    let page = MessagePage { title, text, href: super::HOME, link: "To the console", request_id };
    render(status, &page)
}

/// Returns a page that says why a visitor is not let in, with a link to another login.
pub(super) fn not_let_in(status: StatusCode, title: &str, text: &str, request_id: Option<&str>) -> Response {
    let page = MessagePage { title, text, href: super::LOGIN, link: "Log in as somebody else", request_id };
    render(status, &page)
}
