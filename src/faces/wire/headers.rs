//! Names of headers that are this API's own.

use http::HeaderName;

/// In an answer: the call ran, but something is worth knowing.
pub const WARNING: HeaderName = HeaderName::from_static("x-mcpproxy-warning");
/// In an answer to a search: the servers that are missing from it.
pub const MISSING: HeaderName = HeaderName::from_static("x-mcpproxy-missing");
/// In a request: [`CLI`], when the command line sends it. Only for the record's `source`: it opens nothing.
pub const SOURCE: HeaderName = HeaderName::from_static("x-mcpproxy-source");
/// The value of [`SOURCE`] that the command line sends.
pub const CLI: &str = "cli";
