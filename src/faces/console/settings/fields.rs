//! Fields of the form of settings: what each accepts is what the settings themselves say.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::SettingsOf;
use crate::domain::settings::{self, Settings};

/// Value to choose.
pub(super) struct SettingOption {
    /// Value of the field.
    pub(super) word: String,
    /// Meaning of the value; empty if the word says it.
    pub(super) about: &'static str,
    /// True if it is chosen.
    pub(super) is_chosen: bool,
}

/// Setting with its field.
pub(super) struct SettingField {
    /// Name of the setting.
    pub(super) name: &'static str,
    /// Value in force.
    pub(super) value: String,
    /// Level that sets the value.
    pub(super) origin: String,
    /// Purpose of the setting.
    pub(super) about: &'static str,
    /// Description of the values that are accepted, beside an empty field.
    pub(super) accepts: String,
    /// True if there is no value of its own, and the one in force is inherited.
    pub(super) is_inherited: bool,
    /// Values to choose from; none for a free text.
    pub(super) options: Vec<SettingOption>,
    /// Value in the form; empty to inherit.
    pub(super) given: String,
    /// True if the field differs from what is set.
    pub(super) is_changed: bool,
    /// Reason why the value in the form was not accepted; `None` for a fine one.
    pub(super) fault: Option<String>,
    /// Remark that the value of its own does not count; `None` if it does, or there is none.
    pub(super) idle: Option<String>,
    /// Warning about the value in force; `None` without one.
    pub(super) warning: Option<String>,
}

/// Reasons why values of a form were not accepted, by the names of settings.
pub(super) type SettingFaults = BTreeMap<&'static str, String>;

/// Values in a form that is shown again, by the names of settings. The other fields have what is set.
pub(super) type TypedSettings = BTreeMap<&'static str, String>;

impl SettingField {
    /// Creates the field of a setting that was read back, filled in with what was typed. `None` for a setting that was not read back.
    pub(super) fn of(
        whose: SettingsOf,
        name: &'static str,
        (read, own): (&Map<String, Value>, &Map<String, Value>),
        typed: &TypedSettings,
    ) -> Option<Self> {
        let member = read.get(name)?;
        let value = member.get("value")?;
        let origin = origin_of(read, name)?.to_owned();
        let is_inherited = !own.contains_key(name);
        let is_idle = !is_inherited && origin != whose.origin();
        let own = value_of_form(own.get(name).unwrap_or(&Value::Null));
        let given = typed.get(name).cloned();
        let is_changed = given.as_ref().is_some_and(|given| *given != own);
        let given = given.unwrap_or(own);
        let option = |word: &str| SettingOption {
            word: word.to_owned(),
            about: settings::about_word(name, word).unwrap_or_default(),
            is_chosen: word == given,
        };
        let options = settings::words(name).map(<[&str]>::to_vec).or_else(|| {
            let is_flag =
                settings::accepted(name).is_some_and(|accepted| accepted.starts_with("true, false"));
            is_flag.then(|| vec!["true", "false"])
        });
        Some(SettingField {
            name,
            value: match value {
                Value::Null => "none".to_owned(),
                other => value_of_form(other),
            },
            is_inherited,
            idle: is_idle.then(|| format!("Does not count, since that of the {origin} is narrower.")),
            origin,
            about: settings::about_at(name, whose.scope()).unwrap_or_default(),
            accepts: accepts(name),
            options: options.unwrap_or_default().into_iter().map(option).collect(),
            given,
            is_changed,
            fault: None,
            warning: None,
        })
    }
}

/// Returns a description of the values that a field accepts. An empty field is the `null` of the API, and lists are JSON.
fn accepts(name: &str) -> String {
    match name {
        "allowed_tools" => {
            return r#"a JSON list, such as ["files:*"]: globs on server:tool, at most 200"#.to_owned();
        }
        "host_prompts" => {
            return r#"a JSON list, such as ["write"]: operation types (read, write, destructive), each once"#
                .to_owned();
        }
        _ => {}
    }
    let accepted = settings::accepted(name).unwrap_or_default();
    let plain = accepted.strip_suffix(" or null").unwrap_or(&accepted);
    plain.trim_end_matches(',').to_owned()
}

/// Returns a value as the form has it: texts without quotes, others as JSON, and nothing for one that is inherited.
fn value_of_form(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the level that sets the value in force of a setting; `None` for one that was not read back.
pub(super) fn origin_of<'a>(read: &'a Map<String, Value>, name: &str) -> Option<&'a str> {
    read.get(name)?.get("origin")?.as_str()
}

/// Returns the values that are set for the tenant, or the key, itself, as the API has them.
pub(super) fn own_values(whose: SettingsOf, own: &Settings) -> Map<String, Value> {
    let all = serde_json::to_value(own).unwrap_or_default();
    let of = |name: &'static str| Some((name.to_owned(), all.get(name)?.clone()));
    settings::names(whose.scope()).filter_map(of).filter(|(_, value)| !value.is_null()).collect()
}

fn wrong(name: &str) -> String {
    format!("{name} must be {}; leave it empty to inherit", accepts(name))
}

/// Returns the values of a form that is shown again, all as typed.
pub(super) fn typed(whose: SettingsOf, field: impl Fn(&str) -> String) -> TypedSettings {
    settings::names(whose.scope()).map(|name| (name, field(name).replace("\r\n", "\n"))).collect()
}

