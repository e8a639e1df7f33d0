//! Names of the API's own headers.

use http::HeaderName;

/// Response header with a warning about a call that ran.
pub const WARNING: HeaderName = HeaderName::from_static("x-mcpproxy-warning");
/// Response header that names the servers missing from a search: the body has the contract's fields only.
pub const MISSING: HeaderName = HeaderName::from_static("x-mcpproxy-missing");
/// Request header that the command line sets to [`CLI`]. It decides only the `source` of the record, and grants nothing.
pub const SOURCE: HeaderName = HeaderName::from_static("x-mcpproxy-source");
/// Value of [`SOURCE`] that the command line sends.
pub const CLI: &str = "cli";
