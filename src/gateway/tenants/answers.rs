//! Keys whose calls may ask a person, and whether there is anybody who may answer.

use super::Tenants;
use crate::domain::id::KeyId;
use crate::domain::person::Person;
use crate::domain::policy::{Assurance, PolicyLayers};
use crate::domain::tenant::Action;
use crate::gateway::clock;
use crate::gateway::tenants::live::access::Caller;

/// Most comparisons of persons for one answer. Keys beyond count as answered.
const COMPARISONS_MAX: usize = 20_000;
/// Most keys that are named of each kind.
const NAMED_MAX: usize = 5;

/// Keys whose calls may ask a person.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AskingKeys {
    /// Number of keys whose calls may ask.
    pub asking: usize,
    /// Asking keys for which the bootstrap key alone may decide.
    pub unanswered: NamedKeys,
    /// Asking keys that may need another person, where only keys of the same person may decide.
    pub unapproved: NamedKeys,
}

/// Keys that are counted, of which the first are named.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamedKeys {
    /// Number of keys.
    pub count: usize,
    /// The first of them, by id, with their owners.
    pub first: Vec<(KeyId, String)>,
}

impl NamedKeys {
    /// Names the first keys by id: the same ones on every replica.
    fn of(mut keys: Vec<&Caller>) -> NamedKeys {
        keys.sort_unstable_by_key(|key| key.key.map(|id| id.0));
        let named = |key: &&Caller| Some((key.key?, key.owner.clone()));
        NamedKeys { count: keys.len(), first: keys.iter().take(NAMED_MAX).filter_map(named).collect() }
    }
}

impl Tenants {
    /// Counts the keys whose calls may ask, and for which nobody of the tenant may answer: those of the tenant for a role that
    /// sees its permission requests, else the caller's own. `None` for a caller that acts in no tenant. Takes no query.
    pub fn asking_keys(&self, caller: &Caller) -> Option<AskingKeys> {
        let access = caller.tenant.as_ref()?.access();
        let access = access.as_ref().as_ref()?;
        let now = clock::now();
        let live = || access.keys.iter().map(|(_, key)| key.as_ref()).filter(|key| !key.is_expired(now));
        let deciders: Vec<&Caller> = live().filter(|key| key.role.may(Action::DecideConsent)).collect();
        let sees_all = caller.role.may(Action::SeeConsent);
        let mut left = COMPARISONS_MAX;
        let (mut asking, mut unanswered, mut unapproved) = (0, Vec::new(), Vec::new());
        for key in live().filter(|key| sees_all || key.key == caller.key) {
            let Some(needed) = self.strictest_ask(key) else { continue };
            asking += 1;
            let mut is_another = |person: &Person| {
                left = left.saturating_sub(1);
                left == 0 || !person.is_same_as(&key.person)
            };
            let is_approved = needed == Assurance::Client
                || deciders.iter().any(|decider| is_another(&decider.person))
                || is_another(&Person::PLATFORM);
            if !is_approved {
                unapproved.push(key);
            } else if !deciders.iter().any(|decider| decider.person.root != key.person.root) {
                unanswered.push(key);
            }
        }
        let (unanswered, unapproved) = (NamedKeys::of(unanswered), NamedKeys::of(unapproved));
        Some(AskingKeys { asking, unanswered, unapproved })
    }

    /// Returns the strictest answer that a call of a key may need; `None` if none asks.
    fn strictest_ask(&self, key: &Caller) -> Option<Assurance> {
        let layers = PolicyLayers {
            deployment: &self.options.policy,
            tenant: &key.policies.tenant.rules,
            key: &key.policies.key.rules,
            mode: key.settings.policy_mode,
            remembered: None,
            has_host_prompt: false,
        };
        layers.strictest_ask().filter(|_| key.role.may(Action::UseTools))
    }
}
