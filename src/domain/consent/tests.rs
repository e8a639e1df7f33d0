use uuid::Uuid;

use super::*;
use crate::domain::id::{KeyId, ServerId, TenantId};
use crate::domain::policy::PolicyDocument;
use crate::domain::seal::Key;

#[test]
fn every_edge_and_no_other() {
    use ConsentState as S;
    use ConsentStep as T;
    let edges = [
        (S::Pending, T::Grant, S::Granted),
        (S::Pending, T::Deny, S::Denied),
        (S::Pending, T::Expire, S::TimedOut),
        (S::Pending, T::Cancel, S::Cancelled),
        (S::Pending, T::Lapse, S::Lapsed),
        (S::Pending, T::GiveUp, S::Undeliverable),
        (S::Granted, T::Consume, S::Consumed),
        (S::Granted, T::Cancel, S::Cancelled),
        (S::Granted, T::Lapse, S::Lapsed),
        (S::Granted, T::Expire, S::Lapsed),
        (S::Consumed, T::Succeed, S::Succeeded),
        (S::Consumed, T::Fail, S::Failed),
        (S::Consumed, T::Lose, S::Unknown),
    ];
    for state in S::ALL {
        for step in T::ALL {
            let edge = edges.iter().find(|(from, by, _)| (*from, *by) == (state, step));
            assert_eq!(state.after(step), edge.map(|(_, _, to)| *to), "{state:?} {step:?}");
        }
        assert_eq!(state.is_final(), !matches!(state, S::Pending | S::Granted | S::Consumed), "{state:?}");
    }
    for decision in ConsentDecision::ALL {
        let steps = [T::Grant, T::Deny, T::Cancel];
        assert!(steps.iter().any(|step| S::Pending.after(*step) == Some(decision.state())), "{decision:?}");
    }
}

#[test]
fn a_lapsed_request_says_which_reason_it_is() {
    let says = |lapse| ConsentState::Lapsed.meaning("T", "F", lapse);
    let any = says(None);
    for (lapse, why) in LapseReason::ALL.into_iter().zip([
        "did not repeat the call by T",
        "definition changed",
        "key that asked was revoked",
        "key that allowed it was revoked",
        "decision that was remembered with it was revoked",
        "a decision that was remembered let the call run",
    ]) {
        let one = says(Some(lapse));
        assert!(one.contains(why), "{one}");
        let is_over = [LapseReason::AskerRevoked, LapseReason::AllowedByGrant].contains(&lapse);
        assert_eq!(one.ends_with("; the same call asks again"), !is_over, "{one}");
        assert!(one.len() < any.len(), "{one}");
    }
}

