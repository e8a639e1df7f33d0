//! Keys that have rules of their own, beside those of the page.

use crate::domain::tenant::Action;
use crate::faces::console::keys;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::short;
use crate::gateway::GatewayError;

/// Most keys that are named.
const NAMED_MAX: usize = 10;
/// Longest name of a key, in characters.
const NAME_CHARS_MAX: usize = 60;

/// Link to a key.
pub(super) struct KeyLink {
    /// Name of the key.
    pub(super) name: String,
    /// Path of its page.
    pub(super) href: String,
}

/// Keys that have rules of their own.
pub(super) struct KeyRules {
    /// Number of the keys.
    pub(super) number: usize,
    /// Links to the first of them by name; none for a visitor who may see no keys.
    pub(super) named: Vec<KeyLink>,
}

impl KeyRules {
    /// Loads the keys from the tenant's snapshot.
    ///
    /// # Errors
    /// Error of the use case.
    pub(super) fn load(visit: &PageVisit) -> Result<KeyRules, GatewayError> {
        let found = visit.gateway().tenants.keys_with_rules(visit.caller())?;
        let link = |(id, name): &(_, String)| KeyLink {
            name: short(name, NAME_CHARS_MAX),
            href: keys::href_of(*id),
        };
        let may_see = visit.caller().role.may(Action::ManageKeys);
        let named = found.iter().take(if may_see { NAMED_MAX } else { 0 }).map(link).collect();
        Ok(KeyRules { number: found.len(), named })
    }

    /// Returns whether there are more keys than are named.
    pub(super) fn has_more(&self) -> bool {
        self.number > self.named.len()
    }
}
