//! Comparison of an author's description with the form that it describes: findings, score, and the parameters that are left.
//!
//! The form wins. A description can take parameters away, and never add one that the form does not have.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::field::{FieldForm, FormField};
use super::form::{ControlKind, WebForm};
use super::schema_source::AuthoredTool;
use super::spec::{ParameterSpec, ParameterType};
use super::wording::{self, shown, site_text};
use crate::domain::schema::Pattern;
use crate::domain::text_enum::text_enum;

/// Most findings that are kept of one form; the score counts all.
const FINDINGS_MAX: usize = 100;
/// Most patterns of one form that its schema keeps.
const PATTERNS_MAX: u32 = 32;
/// Least weight of a finding for which a person is asked.
const GRAVE_WEIGHT: u32 = 40;
/// Formats of texts that a parameter may have.
const FORMATS: [&str; 9] = ["date", "date-time", "time", "email", "uri", "hostname", "ipv4", "ipv6", "uuid"];

text_enum! {
    /// Finding about a form and what its author says of it.
    pub enum FindingCode {
        /// A parameter has no control.
        UnknownParam = "unknown_param",
        /// A control that is sent has no parameter.
        UndeclaredField = "undeclared_field",
        /// Type or format of a parameter are not those of its control.
        TypeMismatch = "type_mismatch",
        /// A parameter is required by the author or the form alone.
        RequiredMismatch = "required_mismatch",
        /// Values of a parameter are not those of its control.
        EnumMismatch = "enum_mismatch",
        /// The form, or a button of it, is sent to another origin or to no URL.
        OffOriginAction = "off_origin_action",
        /// A control for a secret, a card, a code or a file has no parameter.
        UndeclaredSensitive = "undeclared_sensitive",
        /// A text must not be quoted.
        SuspiciousText = "suspicious_text",
        /// The schema that the form names is not used.
        SchemaUnusable = "schema_unusable",
        /// The form has a script for its submission, which is not run.
        NeedsScript = "needs_script",
    }
}

/// Finding with its place.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct FormFinding {
    /// Code.
    pub code: FindingCode,
    /// Name of the parameter or control, cleaned; `None` for the form as a whole.
    pub parameter: Option<String>,
    /// Sentence for people.
    pub detail: String,
}

/// Agreement of a description with its form, in hundredths: 100 where nothing contradicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageScore(u8);

impl PageScore {
    /// Lowest score of a tool that may be read-only.
    pub const READ_ONLY_MIN: PageScore = PageScore(70);
    /// Lowest score of a tool whose author is quoted.
    pub const QUOTED_MIN: PageScore = PageScore(50);

    /// Returns the score from 0 to 1.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / 100.0
    }
}

/// Parameter of a form's tool.
#[derive(Clone, Debug)]
pub struct FormParameter {
    /// Name in the tool's schema.
    pub name: String,
    /// Name of the control.
    pub control: String,
    /// Place of its field among the form's.
    pub field: usize,
    /// Type and constraints; all texts are fit for a quotation.
    pub spec: ParameterSpec,
    /// True if a call needs it.
    pub is_required: bool,
    /// Label, fit for a quotation.
    pub label: Option<String>,
}

/// Findings and parameters of a form.
#[derive(Debug, Default)]
pub struct CheckedForm {
    /// Parameters in the order of their fields.
    pub parameters: Vec<FormParameter>,
    /// Findings; at most a hundred.
    pub findings: Vec<FormFinding>,
    /// True if a finding is so grave that a person has to be asked.
    pub asks: bool,
    /// Weights of the findings, in hundredths.
    weight: u32,
    /// Number of the patterns that were looked at.
    patterns: u32,
}

impl CheckedForm {
    /// Returns the score.
    pub fn score(&self) -> PageScore {
        PageScore(100_u32.saturating_sub(self.weight) as u8)
    }