/// Returns the terms of an ask that a mode words.
fn terms(remember: &str) -> AskTerms {
    use crate::domain::annotations::Tier;
    use crate::domain::operation::OperationType;
    use crate::domain::policy::{Entrance, PolicyCall, PolicyLayers, PolicyMode, RuleSet};
    use crate::domain::risk::{Risk, RiskFacts, TrustTier};
    let text = format!(r#"{{"rules":[{{"id":"a","effect":"ask","ask":{{"remember":{remember}}}}}]}}"#);
    let rules = PolicyDocument::parse(&text).unwrap().rules;
    let facts = RiskFacts {
        name: "a:b",
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
    let call = PolicyCall {
        facts: &facts,
        risk: Risk::assess(&facts),
        entrance: Entrance::Mcp,
        at: chrono::DateTime::UNIX_EPOCH,
        is_asked_always: false,
    };
    let none = RuleSet::default();
    let layers = PolicyLayers {
        deployment: &none,
        tenant: &rules,
        key: &none,
        mode: PolicyMode::ByRisk,
        remembered: None,
        has_host_prompt: false,
    };
    layers.evaluate(&call).ask.unwrap()
}

#[test]
fn always_is_offered_only_where_it_can_be_kept() {
    use ConsentDecision::{AllowAlways, AllowOnce, CancelTurn, RejectAlways, RejectOnce};
    let once = vec![AllowOnce, RejectOnce, CancelTurn];
    let both = terms(r#"["allow_always","reject_always"]"#);
    assert_eq!(options(&both, RiskLevel::High, false), ConsentDecision::ALL);
    assert_eq!(options(&both, RiskLevel::High, true), once);
    assert_eq!(options(&both, RiskLevel::Critical, false), once);
    assert_eq!(options(&terms("[]"), RiskLevel::Low, false), once);
    let one = options(&terms(r#"["reject_always"]"#), RiskLevel::Low, false);
    assert_eq!(one, [AllowOnce, RejectOnce, RejectAlways, CancelTurn]);
    assert!(!one.contains(&AllowAlways));
}

#[test]
fn grants_live_shorter_for_higher_risk() {
    for (risk, asked, minutes) in [
        (RiskLevel::Low, None, 480),
        (RiskLevel::Moderate, None, 480),
        (RiskLevel::High, None, 60),
        (RiskLevel::Critical, None, 60),
        (RiskLevel::Moderate, Some(5), 5),
        (RiskLevel::High, Some(600), 60),
    ] {
        let asked = asked.map(TimeDelta::minutes);
        assert_eq!(grant_life(risk, asked), TimeDelta::minutes(minutes), "{risk:?} {asked:?}");
    }
}

#[test]
fn who_may_decide() {
    let person = |key: u128, owner: Option<&str>| Person {
        email: None,
        key: Some(KeyId(Uuid::from_u128(key))),
        root: Some(KeyId(Uuid::from_u128(key))),
        owner: owner.map(str::to_owned),
        identity: None,
        creator: Some(KeyId(Uuid::from_u128(9))),
        line_creators: Vec::new(),
    };
    let requester = person(1, Some("ana"));
    let (own, same, other) = (person(1, Some("ana")), person(2, Some("ANA")), person(3, Some("eva")));
    let creator = person(9, Some("max"));
    let rotated = Person { key: Some(KeyId(Uuid::from_u128(4))), ..person(1, None) };
    let (allow, reject) = (ConsentDecision::AllowOnce, ConsentDecision::RejectAlways);
    let own_call = |same, needed| Err(MayNotDecide::SelfApproval { same, needed });
    let (client, approver) = (Assurance::Client, Assurance::Approver);
    for (decision, role, decider, needed, expected) in [
        (allow, Role::Approver, &other, approver, Ok(approver)),
        (allow, Role::Admin, &other, client, Ok(approver)),
        (allow, Role::Platform, &Person::PLATFORM, approver, Ok(approver)),
        (allow, Role::Admin, &creator, client, Ok(client)),
        (allow, Role::Admin, &creator, approver, own_call(OnePerson::Made, approver)),
        (allow, Role::Approver, &same, client, Ok(client)),
        (allow, Role::Approver, &same, approver, own_call(OnePerson::SameOwner, approver)),
        (allow, Role::Admin, &own, client, own_call(OnePerson::SameKey, client)),
        (allow, Role::Admin, &own, approver, own_call(OnePerson::SameKey, approver)),
        (allow, Role::Admin, &rotated, client, own_call(OnePerson::Rotated, client)),
        (allow, Role::Admin, &rotated, approver, own_call(OnePerson::Rotated, approver)),
        (reject, Role::Admin, &own, approver, Ok(client)),
        (reject, Role::Operator, &other, client, Err(MayNotDecide::NotApprover)),
        (allow, Role::Auditor, &other, client, Err(MayNotDecide::NotApprover)),
        (allow, Role::Agent, &own, client, Err(MayNotDecide::NotApprover)),
    ] {
        let found = assurance_of(decision, role, decider, &requester, needed);
        assert_eq!(found, expected, "{decision:?} {role:?} {decider:?} {needed:?}");
    }
    // the bootstrap key made this one, and is no second person
    let requester = Person { creator: None, ..requester };
    let platform = |needed| assurance_of(allow, Role::Platform, &Person::PLATFORM, &requester, needed);
    assert_eq!(platform(client), Ok(client));
    assert_eq!(platform(approver), own_call(OnePerson::Made, approver));
    let sibling = Person { creator: None, ..other };
    assert_eq!(assurance_of(allow, Role::Approver, &sibling, &requester, approver), Ok(approver));
}

#[test]
fn a_digest_is_of_one_call_and_one_key() {
    const SUBJECT: ConsentSubject<'_> = ConsentSubject {
        tenant: TenantId(Uuid::from_u128(1)),
        server: ServerId(Uuid::from_u128(2)),
        origin: "http://a.example:80",
        tool: "delete",
        variant: "call_tool_write",
        arguments: r#"{"a":1,"b":[1.0]}"#,
    };
    let key = |n| Key::new([n; 32]);
    let same = ConsentSubject { arguments: r#" { "b":[ 1.0 ], "\u0061":1 }"#, ..SUBJECT };
    assert_eq!(same.digest(&key(1)), SUBJECT.digest(&key(1)));
    assert_ne!(SUBJECT.digest(&key(2)), SUBJECT.digest(&key(1)));
    for other in [
        ConsentSubject { tenant: TenantId(Uuid::from_u128(9)), ..SUBJECT },
        ConsentSubject { server: ServerId(Uuid::from_u128(9)), ..SUBJECT },
        ConsentSubject { origin: "https://a.example:80", ..SUBJECT },
        ConsentSubject { tool: "deletecall", variant: "_tool_write", ..SUBJECT },
        ConsentSubject { variant: "call_tool_destructive", ..SUBJECT },
        ConsentSubject { arguments: r#"{"a":1,"b":[1]}"#, ..SUBJECT },
        ConsentSubject { arguments: "{}", ..SUBJECT },
    ] {
        assert_ne!(other.digest(&key(1)), SUBJECT.digest(&key(1)), "{other:?}");
    }
}

#[test]
fn decisions_that_are_not_remembered_say_why() {
    let mode = RiskLevel::High;
    for (risk, was_cut, rule, expected) in [
        (RiskLevel::Critical, true, Some("a"), "the risk is critical"),
        (mode, true, Some("a"), "the arguments are too long"),
        (mode, false, Some("a"), "rule 'a', or another one that asks, does not name it in 'remember'"),
        (mode, false, None, "what asks"),
    ] {
        let why = why_once(risk, was_cut, rule);
        assert!(why.starts_with(expected), "{why}");
    }
}
