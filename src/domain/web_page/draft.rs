//! Draft of a form: what single steps have set, before anything is sent; and what the calls of those steps mean.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::facts::{PageFacts, PageTarget};
use crate::domain::json;

/// Longest draft, in bytes of its JSON text.
pub const DRAFT_BYTES_MAX: usize = 256 * 1024;
/// Lifetime of a draft after its last change, in seconds.
pub const DRAFT_KEPT_S: u32 = 15 * 60;

/// Values that steps have set in one form. It never leaves the gateway but as the call that sends it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FormDraft {
    /// Fingerprint of the form when the draft was begun.
    fingerprint: String,
    /// Values by the name of the field's parameter.
    values: Map<String, Value>,
}

/// Error for a value that makes a draft longer than [`DRAFT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the draft would be longer than {DRAFT_BYTES_MAX} bytes")]
pub struct DraftFull;

/// Error for the arguments of a call that name no form or field, as a sentence for the caller.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct UnknownForm(String);

impl FormDraft {
    /// Begins a draft of a form.
    pub fn of(form: &PageFacts) -> FormDraft {
        FormDraft { fingerprint: form.fingerprint.clone(), values: Map::new() }
    }

    /// Reads a draft that [`FormDraft::to_text`] wrote; `None` if it is none.
    pub fn read(text: &[u8]) -> Option<FormDraft> {
        serde_json::from_slice(text).ok()
    }

    /// Returns the draft as JSON text.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns whether the draft was begun for the form as it is approved now.
    pub fn is_of(&self, form: &PageFacts) -> bool {
        self.fingerprint == form.fingerprint
    }

    /// Sets the value of a field.
    ///
    /// # Errors
    /// [`DraftFull`], and then the draft is not to be kept.
    pub fn set(&mut self, parameter: &str, value: Value) -> Result<(), DraftFull> {
        self.values.insert(parameter.to_owned(), value);
        match self.to_text().len() <= DRAFT_BYTES_MAX {
            true => Ok(()),
            false => Err(DraftFull),
        }
    }

    /// Returns the names of the fields that are set.
    pub fn fields(&self) -> Vec<&str> {
        self.values.keys().map(String::as_str).collect()
    }
}

/// Returns the digest by which the drafts of a form are found.
pub fn form_digest(form: &PageFacts) -> [u8; 32] {
    let digest = Sha256::new_with_prefix("mcpproxy form v1\0").chain_update(&form.page).chain_update(b"\0");
    digest.chain_update(&form.selector).finalize().into()
}

/// Step that a call takes in a draft.
#[derive(Clone, Debug, PartialEq)]
pub struct DraftStep<'a> {
    /// Element that is changed.
    pub target: &'a PageTarget,
    /// Form of the element.
    pub form: &'a PageFacts,
    /// New value.
    pub value: Value,
}

impl<'a> DraftStep<'a> {
    /// Reads the arguments of a tool that changes drafts.
    ///
    /// # Errors
    /// [`UnknownForm`] for an element that the tool does not have.
    pub fn read(tool: &'a PageFacts, arguments: &[u8]) -> Result<DraftStep<'a>, UnknownForm> {
        let mut members = members(arguments);
        let selector = text(&members, "selector");
        let target = tool.targets.iter().find(|target| target.address == selector);
        let found = target.and_then(|target| Some((target, tool.forms.get(&target.form)?)));
        let (target, form) = found.ok_or_else(|| unknown("element", &selector))?;
        Ok(DraftStep { target, form, value: members.remove("value").unwrap_or_default() })
    }
}

/// Form that a call sends, as one of several that its tool serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CalledForm {
    /// Facts of the form.
    pub facts: Arc<PageFacts>,
    /// Values for its fields, a JSON object.
    pub values: String,
}