/// Returns the values that changes would set, as the form has them.
pub(super) fn typed_of(whose: SettingsOf, patch: &Map<String, Value>) -> TypedSettings {
    let changed = |name: &'static str| Some((name, value_of_form(patch.get(name)?)));
    settings::names(whose.scope()).filter_map(changed).collect()
}

/// Returns the changes that a form asks for, beside the values that were set when the form was made.
///
/// # Errors
/// Each field whose value is not accepted. What the API says of `null` is said of an empty field.
pub(super) fn patch(
    whose: SettingsOf,
    field: impl Fn(&str) -> String,
    was: &Map<String, Value>,
) -> Result<Map<String, Value>, SettingFaults> {
    let (mut patch, mut faults) = (Map::new(), SettingFaults::new());
    for name in settings::names(whose.scope()) {
        let given = field(name);
        let value = match (given.trim(), settings::words(name)) {
            ("", _) => Some(Value::Null),
            (given, Some(_)) => Some(Value::from(given)),
            (given, None) => serde_json::from_str(given).ok(),
        };
        match value {
            Some(value) if value == *was.get(name).unwrap_or(&Value::Null) => {}
            Some(value) if settings::accepts(name, &value, whose.scope()) => {
                patch.insert(name.to_owned(), value);
            }
            _ => {
                faults.insert(name, wrong(name));
            }
        }
    }
    if faults.is_empty() { Ok(patch) } else { Err(faults) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(object) => object,
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_form_changes_what_differs_alone() {
        let was = object(json!({"max_operation": "read", "rate_limit": 5, "allowed_tools": ["a:*"]}));
        let changed = |given: &[(&str, &str)]| {
            let field = |name: &str| {
                let found = given.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned()).unwrap_or_default()
            };
            patch(SettingsOf::Tenant, field, &was).map(Value::Object)
        };
        let same = [("max_operation", "read"), ("rate_limit", "5"), ("allowed_tools", "[\"a:*\"]")];
        assert_eq!(changed(&same), Ok(json!({})));
        let other = [("max_operation", "write"), ("rate_limit", " 7 "), ("in_band_answers", "false")];
        let expected = json!({"max_operation": "write", "rate_limit": 7, "in_band_answers": false, "allowed_tools": null});
        assert_eq!(changed(&other), Ok(expected));
        let faults = [
            ("rate_limit", "many"),
            ("activity_retention_days", "4000"),
            ("policy_mode", "loud"),
            ("host_prompts", "write"),
            ("response_limit", "100"),
        ];
        let faults = changed(&faults).unwrap_err();
        let (names, sentences): (Vec<&str>, Vec<String>) = faults.into_iter().unzip();
        assert_eq!(names, ["activity_retention_days", "host_prompts", "policy_mode", "rate_limit"]);
        assert_eq!(
            sentences[3],
            "rate_limit must be a whole number of attempts per minute, at least 1; leave it empty to inherit"
        );
        assert_eq!(
            sentences[0],
            "activity_retention_days must be a whole number of days from 1 to 3650; leave it empty to inherit"
        );
        assert!(sentences[1].starts_with(r#"host_prompts must be a JSON list, such as ["write"]: "#));
    }

    #[test]
    fn fields_show_what_holds_and_keep_what_was_typed() {
        let read = object(json!({"version": 3,
            "max_operation": {"value": "read", "origin": "tenant"},
            "in_band_answers": {"value": true, "origin": "deployment"},
            "rate_limit": {"value": null, "origin": "deployment"}}));
        let own = own_values(
            SettingsOf::Tenant,
            &serde_json::from_value(json!({"max_operation": "read"})).unwrap(),
        );
        assert_eq!(Value::Object(own.clone()), json!({"max_operation": "read"}));
        let late = object(json!({"max_operation": "write"}));
        let field = |name, patch: &Map<String, Value>| {
            let field = SettingField::of(
                SettingsOf::Tenant,
                name,
                (&read, &own),
                &typed_of(SettingsOf::Tenant, patch),
            )
            .unwrap();
            let chosen =
                field.options.iter().find(|option| option.is_chosen).map(|option| option.word.clone());
            (field.value, field.origin, field.given, chosen, field.is_changed)
        };
        let of = |value: &str, origin: &str, given: &str, chosen: Option<&str>, is_changed| {
            (value.to_owned(), origin.to_owned(), given.to_owned(), chosen.map(str::to_owned), is_changed)
        };
        let none = Map::new();
        assert_eq!(field("max_operation", &none), of("read", "tenant", "read", Some("read"), false));
        assert_eq!(field("max_operation", &late), of("read", "tenant", "write", Some("write"), true));
        assert_eq!(field("in_band_answers", &none), of("true", "deployment", "", None, false));
        assert_eq!(field("rate_limit", &none), of("none", "deployment", "", None, false));
        assert!(
            SettingField::of(
                SettingsOf::Tenant,
                "locale",
                (&read, &own),
                &typed_of(SettingsOf::Tenant, &none)
            )
            .is_none()
        );
        let flag = SettingField::of(
            SettingsOf::Tenant,
            "in_band_answers",
            (&read, &own),
            &typed_of(SettingsOf::Tenant, &none),
        )
        .unwrap();
        assert_eq!((flag.accepts.as_str(), flag.is_inherited), ("true, false", true));
    }
}
