//! Names of the API's own headers, and what others say.

use http::{HeaderMap, HeaderName, header};

use crate::domain::reason::Language;

/// Response header with a warning about a call that ran.
pub const WARNING: HeaderName = HeaderName::from_static("x-mcpproxy-warning");
/// Response header that names the servers missing from a search: the body has the contract's fields only.
pub const MISSING: HeaderName = HeaderName::from_static("x-mcpproxy-missing");
/// Request header that the command line sets to [`CLI`]. It decides the `source` of the record, and for rules of policies
/// the endpoint, where that loosens nothing but what trusts the client's word.
pub const SOURCE: HeaderName = HeaderName::from_static("x-mcpproxy-source");
/// Value of [`SOURCE`] that the command line sends.
pub const CLI: &str = "cli";

/// Returns the language that a client asks for; `None` if there are no texts in it.
pub fn language(headers: &HeaderMap) -> Option<Language> {
    Language::accepted(headers.get(header::ACCEPT_LANGUAGE)?.to_str().ok()?)
}
