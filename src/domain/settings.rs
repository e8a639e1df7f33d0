//! Settings per key, tenant and deployment, and how they combine (behaviour, section 3).

mod stored;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::annotations::Unannotated;
use super::glob::{self, Globs};
use super::intent::{IntentMode, OperationType};
use super::validation::Strictness;

/// The setting `tool_names`: spelling on `/mcp/direct`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ToolNames {
    /// `server:tool`
    Colon,
    /// `server__tool`
    Safe,
}

/// What one scope (a key or a tenant) says; `None` inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// R1 FR-041.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_server_validation: Option<bool>,
    /// R1's two-key model or R2's inference.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent_declaration: Option<IntentMode>,
    /// Whether an absent hint is held against a tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unannotated_tools: Option<Unannotated>,
    /// Ceiling on what may be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_operation: Option<OperationType>,
    /// Globs on `server:tool`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// R3's toggle.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct_endpoint: Option<bool>,
    /// Spelling on `/mcp/direct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_names: Option<ToolNames>,
    /// Attempts per minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<u32>,
    /// Characters, 0 = off; a tenant's only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_limit: Option<u32>,
    /// Days after which records are deleted, a tenant's only; the deployment's bound holds as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_retention_days: Option<u32>,
}

/// Whose settings are being changed: some exist only for tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// An API key's.
    Key,
    /// A tenant's.
    Tenant,
}

/// A setting that cannot be taken, and the sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The setting's name.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl Settings {
    /// Applies a patch: a name that is absent stays, `null` inherits again, anything unknown is an error.
    pub fn patched(&self, patch: &Map<String, Value>, scope: Scope) -> Result<Settings, SettingError> {
        let mut object = match serde_json::to_value(self) {
            Ok(Value::Object(object)) => object,
            _ => Map::new(),
        };
        for (name, value) in patch {
            check_value(name, value, scope)?;
            if value.is_null() {
                object.remove(name);
            } else {
                object.insert(name.clone(), value.clone());
            }
        }
        serde_json::from_value(Value::Object(object))
            .map_err(|error| SettingError { field: "settings".into(), message: error.to_string() })
    }
}

/// Settings that keys and tenants have.
const NAMES: [&str; 8] = [
    "strict_server_validation",
    "intent_declaration",
    "unannotated_tools",
    "max_operation",
    "allowed_tools",
    "direct_endpoint",
    "tool_names",
    "rate_limit",
];
/// Longest unknown name that is repeated, in characters.
const NAME_SHOWN_CHARS_MAX: usize = 64;
/// Settings that only tenants have.
const NAMES_OF_TENANTS: [&str; 2] = ["response_limit", "activity_retention_days"];

fn unknown(name: &str, scope: Scope) -> SettingError {
    let of_tenants: &[&str] = if scope == Scope::Tenant { &NAMES_OF_TENANTS } else { &[] };
    let known = [&NAMES, of_tenants].concat().join(", ");
    let field: String = name.chars().take(NAME_SHOWN_CHARS_MAX).collect();
    let message = format!("unknown setting '{field}'; known: {known}");
    SettingError { field, message }
}

fn check_value(name: &str, value: &Value, scope: Scope) -> Result<(), SettingError> {
    let expected = match name {
        "strict_server_validation" | "direct_endpoint" => "true, false or null",
        "intent_declaration" => "inferred, required or null",
        "unannotated_tools" => "trust, distrust or null",
        "max_operation" => "read, write, destructive or null",
        "allowed_tools" => "a list of globs on server:tool (at most 200, each at most 300 bytes) or null",
        "tool_names" => "colon, safe or null",
        "rate_limit" => "a whole number of attempts per minute, at least 1, or null",
        "response_limit" if scope == Scope::Tenant => "a whole number of characters (0 = off) or null",
        "activity_retention_days" if scope == Scope::Tenant => {
            "a whole number of days from 1 to 3650, or null"
        }
        _ => return Err(unknown(name, scope)),
    };
    let text = value.as_str();
    let good = match name {
        _ if value.is_null() => true,
        "strict_server_validation" | "direct_endpoint" => value.is_boolean(),
        "intent_declaration" => matches!(text, Some("inferred" | "required")),
        "unannotated_tools" => matches!(text, Some("trust" | "distrust")),
        "max_operation" => text.and_then(OperationType::parse).is_some(),
        "tool_names" => matches!(text, Some("colon" | "safe")),
        "allowed_tools" => is_glob_list(value),
        "activity_retention_days" => value.as_u64().is_some_and(|n| (1..=3650).contains(&n)),
        "rate_limit" => value.as_u64().is_some_and(|n| n >= 1 && u32::try_from(n).is_ok()),
        _ => value.as_u64().is_some_and(|n| u32::try_from(n).is_ok()),
    };
    if good {
        return Ok(());
    }
    Err(SettingError { field: name.to_owned(), message: format!("{name} must be {expected}") })
}

