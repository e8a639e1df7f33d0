//! Plan of a call: what it will set and send, from the approved definition and the arguments alone. It is what a person is asked about.

use serde_json::Value;

use super::facts::{AlsoSent, PageFacts, PageField};
use crate::domain::json;

/// Field that a call sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedField {
    /// Label that a person sees.
    pub label: String,
    /// Name of the control.
    pub name: String,
    /// Value to be set; `None` if no part of it may be shown.
    pub value: Option<String>,
}

/// Plan of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormPlan {
    /// `GET` or `POST`.
    pub method: String,
    /// URL that the form is sent to.
    pub action: String,
    /// URL of the page with the form.
    pub page: String,
    /// Fields that the call sets, in the order of the arguments.
    pub sets: Vec<PlannedField>,
    /// Fields that are sent besides.
    pub also_sends: Vec<AlsoSent>,
}

impl FormPlan {
    /// Returns the plan of a call with these arguments, a JSON object.
    pub fn of(facts: &PageFacts, arguments: &str) -> FormPlan {
        let members = json::top_level_members(arguments).unwrap_or_default();
        let set: Vec<_> = members.iter().filter(|member| control_values(member.value).is_some()).collect();
        let planned = |member: &&json::Member<'_>| {
            let field = facts.field(&member.name);
            let label = field.map_or_else(|| member.name.to_string(), |field| field.label.clone());
            let name = field.map_or_else(|| member.name.to_string(), |field| field.name.clone());
            let is_secret = field.is_some_and(|field| field.is_secret);
            PlannedField { label, name, value: (!is_secret).then(|| text(member.value)) }
        };
        let is_set = |field: &&PageField| set.iter().any(|member| *member.name == *field.parameter);
        // a parameter that the call leaves out is sent as the page has it
        let left_out = facts.fields.iter().filter(|field| !is_set(field)).filter_map(|field| {
            let (name, label, value) = (field.name.clone(), Some(field.label.clone()), field.value.clone());
            field.unset.map(|why| AlsoSent { name, label, value, why })
        });
        let choice = facts.button.as_deref().and_then(|name| set.iter().find(|member| *member.name == *name));
        let choice = choice.map(|member| text(member.value));
        let button = facts.pressed(choice.as_deref());
        let of_button = button.into_iter().flat_map(|button| &button.sends);
        FormPlan {
            method: button.map_or(&facts.method, |button| &button.method).to_ascii_uppercase(),
            action: button.map_or(&facts.action, |button| &button.action).clone(),
            page: facts.page.clone(),
            sets: set.iter().map(planned).collect(),
            also_sends: facts.also_sends.iter().chain(of_button).cloned().chain(left_out).collect(),
        }
    }
}

/// Returns an argument as the texts of a control: numbers as they are written, `false` as no value. `None` for null, which sets
/// nothing.
pub fn control_values(raw: &str) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    Some(match serde_json::from_str(raw).ok()? {
        Value::Null => return None,
        Value::Bool(true) => vec!["true".to_owned()],
        Value::Bool(false) => Vec::new(),
        Value::Array(items) => items.iter().map(text).collect(),
        Value::String(text) => vec![text],
        Value::Number(_) | Value::Object(_) => vec![raw.to_owned()],
    })
}

