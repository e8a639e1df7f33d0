//! Decisions on calls of the past, whose arguments are not kept.

use std::sync::Arc;

use super::evaluate::ByEffect;
use super::selectors::Selectors;
use super::{Effect, PolicyCall, PolicyLayer, PolicyLayers, RuleSet, Ruling};

/// Decision of policies on a call whose arguments are not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastDecision {
    /// Consequence for the call; `None` if it depends on a condition on the arguments.
    pub ruling: Option<Ruling>,
    /// Rule that decides, or would if its condition holds; `None` if the mode does.
    pub rule: Option<Arc<str>>,
    /// Layer of that rule, or else the one that decides.
    pub layer: PolicyLayer,
}

impl PolicyLayers<'_> {
    /// Decides a call whose arguments are not known. Conditions on arguments may hold or not, and the consequence is known if
    /// it is the same either way.
    pub fn evaluate_past(&self, call: &PolicyCall<'_>) -> PastDecision {
        let (least, needed) = self.evaluate_assuming(call, ByEffect::default());
        let mut found = PastDecision { ruling: Some(least.ruling), rule: least.rule, layer: least.layer };
        let combinations = (1_u32..1 << Effect::ALL.len()).map(|bits| {
            let holds = |effect: Effect| bits >> effect as u32 & 1 == 1;
            Effect::ALL.map(holds)
        });
        let is_possible = |assumed: &ByEffect| {
            assumed.iter().zip(needed).all(|(is_assumed, is_needed)| !is_assumed || is_needed)
        };
        for assumed in combinations.filter(is_possible) {
            let (other, _) = self.evaluate_assuming(call, assumed);
            if other.ruling != least.ruling {
                found = PastDecision { ruling: None, rule: other.rule, layer: other.layer };
            }
        }
        found
    }
}

impl RuleSet {
    /// Returns whether a rule looks at the time of calls.
    pub fn looks_at_times(&self) -> bool {
        let has_time = |selectors: &Selectors| selectors.time.is_some();
        self.rules.iter().any(|rule| has_time(&rule.selectors) || rule.except.as_ref().is_some_and(has_time))
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;
    use crate::domain::annotations::Tier;
    use crate::domain::operation::OperationType;
    use crate::domain::policy::{Entrance, PolicyMode};
    use crate::domain::risk::{Risk, RiskFacts, TrustTier};

    /// Returns the decision of a tenant's rules on a call of `pg:query`, which writes.
    fn decide(mode: PolicyMode, rules: &str) -> PastDecision {
        let facts = RiskFacts {
            name: "pg:query",
            tier: Tier::Write,
            open_world: None,
            trust: TrustTier::Configured,
            is_sensitive: false,
            is_changed: false,
            is_mismatched: false,
            operation: OperationType::Write,
            sensitivity: None,
            arguments: "{}",
        };
        let (none, tenant) = (RuleSet::default(), RuleSet::parse(rules).unwrap());
        let layers = PolicyLayers {
            deployment: &none,
            tenant: &tenant,
            key: &none,
            mode,
            remembered: None,
            has_host_prompt: false,
        };
        layers.evaluate_past(&PolicyCall {
            facts: &facts,
            risk: Risk::assess(&facts),
            entrance: Entrance::Mcp,
            at: DateTime::UNIX_EPOCH,
            is_asked_always: false,
        })
    }

    #[test]
    fn conditions_leave_an_effect_open_only_where_they_matter() {
        use PolicyMode::{AlwaysAllow, AlwaysAsk, DenyUnlessAllowed, Observe};
        let [allow, ask, deny, would_ask] =
            [Ruling::Allowed, Ruling::Asked, Ruling::Denied, Ruling::WouldAsk].map(Some);
        let when = r#""when":"args.n > 1""#;
        for (mode, rules, ruling, rule) in [
            (AlwaysAllow, "[]".to_owned(), allow, None),
            (AlwaysAllow, format!(r#"[{{"id":"d","effect":"deny",{when}}}]"#), None, Some("d")),
            (AlwaysAsk, format!(r#"[{{"id":"a","effect":"allow",{when}}}]"#), None, Some("a")),
            (AlwaysAsk, format!(r#"[{{"id":"a","effect":"ask",{when}}}]"#), ask, None),
            (DenyUnlessAllowed, format!(r#"[{{"id":"a","effect":"allow",{when}}}]"#), None, Some("a")),
            // where the mode observes, an enforced rule with a condition may ask for real
            (Observe, r#"[{"id":"a","effect":"ask"}]"#.to_owned(), would_ask, Some("a")),
            (Observe, r#"[{"id":"a","effect":"ask","enforced":true}]"#.to_owned(), ask, Some("a")),
            (
                Observe,
                format!(
                    r#"[{{"id":"a","effect":"ask"}},{{"id":"e","effect":"ask","enforced":true,{when}}}]"#
                ),
                None,
                Some("e"),
            ),
            // another rule decides, whatever the condition says
            (
                AlwaysAllow,
                format!(r#"[{{"id":"a","effect":"ask",{when}}},{{"id":"d","effect":"deny"}}]"#),
                deny,
                Some("d"),
            ),
            // and one about another tool is not needed
            (
                AlwaysAllow,
                format!(r#"[{{"id":"d","effect":"deny","match":{{"tool":"x:*"}},{when}}}]"#),
                allow,
                None,
            ),
        ] {
            let found = decide(mode, &rules);
            assert_eq!((found.ruling, found.rule.as_deref()), (ruling, rule), "{mode:?} {rules}");
        }
    }

    #[test]
    fn times_are_found_in_selectors_and_exceptions() {
        let rules = |more: &str| RuleSet::parse(&format!(r#"[{{"id":"a","effect":"deny"{more}}}]"#)).unwrap();
        assert!(!rules("").looks_at_times());
        assert!(rules(r#","match":{"time":{"from":"08:00"}}"#).looks_at_times());
        assert!(rules(r#","except":{"time":{"days":["sat"]}}"#).looks_at_times());
    }
}
