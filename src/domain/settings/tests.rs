use super::accepted::check_value;
use super::*;

fn settings(value: &Value, scope: Scope) -> Result<Settings, SettingError> {
    Settings::default().patched(value.as_object().expect("object"), scope)
}

#[test]
fn limits_take_the_tightest_and_the_rest_the_innermost() {
    let tenant = settings(
        &json!({"max_operation": "read", "strict_server_validation": false, "allowed_tools": ["a:*"], "rate_limit": 5}),
        Scope::Tenant,
    )
    .expect("valid");
    let key = settings(
        &json!({"max_operation": "destructive", "strict_server_validation": true, "allowed_tools": ["*:get"], "rate_limit": 50}),
        Scope::Key,
    )
    .expect("valid");
    let effective = Effective::resolve(&key, &tenant, &Defaults::example());
    assert_eq!(effective.max_operation, OperationType::Read);
    assert!(effective.strict);
    assert!(effective.allows("a:get"));
    assert!(!effective.allows("a:set"));
    assert!(!effective.allows("b:get"));
    let shown = read_back(Some(&key), &tenant, &Defaults::example());
    assert_eq!(shown["max_operation"], json!({"value": "read", "origin": "tenant"}));
    assert_eq!(shown["strict_server_validation"], json!({"value": true, "origin": "key"}));
    assert_eq!(shown["tool_names"], json!({"value": "colon", "origin": "deployment"}));
}

#[test]
fn the_innermost_list_that_narrows_is_named() {
    let of = |list: Option<&[&str]>| Settings {
        allowed_tools: list.map(|list| list.iter().map(|glob| (*glob).to_owned()).collect()),
        ..Settings::default()
    };
    let narrow = Defaults { allowed_tools: vec!["a:*".to_owned()], ..Defaults::example() };
    let (all, some, none) = (Some(&["x", "*"][..]), Some(&["a:*"][..]), Some(&[][..]));
    for (key, tenant, defaults, expected) in [
        (None, None, &Defaults::example(), None),
        (all, all, &Defaults::example(), None),
        (all, some, &Defaults::example(), Some("tenant")),
        (None, all, &narrow, Some("deployment")),
        (some, some, &narrow, Some("key")),
        (none, None, &narrow, Some("key")),
    ] {
        let effective = Effective::resolve(&of(key), &of(tenant), defaults);
        assert_eq!(effective.allowed_tools_from, expected, "{key:?} {tenant:?}");
    }
}

#[test]
fn a_tenants_rate_is_a_total_and_a_deployments_is_for_each_key() {
    let with = |rate: Option<u32>| Settings { rate_limit: rate, ..Settings::default() };
    for (key, tenant, deployment, expected, shown_for_key, shown_for_tenant) in [
        (None, None, None, (None, None), json!(null), json!(null)),
        (Some(50), Some(5), None, (Some(50), Some(5)), json!(5), json!(5)),
        (Some(50), Some(500), Some(60), (Some(50), Some(500)), json!(50), json!(500)),
        (None, Some(500), Some(60), (Some(60), Some(500)), json!(60), json!(500)),
        (Some(90), None, Some(60), (Some(60), None), json!(60), json!(60)),
    ] {
        let defaults = Defaults { rate_limit: deployment, ..Defaults::example() };
        let (key, tenant) = (with(key), with(tenant));
        let rates = Rates::resolve(&key, &tenant, &defaults);
        assert_eq!((rates.key, rates.tenant), expected);
        assert_eq!(read_back(Some(&key), &tenant, &defaults)["rate_limit"]["value"], shown_for_key);
        assert_eq!(read_back(None, &tenant, &defaults)["rate_limit"]["value"], shown_for_tenant);
    }
}

#[test]
fn who_must_declare_has_the_direct_endpoint_by_its_own_word_only() {
    let required = json!({"intent_declaration": "required"});
    let rows = [
        (json!({}), json!({}), false, false),
        (json!({}), json!({}), true, true),
        (json!({}), json!({"direct_endpoint": true}), false, true),
        (json!({"direct_endpoint": false}), json!({"direct_endpoint": true}), true, false),
        (json!({"direct_endpoint": true}), json!({"direct_endpoint": false}), false, true),
        (required.clone(), json!({"direct_endpoint": true}), true, false),
        (json!({"intent_declaration": "required", "direct_endpoint": true}), json!({}), false, true),
        (json!({"direct_endpoint": true}), required, false, true),
        (json!({}), json!({"intent_declaration": "required", "direct_endpoint": true}), true, false),
        (json!({"intent_declaration": "inferred"}), json!({"intent_declaration": "required"}), true, true),
    ];
    for (key, tenant, deployment, expected) in rows {
        let what = format!("{key} {tenant} {deployment}");
        let key = settings(&key, Scope::Key).expect("valid");
        let tenant = settings(&tenant, Scope::Tenant).expect("valid");
        let defaults = Defaults { direct_endpoint: deployment, ..Defaults::example() };
        assert_eq!(Effective::resolve(&key, &tenant, &defaults).direct_endpoint, expected, "{what}");
        assert_eq!(read_back(Some(&key), &tenant, &defaults)["direct_endpoint"]["value"], expected, "{what}");
    }
}