impl CalledForm {
    /// Reads the arguments of the tool that stands for all forms of a server.
    ///
    /// # Errors
    /// [`UnknownForm`] for a form or field that there is not, and without a field that the form needs.
    pub fn summarized(tool: &PageFacts, arguments: &[u8]) -> Result<CalledForm, UnknownForm> {
        let name = text(&members(arguments), "form");
        let form = tool.forms.get(&name).ok_or_else(|| unknown("form", &name))?;
        // the values as they are written: a number must not become another one on its way
        let whole = std::str::from_utf8(arguments).unwrap_or_default();
        let [raw] = json::find_members(whole, ["values"]).unwrap_or_default();
        let raw = raw.unwrap_or("{}");
        let values = members(raw.as_bytes());
        let known =
            |name: &str| form.field(name).is_some() || form.button.as_deref().is_some_and(|own| own == name);
        if let Some(strange) = values.keys().find(|name| !known(name)) {
            return Err(unknown(&format!("field of form '{name}'"), strange));
        }
        let missing =
            form.fields.iter().find(|field| field.is_required && !values.contains_key(&field.parameter));
        if let Some(field) = missing {
            return Err(UnknownForm(format!("form '{name}' needs a value for '{}'", field.parameter)));
        }
        Ok(CalledForm { facts: Arc::new(form.clone()), values: raw.to_owned() })
    }

    /// Reads the arguments of the tool that submits drafts. The draft itself is not among them.
    ///
    /// # Errors
    /// [`UnknownForm`] for a form that there is not, or one without the function or stage that the call names.
    pub fn invoked(tool: &PageFacts, arguments: &[u8]) -> Result<CalledForm, UnknownForm> {
        let members = members(arguments);
        let selector = text(&members, "selector");
        let form = tool.forms.get(&selector).ok_or_else(|| unknown("form", &selector))?;
        for (member, own) in [("action", &form.functions), ("stage", &form.stages)] {
            let given = text(&members, member);
            if !given.is_empty() && !own.contains(&given) {
                return Err(unknown(&format!("{member} of form '{selector}'"), &given));
            }
        }
        Ok(CalledForm { facts: Arc::new(form.clone()), values: "{}".to_owned() })
    }

    /// Returns the arguments of a call that submits a draft with the draft among them: what policies and persons decide about.
    pub fn with_draft(&mut self, draft: Option<&FormDraft>, arguments: &[u8]) -> String {
        let values = draft.map_or_else(Map::new, |draft| draft.values.clone());
        self.values = Value::Object(values.clone()).to_string();
        let mut members = members(arguments);
        members.insert("values".to_owned(), Value::Object(values));
        Value::Object(members).to_string()
    }
}

/// Returns the result of a step, a result of `tools/call`.
pub fn step_result(step: &DraftStep<'_>, draft: &FormDraft, (is_new, until): (bool, &str)) -> String {
    let form = &step.target.form;
    let fields = draft.fields();
    let did = if is_new { "begun" } else { "changed" };
    let text = format!(
        "The draft of '{form}' was {did}, and nothing was sent. It has values for: {}. It ends at {until}.",
        fields.join(", ")
    );
    let structured =
        json!({"form": form, "field": step.target.parameter, "fields": fields, "expires_at": until});
    json!({"content": [{"type": "text", "text": text}], "structuredContent": structured}).to_string()
}

fn members(arguments: &[u8]) -> Map<String, Value> {
    serde_json::from_slice(arguments).unwrap_or_default()
}

