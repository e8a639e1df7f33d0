//! Asks that a policy may make, whatever the call.

use super::{Assurance, Effect, PolicyLayers, PolicyMode, PolicyRule, RuleSet};

/// Strictest answers that the asks of a rule set may need; `None` where nothing asks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StrictestAsks {
    of_all: Option<Assurance>,
    of_enforced: Option<Assurance>,
}

impl StrictestAsks {
    pub(super) fn of(rules: &[PolicyRule]) -> StrictestAsks {
        let strictest = |counts: fn(&PolicyRule) -> bool| {
            let asks = rules.iter().filter(|rule| rule.effect == Effect::Ask && counts(rule));
            asks.map(|rule| rule.ask.assurance).max()
        };
        StrictestAsks { of_all: strictest(|_| true), of_enforced: strictest(|rule| rule.is_enforced) }
    }
}

impl PolicyLayers<'_> {
    /// Returns the strictest answer that an ask of these layers may need; `None` if no call asks. A rule counts also where no
    /// tool is there that it matches.
    pub fn strictest_ask(&self) -> Option<Assurance> {
        let observes = self.mode == PolicyMode::Observe;
        let of_rules = |set: &RuleSet| if observes { set.asks.of_enforced } else { set.asks.of_all };
        let by_mode = match self.mode {
            // calls of critical risk need another person
            PolicyMode::ByRisk | PolicyMode::AlwaysAsk => Some(Assurance::Approver),
            PolicyMode::Observe | PolicyMode::AlwaysAllow | PolicyMode::DenyUnlessAllowed => None,
        };
        let of_rules = [self.deployment, self.tenant, self.key].map(of_rules);
        of_rules.into_iter().chain([by_mode]).flatten().max()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_and_modes_ask() {
        use PolicyMode::{AlwaysAllow, AlwaysAsk, ByRisk, DenyUnlessAllowed, Observe};
        let rules = |text: &str| RuleSet::parse(text).unwrap();
        let none = rules(r#"[{"id":"a","effect":"allow"},{"id":"d","effect":"deny","enforced":true}]"#);
        let client = rules(r#"[{"id":"c","effect":"ask"}]"#);
        let both =
            rules(r#"[{"id":"c","effect":"ask"},{"id":"p","effect":"ask","ask":{"assurance":"approver"}}]"#);
        let enforced = rules(
            r#"[{"id":"e","effect":"ask","enforced":true},{"id":"p","effect":"ask","ask":{"assurance":"approver"}}]"#,
        );
        let (of_client, of_approver) = (Some(Assurance::Client), Some(Assurance::Approver));
        for (set, mode, expected) in [
            (&none, Observe, None),
            (&none, AlwaysAllow, None),
            (&none, DenyUnlessAllowed, None),
            (&none, ByRisk, of_approver),
            (&none, AlwaysAsk, of_approver),
            (&client, Observe, None),
            (&client, AlwaysAllow, of_client),
            (&client, DenyUnlessAllowed, of_client),
            (&client, ByRisk, of_approver),
            (&both, AlwaysAllow, of_approver),
            (&both, Observe, None),
            (&enforced, Observe, of_client),
            (&enforced, AlwaysAllow, of_approver),
        ] {
            let empty = RuleSet::default();
            for sets in [[set, &empty, &empty], [&empty, set, &empty], [&empty, &none, set]] {
                let [deployment, tenant, key] = sets;
                let layers =
                    PolicyLayers { deployment, tenant, key, mode, remembered: None, has_host_prompt: false };
                assert_eq!(layers.strictest_ask(), expected, "{mode:?} {set:?}");
            }
        }
    }
}
