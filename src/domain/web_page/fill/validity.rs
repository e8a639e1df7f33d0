//! Constraint validation ("4.10.20 Constraints") of a filled form.
//!
//! Lengths are checked of entered values alone, as browsers do: a page's own value may be longer. A browser
//! cuts typed text at `maxlength`; here a longer value is refused.

use url::Url;

use super::super::form::{ControlKind, WebControl, WebForm};
use super::apply::ControlState;
use super::pattern::{self, PatternVerdict};
use super::range::{self, StepRange};
use super::{FieldProblem, ValidityCode};

/// Most patterns that are compiled for a form; further ones are not checked.
const PATTERNS_MAX: usize = 32;
/// Longest domain of an email address, in bytes.
const DOMAIN_BYTES_MAX: usize = 255;

/// Validates a form; returns the names of fields whose pattern is not checked.
pub(super) fn check(form: &WebForm, states: &[ControlState]) -> Result<Vec<String>, Vec<FieldProblem>> {
    let mut problems = Vec::new();
    let mut unchecked = Vec::new();
    let mut patterns = 0;
    for (control, state) in form.controls.iter().zip(states) {
        let is_barred = control.is_disabled
            || control.is_read_only
            || control.is_in_datalist
            || control.kind.is_button()
            || control.kind == ControlKind::Hidden;
        if is_barred {
            continue;
        }
        let mut found = Vec::new();
        missing(form, states, control, state, &mut found);
        if !state.value.is_empty() {
            of_type(control, state, &mut found);
            of_length(control, state, &mut found);
            of_range(control, state, &mut found);
            if let Some(text) = control.pattern.as_deref().filter(|_| control.kind.is_text()) {
                patterns += 1;
                let verdict = match patterns {
                    ..=PATTERNS_MAX => pattern::check(text, &values_of(control, state)),
                    _ => PatternVerdict::Unknown,
                };
                match verdict {
                    PatternVerdict::Matches => {}
                    PatternVerdict::Differs => found.push((
                        ValidityCode::PatternMismatch,
                        "The value does not have the form that the page asks for.".to_owned(),
                    )),
                    PatternVerdict::Unknown => unchecked.push(control.name.clone()),
                }
            }
        }
        problems
            .extend(found.into_iter().map(|(code, message)| FieldProblem::new(&control.name, code, message)));
    }
    if problems.is_empty() { Ok(unchecked) } else { Err(problems) }
}

type Found = Vec<(ValidityCode, String)>;

fn values_of<'a>(control: &WebControl, state: &'a ControlState) -> Vec<&'a str> {
    if control.kind == ControlKind::Email && control.is_multiple {
        state.value.split(',').collect()
    } else {
        vec![&state.value]
    }
}

fn missing(
    form: &WebForm,
    states: &[ControlState],
    control: &WebControl,
    state: &ControlState,
    found: &mut Found,
) {
    let of_group = || {
        let all = form.controls.iter().zip(states);
        all.filter(|(own, _)| {
            own.kind == ControlKind::Radio
                && (own.node == control.node || (!control.name.is_empty() && own.name == control.name))
        })
    };
    let is_missing = match control.kind {
        ControlKind::Checkbox => control.is_required && !state.is_checked,
        ControlKind::Radio => {
            of_group().any(|(own, _)| own.is_required) && !of_group().any(|(_, state)| state.is_checked)
        }
        ControlKind::SelectOne | ControlKind::SelectMany => {
            let chosen = state.selected.first();
            control.is_required
                && (chosen.is_none() || (chosen == Some(&0) && control.has_placeholder_option))
        }
        ControlKind::Range | ControlKind::Color => false,
        _ => control.is_required && state.value.is_empty(),
    };
    if is_missing {
        found.push((ValidityCode::ValueMissing, "The field is required.".to_owned()));
    }
}

fn of_type(control: &WebControl, state: &ControlState, found: &mut Found) {
    let (is_right, wanted) = match control.kind {
        ControlKind::Email => (values_of(control, state).iter().all(|one| is_email(one)), "email address"),
        ControlKind::Url => (Url::parse(&state.value).is_ok(), "absolute URL"),
        _ => return,
    };
    if !is_right {
        found.push((ValidityCode::TypeMismatch, format!("The value is no {wanted}.")));
    }
}

fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else { return false };
    let is_local = |byte: u8| byte.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(&byte);
    let is_label = |label: &str| {
        let is_inside = label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        (1..=63).contains(&label.len()) && is_inside && !label.starts_with('-') && !label.ends_with('-')
    };
    !local.is_empty()
        && local.bytes().all(is_local)
        && domain.len() <= DOMAIN_BYTES_MAX
        && domain.split('.').all(is_label)
}

fn of_length(control: &WebControl, state: &ControlState, found: &mut Found) {
    if !state.is_entered || !(control.kind.is_text() || control.kind == ControlKind::TextArea) {
        return;
    }
    let length = state.value.encode_utf16().count();
    let is_above = |most: u32| length > most as usize;
    if let Some(most) = control.max_length.filter(|most| is_above(*most)) {
        found.push((ValidityCode::TooLong, format!("The value is longer than {most} characters.")));
    }
    if let Some(least) = control.min_length.filter(|least| length < *least as usize) {
        found.push((ValidityCode::TooShort, format!("The value is shorter than {least} characters.")));
    }
}

fn of_range(control: &WebControl, state: &ControlState, found: &mut Found) {
    let Some(own) = StepRange::of(control) else { return };
    let Some(value) = range::parse(control.kind, &state.value) else { return };
    let is_below = own.min.is_some_and(|min| value < min);
    let is_above = own.max.is_some_and(|max| value > max);
    let counts = if own.is_reversed(control.kind) { is_below && is_above } else { true };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    if is_below && counts {
        found.push((ValidityCode::RangeUnderflow, format!("The value is below {}.", text(&control.min))));
    }
    if is_above && counts {
        found.push((ValidityCode::RangeOverflow, format!("The value is above {}.", text(&control.max))));
    }
    if own.mismatches(value) {
        found.push((ValidityCode::StepMismatch, "The value is between two allowed steps.".to_owned()));
    }
}