fn text(members: &Map<String, Value>, name: &str) -> String {
    members.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn unknown(what: &str, name: &str) -> UnknownForm {
    let shown: String = name.chars().take(100).collect();
    UnknownForm(format!("there is no {what} '{shown}'"))
}

#[cfg(test)]
mod tests {
    use super::super::facts::{PageField, PageToolKind};
    use super::*;

    fn form() -> PageFacts {
        let field = |name: &str, is_required| PageField {
            parameter: name.to_owned(),
            name: name.to_owned(),
            label: name.to_owned(),
            is_secret: false,
            is_required,
            unset: None,
            value: None,
        };
        PageFacts {
            page: "https://a.example/".to_owned(),
            selector: "#f".to_owned(),
            fingerprint: "print".to_owned(),
            fields: vec![field("q", true), field("n", false)],
            button: Some("submit_with".to_owned()),
            functions: vec!["search".to_owned()],
            ..PageFacts::about_none(PageToolKind::Invoke)
        }
    }

    fn tool() -> PageFacts {
        let target = PageTarget {
            address: "#f [name=\"q\"]".to_owned(),
            form: "#f".to_owned(),
            parameter: "q".to_owned(),
        };
        PageFacts {
            forms: [("#f".to_owned(), form())].into(),
            targets: vec![target],
            ..PageFacts::about_none(PageToolKind::SetData)
        }
    }

    #[test]
    fn a_step_names_one_element_of_one_form() {
        let tool = tool();
        let step = DraftStep::read(&tool, br##"{"selector": "#f [name=\"q\"]", "value": "x"}"##).unwrap();
        assert_eq!((step.form, step.value), (&form(), json!("x")));
        for unknown in [r##"{"selector": "#g", "value": "x"}"##, "{}", "["] {
            DraftStep::read(&tool, unknown.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn a_draft_is_read_back_and_bounded() {
        let mut draft = FormDraft::of(&form());
        draft.set("q", json!("old")).unwrap();
        draft.set("q", json!("new")).unwrap();
        draft.set("n", json!(["1", "2"])).unwrap();
        assert!(FormDraft::read(draft.to_text().as_bytes()) == Some(draft.clone()));
        assert!(draft.is_of(&form()));
        assert!(!draft.is_of(&PageFacts { fingerprint: "other".to_owned(), ..form() }));
        let mut called =
            CalledForm::invoked(&tool(), br##"{"selector": "#f", "action": "search"}"##).unwrap();
        let whole = called.with_draft(Some(&draft), br##"{"selector": "#f", "values": 1}"##);
        assert_eq!(whole, r##"{"selector":"#f","values":{"n":["1","2"],"q":"new"}}"##);
        assert_eq!(called.values, r#"{"n":["1","2"],"q":"new"}"#);
        assert_eq!(draft.set("n", json!("x".repeat(DRAFT_BYTES_MAX))), Err(DraftFull));
    }

    #[test]
    fn drafts_are_found_by_page_and_form() {
        let own = form_digest(&form());
        assert_eq!(own, form_digest(&PageFacts { fingerprint: "other".to_owned(), ..form() }));
        assert_ne!(own, form_digest(&PageFacts { selector: "#g".to_owned(), ..form() }));
        assert_ne!(own, form_digest(&PageFacts { page: "https://a.example/b".to_owned(), ..form() }));
    }

    #[test]
    fn functions_of_other_forms_are_not_invoked() {
        for unknown in
            [r##"{"selector": "#f", "action": "login"}"##, r##"{"selector": "#f", "stage": "pay"}"##]
        {
            CalledForm::invoked(&tool(), unknown.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn a_summarized_call_has_fields_of_its_form_alone() {
        let read = |arguments: &str| CalledForm::summarized(&tool(), arguments.as_bytes());
        let called = read(r##"{"form": "#f", "values": {"q": 1.50, "submit_with": "go"}}"##).unwrap();
        assert_eq!(called.values, r#"{"q": 1.50, "submit_with": "go"}"#);
        for (arguments, says) in [
            (
                r##"{"form": "#f", "values": {"q": "x", "price": 1}}"##,
                "there is no field of form '#f' 'price'",
            ),
            (r##"{"form": "#f"}"##, "form '#f' needs a value for 'q'"),
            (r##"{"form": "#g"}"##, "there is no form '#g'"),
        ] {
            assert_eq!(read(arguments).unwrap_err().to_string(), says);
        }
    }
}
