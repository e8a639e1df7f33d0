//! Filling of a form: values become the controls' state, the state is validated as a browser validates it,
//! and becomes the request that a browser would send.

mod apply;
mod encode;
mod entries;
mod moment;
mod pattern;
mod range;
mod request;
#[cfg(test)]
mod tests;
mod text;
mod validity;

use thiserror::Error;

use super::charset::PageEncoding;
use super::dom::DomNodeId;
use super::form::{WebControl, WebForm};
pub(super) use apply::is_editable;
pub use entries::FormEntry;
pub(super) use entries::{ControlEntry, of_button, of_page};
pub(super) use request::target_of;
pub use request::{BODY_BYTES_MAX, PageSubmission};

/// Values for a form, as a person would enter them.
#[derive(Clone, Copy, Debug)]
pub struct FillRequest<'a> {
    /// Form.
    pub form: &'a WebForm,
    /// Names of controls with their values.
    ///
    /// Groups of checkboxes and selects get the values that are chosen. A checkbox alone is checked by its
    /// value, `on` or `true`, and unchecked by no value or `false`. Controls that are not named stay as they
    /// are.
    pub values: &'a [(String, Vec<String>)],
    /// Button that is pressed; `None` for the first that is not disabled, or for none if the form has no button.
    pub submitter: Option<&'a WebControl>,
    /// Encoding of the page.
    pub encoding: PageEncoding,
}

/// Part of the page that a step changes, as Web Agent Markup divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillLayer {
    /// Values of controls.
    Data,
    /// Checked and selected states.
    Interaction,
    /// Submission.
    Invoke,
}

impl FillLayer {
    /// Returns the layer's name in records.
    pub fn as_str(self) -> &'static str {
        match self {
            FillLayer::Data => "data",
            FillLayer::Interaction => "interaction",
            FillLayer::Invoke => "invoke",
        }
    }
}

/// Step of a filling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FillStep {
    /// Name of the control; of the last step, of the button, or empty.
    pub field: String,
    /// Element of the control; of groups, of the first one.
    pub node: DomNodeId,
    /// Part of the page that changes.
    pub layer: FillLayer,
    /// Values before: one, or those that are chosen.
    pub before: Vec<String>,
    /// Values after.
    pub after: Vec<String>,
}

/// Reason for which a field does not validate, or a form cannot be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValidityCode {
    /// No control of the form has the name.
    UnknownField,
    /// A person could not change the control: it is disabled, read-only, hidden, or takes a file.
    NotEditable,
    /// More values than controls.
    TooManyValues,
    /// The value is none of the options.
    NotAnOption,
    /// A required value is missing.
    ValueMissing,
    /// The value is no email address or URL.
    TypeMismatch,
    /// The value is no number, date, time or color.
    BadInput,
    /// The value does not match the pattern.
    PatternMismatch,
    /// The value is too long.
    TooLong,
    /// The value is too short.
    TooShort,
    /// The value is too low.
    RangeUnderflow,
    /// The value is too high.
    RangeOverflow,
    /// The value is between two allowed steps.
    StepMismatch,
    /// The form has no address that can be requested.
    NoTarget,
    /// Every button that would submit the form is disabled.
    NoButton,
    /// The submission would be too large.
    TooLarge,
}

impl ValidityCode {
    /// Returns the code's name.
    pub fn as_str(self) -> &'static str {
        match self {
            ValidityCode::UnknownField => "unknown_field",
            ValidityCode::NotEditable => "not_editable",
            ValidityCode::TooManyValues => "too_many_values",
            ValidityCode::NotAnOption => "not_an_option",
            ValidityCode::ValueMissing => "value_missing",
            ValidityCode::TypeMismatch => "type_mismatch",
            ValidityCode::BadInput => "bad_input",
            ValidityCode::PatternMismatch => "pattern_mismatch",
            ValidityCode::TooLong => "too_long",
            ValidityCode::TooShort => "too_short",
            ValidityCode::RangeUnderflow => "range_underflow",
            ValidityCode::RangeOverflow => "range_overflow",
            ValidityCode::StepMismatch => "step_mismatch",
            ValidityCode::NoTarget => "no_target",
            ValidityCode::NoButton => "no_button",
            ValidityCode::TooLarge => "too_large",
        }
    }
}

/// Fault of one field, or of the form where the field is empty.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{message}")]
pub struct FieldProblem {
    /// Name of the control.
    pub field: String,
    /// Reason.
    pub code: ValidityCode,
    /// Text for people, without the value.
    pub message: String,
}

impl FieldProblem {
    fn new(field: &str, code: ValidityCode, message: impl Into<String>) -> FieldProblem {
        FieldProblem { field: field.to_owned(), code, message: message.into() }
    }
}

/// Filled form.
#[derive(Clone, Debug)]
pub struct FilledForm {
    /// Steps in the order of the controls; the last one submits.
    pub steps: Vec<FillStep>,
    /// Entries that are sent, in order.
    pub entries: Vec<FormEntry>,
    /// Request of the submission.
    pub request: PageSubmission,
    /// Fields whose pattern a browser checks and this house cannot; the site will.
    pub unchecked: Vec<String>,
    /// Names of controls for which values were given, and not for each of them: some stay as the page has them.
    pub left: Vec<String>,
}

impl FillRequest<'_> {
    /// Fills the form in, validates it unless the form or the button says otherwise, and builds the request.
    ///
    /// # Errors
    /// Each field that a browser would not submit.
    pub fn fill(&self) -> Result<FilledForm, Vec<FieldProblem>> {
        if self.form.is_closed() {
            let message = "The button of the form is disabled; the page may need JavaScript to enable it.";
            return Err(vec![FieldProblem::new("", ValidityCode::NoButton, message)]);
        }
        let (states, mut steps) = apply::apply(self.form, self.values)?;
        let submitter = self.submitter.or_else(|| self.form.default_submitter());
        let skips = self.form.skips_validation || submitter.is_some_and(|own| own.overrides.skips_validation);
        let mut unchecked = Vec::new();
        if !skips {
            unchecked = validity::check(self.form, &states)?;
        }
        let encoding = request::encoding_of(self.form, self.encoding);
        let entries = entries::list(self.form, &states, submitter, encoding);
        let request =
            request::build(self.form, submitter, &entries, encoding).map_err(|fault| vec![fault])?;
        steps.push(FillStep {
            field: submitter.map(|own| own.name.clone()).unwrap_or_default(),
            node: submitter.map_or(self.form.node, |own| own.node),
            layer: FillLayer::Invoke,
            before: Vec::new(),
            after: Vec::new(),
        });
        let left = self.form.controls.iter().zip(&states).filter(|(_, state)| state.is_left);
        let left = left.map(|(control, _)| control.name.clone()).collect();
        Ok(FilledForm { steps, entries, request, unchecked, left })
    }
}