    /// Adds a finding.
    pub fn add(
        &mut self,
        code: FindingCode,
        parameter: Option<&str>,
        weight: u32,
        detail: impl Into<String>,
    ) {
        self.weight = self.weight.saturating_add(weight);
        self.asks |= weight >= GRAVE_WEIGHT;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(FormFinding { code, parameter: parameter.map(shown), detail: detail.into() });
        }
    }

    /// Returns a site's text, fit for a quotation. A suspicious one becomes a finding.
    pub fn quotable(&mut self, text: &str, what: &str, parameter: Option<&str>) -> Option<String> {
        match site_text(text) {
            Ok(text) => text,
            Err(why) => {
                let detail =
                    format!("The {what} is not quoted ({}): {}", why.as_str(), wording::quoted(&shown(text)));
                self.add(FindingCode::SuspiciousText, parameter, 0, detail);
                None
            }
        }
    }

    /// Compares the fields of a form with a description; without one, all fields that can be set are parameters.
    /// `may_set` and `shows_text` tell of a field whether the page's policy lets agents set it and see its texts.
    pub fn check(
        &mut self,
        form: &WebForm,
        fields: &[FormField],
        authored: Option<&AuthoredTool>,
        may_set: impl Fn(&FormField) -> bool,
        shows_text: impl Fn(&FormField) -> bool,
    ) {
        let places: HashMap<&str, usize> =
            fields.iter().enumerate().map(|(at, field)| (field.name.as_str(), at)).collect();
        let mut declared: HashMap<usize, &ParameterSpec> = HashMap::new();
        let mut required = BTreeSet::new();
        for (name, spec) in authored.iter().flat_map(|tool| &tool.parameters) {
            let Some(at) = places.get(name.as_str()) else {
                self.add(FindingCode::UnknownParam, Some(name), 15, "The form has no control of this name.");
                continue;
            };
            declared.insert(*at, spec);
            if authored.is_some_and(|tool| tool.required.contains(name)) {
                required.insert(*at);
            }
        }
        for (at, field) in fields.iter().enumerate() {
            let spec = declared.get(&at).copied();
            if authored.is_some() && spec.is_none() {
                self.weigh_undeclared(form, field);
            }
            // what a browser demands, an agent must be able to give
            let is_offered = authored.is_none() || spec.is_some() || field.is_required;
            if !(is_offered && field.is_settable() && may_set(field)) {
                continue;
            }
            let is_required_by_author = required.contains(&at);
            if authored.is_some() && spec.is_none_or(|spec| spec.kind.is_some()) {
                let detail = match (field.is_required, is_required_by_author) {
                    (true, false) => Some("The form requires the field, its author's description does not."),
                    (false, true) => {
                        Some("The author's description requires the parameter, the form does not.")
                    }
                    _ => None,
                };
                if let Some(detail) = detail {
                    self.add(FindingCode::RequiredMismatch, Some(&field.name), 5, detail);
                }
            }
            let Some(merged) = self.merge(form, field, spec, shows_text(field)) else { continue };
            let label = field.label.as_deref().filter(|_| shows_text(field));
            self.parameters.push(FormParameter {
                name: field.parameter.clone(),
                control: field.name.clone(),
                field: at,
                spec: merged,
                is_required: field.is_required || is_required_by_author,
                label: label.and_then(|label| site_text(label).ok().flatten()),
            });
        }
    }

    fn weigh_undeclared(&mut self, form: &WebForm, field: &FormField) {
        let name = Some(field.name.as_str());
        if field.is_secret || field.kind == ControlKind::File {
            let detail =
                "The description says nothing of a field for a secret, a means of payment or a file.";
            self.add(FindingCode::UndeclaredSensitive, name, 40, detail);
        } else if field.is_token() || !field.is_sent_by_default {
            // every form has the one, and the other is not sent
        } else if field.is_preset {
            let detail = "The field is ticked or selected on the page, and the description does not say so.";
            self.add(FindingCode::UndeclaredField, name, 40, detail);
        } else if field.is_opaque(form) {
            let detail = "The field is hidden, and its value changes and cannot be read.";
            self.add(FindingCode::UndeclaredField, name, 40, detail);
        } else {
            self.add(FindingCode::UndeclaredField, name, 10, "The field is sent, and has no parameter.");
        }
    }

    /// Returns the spec of a parameter: the form's, narrowed by the author's. `None` if no value is left.
    fn merge(
        &mut self,
        form: &WebForm,
        field: &FormField,
        authored: Option<&ParameterSpec>,
        shows_text: bool,
    ) -> Option<ParameterSpec> {
        let name = Some(field.name.as_str());
        let mut spec = field.spec(form);
        let nothing = ParameterSpec::default();
        let said = authored.unwrap_or(&nothing);
        let fits = agrees(field, &spec, said);
        if !fits {
            let detail = format!(
                "The description says {}, the control takes {}.",
                said.kind.map_or("another format", ParameterType::as_str),
                spec.kind.map_or("text", ParameterType::as_str)
            );
            self.add(FindingCode::TypeMismatch, name, 10, detail);
        }
        if let (Some(own), Some(theirs)) = (&spec.options, &said.options) {
            let both: Vec<String> = own.iter().filter(|value| theirs.contains(value)).cloned().collect();
            if theirs.iter().any(|value| !own.contains(value)) {
                self.add(
                    FindingCode::EnumMismatch,
                    name,
                    10,
                    "Values of the parameter are not the control's.",
                );
            }
            if both.is_empty() {
                return None;
            }
            spec.options = Some(both);
        } else if spec.options.is_none() && spec.kind == Some(ParameterType::String) && fits {
            spec.options = said.options.clone().filter(|options| !options.is_empty());
        }
        self.drop_suspicious_options(field, &mut spec)?;
        if fits {
            spec.format = spec.format.or_else(|| said.format.clone());
            spec.pattern = spec.pattern.or_else(|| said.pattern.clone());
            spec.minimum = spec.minimum.or_else(|| said.minimum.clone());
            spec.maximum = spec.maximum.or_else(|| said.maximum.clone());
            spec.min_length = spec.min_length.or(said.min_length);
            spec.max_length = spec.max_length.or(said.max_length);
            spec.default = said.default.clone().filter(|default| is_default(default, &spec));
        }
        spec.format = spec.format.filter(|format| FORMATS.contains(&format.as_str()));
        spec.pattern = spec
            .pattern
            .filter(|pattern| site_text(pattern).is_ok_and(|text| text.as_ref() == Some(pattern)))
            // one that cannot be used would leave the whole schema unchecked
            .filter(|pattern| self.takes_pattern(pattern));
        spec.description = self.describe(field, said, shows_text);
        Some(spec)
    }

    /// Returns whether a pattern may stand in the schema. The form itself is checked against all of them when it is filled in.
    fn takes_pattern(&mut self, pattern: &str) -> bool {
        self.patterns += 1;
        self.patterns <= PATTERNS_MAX && Pattern::is_usable(pattern)
    }

    /// Removes values that must not be quoted. `None` if none is left.
    fn drop_suspicious_options(&mut self, field: &FormField, spec: &mut ParameterSpec) -> Option<()> {
        let Some(options) = spec.options.take() else { return Some(()) };
        let mut left = Vec::new();
        for value in options {
            match site_text(&value) {
                Ok(text) if text.as_deref() == Some(value.trim()) => left.push(value),
                Ok(_) => {}
                Err(why) => {
                    let detail = format!("A value is left out ({}).", why.as_str());
                    self.add(FindingCode::SuspiciousText, Some(&field.name), 0, detail);
                }
            }
        }
        (!left.is_empty()).then(|| spec.options = Some(left))
    }

    fn describe(&mut self, field: &FormField, said: &ParameterSpec, shows_text: bool) -> Option<String> {
        let name = Some(field.name.as_str());
        let authored = said.description.as_deref().filter(|_| shows_text);
        let authored = authored.and_then(|text| self.quotable(text, "parameter's description", name));
        let label = field.label.as_deref().filter(|_| shows_text);
        let label = label.and_then(|text| self.quotable(text, "label", name));
        let text = authored.or(label).map(|text| wording::quoted(&text));
        let preset = field.is_preset.then(|| "Ticked or selected unless set.".to_owned());
        let parts: Vec<String> =
            text.into_iter().chain(preset).chain(self.labels_of_options(field, shows_text)).collect();
        (!parts.is_empty()).then(|| parts.join(" "))
    }

    /// Returns a line with the labels of values that differ from them.
    fn labels_of_options(&mut self, field: &FormField, shows_text: bool) -> Option<String> {
        let mut line = String::new();
        for (value, label) in field.options.iter().filter(|(value, label)| shows_text && value != label) {
            let (Ok(Some(value)), Ok(Some(label))) = (site_text(value), site_text(label)) else { continue };
            let one = format!("{value} = {label}");
            if line.chars().count() + one.chars().count() > wording::SITE_TEXT_CHARS_MAX {
                break;
            }
            if !line.is_empty() {
                line.push_str("; ");
            }
            line.push_str(&one);
        }
        (!line.is_empty()).then(|| format!("Values: {}.", wording::quoted(&line)))
    }
}

