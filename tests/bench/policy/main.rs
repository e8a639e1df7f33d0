//! CPU of a decision that allows a call: 500 rules of which none matches, with the assessment of risk and without.
//!
//! `cargo bench --bench policy`. Nothing is started.

use std::hint::black_box;
use std::io::Write;
use std::time::Instant;

use anyhow::Result;
use chrono::DateTime;
use mcpproxy::domain::annotations::Tier;
use mcpproxy::domain::operation::OperationType;
use mcpproxy::domain::policy::{Entrance, PolicyCall, PolicyLayers, PolicyMode, RULES_MAX, RuleSet};
use mcpproxy::domain::risk::{Risk, RiskFacts, TrustTier};

/// Decisions that are timed together.
const DECISIONS: u32 = 100_000;
/// Turns; the fastest counts.
const TURNS: usize = 5;

fn main() -> Result<()> {
    let facts = RiskFacts {
        name: "github:get_repository",
        tier: Tier::Read,
        open_world: Some(true),
        trust: TrustTier::Configured,
        is_sensitive: false,
        is_changed: false,
        is_mismatched: false,
        operation: OperationType::Read,
        sensitivity: None,
        arguments: r#"{"owner":"acme","repo":"demo","fields":["name","description"],"page":1}"#,
    };
    let mut out = std::io::stdout().lock();
    writeln!(out, "| rules | risk | ns per decision |\n|---|---|---|")?;
    for (shape, glob) in [
        ("server:tool_N*", "server{n}:tool_{n}*"),
        ("*:delete_N*", "*:delete_{n}*"),
        ("one server", "github:delete_{n}"),
    ] {
        let rule = |n: usize| {
            let glob = glob.replace("{n}", &n.to_string());
            format!(
                r#"{{"id":"r{n}","effect":"deny","match":{{"tool":"{glob}"}},"when":"args.force == true"}}"#
            )
        };
        let text = format!("[{}]", (0..RULES_MAX).map(rule).collect::<Vec<_>>().join(","));
        let (rules, none) = (RuleSet::parse(&text)?, RuleSet::default());
        let layers = PolicyLayers {
            deployment: &none,
            tenant: &rules,
            key: &none,
            mode: PolicyMode::ByRisk,
            remembered: None,
            has_host_prompt: false,
        };
        let known = Risk::assess(&facts);
        let decide = |risk: Risk| {
            let call = PolicyCall {
                facts: &facts,
                risk,
                entrance: Entrance::Mcp,
                is_asked_always: false,
                at: DateTime::UNIX_EPOCH,
            };
            black_box(layers.evaluate(&call));
        };
        writeln!(out, "| {shape} | known | {} |", time(|| decide(black_box(known))))?;
        writeln!(out, "| {shape} | assessed | {} |", time(|| decide(Risk::assess(black_box(&facts)))))?;
    }
    Ok(())
}

/// Returns the nanoseconds of one decision.
fn time(mut decide: impl FnMut()) -> u128 {
    let turn = |_| {
        let began = Instant::now();
        (0..DECISIONS).for_each(|_| decide());
        began.elapsed().as_nanos() / u128::from(DECISIONS)
    };
    (0..TURNS).map(turn).min().unwrap_or_default()
}
