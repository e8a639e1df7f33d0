//! Keys whose calls may ask a person, and whether there is anybody who may answer.

use super::Tenants;
use crate::domain::policy::{Assurance, PolicyLayers};
use crate::domain::tenant::Action;
use crate::gateway::clock;
use crate::gateway::tenants::live::access::Caller;

/// Most comparisons of persons for one answer. Keys beyond count as answered.
const COMPARISONS_MAX: usize = 20_000;

/// Numbers of keys whose calls may ask a person.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AskingKeys {
    /// Keys whose calls may ask.
    pub asking: usize,
    /// Asking keys for which no other key of the tenant may decide.
    pub unanswered: usize,
    /// Asking keys that may need another person, where only keys of the same person may decide.
    pub unapproved: usize,
}

impl Tenants {
    /// Counts the keys whose calls may ask, and for which nobody may answer: those of the tenant for a role that sees its
    /// permission requests, else the caller's own. `None` for a caller that acts in no tenant. Takes no query.
    pub fn asking_keys(&self, caller: &Caller) -> Option<AskingKeys> {
        let access = caller.tenant.as_ref()?.access();
        let access = access.as_ref().as_ref()?;
        let now = clock::now();
        let live = || access.keys.iter().map(|(_, key)| key.as_ref()).filter(|key| !key.is_expired(now));
        let deciders: Vec<&Caller> = live().filter(|key| key.role.may(Action::DecideConsent)).collect();
        let sees_all = caller.role.may(Action::SeeConsent);
        let mut left = COMPARISONS_MAX;
        let mut counts = AskingKeys::default();
        for key in live().filter(|key| sees_all || key.key == caller.key) {
            let Some(needed) = self.strictest_ask(key) else { continue };
            counts.asking += 1;
            let is_another_person = |decider: &&Caller| {
                left = left.saturating_sub(1);
                left == 0 || !decider.person.is_same_as(&key.person)
            };
            if !deciders.iter().any(|decider| decider.key != key.key) {
                counts.unanswered += 1;
            } else if needed == Assurance::Approver && !deciders.iter().any(is_another_person) {
                counts.unapproved += 1;
            }
        }
        Some(counts)
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
