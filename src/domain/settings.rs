//! Settings of keys, tenants and the deployment, and their combination (behaviour, section 3).

mod about;
mod accepted;
mod stored;
mod unmatched;

pub use self::about::{about, about_at, about_word};
pub use self::accepted::{accepted, accepts, names, words};
pub use self::unmatched::{idle_globs, keys_without_tools, unmatched_tools, unmatched_tools_within};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::annotations::Unannotated;
use super::glob::{self, Globs};
use super::intent::IntentMode;
use super::operation::OperationType;
use super::policy::PolicyMode;
use super::reason::Language;
use super::text_enum::text_enum;
use super::validation::Strictness;

text_enum! {
    /// Value of the setting `tool_names`: the spelling of tool names on `/mcp/direct`.
    pub enum ToolNames {
        /// `server:tool`
        Colon = "colon",
        /// `server__tool`
        Safe = "safe",
    }
}

/// Settings of one scope, a key or a tenant; `None` inherits from the next outer scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// Whether a call is refused when its variant contradicts the server's annotations (R1 FR-041).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strict_server_validation: Option<bool>,
    /// Whether callers must declare their intent (R1's two-key model) or may (R2's inference).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent_declaration: Option<IntentMode>,
    /// Treatment of tools whose servers do not send hints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unannotated_tools: Option<Unannotated>,
    /// Highest operation type that may be run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_operation: Option<OperationType>,
    /// Globs on `server:tool` that a tool must match, at most [`glob::PATTERNS_MAX`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed_tools: Option<Vec<String>>,
    /// Whether `/mcp/direct` is available (R3).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direct_endpoint: Option<bool>,
    /// Spelling of tool names on `/mcp/direct`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_names: Option<ToolNames>,
    /// Attempts per minute, at least 1: of the key, or of all the tenant's keys together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_limit: Option<u32>,
    /// Longest text in a tool's result, in characters, of tenants only; 0 turns the cut off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_limit: Option<u32>,
    /// Treatment of calls that no rule of a policy matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_mode: Option<PolicyMode>,
    /// True if the client that calls may answer permission requests; false for robots, whose client answers by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_band_answers: Option<bool>,
    /// Operation types for which the client's host asks its user by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_prompts: Option<Vec<OperationType>>,
    /// Language in which reasons of permission requests are shown to the key, or to the tenant's keys that ask for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locale: Option<Language>,
    /// Days after which activity records are deleted, 1 to 3650, of tenants only. The deployment's bound applies as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub activity_retention_days: Option<u32>,
}

/// Scope of a change of settings: some settings exist only for tenants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Settings of an API key.
    Key,
    /// Settings of a tenant.
    Tenant,
}

/// Error for a setting that was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// Name of the setting.
    pub field: String,
    /// Sentence for the caller.
    pub message: String,
}

impl Settings {
    /// Applies a patch: an absent name keeps its value, `null` inherits again.
    ///
    /// # Errors
    /// [`SettingError`] for a name that this scope does not have, or a value out of its range.
    pub fn patched(&self, patch: &Map<String, Value>, scope: Scope) -> Result<Settings, SettingError> {
        let mut object = match serde_json::to_value(self) {
            Ok(Value::Object(object)) => object,
            _ => Map::new(),
        };
        for (name, value) in patch {
            accepted::check_value(name, value, scope)?;
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

/// Settings of the deployment, the defaults for keys and tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Defaults {
    /// Default of the check of variants against annotations; for the meaning of each field see [`Settings`].
    pub strict_server_validation: bool,
    /// Default of the declaration of intent.
    pub intent_declaration: IntentMode,
    /// Default treatment of tools whose servers do not send hints.
    pub unannotated_tools: Unannotated,
    /// Highest operation type that any key may run.
    pub max_operation: OperationType,
    /// Globs that every tool must match for any key.
    pub allowed_tools: Vec<String>,
    /// Default of whether `/mcp/direct` is available.
    pub direct_endpoint: bool,
    /// Default spelling of tool names on `/mcp/direct`.
    pub tool_names: ToolNames,
    /// Most attempts per minute of any key; `None` is no limit.
    pub rate_limit: Option<u32>,
    /// Default of the longest text in a tool's result, in characters; 0 turns the cut off.
    pub response_limit: u32,
    /// Default treatment of calls that no rule of a policy matches.
    pub policy_mode: PolicyMode,
    /// Default of whether the client that calls may answer permission requests.
    pub in_band_answers: bool,
    /// Default of the operation types for which the client's host asks by itself.
    pub host_prompts: Vec<OperationType>,
    /// Default of the language in which reasons of permission requests are shown.
    pub locale: Language,
    /// Days after which activity records are deleted (`activity.retention_days`).
    pub activity_retention_days: u32,
}

#[cfg(test)]
impl Defaults {
    /// Returns example defaults, for tests.
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
            policy_mode: PolicyMode::Observe,
            in_band_answers: true,
            host_prompts: Vec::new(),
            locale: Language::English,
            activity_retention_days: 90,
        }
    }
}