#[test]
fn the_innermost_scope_says_what_a_policy_does() {
    let tenant = settings(&json!({"policy_mode": "by_risk", "host_prompts": ["write"]}), Scope::Tenant)
        .expect("valid");
    let key =
        settings(&json!({"policy_mode": "observe", "in_band_answers": false}), Scope::Key).expect("valid");
    let none = Settings::default();
    let of = |key: &Settings| {
        let effective = Effective::resolve(key, &tenant, &Defaults::example());
        (effective.policy_mode, effective.in_band_answers, effective.host_prompts)
    };
    assert_eq!(of(&key), (PolicyMode::Observe, false, vec![OperationType::Write]));
    assert_eq!(of(&none), (PolicyMode::ByRisk, true, vec![OperationType::Write]));
    let shown = read_back(Some(&key), &tenant, &Defaults::example());
    assert_eq!(shown["policy_mode"], json!({"value": "observe", "origin": "key"}));
    assert_eq!(shown["host_prompts"], json!({"value": ["write"], "origin": "tenant"}));
    let shown = read_back(None, &none, &Defaults::example());
    assert_eq!(shown["in_band_answers"], json!({"value": true, "origin": "deployment"}));
}

#[test]
fn a_keys_own_language_is_before_its_clients_and_the_tenants_after() {
    let of = |locale: Option<Language>| Settings { locale, ..Settings::default() };
    let (english, german) = (Some(Language::English), Some(Language::German));
    for (key, accepted, tenant, expected) in [
        (german, english, english, Language::German),
        (english, german, german, Language::English),
        (None, german, english, Language::German),
        (None, None, german, Language::German),
        (None, None, None, Language::English),
    ] {
        let effective = Effective::resolve(&of(key), &of(tenant), &Defaults::example());
        assert_eq!(effective.language(accepted), expected, "{key:?} {accepted:?} {tenant:?}");
    }
    let defaults = Defaults { locale: Language::German, ..Defaults::example() };
    assert_eq!(Effective::resolve(&of(None), &of(None), &defaults).language(None), Language::German);
    let shown = read_back(Some(&of(None)), &of(german), &Defaults::example());
    assert_eq!(shown["locale"], json!({"value": "de", "origin": "tenant"}));
}

#[test]
fn null_inherits_again() {
    let set = settings(&json!({"max_operation": "read"}), Scope::Key).expect("valid");
    let patch = json!({"max_operation": null});
    let unset = set.patched(patch.as_object().expect("object"), Scope::Key).expect("valid");
    assert_eq!(unset, Settings::default());
}

#[test]
fn what_cannot_be_taken_names_the_field() {
    let bad = [
        (json!({"max_operation": "all"}), "max_operation"),
        (json!({"strict_server_validation": "yes"}), "strict_server_validation"),
        (json!({"allowed_tools": "a:*"}), "allowed_tools"),
        (json!({"allowed_tools": [""]}), "allowed_tools"),
        (json!({"rate_limit": 0}), "rate_limit"),
        (json!({"rate_limit": 1.5}), "rate_limit"),
        (json!({"response_limit": 10}), "response_limit"),
        (json!({"activity_retention_days": 10}), "activity_retention_days"),
        (json!({"in_band_answers": "no"}), "in_band_answers"),
        (json!({"host_prompts": "write"}), "host_prompts"),
        (json!({"host_prompts": ["all"]}), "host_prompts"),
        (json!({"host_prompts": ["write", "write"]}), "host_prompts"),
        (json!({"nope": 1}), "nope"),
    ];
    for (value, field) in bad {
        assert_eq!(settings(&value, Scope::Key).map_err(|e| e.field), Err(field.to_owned()), "{value}");
    }
    assert!(settings(&json!({"response_limit": 10}), Scope::Tenant).is_ok());
    for days in [json!(0), json!(3651), json!(1.5), json!("10")] {
        assert!(settings(&json!({"activity_retention_days": days}), Scope::Tenant).is_err());
    }
}

#[test]
fn a_tenant_may_keep_less_than_the_deployment_and_not_more() {
    for (own, shown, origin) in [(30, 30, "tenant"), (90, 90, "tenant"), (365, 90, "deployment")] {
        let tenant = settings(&json!({"activity_retention_days": own}), Scope::Tenant).expect("valid");
        let read = read_back(None, &tenant, &Defaults::example());
        assert_eq!(read["activity_retention_days"], json!({"value": shown, "origin": origin}));
    }
}

#[test]
fn closed_lists_are_told() {
    for (name, expected) in [
        ("intent_declaration", "inferred, required or null"),
        ("unannotated_tools", "trust, distrust or null"),
        ("max_operation", "read, write, destructive or null"),
        ("tool_names", "colon, safe or null"),
        ("locale", "en, de or null"),
        ("policy_mode", "observe, by_risk, always_ask, always_allow, deny_unless_allowed or null"),
    ] {
        for wrong in [json!("other"), json!(true), json!("")] {
            let error = check_value(name, &wrong, Scope::Key).unwrap_err();
            assert_eq!(error.message, format!("{name} must be {expected}"));
        }
    }
}

#[test]
fn near_names_and_words_are_named() {
    let message = |patch: Value, scope| settings(&patch, scope).unwrap_err().message;
    for scope in [Scope::Key, Scope::Tenant] {
        let wrong = message(json!({"polcy_mode": "by_risk"}), scope);
        assert!(
            wrong.starts_with("unknown setting 'polcy_mode'; did you mean 'policy_mode'? Known: "),
            "{wrong}"
        );
        let wrong = message(json!({"policy_mode": "by-risk"}), scope);
        assert!(wrong.ends_with("deny_unless_allowed or null; did you mean 'by_risk'?"), "{wrong}");
        let wrong = message(json!({"nothing_like_it": 1}), scope);
        assert!(wrong.starts_with("unknown setting 'nothing_like_it'; known: "), "{wrong}");
    }
    let wrong = message(json!({"response_limit": 1}), Scope::Key);
    assert!(wrong.starts_with("'response_limit' is a setting of tenants"), "{wrong}");
    let wrong = message(json!({"respons_limit": 1}), Scope::Tenant);
    assert!(wrong.contains("did you mean 'response_limit'?"), "{wrong}");
}
