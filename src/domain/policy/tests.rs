mod documents;

use chrono::{DateTime, Utc};
use proptest::prelude::*;

use super::*;
use crate::domain::annotations::Tier;
use crate::domain::operation::OperationType;
use crate::domain::risk::{Risk, RiskFacts, RiskLevel, Sensitivity, TrustTier};

const FACTS: RiskFacts<'_> = RiskFacts {
    name: "gh:update_issue",
    tier: Tier::Write,
    open_world: Some(false),
    trust: TrustTier::Configured,
    is_sensitive: false,
    is_changed: false,
    is_mismatched: false,
    operation: OperationType::Write,
    sensitivity: None,
    arguments: r#"{"title":"x"}"#,
};

fn rules(text: &str) -> RuleSet {
    RuleSet::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

fn now() -> DateTime<Utc> {
    "2026-11-24T10:00:00Z".parse().unwrap()
}

fn call<'a>(facts: &'a RiskFacts<'a>) -> PolicyCall<'a> {
    PolicyCall {
        facts,
        risk: Risk::assess(facts),
        entrance: Entrance::Mcp,
        at: now(),
        is_asked_always: false,
    }
}

/// Layers as tests give them.
struct Given {
    deployment: RuleSet,
    tenant: RuleSet,
    key: RuleSet,
}

impl Given {
    fn tenant(text: &str) -> Given {
        Given { deployment: RuleSet::default(), tenant: rules(text), key: RuleSet::default() }
    }

    fn layers(&self, mode: PolicyMode) -> PolicyLayers<'_> {
        PolicyLayers {
            deployment: &self.deployment,
            tenant: &self.tenant,
            key: &self.key,
            mode,
            remembered: None,
            has_host_prompt: false,
        }
    }

    /// Returns ruling, effect, layer and rule in one line.
    fn decide(&self, mode: PolicyMode, facts: &RiskFacts<'_>) -> String {
        shown(&self.layers(mode).evaluate(&call(facts)))
    }
}

fn shown(decision: &Decision) -> String {
    let rule = decision.rule.as_deref().unwrap_or("-");
    format!("{} {} {} {rule}", decision.ruling.as_str(), decision.effect.as_str(), decision.layer.as_str())
}

#[test]
fn modes_decide_what_no_rule_matches() {
    use PolicyMode::{AlwaysAllow, AlwaysAsk, ByRisk, DenyUnlessAllowed, Observe};
    let given = Given::tenant("[]");
    let risky = RiskFacts { name: "gh:delete_repo", ..FACTS };
    for (mode, of_moderate, of_high) in [
        (Observe, "allowed allow mode -", "would_ask ask mode -"),
        (ByRisk, "allowed allow mode -", "asked ask mode -"),
        (AlwaysAsk, "asked ask mode -", "asked ask mode -"),
        (AlwaysAllow, "allowed allow mode -", "allowed allow mode -"),
        (DenyUnlessAllowed, "denied deny mode -", "denied deny mode -"),
    ] {
        assert_eq!(given.decide(mode, &FACTS), of_moderate, "{mode:?}");
        assert_eq!(given.decide(mode, &risky), of_high, "{mode:?}");
        assert_eq!(PolicyMode::parse(mode.as_str()), Some(mode));
    }
}

#[test]
fn by_risk_asks_for_what_the_contract_names() {
    let given = Given::tenant("[]");
    let read = RiskFacts { tier: Tier::Read, operation: OperationType::Read, ..FACTS };
    for (facts, expected) in [
        (read, "allow"),
        (RiskFacts { is_changed: true, open_world: Some(true), ..read }, "allow"),
        (FACTS, "allow"),
        (RiskFacts { open_world: None, ..FACTS }, "allow"),
        (RiskFacts { open_world: Some(true), ..FACTS }, "ask"),
        (RiskFacts { sensitivity: Some(Sensitivity::Private), ..FACTS }, "ask"),
        (RiskFacts { sensitivity: Some(Sensitivity::Unknown), ..FACTS }, "allow"),
        (RiskFacts { name: "a:fs_write_file", ..FACTS }, "ask"),
        (RiskFacts { name: "a:terminal_create", ..FACTS }, "ask"),
    ] {
        assert_eq!(
            given.layers(PolicyMode::ByRisk).evaluate(&call(&facts)).effect.as_str(),
            expected,
            "{facts:?}"
        );
    }
    let critical = RiskFacts { name: "gh:delete_repo", tier: Tier::Destructive, ..FACTS };
    let terms = |facts: &RiskFacts<'_>| given.layers(PolicyMode::ByRisk).evaluate(&call(facts)).ask.unwrap();
    let asked = terms(&critical);
    assert_eq!((asked.assurance, asked.ttl_s, asked.remember.iter().count()), (Assurance::Approver, 1800, 0));
    let asked = terms(&RiskFacts { tier: Tier::Destructive, ..FACTS });
    assert_eq!((asked.assurance, asked.ttl_s), (Assurance::Client, 600));
    assert_eq!(asked.remember.iter().collect::<Vec<_>>(), ["allow_always", "reject_always"]);
    assert_eq!(asked.channels.iter().collect::<Vec<_>>(), ["elicitation", "acp", "inbox", "webhook"]);
}

