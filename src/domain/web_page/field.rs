//! Fields of a form: its controls by name, as parameters of a tool see them.

use std::collections::{BTreeSet, HashMap};

use serde_json::Number;

use super::form::{ControlKind, WebControl, WebForm};
use super::sensitive::{SensitiveCategory, SensitiveField, Sensitivities};
use super::spec::{ParameterSpec, ParameterType};
use super::wording::parameter_name;

/// Most options of a field that a schema lists. A field with more takes any text, which is checked when the form is filled.
const OPTIONS_MAX: usize = 300;
/// Longest value of an option that a schema lists, in bytes.
const OPTION_BYTES_MAX: usize = 200;
/// Names of fields by which sites recognise their own forms; their values change from page to page.
const TOKEN_NAMES: [&str; 20] = [
    "csrf",
    "csrf_token",
    "csrftoken",
    "_csrf",
    "_csrf_token",
    "csrfmiddlewaretoken",
    "authenticity_token",
    "_token",
    "__requestverificationtoken",
    "__viewstate",
    "__viewstategenerator",
    "__eventvalidation",
    "__eventtarget",
    "__eventargument",
    "_wpnonce",
    "form_build_id",
    "form_token",
    "form_id",
    "utf8",
    "_charset_",
];
/// Shortest value that looks like it was generated, in bytes.
const OPAQUE_BYTES_MIN: usize = 16;

/// Way in which a field takes its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FieldForm {
    /// A single text.
    Text,
    /// Texts, one for each control of the name.
    Texts,
    /// A single value of a list.
    Choice,
    /// Values of a list.
    Choices,
    /// Ticked or not.
    Tick,
}

/// Field of a form.
#[derive(Clone, Debug)]
pub struct FormField {
    /// Name of its controls.
    pub name: String,
    /// Name of the parameter that would set it, unique in the form.
    pub parameter: String,
    /// Kind of its first control that a person sees.
    pub kind: ControlKind,
    /// Way in which it takes its value.
    pub form: FieldForm,
    /// Places of its controls in [`WebForm::controls`], in order.
    pub controls: Vec<usize>,
    /// Text of its label or legend, as written.
    pub label: Option<String>,
    /// Values to choose from, with their labels as written.
    pub options: Vec<(String, String)>,
    /// True if a browser submits the form only with it.
    pub is_required: bool,
    /// True if nobody can change it in a browser: hidden, or read-only.
    pub is_fixed: bool,
    /// True if a person does not see it.
    pub is_hidden: bool,
    /// True if it is sent though nobody has touched it.
    pub is_sent_by_default: bool,
    /// True if it is ticked or selected though nobody has touched it.
    pub is_preset: bool,
    /// True if its value is a secret, which no agent may supply.
    pub is_secret: bool,
    /// Sensitive categories of the field by itself.
    pub categories: Vec<SensitiveCategory>,
}

impl FormField {
    /// Returns the fields of a form in order. Disabled and nameless controls, buttons and contents of lists belong to none.
    pub fn all(form: &WebForm) -> Vec<FormField> {
        let mut order: Vec<&str> = Vec::new();
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for (at, control) in form.controls.iter().enumerate() {
            let is_field = !control.name.is_empty()
                && !control.kind.is_button()
                && !control.is_disabled
                && !control.is_in_datalist;
            if is_field {
                let of_name = places.entry(&control.name).or_insert_with(|| {
                    order.push(&control.name);
                    Vec::new()
                });
                of_name.push(at);
            }
        }
        let mut taken = BTreeSet::new();
        let fields = order.into_iter().enumerate().map(|(at, name)| {
            let controls = places.remove(name).unwrap_or_default();
            let wished = parameter_name(name).unwrap_or_else(|| format!("field_{}", at + 1));
            let parameter = unique(wished, &taken);
            taken.insert(parameter.clone());
            FormField::of(form, name, parameter, controls)
        });
        fields.collect()
    }

