//! Settings per key, tenant and deployment, and how they combine (behaviour, section 3).

mod stored;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::annotations::Unannotated;
use super::glob::{self, Globs};
use super::intent::IntentMode;
use super::operation::OperationType;
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
    /// Whose list is the innermost that narrows, if any does.
    pub allowed_tools_from: Option<&'static str>,
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
            allowed_tools_from: narrowing(key, tenant, defaults),
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

/// The innermost scope whose list does not allow everything.
fn narrowing(key: &Settings, tenant: &Settings, defaults: &Defaults) -> Option<&'static str> {
    [
        (key.allowed_tools.as_ref(), "key"),
        (tenant.allowed_tools.as_ref(), "tenant"),
        (Some(&defaults.allowed_tools), "deployment"),
    ]
    .into_iter()
    .find(|(list, _)| list.is_some_and(|list| glob::narrows(list)))
    .map(|(_, scope)| scope)
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
mod tests;
