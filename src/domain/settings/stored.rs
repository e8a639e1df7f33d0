//! Reading of stored settings, which a newer release may have written during a rolling update.

use serde_json::Value;

use super::accepted::check_value;
use super::{Scope, Settings, ToolNames};
use crate::domain::annotations::Unannotated;
use crate::domain::intent::IntentMode;
use crate::domain::operation::OperationType;
use crate::domain::policy::PolicyMode;

impl Settings {
    /// Reads the settings in the database. Also returns the names of settings with values that this version does not
    /// understand: they get their strictest value. A name that only a newer release knows is ignored.
    pub fn read(stored: &str) -> (Settings, Vec<&'static str>) {
        let stored: Value = serde_json::from_str(stored).unwrap_or_default();
        let (mut settings, mut unknown) = (Settings::default(), Vec::new());
        macro_rules! read {
            ($name:ident, $strictest:expr) => {
                let name = stringify!($name);
                let value = stored.get(name).unwrap_or(&Value::Null);
                let is_known = stored.is_object() && check_value(name, value, Scope::Tenant).is_ok();
                match is_known.then(|| serde_json::from_value(value.clone())) {
                    Some(Ok(value)) => settings.$name = value,
                    _ => {
                        settings.$name = $strictest;
                        unknown.push(name);
                    }
                }
            };
        }
        read!(strict_server_validation, Some(true));
        read!(intent_declaration, Some(IntentMode::Required));
        read!(unannotated_tools, Some(Unannotated::Distrust));
        read!(max_operation, Some(OperationType::Read));
        read!(allowed_tools, Some(Vec::new()));
        read!(direct_endpoint, Some(false));
        read!(tool_names, Some(ToolNames::Colon));
        read!(rate_limit, Some(1));
        read!(policy_mode, Some(PolicyMode::DenyUnlessAllowed));
        read!(in_band_answers, Some(false));
        read!(host_prompts, Some(Vec::new()));
        // these permit nothing, and records that are deleted too early are lost
        read!(locale, None);
        read!(response_limit, None);
        read!(activity_retention_days, None);
        (settings, unknown)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let patch = json!({
            "strict_server_validation": false, "intent_declaration": "inferred", "unannotated_tools": "trust",
            "max_operation": "write", "allowed_tools": ["a:*"], "direct_endpoint": true, "tool_names": "safe",
            "rate_limit": 7, "response_limit": 8, "activity_retention_days": 9, "policy_mode": "by_risk",
            "in_band_answers": false, "host_prompts": ["write", "destructive"], "locale": "de"
        });
        let written = Settings::default().patched(patch.as_object().unwrap(), Scope::Tenant).unwrap();
        let stored = serde_json::to_string(&written).unwrap();
        assert_eq!(Settings::read(&stored), (written, Vec::new()));
        assert_eq!(Settings::read("{}"), (Settings::default(), Vec::new()));
        assert_eq!(Settings::read(r#"{"later": [], "rate_limit": null}"#), (Settings::default(), Vec::new()));
    }

    #[test]
    fn what_is_not_understood_is_the_strictest() {
        let strictest = Settings {
            strict_server_validation: Some(true),
            intent_declaration: Some(IntentMode::Required),
            unannotated_tools: Some(Unannotated::Distrust),
            max_operation: Some(OperationType::Read),
            allowed_tools: Some(Vec::new()),
            direct_endpoint: Some(false),
            tool_names: Some(ToolNames::Colon),
            rate_limit: Some(1),
            policy_mode: Some(PolicyMode::DenyUnlessAllowed),
            in_band_answers: Some(false),
            host_prompts: Some(Vec::new()),
            ..Settings::default()
        };
        let names: Vec<String> =
            serde_json::to_value(&strictest).unwrap().as_object().unwrap().keys().cloned().collect();
        let all =
            names.iter().map(String::as_str).chain(["locale", "response_limit", "activity_retention_days"]);
        let each: serde_json::Map<String, Value> =
            all.map(|name| (name.to_owned(), json!({"newer": true}))).collect();
        for stored in [Value::Object(each).to_string().as_str(), "[]", "7", "null", "{\"rate_limit\": 1e999}"]
        {
            let (settings, unknown) = Settings::read(stored);
            assert_eq!((settings, unknown.len()), (strictest.clone(), 14), "{stored}");
        }
        let (settings, unknown) = Settings::read(r#"{"max_operation": "look", "tool_names": "safe"}"#);
        assert_eq!(unknown, ["max_operation"]);
        assert_eq!(
            (settings.max_operation, settings.tool_names, settings.rate_limit),
            (Some(OperationType::Read), Some(ToolNames::Safe), None)
        );
        assert_eq!(Settings::read(r#"{"rate_limit": 0}"#).0.rate_limit, Some(1));
    }
}