    fn of(form: &WebForm, name: &str, parameter: String, places: Vec<usize>) -> FormField {
        let all: Vec<&WebControl> = places.iter().filter_map(|at| form.controls.get(*at)).collect();
        // a hidden twin of a box holds what is sent where the box is not ticked
        let seen: Vec<&WebControl> =
            all.iter().copied().filter(|control| control.kind != ControlKind::Hidden).collect();
        let main = seen.first().or(all.first()).copied();
        let kind = main.map_or(ControlKind::Hidden, |control| control.kind);
        let shape = match (kind, seen.len()) {
            (ControlKind::Radio | ControlKind::SelectOne, _) => FieldForm::Choice,
            (ControlKind::SelectMany, _) => FieldForm::Choices,
            (ControlKind::Checkbox, 0 | 1) => FieldForm::Tick,
            (ControlKind::Checkbox, _) => FieldForm::Choices,
            (_, 0 | 1) => FieldForm::Text,
            _ => FieldForm::Texts,
        };
        let label = match shape {
            FieldForm::Choice | FieldForm::Choices if kind.is_checkable() => {
                main.and_then(|control| control.group_label.clone())
            }
            _ => main.and_then(|control| control.label.clone()),
        };
        let mut sensitivities = Sensitivities::default();
        for control in &all {
            let field = SensitiveField { kind: control.kind, autocomplete: &control.autocomplete };
            let texts =
                [control.label.as_deref(), control.group_label.as_deref(), control.placeholder.as_deref()];
            let texts = texts.into_iter().flatten().chain([name]).chain(control.id.as_deref());
            let texts = texts.chain(control.texts.iter().map(|text| &**text));
            if control.kind != ControlKind::Hidden {
                sensitivities.add_field(field, texts);
            }
        }
        let categories = sensitivities.into_categories();
        let is_free = matches!(shape, FieldForm::Text | FieldForm::Texts) && kind != ControlKind::Hidden;
        let is_of = |category| categories.contains(&category);
        FormField {
            name: name.to_owned(),
            parameter,
            kind,
            form: shape,
            label,
            options: options(&seen),
            is_required: seen.iter().any(|control| control.is_required),
            is_fixed: all.iter().all(|control| control.is_hidden || is_read_only(control)),
            is_hidden: all.iter().all(|control| control.is_hidden),
            is_sent_by_default: all.iter().any(|control| control.is_submitted_by_default()),
            is_preset: seen.iter().any(|control| is_preset(control)),
            is_secret: is_free
                && (is_of(SensitiveCategory::Credentials) || is_of(SensitiveCategory::Payment)),
            controls: places,
            categories,
        }
    }

    /// Returns whether an agent could set the field. Files have no place in a call.
    pub fn is_settable(&self) -> bool {
        !self.is_fixed && !self.is_secret && self.kind != ControlKind::File
    }

    /// Returns whether a change of the field is one of WAM's `interaction`: ticking or choosing. Other changes are `data`.
    pub fn is_interaction(&self) -> bool {
        matches!(self.form, FieldForm::Choice | FieldForm::Choices | FieldForm::Tick)
    }

    /// Returns whether sites use a field of this name to recognise their own forms.
    pub fn is_token(&self) -> bool {
        self.is_hidden && is_token_name(&self.name)
    }

    /// Returns whether the field is hidden and its value looks generated, so that nobody can tell what it says.
    pub fn is_opaque(&self, form: &WebForm) -> bool {
        let values = self.controls.iter().filter_map(|at| form.controls.get(*at));
        self.is_hidden && values.map(|control| control.value.as_str()).any(is_generated)
    }

    /// Returns the schema that the form itself has for the field, without texts.
    pub fn spec(&self, form: &WebForm) -> ParameterSpec {
        let control = self.controls.iter().filter_map(|at| form.controls.get(*at));
        let Some(control) = control.max_by_key(|control| control.kind != ControlKind::Hidden) else {
            return ParameterSpec::default();
        };
        let options = || {
            let is_listed = self.options.len() <= OPTIONS_MAX
                && self.options.iter().all(|(value, _)| value.len() <= OPTION_BYTES_MAX);
            is_listed.then(|| self.options.iter().map(|(value, _)| value.clone()).collect())
        };
        match self.form {
            FieldForm::Tick => ParameterSpec::of(ParameterType::Boolean),
            FieldForm::Texts => ParameterSpec::of(ParameterType::Array),
            FieldForm::Choice => {
                ParameterSpec { options: options(), ..ParameterSpec::of(ParameterType::String) }
            }
            FieldForm::Choices => {
                ParameterSpec { options: options(), ..ParameterSpec::of(ParameterType::Array) }
            }
            FieldForm::Text => spec_of_text(control),
        }
    }
}

/// Returns whether sites use a hidden control of this name to recognise their own forms.
pub(super) fn is_token_name(name: &str) -> bool {
    TOKEN_NAMES.contains(&name.to_ascii_lowercase().as_str())
}

