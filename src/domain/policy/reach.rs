//! Warnings about rules that ask: whom they reach, and whose answer is enough.

use super::selectors::{all_of, bit};
use super::{Assurance, Effect, PolicyRule};

/// Place of the tier in the dimensions of selectors, and of its values `destructive` and `unknown` in it.
const TIER: usize = 1;
const SEVERE_TIERS: u32 = bit(TIER, 2) | bit(TIER, 3);
/// Place of the risk in the dimensions of selectors, and of its value `critical` in it.
const RISK: usize = 2;
const CRITICAL: u32 = bit(RISK, 3);

impl PolicyRule {
    /// Returns warnings about the asks of the rule. `has_webhook` is true if the tenant has a webhook.
    pub(super) fn ask_warnings(&self, has_webhook: bool) -> impl Iterator<Item = String> {
        let is_ask = self.effect == Effect::Ask;
        let unreached = is_ask.then(|| self.unreached(has_webhook)).flatten();
        unreached.into_iter().chain(is_ask.then(|| self.weaker()).flatten())
    }

    /// Returns the warning about an ask that reaches nobody, or people at some clients only.
    fn unreached(&self, has_webhook: bool) -> Option<String> {
        let (id, channels) = (&self.id, self.ask.channels);
        if channels.has("inbox") || channels.has("acp") || channels.has("webhook") && has_webhook {
            return None;
        }
        Some(if channels.has("elicitation") && self.ask.assurance == Assurance::Client {
            format!(
                "Rule '{id}' asks in the calling client alone: calls of clients that show no forms end as \
                 consent_undeliverable. Add 'inbox' to its channels if others may answer."
            )
        } else if channels.has("webhook") {
            format!(
                "Rule '{id}' asks by webhook alone, and there is none: its calls end as consent_undeliverable. Set one \
                 (mcpproxy consent webhook set URL), or add 'inbox' to its channels."
            )
        } else {
            format!(
                "Rule '{id}' asks nobody: it needs an approver, and its channels reach the calling client alone. Add \
                 'inbox' to its channels."
            )
        })
    }

    /// Returns the warning about an ask that needs a weaker answer than the mode would, unless the rule names the assurance.
    /// Rules about tools by name count where they also select by the most severe risk or tier.
    fn weaker(&self) -> Option<String> {
        let bits = self.selectors.bits;
        let is_severe = bits & CRITICAL != 0 && bits & SEVERE_TIERS != 0;
        let selects = |place: usize| bits & all_of(place) != all_of(place);
        let globs = &self.selectors.globs;
        let is_any_tool = globs.is_empty() || globs.iter().any(|glob| matches!(&**glob, "*" | "*:*"));
        let is_meant = selects(RISK) || selects(TIER) || is_any_tool;
        (!self.names_assurance && is_severe && is_meant).then(|| {
            format!(
                "Rule '{}' lets the user of the calling client allow calls of critical risk, and whoever connects to /acp \
                 with its key. Write 'assurance: approver' where another person has to agree, else 'assurance: client'.",
                self.id
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::RuleSet;

    /// Returns the warnings about one rule that asks, without its id.
    fn warnings(rule: &str, has_webhook: bool) -> Vec<String> {
        let rules = RuleSet::parse(&format!(r#"[{{"id":"r","effect":"ask"{rule}}}]"#)).unwrap();
        let found = rules.warnings(&["github:delete_repo"], has_webhook);
        found.iter().map(|warning| warning.strip_prefix("Rule 'r' ").unwrap().to_owned()).collect()
    }

    #[test]
    fn asks_that_reach_nobody_are_found() {
        let of = |assurance: &str, channels: &str, has_webhook: bool| {
            let ask = format!(r#","ask":{{"assurance":"{assurance}","channels":{channels}}}"#);
            let found = warnings(&ask, has_webhook);
            assert!(found.len() < 2, "{found:?}");
            found.first().map_or_else(String::new, |text| text.split([',', ':']).next().unwrap().to_owned())
        };
        for (assurance, channels, without, with) in [
            ("client", r#"["webhook"]"#, "asks by webhook alone", ""),
            ("approver", r#"["webhook"]"#, "asks by webhook alone", ""),
            (
                "client",
                r#"["elicitation"]"#,
                "asks in the calling client alone",
                "asks in the calling client alone",
            ),
            ("client", r#"["elicitation","webhook"]"#, "asks in the calling client alone", ""),
            ("approver", r#"["elicitation","webhook"]"#, "asks by webhook alone", ""),
            ("approver", r#"["elicitation"]"#, "asks nobody", "asks nobody"),
            ("client", r#"["acp"]"#, "", ""),
            ("approver", r#"["inbox","webhook"]"#, "", ""),
        ] {
            assert_eq!(of(assurance, channels, false), without, "{assurance} {channels}");
            assert_eq!(of(assurance, channels, true), with, "{assurance} {channels}, with a webhook");
        }
    }

    #[test]
    fn asks_that_are_weaker_than_the_mode_are_found() {
        for (rule, is_found) in [
            ("", true),
            (r#","match":{"tier":"destructive"}"#, true),
            (r#","match":{"tool":"*"}"#, true),
            (r#","match":{"tool":"github:delete_*","risk":["high","critical"]}"#, true),
            (r#","match":{"tool":"github:delete_*"}"#, false),
            (r#","match":{"tier":"write"}"#, false),
            (r#","match":{"risk":"high"}"#, false),
            (r#","match":{"tier":"destructive"},"ask":{"assurance":"approver"}"#, false),
            (r#","match":{"tier":"destructive"},"ask":{"assurance":"client"}"#, false),
        ] {
            let found = warnings(rule, true);
            assert_eq!(
                found.iter().any(|text| text.contains("assurance: approver")),
                is_found,
                "{rule}: {found:?}"
            );
        }
        let others = RuleSet::parse(r#"[{"id":"a","effect":"allow"},{"id":"d","effect":"deny"}]"#).unwrap();
        assert_eq!(others.warnings(&[], false), [""; 0]);
    }
}