/// Settings that apply to one key, combined from key, tenant and deployment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Effective {
    /// True if a call is refused when its variant contradicts the server's annotations.
    pub strict: bool,
    /// Whether callers must or may declare their intent.
    pub intent_declaration: IntentMode,
    /// Treatment of tools whose servers do not send hints.
    pub unannotated_tools: Unannotated,
    /// Highest operation type that may be run, the lowest of all scopes.
    pub max_operation: OperationType,
    /// Lists of globs, each of which a tool must match.
    pub allowed_tools: Globs,
    /// Innermost scope whose list does not allow everything (`key`, `tenant`, `deployment`); `None` if all do.
    pub allowed_tools_from: Option<&'static str>,
    /// True if `/mcp/direct` is available.
    pub direct_endpoint: bool,
    /// Spelling of tool names on `/mcp/direct`.
    pub tool_names: ToolNames,
    /// Longest text in a tool's result, in characters; 0 turns the cut off.
    pub response_limit: u32,
    /// Treatment of calls that no rule of a policy matches.
    pub policy_mode: PolicyMode,
    /// True if the client that calls may answer permission requests.
    pub in_band_answers: bool,
    /// Operation types for which the client's host asks by itself.
    pub host_prompts: Vec<OperationType>,
    /// Language of readers who ask for none.
    pub locale: Language,
    /// Language that the key's own settings name, whatever its client asks for; `None` if they name none.
    pub own_locale: Option<Language>,
}

/// Rate limits that apply to one key, in attempts per minute; `None` is no limit. They are not part of [`Effective`],
/// as the tools that a key sees do not depend on them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Limit of the one key.
    pub key: Option<u32>,
    /// Limit of all keys of the tenant together.
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
    /// Returns the lists of the deployment and a tenant, which all keys of the tenant share.
    pub fn shared(defaults: &Defaults, tenant: &Settings) -> Globs {
        Globs::of([Some(&defaults.allowed_tools), tenant.allowed_tools.as_ref()].into_iter().flatten())
    }
}

impl Effective {
    /// Combines the three scopes: the tightest value of a limit, and the innermost value of any other setting.
    pub fn resolve(key: &Settings, tenant: &Settings, defaults: &Defaults) -> Effective {
        Effective::resolve_within(&Globs::shared(defaults, tenant), key, tenant, defaults)
    }

    /// Combines the scopes as [`Effective::resolve`] does, with the result of [`Globs::shared`], so that all keys of a
    /// tenant share its lists in memory.
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
            policy_mode: pick(key.policy_mode, tenant.policy_mode, defaults.policy_mode).0,
            in_band_answers: pick(key.in_band_answers, tenant.in_band_answers, defaults.in_band_answers).0,
            host_prompts: innermost(&key.host_prompts, &tenant.host_prompts, &defaults.host_prompts)
                .0
                .clone(),
            locale: pick(key.locale, tenant.locale, defaults.locale).0,
            own_locale: key.locale,
        }
    }

    /// Returns the language for a reader whose client asks for `accepted`.
    pub fn language(&self, accepted: Option<Language>) -> Language {
        self.own_locale.or(accepted).unwrap_or(self.locale)
    }

    /// Returns the strictness for check 9.
    pub fn strictness(&self) -> Strictness {
        if self.strict { Strictness::Strict } else { Strictness::Lenient }
    }

    /// Returns whether the canonical name (`server:tool`) matches `allowed_tools`.
    pub fn allows(&self, canonical: &str) -> bool {
        self.allowed_tools.allows(canonical)
    }
}

/// Returns the innermost scope whose list does not allow everything.
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

/// Returns whether `/mcp/direct` is available, and the scope that says so. Callers cannot declare their intent there, so
/// a key that must declare needs the setting of its own.
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

/// Returns the list of the innermost scope that has one, and that scope.
fn innermost<'a, T>(
    key: &'a Option<Vec<T>>,
    tenant: &'a Option<Vec<T>>,
    default: &'a Vec<T>,
) -> (&'a Vec<T>, &'static str) {
    pick(key.as_ref(), tenant.as_ref(), default)
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

/// Returns every setting as `{value, origin}`, of a key, or of the tenant if `key` is `None`. `allowed_tools` is the
/// innermost list; the outer ones apply as well.
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
        // a tenant's limit is a total, the deployment's is for each key: they cannot be compared
        (None, Some(total)) => (Some(total), "tenant"),
        _ => tightest(own.rate_limit, tenant.rate_limit, defaults.rate_limit),
    };
    put("rate_limit", json!(rate), origin);
    let (list, origin) = innermost(&own.allowed_tools, &tenant.allowed_tools, &defaults.allowed_tools);
    put("allowed_tools", json!(list), origin);
    overriding!(policy_mode);
    overriding!(in_band_answers);
    let (list, origin) = innermost(&own.host_prompts, &tenant.host_prompts, &defaults.host_prompts);
    put("host_prompts", json!(list), origin);
    overriding!(locale);
    let (limit, origin) = pick(None, tenant.response_limit, defaults.response_limit);
    put("response_limit", json!(limit), origin);
    let (days, origin) =
        tightest(None, tenant.activity_retention_days, Some(defaults.activity_retention_days));
    put("activity_retention_days", json!(days), origin);
    out
}

#[cfg(test)]
mod tests;