#[test]
fn the_strictest_rule_of_all_layers_counts() {
    let allow = r#"[{"id":"a","effect":"allow"}]"#;
    let ask = r#"[{"id":"b","effect":"ask"}]"#;
    let deny = r#"[{"id":"c","effect":"deny","message":"not here"}]"#;
    let all = r#"[{"id":"a","effect":"allow"},{"id":"b","effect":"ask"},{"id":"c","effect":"deny"}]"#;
    for (deployment, tenant, key, expected) in [
        (allow, "[]", "[]", "allowed allow deployment a"),
        (allow, ask, "[]", "asked ask tenant b"),
        (ask, allow, allow, "asked ask deployment b"),
        (allow, ask, deny, "denied deny key c"),
        (deny, allow, "[]", "denied deny deployment c"),
        ("[]", all, "[]", "denied deny tenant c"),
        ("[]", ask, ask, "asked ask tenant b"),
    ] {
        let given = Given { deployment: rules(deployment), tenant: rules(tenant), key: rules(key) };
        assert_eq!(given.decide(PolicyMode::AlwaysAllow, &FACTS), expected, "{deployment} {tenant} {key}");
    }
    let message = Given::tenant(deny).layers(PolicyMode::ByRisk).evaluate(&call(&FACTS)).message;
    assert_eq!(message.as_deref(), Some("not here"));
}

