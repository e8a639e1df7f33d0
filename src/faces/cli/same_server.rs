//! Comparison of a server, as the API shows it, with what somebody wants it to be.

use serde_json::Value;
use uuid::Uuid;

use super::output::text;
use crate::domain::id::ServerId;
use crate::domain::server_url::{masked, query_digest};

/// Returns whether a server has this URL. Queries are credentials: the API shows only their digest.
pub(super) fn has_url(server: &Value, wanted: &str) -> bool {
    let there = text(server, "url");
    let digest = Uuid::try_parse(&text(server, "id")).ok().and_then(|id| query_digest(ServerId(id), wanted));
    let has_same_query =
        digest.is_some() && digest.as_deref() == server.get("query_digest").and_then(Value::as_str);
    // without a query, or by a gateway that masks nothing, the URL is shown whole
    wanted == there || (masked(wanted) == there && has_same_query)
}

/// Returns sorted header names in lower case, since case does not count in them.
pub(super) fn header_names<'a>(of: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = of.map(str::to_ascii_lowercase).collect();
    names.sort_unstable();
    names
}
