use super::*;
use crate::domain::annotations::Tier;
use crate::domain::fuzz::{fuzz, shape};
use crate::domain::operation::OperationType;
use crate::domain::risk::{Risk, RiskFacts, TrustTier};

const SEEDS: &[&str] = &[
    r#"{"version":1,"mode":"by_risk","rules":[]}"#,
    r#"{"rules":[{"id":"a","effect":"deny","match":{"tool":["pg:*","*:drop_?"],"op":["write"],"risk":"high"}}]}"#,
    r#"{"rules":[{"id":"b","effect":"ask","when":"args.to.exists(a, a.endsWith('x')) || size(args) > 2"}]}"#,
    r#"{"rules":[{"id":"c","effect":"ask","except":{"endpoint":"mcp"},"ask":{"assurance":"approver","ttl_s":60,"remember":[],"channels":"inbox"}}]}"#,
    r#"{"rules":[{"id":"d","effect":"allow","match":{"time":{"days":["mon"],"from":"08:00","to":"18:00","utc_offset":"-05:30"}},"enforced":true,"message":"é"}]}"#,
    r#"{"rules":[{"id":"e","effect":"deny","when":"args.sql.matches('(?i)\\bdrop\\b')"}]}"#,
];
const WORDS: &[&str] = &[
    "\"rules\"",
    "\"when\"",
    "args.",
    "exists(",
    "[",
    "(",
    "!",
    " && ",
    "1 + ",
    "matches('a+')",
    "\\u0000",
    "*",
    "{\"",
    "\u{1f980}",
];

/// Checks that a document that is taken is taken again as it was stored, and that its evaluation ends in time.
#[test]
fn documents() {
    let arguments = format!(r#"{{"sql":"{}","to":["a","bx"],"n":1}}"#, "drop ".repeat(200));
    let facts = RiskFacts {
        name: "pg:drop_a",
        tier: Tier::Write,
        open_world: None,
        trust: TrustTier::Configured,
        is_sensitive: false,
        is_changed: false,
        is_mismatched: false,
        operation: OperationType::Write,
        sensitivity: None,
        arguments: &arguments,
    };
    let risk = Risk::assess(&facts);
    let at = "2026-11-24T10:00:00Z".parse().unwrap();
    let call = PolicyCall { facts: &facts, risk, entrance: Entrance::Mcp, at, is_asked_always: false };
    let none = RuleSet::default();
    fuzz(SEEDS, WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let document = match PolicyDocument::parse(&text) {
            Ok(document) => document,
            Err(fault) => {
                assert!(
                    !fault.message.is_empty() && !fault.to_string().contains(char::is_control),
                    "{fault}"
                );
                return shape((0, fault.path.len(), fault.message.len() / 8));
            }
        };
        let stored = RuleSet::parse(&document.rules_text).expect("what was taken is taken again");
        assert_eq!(stored.len(), document.rules.len());
        let layers = PolicyLayers {
            deployment: &none,
            tenant: &document.rules,
            key: &none,
            mode: document.mode.unwrap_or(PolicyMode::ByRisk),
            remembered: None,
            has_host_prompt: false,
        };
        let (decision, trace) = layers.explain(&call);
        assert_eq!(decision, layers.evaluate(&call));
        assert!(document.rules.warnings(&["pg:drop_a", "pg:query"], false).len() <= WARNINGS_MAX);
        shape((1, decision.effect.as_str(), decision.rule.is_some(), trace.len()))
    });
}