#[test]
fn asks_add_up_to_the_strictest_terms() {
    let given = Given {
        deployment: rules(
            r#"[{"id":"a","effect":"ask","ask":{"ttl_s":60,"remember":["allow_always"],"channels":["inbox","acp"]}}]"#,
        ),
        tenant: rules(r#"[{"id":"b","effect":"ask","ask":{"assurance":"approver","channels":"inbox"}}]"#),
        key: RuleSet::default(),
    };
    let terms = given.layers(PolicyMode::ByRisk).evaluate(&call(&FACTS)).ask.unwrap();
    assert_eq!((terms.assurance, terms.ttl_s, terms.remember.iter().count()), (Assurance::Approver, 60, 0));
    assert_eq!(terms.channels.iter().collect::<Vec<_>>(), ["inbox"]);
}

#[test]
fn observe_blocks_nothing_but_what_is_enforced() {
    for (tenant, expected) in [
        (r#"[{"id":"a","effect":"deny"}]"#, "would_deny deny tenant a"),
        (r#"[{"id":"a","effect":"ask"}]"#, "would_ask ask tenant a"),
        (r#"[{"id":"a","effect":"deny","enforced":true}]"#, "denied deny tenant a"),
        (r#"[{"id":"a","effect":"ask","enforced":true}]"#, "asked ask tenant a"),
        (r#"[{"id":"a","effect":"deny"},{"id":"b","effect":"ask","enforced":true}]"#, "asked deny tenant b"),
        (r#"[{"id":"a","effect":"allow","enforced":true}]"#, "allowed allow tenant a"),
    ] {
        assert_eq!(Given::tenant(tenant).decide(PolicyMode::Observe, &FACTS), expected, "{tenant}");
    }
    let sensitive = RiskFacts { is_sensitive: true, ..FACTS };
    for mode in PolicyMode::ALL {
        let decision = Given::tenant("[]").layers(mode).evaluate(&call(&sensitive));
        if mode == PolicyMode::DenyUnlessAllowed {
            assert_eq!(shown(&decision), "denied deny mode -");
            continue;
        }
        assert_eq!(shown(&decision), "asked ask built_in -", "{mode:?}");
        assert_eq!(decision.ask.unwrap().assurance, Assurance::Approver);
    }
}

#[test]
fn a_form_is_asked_about_each_time_whatever_the_mode() {
    let site = RiskFacts { trust: TrustTier::Site, ..FACTS };
    for mode in PolicyMode::ALL {
        let asks = PolicyCall { is_asked_always: true, ..call(&site) };
        let allows = Given::tenant(r#"[{"id":"a","effect":"allow","enforced":true}]"#);
        // a mode that wants a rule still does
        let no_rules = (mode != PolicyMode::DenyUnlessAllowed).then(|| Given::tenant("[]"));
        for given in no_rules.into_iter().chain([allows]) {
            let decision = given.layers(mode).evaluate(&asks);
            assert_eq!(shown(&decision), "asked ask built_in -", "{mode:?}");
            let terms = decision.ask.unwrap();
            assert_eq!(terms.assurance, Assurance::Client);
            assert!(!terms.remember.has("allow_always"), "{mode:?}");
        }
        let denies = Given::tenant(r#"[{"id":"a","effect":"deny","enforced":true}]"#);
        assert_eq!(shown(&denies.layers(mode).evaluate(&asks)), "denied deny tenant a", "{mode:?}");
    }
}

#[test]
fn what_is_remembered_relaxes_only_what_permits_it() {
    let open = r#"[{"id":"a","effect":"ask","ask":{"remember":["allow_always"]}}]"#;
    let closed = r#"[{"id":"a","effect":"ask"}]"#;
    let by_approver =
        r#"[{"id":"a","effect":"ask","ask":{"assurance":"approver","remember":"allow_always"}}]"#;
    let both = r#"[{"id":"a","effect":"ask","ask":{"remember":"allow_always"}},{"id":"b","effect":"ask"}]"#;
    let allow = |assurance, risk| Remembered::Allow { assurance, risk };
    let client = allow(Assurance::Client, RiskLevel::High);
    let approver = allow(Assurance::Approver, RiskLevel::High);
    let moderate = allow(Assurance::Approver, RiskLevel::Moderate);
    let high = RiskFacts { tier: Tier::Destructive, ..FACTS };
    let critical = RiskFacts { name: "gh:delete_repo", tier: Tier::Destructive, ..FACTS };
    for (tenant, remembered, facts, expected) in [
        (open, client, FACTS, "allowed allow remembered -"),
        (closed, client, FACTS, "asked ask tenant a"),
        (by_approver, client, FACTS, "asked ask tenant a"),
        (by_approver, approver, FACTS, "allowed allow remembered -"),
        (both, approver, FACTS, "asked ask tenant a"),
        (open, approver, critical, "asked ask tenant a"),
        ("[]", client, high, "allowed allow remembered -"),
        (open, moderate, FACTS, "allowed allow remembered -"),
        (open, moderate, high, "asked ask tenant a"),
        ("[]", moderate, high, "asked ask mode -"),
        ("[]", approver, critical, "asked ask mode -"),
        (r#"[{"id":"a","effect":"deny"}]"#, approver, FACTS, "denied deny tenant a"),
        ("[]", Remembered::Reject, FACTS, "denied deny remembered -"),
        (open, Remembered::Reject, FACTS, "denied deny remembered -"),
    ] {
        let given = Given::tenant(tenant);
        let layers = PolicyLayers { remembered: Some(remembered), ..given.layers(PolicyMode::ByRisk) };
        assert_eq!(shown(&layers.evaluate(&call(&facts))), expected, "{tenant} {remembered:?}");
    }
    let given = Given::tenant("[]");
    let observed = PolicyLayers { remembered: Some(Remembered::Reject), ..given.layers(PolicyMode::Observe) };
    assert_eq!(shown(&observed.evaluate(&call(&FACTS))), "would_deny deny remembered -");
    let given = Given::tenant(r#"[{"id":"a","effect":"ask","enforced":true}]"#);
    let enforced = PolicyLayers { remembered: Some(Remembered::Reject), ..given.layers(PolicyMode::Observe) };
    assert_eq!(shown(&enforced.evaluate(&call(&FACTS))), "denied deny remembered -");
}

#[test]
fn a_call_that_only_a_grant_lets_through_is_known_as_such() {
    let enforced = r#"{"id":"a","effect":"ask","enforced":true,"ask":{"remember":"allow_always"}}"#;
    let allow = Remembered::Allow { assurance: Assurance::Client, risk: RiskLevel::High };
    for (rules, mode, expected) in [
        (format!("[{enforced}]"), PolicyMode::ByRisk, ("allowed allow remembered -", true)),
        (format!("[{enforced}]"), PolicyMode::Observe, ("allowed allow remembered -", true)),
        // what else would be asked or denied is only observed, but the enforced ask is not
        (
            format!(r#"[{enforced},{{"id":"d","effect":"deny"}}]"#),
            PolicyMode::Observe,
            ("would_deny deny tenant d", true),
        ),
        (
            r#"[{"id":"d","effect":"ask","ask":{"remember":"allow_always"}}]"#.to_owned(),
            PolicyMode::Observe,
            ("allowed allow remembered -", false),
        ),
        (
            r#"[{"id":"d","effect":"allow"}]"#.to_owned(),
            PolicyMode::ByRisk,
            ("allowed allow tenant d", false),
        ),
    ] {
        let given = Given::tenant(&rules);
        let decision = PolicyLayers { remembered: Some(allow), ..given.layers(mode) }.evaluate(&call(&FACTS));
        assert_eq!((shown(&decision).as_str(), decision.is_by_grant), expected, "{rules} {mode:?}");
    }
}

#[test]
fn a_host_that_asks_is_enough_for_some_asks() {
    let asks = r#"[{"id":"a","effect":"ask"}]"#;
    let by_approver = r#"[{"id":"a","effect":"ask","ask":{"assurance":"approver"}}]"#;
    let critical = RiskFacts { name: "gh:delete_repo", tier: Tier::Destructive, ..FACTS };
    for (tenant, facts, expected) in [
        (asks, FACTS, "delegated ask tenant a"),
        (by_approver, FACTS, "asked ask tenant a"),
        (asks, critical, "asked ask tenant a"),
    ] {
        let given = Given::tenant(tenant);
        let layers = PolicyLayers { has_host_prompt: true, ..given.layers(PolicyMode::ByRisk) };
        assert_eq!(shown(&layers.evaluate(&call(&facts))), expected, "{tenant}");
    }
}

#[test]
fn rules_select_by_all_that_they_name() {
    let site = RiskFacts { trust: TrustTier::Site, ..FACTS };
    let private = RiskFacts { sensitivity: Some(Sensitivity::Private), ..FACTS };
    for (selectors, facts, expected) in [
        (r#"{"tool":"gh:*"}"#, FACTS, true),
        (r#"{"tool":["x:*","*:update_?ssue"]}"#, FACTS, true),
        (r#"{"tool":"gl:*"}"#, FACTS, false),
        (r#"{"op":"write"}"#, FACTS, true),
        (r#"{"op":["read","destructive"]}"#, FACTS, false),
        (r#"{"tier":["write"]}"#, FACTS, true),
        (r#"{"tier":["unknown"]}"#, FACTS, false),
        (r#"{"risk":["moderate","high"]}"#, FACTS, true),
        (r#"{"risk":["high"]}"#, FACTS, false),
        (r#"{"sensitivity":["unknown"]}"#, FACTS, true),
        (r#"{"sensitivity":["unknown"]}"#, private, false),
        (r#"{"endpoint":["mcp"]}"#, FACTS, true),
        (r#"{"endpoint":["rest","cli","direct"]}"#, FACTS, false),
        (r#"{"trust":["site"]}"#, FACTS, false),
        (r#"{"trust":["site"]}"#, site, true),
        (r#"{"tool":"gh:*","op":"read"}"#, FACTS, false),
        (r#"{"time":{"days":["tue"],"from":"09:00","to":"17:00"}}"#, FACTS, true),
        (r#"{"time":{"from":"09:00","to":"17:00","utc_offset":"+08:00"}}"#, FACTS, false),
        ("{}", FACTS, true),
    ] {
        let given = Given::tenant(&format!(r#"[{{"id":"a","effect":"deny","match":{selectors}}}]"#));
        let decision = given.layers(PolicyMode::AlwaysAllow).evaluate(&call(&facts));
        assert_eq!(decision.effect == Effect::Deny, expected, "{selectors} {facts:?}");
    }
    let except = r#"[{"id":"a","effect":"deny","match":{"op":"write"},"except":{"tool":"*:update_*","risk":"moderate"}}]"#;
    let given = Given::tenant(except);
    assert_eq!(given.decide(PolicyMode::AlwaysAllow, &FACTS), "allowed allow mode -");
    assert_eq!(given.decide(PolicyMode::AlwaysAllow, &private), "allowed allow mode -");
    let risky = RiskFacts { name: "gh:update_and_delete", ..FACTS };
    assert_eq!(given.decide(PolicyMode::AlwaysAllow, &risky), "denied deny tenant a");
}

#[test]
fn rest_and_the_command_line_are_told_apart_by_allows_only() {
    let decide = |rule: &str, entrance: Entrance| {
        let given = Given::tenant(&format!("[{rule}]"));
        let call = PolicyCall { entrance, ..call(&FACTS) };
        let mode =
            if rule.contains("allow") { PolicyMode::DenyUnlessAllowed } else { PolicyMode::AlwaysAllow };
        given.layers(mode).evaluate(&call).effect
    };
    let all = [Entrance::Mcp, Entrance::Direct, Entrance::Rest, Entrance::Cli];
    for (rule, expected) in [
        (r#"{"id":"a","effect":"deny","match":{"endpoint":"rest"}}"#, [false, false, true, true]),
        (r#"{"id":"a","effect":"ask","match":{"endpoint":["cli","direct"]}}"#, [false, true, true, true]),
        (r#"{"id":"a","effect":"deny","match":{"endpoint":"mcp"}}"#, [true, false, false, false]),
        (r#"{"id":"a","effect":"deny","except":{"endpoint":"cli"}}"#, [true, true, true, false]),
        (r#"{"id":"a","effect":"allow","match":{"endpoint":"cli"}}"#, [false, false, false, true]),
        (r#"{"id":"a","effect":"allow","match":{"endpoint":"rest"}}"#, [false, false, true, false]),
        (r#"{"id":"a","effect":"allow","except":{"endpoint":"rest"}}"#, [true, true, false, false]),
    ] {
        let untouched = if rule.contains("allow") { Effect::Deny } else { Effect::Allow };
        let found = all.map(|entrance| decide(rule, entrance) != untouched);
        assert_eq!(found, expected, "{rule}");
    }
}

#[test]
fn a_condition_without_a_value_is_a_match_but_for_allow() {
    let with = |effect: &str, when: &str| {
        format!(r#"[{{"id":"a","effect":"{effect}","when":{}}}]"#, serde_json::json!(when))
    };
    for (effect, when, expected) in [
        ("deny", "args.title == 'x'", "denied deny tenant a"),
        ("deny", "args.title == 'y'", "allowed allow mode -"),
        ("deny", "args.sql == 'y'", "denied deny tenant a"),
        ("ask", "args.title > 3", "asked ask tenant a"),
        ("allow", "args.sql == 'y'", "allowed allow mode -"),
        ("allow", "args.title == 'x'", "allowed allow tenant a"),
    ] {
        assert_eq!(
            Given::tenant(&with(effect, when)).decide(PolicyMode::ByRisk, &FACTS),
            expected,
            "{effect} {when}"
        );
    }
    let large = format!(r#"{{"title":"{}"}}"#, "x".repeat(70_000));
    let facts = RiskFacts { arguments: &large, ..FACTS };
    let given = Given::tenant(&with("deny", "args.title == 'y'"));
    assert_eq!(given.decide(PolicyMode::ByRisk, &facts), "denied deny tenant a");
}

#[test]
fn an_explanation_names_every_step() {
    let given = Given {
        deployment: rules(
            r#"[{"id":"reads","effect":"allow","match":{"op":"read"}},
                {"id":"prod","effect":"deny","match":{"tool":"prod:*"}},
                {"id":"night","effect":"deny","match":{"time":{"from":"22:00","to":"06:00"}}}]"#,
        ),
        tenant: rules(
            r#"[{"id":"titles","effect":"ask","when":"args.heading == 'x'","ask":{"remember":["allow_always"]}},
                {"id":"never","effect":"deny","except":{"tool":"gh:*"}},
                {"id":"x","effect":"allow","when":"args.heading == 'x'"},
                {"id":"y","effect":"deny","when":"args.title == 'y'"}]"#,
        ),
        key: RuleSet::default(),
    };
    let layers = PolicyLayers {
        remembered: Some(Remembered::Allow { assurance: Assurance::Client, risk: RiskLevel::High }),
        ..given.layers(PolicyMode::ByRisk)
    };
    let (decision, trace) = layers.explain(&call(&FACTS));
    assert_eq!(shown(&decision), "allowed allow remembered -");
    let lines: Vec<String> = trace
        .iter()
        .map(|step| {
            let effect = step.effect.map_or("-", Effect::as_str);
            assert_eq!(step.matched, step.effect.is_some());
            format!("{} {} {effect}: {}", step.layer.as_str(), step.rule.as_deref().unwrap_or("-"), step.why)
        })
        .collect();
    assert_eq!(
        lines,
        [
            "deployment reads -: op is write",
            "deployment prod -: the tool does not match",
            "deployment night -: it is outside the time window",
            "tenant titles ask: 'when' has no value, which counts as a match: the arguments have no 'heading'",
            "tenant never -: 'except' excludes it",
            "tenant x -: 'when' has no value, which is no match: the arguments have no 'heading'",
            "tenant y -: 'when' is false",
            "remembered - allow: a person allowed this tool until the grant ends",
        ]
    );
    let given = Given::tenant("[]");
    let (_, trace) = given.layers(PolicyMode::Observe).explain(&call(&FACTS));
    assert_eq!(trace.last().unwrap().why, "no rule matches; the risk is moderate");
}

#[test]
fn a_policy_that_cannot_be_read_denies() {
    let given = Given { tenant: RuleSet::unreadable(), ..Given::tenant("[]") };
    assert_eq!(given.decide(PolicyMode::AlwaysAllow, &FACTS), "denied deny tenant unreadable");
    assert_eq!(given.decide(PolicyMode::Observe, &FACTS), "denied deny tenant unreadable");
}

fn some_rules() -> impl Strategy<Value = String> {
    let effect = prop_oneof![Just("allow"), Just("ask"), Just("deny")];
    let rule = (effect, "[ab*?]{0,2}:[ab*_]{1,3}", 0..8_usize, any::<bool>(), prop::option::of(0..4_usize));
    prop::collection::vec(rule, 0..6).prop_map(|rules| {
        let rules = rules.into_iter().enumerate().map(|(n, (effect, glob, bits, enforced, when))| {
            let op = ["read", "write", "destructive"].into_iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
            let op: Vec<&str> = op.map(|(_, op)| op).collect();
            let op = if op.is_empty() { String::new() } else { format!(r#","op":{op:?}"#) };
            let when = when.map(|n| ["args.n == 1", "args.m == 1", "true", "false"][n]);
            let when = when.map_or_else(String::new, |when| format!(r#","when":"{when}""#));
            format!(r#"{{"id":"r{n}","effect":"{effect}","enforced":{enforced},"match":{{"tool":"{glob}"{op}}}{when}}}"#)
        });
        format!("[{}]", rules.collect::<Vec<_>>().join(","))
    })
}

proptest! {
    #[test]
    fn another_deny_never_permits_and_an_explanation_never_differs(
        tenant in some_rules(), key in some_rules(), mode in 0..5_usize, name in "[ab]:[ab_]{1,3}", n in 0..3,
    ) {
        let mode = PolicyMode::ALL[mode];
        let arguments = format!(r#"{{"n":{n}}}"#);
        let facts = RiskFacts { name: &name, arguments: &arguments, ..FACTS };
        let given = Given { deployment: RuleSet::default(), tenant: rules(&tenant), key: rules(&key) };
        let before = given.layers(mode).evaluate(&call(&facts));
        prop_assert_eq!(&given.layers(mode).explain(&call(&facts)).0, &before);
        let runs = |ruling| matches!(ruling, Ruling::Allowed | Ruling::WouldAsk | Ruling::WouldDeny);
        // whatever a key's rules are, nothing runs that the tenant's rules would stop
        if mode != PolicyMode::DenyUnlessAllowed && mode != PolicyMode::AlwaysAsk {
            let alone = Given { key: RuleSet::default(), tenant: rules(&tenant), ..Given::tenant("[]") };
            let alone = alone.layers(mode).evaluate(&call(&facts));
            prop_assert!(alone.layer == PolicyLayer::Mode || before.effect >= alone.effect);
        }
        let deny = rules(r#"[{"id":"no","effect":"deny","enforced":true}]"#);
        let after = PolicyLayers { deployment: &deny, ..given.layers(mode) }.evaluate(&call(&facts));
        prop_assert!(!runs(after.ruling) && after.effect == Effect::Deny);
    }

    #[test]
    fn any_text_is_survived(text in r#"(\[|\]|\{|\}|,|:|"id"|"rules"|"effect"|"deny"|"match"|"tool"|"a:b"|[ 0-9]){0,24}"#) {
        drop(PolicyDocument::parse(&text));
        drop(RuleSet::parse(&text));
    }
}