/// True if a description's type and format are those of a control, or narrower.
fn agrees(field: &FormField, own: &ParameterSpec, said: &ParameterSpec) -> bool {
    use ParameterType::{Integer, Number, String};
    let fits_kind = match (own.kind, said.kind) {
        (_, None) => true,
        (Some(Number), Some(Integer)) => true,
        // a list of values may hold numbers
        (Some(String), Some(Number | Integer)) => field.form == FieldForm::Choice,
        (own, said) => own == said,
    };
    let fits_format = match (&own.format, &said.format) {
        (Some(own), Some(said)) => own == said || (own == "uri" && said == "url"),
        _ => true,
    };
    fits_kind && fits_format
}

/// True if a default has the parameter's type, is one of its values, and may be quoted.
fn is_default(default: &Value, spec: &ParameterSpec) -> bool {
    match (default, spec.kind) {
        (Value::String(text), Some(ParameterType::String)) => {
            let is_listed = spec.options.as_ref().is_none_or(|options| options.contains(text));
            is_listed && site_text(text).is_ok_and(|quotable| quotable.as_ref() == Some(text))
        }
        (Value::Bool(_), Some(ParameterType::Boolean)) => true,
        (Value::Number(number), Some(ParameterType::Integer)) => number.is_i64(),
        (Value::Number(_), Some(ParameterType::Number)) => true,
        _ => false,
    }
}
