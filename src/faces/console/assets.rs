//! Files that pages load, from the program itself.

use std::sync::LazyLock;

use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, StatusCode, header};
use sha2::{Digest, Sha256};

use super::page;

/// Files by name: content type and text.
const FILES: [(&str, &str, &str); 3] = [
    (STYLESHEET, "text/css; charset=utf-8", include_str!("static/console.css")),
    (SCRIPT, "text/javascript; charset=utf-8", include_str!("static/console.js")),
    (ICON, "image/svg+xml", include_str!("static/icon.svg")),
];
/// Name of the style sheet.
const STYLESHEET: &str = "console.css";
/// Name of the script.
const SCRIPT: &str = "console.js";
/// Name of the icon.
const ICON: &str = "icon.svg";
/// Bytes of a digest that name a version.
const VERSION_BYTES: usize = 8;

/// Versions of the files, in the order of [`FILES`].
static VERSIONS: LazyLock<Vec<String>> = LazyLock::new(|| FILES.map(|(_, _, text)| version(text)).to_vec());

fn version(text: &str) -> String {
    Sha256::digest(text).iter().take(VERSION_BYTES).map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the URL of the style sheet, another one for each version.
pub(in crate::faces) fn stylesheet() -> String {
    url_of(STYLESHEET)
}

/// Returns the URL of the script, another one for each version.
pub(in crate::faces) fn script() -> String {
    url_of(SCRIPT)
}

/// Returns the URL of the icon, another one for each version.
pub(in crate::faces) fn icon() -> String {
    url_of(ICON)
}

fn url_of(name: &str) -> String {
    let mut versions = FILES.iter().zip(VERSIONS.iter());
    let version = versions.find(|((known, ..), _)| *known == name).map_or("", |(_, version)| version);
    format!("/console/static/{name}?v={version}")
}

/// Answers the request for an icon that browsers make by themselves, such as for an answer that is no page. It needs no session, so
/// that it is no attempt without a key.
pub(super) async fn serve_icon(headers: HeaderMap) -> Response {
    let mut response = serve(Path(ICON.to_owned()), headers).await;
    page::guard(response.headers_mut(), None);
    response
}

/// Answers a request for a file. A browser asks again with the version that it has, and gets nothing if that is still right.
pub(super) async fn serve(Path(name): Path<String>, headers: HeaderMap) -> Response {
    let found = FILES.iter().zip(VERSIONS.iter()).find(|((known, _, _), _)| *known == name);
    let Some(((_, content_type, text), version)) = found else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let tag = format!("\"{version}\"");
    let kept = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).unwrap_or_default();
    let caching = [(header::ETAG, tag.clone()), (header::CACHE_CONTROL, "public, max-age=86400".to_owned())];
    if kept.split(',').any(|kept| kept.trim().trim_start_matches("W/") == tag) {
        return (StatusCode::NOT_MODIFIED, caching).into_response();
    }
    (caching, [(header::CONTENT_TYPE, *content_type)], *text).into_response()
}