/// Returns a value as a person reads it: texts without marks, lists with commas.
fn text(raw: &str) -> String {
    match serde_json::from_str(raw) {
        Ok(Value::String(text)) => text,
        Ok(Value::Array(items)) => {
            let texts =
                items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
            texts.collect::<Vec<_>>().join(", ")
        }
        Ok(_) | Err(_) => raw.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::web_page::facts::{AlsoSentWhy, PageButton, PageToolKind};

    fn facts() -> PageFacts {
        let field = |parameter: &str, label: &str, is_secret| PageField {
            parameter: parameter.to_owned(),
            name: parameter.to_owned(),
            label: label.to_owned(),
            is_secret,
            is_required: false,
            unset: (parameter == "ads").then_some(AlsoSentWhy::Preset),
            value: (parameter == "ads").then(|| "on".to_owned()),
        };
        let button = |choice: &str, method: &str| PageButton {
            choice: choice.to_owned(),
            method: method.to_owned(),
            action: format!("https://shop.example/{choice}"),
            sends: vec![AlsoSent {
                value: Some(choice.to_owned()),
                ..AlsoSent::named("op", AlsoSentWhy::Button)
            }],
        };
        PageFacts {
            page: "https://shop.example/contact".to_owned(),
            selector: "#contact".to_owned(),
            action: "https://shop.example/send".to_owned(),
            method: "post".to_owned(),
            fingerprint: "f".to_owned(),
            fields: vec![
                field("email", "Your e-mail", false),
                field("pin", "PIN", true),
                field("ads", "Offers by mail", false),
            ],
            // a twin of a parameter, which no call sets
            also_sends: vec![
                AlsoSent::named("csrf", AlsoSentWhy::Hidden),
                AlsoSent::named("email", AlsoSentWhy::Hidden),
            ],
            button: Some("submit_with".to_owned()),
            buttons: vec![button("save", "POST"), button("delete", "GET")],
            ..PageFacts::about_none(PageToolKind::Form)
        }
    }

    #[test]
    fn everything_that_is_set_or_sent_is_named_once() {
        let plan = FormPlan::of(
            &facts(),
            r#"{"email": "a@b.example", "pin": "1234", "sizes": ["s", 2], "n": 1.50}"#,
        );
        let sets: Vec<_> = plan.sets.iter().map(|set| (set.label.as_str(), set.value.as_deref())).collect();
        assert_eq!(
            sets,
            [
                ("Your e-mail", Some("a@b.example")),
                ("PIN", None),
                ("sizes", Some("s, 2")),
                ("n", Some("1.50")),
            ]
        );
        let also = |plan: &FormPlan| -> Vec<String> {
            let row = |also: &AlsoSent| format!("{}={}", also.name, also.value.as_deref().unwrap_or("-"));
            plan.also_sends.iter().map(row).collect()
        };
        assert_eq!(
            (plan.method.as_str(), also(&plan)),
            ("POST", vec!["csrf=-".into(), "email=-".into(), "op=save".into(), "ads=on".into()])
        );
        // what is set is told once, and a twin of its name is sent all the same; null sets nothing
        for (arguments, expected) in [
            (r#"{"ads": false, "email": "x"}"#, &["csrf=-", "email=-", "op=save"][..]),
            (r#"{"ads": null}"#, &["csrf=-", "email=-", "op=save", "ads=on"]),
        ] {
            let plan = FormPlan::of(&facts(), arguments);
            assert_eq!(also(&plan), expected, "{arguments}");
        }
        assert!(FormPlan::of(&facts(), r#"{"ads": null}"#).sets.is_empty());
        // method, target and entry are those of the button
        let plan = FormPlan::of(&facts(), r#"{"submit_with": "delete", "ads": true}"#);
        assert_eq!((plan.method.as_str(), plan.action.as_str()), ("GET", "https://shop.example/delete"));
        assert_eq!(also(&plan), ["csrf=-", "email=-", "op=delete"]);
    }

    #[test]
    fn facts_are_read_from_a_definition() {
        let definition = serde_json::json!({
            "name": "contact",
            "inputSchema": {},
            "_meta": {"mcpproxy/page": serde_json::to_value(facts()).unwrap(), "other": 1}
        });
        assert_eq!(PageFacts::read(&definition.to_string()), Some(facts()));
        for none in ["{}", "[]", r#"{"_meta": {"mcpproxy/page": {"kind": "form"}}}"#, r#"{"_meta": 1}"#] {
            assert_eq!(PageFacts::read(none), None, "{none}");
        }
    }
}
