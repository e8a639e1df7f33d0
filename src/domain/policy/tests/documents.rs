//! Policies as they are written: what is refused, and what is warned of.

use super::*;

#[test]
fn documents_are_read_whole_or_not_at_all() {
    let document = PolicyDocument::parse(
        r#"{"version": 3, "mode": "by_risk", "rules": [ {"id":"a","effect":"ask","enforced":true} ]}"#,
    )
    .unwrap();
    assert_eq!(
        (document.version, document.mode, document.rules.len()),
        (Some(3), Some(PolicyMode::ByRisk), 1)
    );
    assert_eq!(rules(&document.rules_text).len(), 1);
    for (version, expected) in
        [("5.0", Some(5)), ("1e3", Some(1000)), ("-1", None), ("4294967296", None), ("\"5\"", None)]
    {
        let document = PolicyDocument::parse(&format!(r#"{{"rules":[],"version":{version}}}"#));
        assert_eq!(document.ok().and_then(|document| document.version), expected, "{version}");
    }
    let rule = |members: &str| format!(r#"{{"rules":[{{"id":"a","effect":"ask"}},{{"id":"b",{members}}}]}}"#);
    for (text, expected) in [
        ("[]", "the policy must be a JSON object"),
        ("{", "the policy is no JSON that can be read: invalid JSON at byte 1"),
        ("{}", "the policy must have 'rules'"),
        (r#"{"rules":[],"rules":[]}"#, "the policy has a duplicate member name 'rules'"),
        (r#"{"rulez":[]}"#, "rulez is an unknown key; did you mean 'rules'?"),
        (r#"{"rules":{}}"#, "rules must be a list"),
        (r#"{"rules":[7]}"#, "rules[0] must be a JSON object"),
        (r#"{"rules":[{"id":"a"}]}"#, "rules[0] must have an 'effect'"),
        (r#"{"rules":[],"version":1.5}"#, "version must be a whole number from 0 to 4294967295"),
        (
            r#"{"rules":[],"mode":"by-risk"}"#,
            "mode is 'by-risk'; did you mean 'by_risk'? Known: observe, by_risk, always_ask, always_allow, deny_unless_allowed",
        ),
        (
            r#"{"rules":[{"id":"a","effect":"ask"},{"id":"a","effect":"ask"}]}"#,
            "rules[1] has the id 'a' of a rule before it",
        ),
        (
            &rule(r#""effect":"allows""#),
            "rules[1].effect is 'allows'; did you mean 'allow'? Known: allow, ask, deny",
        ),
        (&rule(r#""effect":"deny","mach":{}"#), "rules[1].mach is an unknown key; did you mean 'match'?"),
        (
            &rule(r#""effect":"deny","match":{"tol":"a:*"}"#),
            "rules[1].match.tol is an unknown key; did you mean 'tool'?",
        ),
        (&rule(r#""effect":"deny","match":{"tool":["a:*",7]}"#), "rules[1].match.tool[1] must be a text"),
        (&rule(r#""effect":"deny","match":{"tool":[]}"#), "rules[1].match.tool must not be an empty list"),
        (
            &rule(r#""effect":"deny","match":{"tool":"github"}"#),
            "rules[1].match.tool can match no tool, for want of a ':': write 'github:*' or '*:github'",
        ),
        (
            &rule(r#""effect":"deny","match":{"op":["read","writes"]}"#),
            "rules[1].match.op[1] is 'writes'; did you mean 'write'? Known: read, write, destructive",
        ),
        (&rule(r#""effect":"deny","match":{"risk":null}"#), "rules[1].match.risk must be a text"),
        (
            &rule(r#""effect":"deny","match":{"time":{}}"#),
            "rules[1].match.time must have 'days', 'from' or 'to'",
        ),
        (
            &rule(r#""effect":"deny","match":{"time":{"from":"8"}}"#),
            "rules[1].match.time.from must be a time of day such as \"08:30\"",
        ),
        (
            &rule(r#""effect":"deny","match":{"time":{"from":"08:00","to":"08:00"}}"#),
            "rules[1].match.time must have different times in 'from' and 'to'",
        ),
        (&rule(r#""effect":"deny","except":{}"#), "rules[1].except must select something"),
        (&rule(r#""effect":"deny","ask":{}"#), "rules[1].ask is for rules with the effect 'ask' only"),
        (
            &rule(r#""effect":"ask","ask":{"ttl_s":5}"#),
            "rules[1].ask.ttl_s must be a whole number from 10 to 86400",
        ),
        (&rule(r#""effect":"ask","ask":{"channels":[]}"#), "rules[1].ask.channels must not be an empty list"),
        (
            &rule(r#""effect":"ask","ask":{"remember":["always"]}"#),
            "rules[1].ask.remember[0] is 'always'; known: allow_always, reject_always",
        ),
        (&rule(r#""effect":"ask","enforced":"true""#), "rules[1].enforced must be true or false"),
        (
            &rule(r#""effect":"ask","message":"a\nb""#),
            "rules[1].message must be one line of at most 300 characters",
        ),
        (
            &rule(r#""effect":"ask","when":"arg.a == 1""#),
            "rules[1].when has an unknown name 'arg'; did you mean 'args'?",
        ),
        (
            r#"{"rules":[{"id":"","effect":"ask"}]}"#,
            "rules[0].id must be letters, digits, '.', '_' and '-', beginning with a letter or digit, at most 64 of them",
        ),
    ] {
        let fault = PolicyDocument::parse(text).map(|_| ()).unwrap_err();
        assert_eq!(fault.to_string(), expected, "{text}");
    }
    assert!(RuleSet::parse("[] x").is_err() && RuleSet::parse("{}").is_err());
    assert!(RuleSet::parse(r#"[{"id":"a","effect":"ask","ask":{"remember":[ ]}}]"#).is_ok());
}

#[test]
fn warnings_name_what_can_never_match_or_be_avoided() {
    let known = ["github:delete_repo", "pg-main:query"];
    let by_op = |id: &str| {
        format!(
            "Rule '{id}' selects by 'op', which the caller chooses: tools without annotations can be called as read. \
             Leave 'op' out, or select by 'tier'."
        )
    };
    let set = rules(
        r#"[{"id":"a","effect":"deny","match":{"tool":["github:delete_*","gihub:delete_repo"]}},
            {"id":"b","effect":"deny","match":{"tool":"pg-*:*","op":"write"},"except":{"op":["write","read"]}},
            {"id":"d","effect":"deny","match":{"tool":"pgmain:*"},"except":{"tool":"pg-main:queri"}},
            {"id":"c","effect":"deny","match":{"op":"write"},"except":{"op":"write","risk":"low"}}]"#,
    );
    assert_eq!(
        set.warnings(&known, false),
        [
            "Rule 'a': 'gihub:delete_repo' matches no tool that is known now; did you mean 'github:delete_repo'?",
            "Rule 'b' never matches: its 'except' excludes all that it matches.",
            &by_op("b"),
            "Rule 'd': 'pgmain:*' matches no tool that is known now; did you mean 'pg-main:*'?",
            "Rule 'd': 'except' has 'pg-main:queri', which matches no tool that is known now; did you mean \
             'pg-main:query'?",
            &by_op("c"),
        ]
    );
    let fine = rules(
        r#"[{"id":"a","effect":"deny","match":{"tool":"pg-main:*","op":["read","write"]}},
            {"id":"b","effect":"deny","match":{"tool":"pg-main:*","op":"write","tier":["write","destructive"]}},
            {"id":"c","effect":"allow","match":{"tool":"pg-main:*","op":"write"}}]"#,
    );
    assert_eq!(fine.warnings(&known, false), [""; 0]);
}
