//! Choice of the key whose call is explained: by name where the visitor may see the tenant's keys, else by id.

use uuid::Uuid;

use crate::domain::tenant::Action;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::short;
use crate::gateway::GatewayError;

/// Most keys to choose from.
const KEYS_MAX: usize = 100;
/// Longest name or owner of a key in the choice, in characters.
const NAME_CHARS_MAX: usize = 60;

/// Key to choose.
pub(super) struct KeyOption {
    /// Id of the key.
    pub(super) id: String,
    /// Name, owner and role of the key.
    pub(super) label: String,
    /// True if it is the one chosen.
    pub(super) is_chosen: bool,
}

/// Keys to choose from.
pub(super) struct KeyChoice {
    /// Keys that are valid now and may call tools; none for a visitor who may see no keys.
    pub(super) options: Vec<KeyOption>,
    /// True if the form also has a field for the id of a key.
    pub(super) asks_id: bool,
    /// Id in that field.
    pub(super) other: String,
}

impl KeyChoice {
    /// Loads the choice for a form in which this key was chosen; `chosen` is empty for none.
    ///
    /// # Errors
    /// Error of the use case.
    pub(super) async fn load(visit: &PageVisit, chosen: &str) -> Result<KeyChoice, GatewayError> {
        let chosen = chosen.to_owned();
        if !visit.caller().role.may(Action::ManageKeys) {
            return Ok(KeyChoice { options: Vec::new(), asks_id: true, other: chosen });
        }
        let fetched = i64::try_from(KEYS_MAX).unwrap_or(0) + 1;
        let keys = visit.gateway().tenants.list_keys(visit.caller(), Uuid::nil(), fetched).await?;
        let has_more = keys.len() > KEYS_MAX;
        let now = visit.now();
        let is_valid = |revoked: bool, expires: Option<_>| !revoked && expires.is_none_or(|at| at > now);
        // keys of other roles call no tools
        let callers = keys.iter().filter(|key| key.role.may(Action::UseTools));
        let valid = callers.filter(|key| is_valid(key.revoked_at.is_some(), key.expires_at));
        let options: Vec<KeyOption> = valid
            .take(KEYS_MAX)
            .map(|key| {
                let id = key.id.to_string();
                let [name, owner] = [&key.name, &key.owner].map(|text| short(text, NAME_CHARS_MAX));
                // a key that was replaced, and still works, has the same name
                let replaced = if key.successor.is_some() { ", replaced" } else { "" };
                let label = format!("{name} ({owner}, {}{replaced})", key.role.as_str());
                KeyOption { is_chosen: id == chosen, id, label }
            })
            .collect();
        let is_listed = options.iter().any(|option| option.is_chosen);
        let other = if is_listed { String::new() } else { chosen };
        Ok(KeyChoice { asks_id: has_more || !other.is_empty(), options, other })
    }
}
