//! Pages, and the headers under which they are shown.

use askama::Template;
use axum::response::{Html, IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::return_to;

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
    /// True if the page answers a form that did nothing: the script keeps what was typed into it.
    is_form_lost: bool,
}

/// Returns a page that says one thing, with a link to the console.
pub(super) fn message(status: StatusCode, title: &str, text: &str, request_id: Option<&str>) -> Response {
    let (href, link) = (super::HOME, "To the console");
    render(status, &MessagePage { title, text, href, link, request_id, is_form_lost: false })
}

/// Returns the page for a form of an earlier session or of another tenant, with a link back to the page of the form, if that is one of the
/// console.
pub(super) fn form_lost(page: Option<&str>, request_id: &str) -> Response {
    let page = page.and_then(return_to::local);
    let page = MessagePage {
        title: "Not allowed",
        text: "This form is not of your session any more, so nothing was done: load its page again.",
        href: page.unwrap_or(super::HOME),
        link: if page.is_some() { "Load the page of the form" } else { "To the console" },
        request_id: Some(request_id),
        is_form_lost: true,
    };
    render(StatusCode::FORBIDDEN, &page)
}

/// Returns a page that says why a visitor is not let in, with a link to another login.
pub(super) fn not_let_in(status: StatusCode, title: &str, text: &str, request_id: Option<&str>) -> Response {
    let (href, link) = (super::LOGIN, "Log in as somebody else");
    render(status, &MessagePage { title, text, href, link, request_id, is_form_lost: false })
}