fn is_glob_list(value: &Value) -> bool {
    value.as_array().is_some_and(|list| {
        list.len() <= glob::PATTERNS_MAX
            && list.iter().all(|item| {
                item.as_str().is_some_and(|text| !text.is_empty() && text.len() <= glob::PATTERN_BYTES_MAX)
            })
    })
}

/// The deployment's defaults: every setting has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// See [`Settings`]; the same for all fields.
    pub strict_server_validation: bool,
    /// Default mode.
    pub intent_declaration: IntentMode,
    /// Default trust.
    pub unannotated_tools: Unannotated,
    /// Default ceiling.
    pub max_operation: OperationType,
    /// Default scope.
    pub allowed_tools: Vec<String>,
    /// Default of R3's toggle.
    pub direct_endpoint: bool,
    /// Default spelling.
    pub tool_names: ToolNames,
    /// `None` = no limit.
    pub rate_limit: Option<u32>,
    /// 0 = off.
    pub response_limit: u32,
    /// Days after which records are dropped (`activity.retention_days`).
    pub activity_retention_days: u32,
}

#[cfg(test)]
impl Defaults {
    /// Those that a deployment has which says nothing.
    pub fn example() -> Defaults {
        Defaults {
            strict_server_validation: true,
            intent_declaration: IntentMode::Inferred,
            unannotated_tools: Unannotated::Trust,
            max_operation: OperationType::Destructive,
            allowed_tools: vec!["*".into()],
            direct_endpoint: false,
            tool_names: ToolNames::Colon,
            rate_limit: None,
            response_limit: 0,
            activity_retention_days: 90,
        }
    }
}

/// What holds for one key: key, tenant and deployment combined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Effective {
    /// Whether a mismatch with annotations is refused.
    pub strict: bool,
    /// Whether a declaration must be there.
    pub intent_declaration: IntentMode,
    /// Whether an absent hint is held against a tool.
    pub unannotated_tools: Unannotated,
    /// The tightest ceiling.
    pub max_operation: OperationType,
    /// Every list must let a tool through.
    pub allowed_tools: Globs,
    /// R3's toggle.
    pub direct_endpoint: bool,
    /// Spelling on `/mcp/direct`.
    pub tool_names: ToolNames,
    /// Characters, 0 = off.
    pub response_limit: u32,
}

/// How many attempts a minute may see, where anything bounds them. Apart from [`Effective`]: what a key sees does
/// not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Of the one key.
    pub key: Option<u32>,
    /// Of all keys of the tenant together.
    pub tenant: Option<u32>,
}

impl Rates {
    /// Combines the three scopes. The deployment's value is for each key, a tenant's for all of its keys together.
    pub fn resolve(key: &Settings, tenant: &Settings, defaults: &Defaults) -> Rates {
        let own = [key.rate_limit, defaults.rate_limit];
        Rates { key: own.into_iter().flatten().min(), tenant: tenant.rate_limit }
    }
}

impl Globs {
    /// What narrows every key of a tenant.
    pub fn shared(defaults: &Defaults, tenant: &Settings) -> Globs {
        Globs::of([Some(&defaults.allowed_tools), tenant.allowed_tools.as_ref()].into_iter().flatten())
    }
}

impl Effective {
    /// Combines the three scopes: limits by the tightest, the others by the innermost that speaks.
    pub fn resolve(key: &Settings, tenant: &Settings, defaults: &Defaults) -> Effective {
        Effective::resolve_within(&Globs::shared(defaults, tenant), key, tenant, defaults)
    }

    /// The same with the lists that all keys of the tenant share, so that they are there once.
    pub fn resolve_within(
        shared: &Globs,
        key: &Settings,
        tenant: &Settings,
        defaults: &Defaults,
    ) -> Effective {
        let allowed_tools = key.allowed_tools.as_ref().map_or_else(|| shared.clone(), |own| shared.and(own));
        let mode = pick(key.intent_declaration, tenant.intent_declaration, defaults.intent_declaration).0;
        let ceilings = [key.max_operation, tenant.max_operation, Some(defaults.max_operation)];
        Effective {
            strict: pick(
                key.strict_server_validation,
                tenant.strict_server_validation,
                defaults.strict_server_validation,
            )
            .0,
            intent_declaration: mode,
            unannotated_tools: pick(
                key.unannotated_tools,
                tenant.unannotated_tools,
                defaults.unannotated_tools,
            )
            .0,
            max_operation: ceilings.into_iter().flatten().min().unwrap_or(OperationType::Read),
            allowed_tools,
            direct_endpoint: direct_endpoint(mode, key, tenant, defaults).0,
            tool_names: pick(key.tool_names, tenant.tool_names, defaults.tool_names).0,
            response_limit: tenant.response_limit.unwrap_or(defaults.response_limit),
        }
    }