/// Returns whether a value looks like it was generated.
pub(super) fn is_generated(value: &str) -> bool {
    let count = |is: fn(&char) -> bool| value.chars().filter(is).count();
    let (digits, letters) = (count(char::is_ascii_digit), count(char::is_ascii_alphabetic));
    value.len() >= OPAQUE_BYTES_MIN
        && !value.contains(char::is_whitespace)
        && digits >= 3
        && letters >= 3
        && digits + letters >= value.len() * 3 / 4
}

/// Returns the name with a number behind it where it is taken.
pub(super) fn unique(wished: String, taken: &BTreeSet<String>) -> String {
    if !taken.contains(&wished) {
        return wished;
    }
    (2..).map(|number| format!("{wished}_{number}")).find(|name| !taken.contains(name)).unwrap_or(wished)
}

fn is_read_only(control: &WebControl) -> bool {
    // browsers ignore the attribute where a value is not typed
    let is_typed = !control.kind.is_checkable() && !control.kind.is_select();
    is_typed && control.is_read_only
}

fn is_preset(control: &WebControl) -> bool {
    match control.kind {
        kind if kind.is_checkable() => control.is_checked,
        // an option without a value stands for no choice
        kind if kind.is_select() => {
            control.options.iter().any(|option| option.is_selected && !option.value.is_empty())
        }
        _ => false,
    }
}

/// Returns the values to choose from. An empty value stands for no choice.
fn options(controls: &[&WebControl]) -> Vec<(String, String)> {
    let of_select = controls.iter().flat_map(|control| &control.options).filter(|option| !option.is_disabled);
    let of_select = of_select.map(|option| (option.value.clone(), option.label.clone()));
    let of_boxes = controls.iter().filter(|control| control.kind.is_checkable() && !control.is_disabled);
    let of_boxes = of_boxes.map(|control| (control.value.clone(), control.label.clone().unwrap_or_default()));
    let mut known = BTreeSet::new();
    of_select.chain(of_boxes).filter(|(value, _)| !value.is_empty() && known.insert(value.clone())).collect()
}

fn spec_of_text(control: &WebControl) -> ParameterSpec {
    let text = ParameterSpec::of(ParameterType::String);
    let format = |format: &str| ParameterSpec { format: Some(format.to_owned()), ..text.clone() };
    let pattern = |pattern: &str| ParameterSpec { pattern: Some(pattern.to_owned()), ..text.clone() };
    let spec = match control.kind {
        ControlKind::Number | ControlKind::Range => return spec_of_number(control),
        ControlKind::Email => format("email"),
        ControlKind::Url => format("uri"),
        // the ends of a span of time move with the day, and are no part of a definition that people approve
        ControlKind::Date => return format("date"),
        ControlKind::Month => return pattern("^[0-9]{4,}-(0[1-9]|1[0-2])$"),
        ControlKind::Week => return pattern("^[0-9]{4,}-W(0[1-9]|[1-4][0-9]|5[0-3])$"),
        ControlKind::Time => return pattern("^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$"),
        ControlKind::DateTimeLocal => {
            return pattern("^[0-9]{4,}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2})?$");
        }
        ControlKind::Color => return pattern("^#[0-9A-Fa-f]{6}$"),
        _ => text.clone(),
    };
    ParameterSpec {
        min_length: control.min_length.filter(|length| *length > 0).map(u64::from),
        max_length: control.max_length.map(u64::from),
        pattern: control.pattern.as_ref().map(|pattern| format!("^(?:{pattern})$")),
        ..spec
    }
}

fn spec_of_number(control: &WebControl) -> ParameterSpec {
    let number = |text: &Option<String>| -> Option<Number> {
        let number: f64 = text.as_deref()?.trim().parse().ok()?;
        let whole = number as i64;
        if whole as f64 == number { Some(Number::from(whole)) } else { Number::from_f64(number) }
    };
    let step = control.step.as_deref().map_or("1", str::trim);
    let is_whole = number(&Some(step.to_owned())).is_some_and(|step| step.is_i64())
        && number(&control.min).is_none_or(|min| min.is_i64());
    let kind = if is_whole { ParameterType::Integer } else { ParameterType::Number };
    ParameterSpec { minimum: number(&control.min), maximum: number(&control.max), ..ParameterSpec::of(kind) }
}
