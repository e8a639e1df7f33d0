//! Successor of a client's key that was rotated.

use serde_json::Value;

use super::super::client::{ApiClient, ApiQuery};
use super::super::failure::Failure;
use super::super::key;
use super::super::output::{self, text};

/// Returns the last successor of a key, by its secret; `None` if the key has none that works and is for a client.
///
/// # Errors
/// The keys cannot be listed.
pub(super) async fn of(api: &ApiClient, secret: &str) -> Result<Option<Value>, Failure> {
    let keys = api.list(&["keys"], &ApiQuery::default(), usize::MAX).await?;
    let keys: Vec<Value> = keys.iter().map(|key| output::parsed(key)).collect();
    let is_for_client = |key: &&Value| key::works(key) && matches!(&*text(key, "role"), "agent" | "operator");
    Ok(last(&keys, secret).filter(is_for_client).cloned())
}

/// Returns the last key in the line of rotations of the key with this secret; `None` if it has no successor.
fn last<'k>(keys: &'k [Value], secret: &str) -> Option<&'k Value> {
    let is_it = |key: &&Value| {
        let prefix = text(key, "prefix");
        !prefix.is_empty() && secret.starts_with(&prefix)
    };
    let after = |key: &Value| {
        let id = Some(text(key, "successor_id")).filter(|id| !id.is_empty())?;
        keys.iter().find(|key| text(key, "id") == id)
    };
    let first = after(keys.iter().find(is_it)?)?;
    // no line is longer than all keys
    std::iter::successors(Some(first), |key| after(key)).take(keys.len()).last()
}

/// Returns what to do with a successor, whose secret nobody can read again.
pub(super) fn advice(successor: &Value) -> String {
    format!(
        "its successor is {} ({}), whose secret was shown only once: give it with MCPPROXY_CLIENT_KEY or --key, or make another \
         key with --new-key",
        text(successor, "name"),
        text(successor, "id")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_last_of_a_line_is_found_by_the_secret_of_any_other() {
        let key = |id: &str, prefix: &str, successor: Option<&str>| json!({"id": id, "prefix": prefix, "successor_id": successor});
        let keys = [
            key("1", "mcpk_aaa", Some("2")),
            key("2", "mcpk_bbb", Some("3")),
            key("3", "mcpk_ccc", None),
            key("4", "", Some("3")),
            key("5", "mcpk_ddd", Some("gone")),
            key("6", "mcpk_eee", Some("6")),
        ];
        for (secret, id) in [
            ("mcpk_aaa1", Some("3")),
            ("mcpk_bbb1", Some("3")),
            ("mcpk_ccc1", None),
            ("mcpk_other", None),
            ("mcpk_ddd1", None),
            ("mcpk_eee1", Some("6")),
        ] {
            let found = last(&keys, secret).map(|key| text(key, "id"));
            assert_eq!(found.as_deref(), id, "{secret}");
        }
    }
}