    /// Strictness as check 9 takes it.
    pub fn strictness(&self) -> Strictness {
        if self.strict { Strictness::Strict } else { Strictness::Lenient }
    }

    /// Whether the canonical name is within `allowed_tools`.
    pub fn allows(&self, canonical: &str) -> bool {
        self.allowed_tools.allows(canonical)
    }
}

/// R3's toggle. Nothing is declared on `/mcp/direct`: a key that must declare has it only by its own word.
fn direct_endpoint(
    mode: IntentMode,
    key: &Settings,
    tenant: &Settings,
    defaults: &Defaults,
) -> (bool, &'static str) {
    let (value, origin) = pick(key.direct_endpoint, tenant.direct_endpoint, defaults.direct_endpoint);
    (value && (mode == IntentMode::Inferred || origin == "key"), origin)
}

fn pick<T: Copy>(key: Option<T>, tenant: Option<T>, default: T) -> (T, &'static str) {
    match (key, tenant) {
        (Some(value), _) => (value, "key"),
        (None, Some(value)) => (value, "tenant"),
        (None, None) => (default, "deployment"),
    }
}

fn tightest<T: Copy + Ord>(
    key: Option<T>,
    tenant: Option<T>,
    default: Option<T>,
) -> (Option<T>, &'static str) {
    [(key, "key"), (tenant, "tenant"), (default, "deployment")]
        .into_iter()
        .filter(|(value, _)| value.is_some())
        .min_by_key(|(value, _)| *value)
        .unwrap_or((None, "deployment"))
}

/// Every setting as `{value, origin}`. For a tenant's own page pass `key: None`.
/// `allowed_tools` shows the innermost list; the outer ones still bind.
pub fn read_back(key: Option<&Settings>, tenant: &Settings, defaults: &Defaults) -> Map<String, Value> {
    let inherit = Settings::default();
    let own = key.unwrap_or(&inherit);
    let mut out = Map::new();
    let mut put = |name: &str, value: Value, origin: &str| {
        out.insert(name.to_owned(), json!({"value": value, "origin": origin}));
    };
    macro_rules! overriding {
        ($name:ident) => {
            let (value, origin) = pick(own.$name, tenant.$name, defaults.$name);
            put(stringify!($name), json!(value), origin);
        };
    }
    overriding!(strict_server_validation);
    overriding!(intent_declaration);
    overriding!(unannotated_tools);
    let (direct, origin) = match key {
        Some(own) => {
            let mode = pick(own.intent_declaration, tenant.intent_declaration, defaults.intent_declaration).0;
            direct_endpoint(mode, own, tenant, defaults)
        }
        None => pick(None, tenant.direct_endpoint, defaults.direct_endpoint),
    };
    put("direct_endpoint", json!(direct), origin);
    overriding!(tool_names);
    let (ceiling, origin) = tightest(own.max_operation, tenant.max_operation, Some(defaults.max_operation));
    put("max_operation", json!(ceiling), origin);
    let (rate, origin) = match (key, tenant.rate_limit) {
        // a tenant's own is a total, the deployment's is for each key: neither is the other's tightest
        (None, Some(total)) => (Some(total), "tenant"),
        _ => tightest(own.rate_limit, tenant.rate_limit, defaults.rate_limit),
    };
    put("rate_limit", json!(rate), origin);
    let (list, origin) = match (&own.allowed_tools, &tenant.allowed_tools) {
        (Some(list), _) => (list, "key"),
        (None, Some(list)) => (list, "tenant"),
        (None, None) => (&defaults.allowed_tools, "deployment"),
    };
    put("allowed_tools", json!(list), origin);
    let (limit, origin) = pick(None, tenant.response_limit, defaults.response_limit);
    put("response_limit", json!(limit), origin);
    let (days, origin) =
        tightest(None, tenant.activity_retention_days, Some(defaults.activity_retention_days));
    put("activity_retention_days", json!(days), origin);
    out
}

#[cfg(test)]
mod tests {
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
            (
                json!({"intent_declaration": "inferred"}),
                json!({"intent_declaration": "required"}),
                true,
                true,
            ),
        ];
        for (key, tenant, deployment, expected) in rows {
            let what = format!("{key} {tenant} {deployment}");
            let key = settings(&key, Scope::Key).expect("valid");
            let tenant = settings(&tenant, Scope::Tenant).expect("valid");
            let defaults = Defaults { direct_endpoint: deployment, ..Defaults::example() };
            assert_eq!(Effective::resolve(&key, &tenant, &defaults).direct_endpoint, expected, "{what}");
            assert_eq!(
                read_back(Some(&key), &tenant, &defaults)["direct_endpoint"]["value"],
                expected,
                "{what}"
            );
        }
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
}
