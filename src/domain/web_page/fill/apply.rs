//! State of the controls after values were entered.

use std::collections::{HashMap, HashSet, VecDeque};

use super::super::form::{ControlKind, WebControl, WebForm};
use super::{FieldProblem, FillLayer, FillStep, ValidityCode, text};

/// State of a control.
#[derive(Clone, Debug)]
pub(super) struct ControlState {
    /// Value, sanitised for the type of the control.
    pub(super) value: String,
    /// True if checked.
    pub(super) is_checked: bool,
    /// Places of the selected options.
    pub(super) selected: Vec<usize>,
    /// True if the value was entered: lengths are checked of entered values alone.
    pub(super) is_entered: bool,
    /// True if values were given for the control's name, and none of them was for the control: it stays as the page has it.
    pub(super) is_left: bool,
}

impl ControlState {
    /// Creates the state in which a page shows a control.
    pub(super) fn initial(control: &WebControl) -> ControlState {
        let selected = control.options.iter().enumerate().filter(|(_, option)| option.is_selected);
        ControlState {
            value: text::sanitised(control, &control.value).unwrap_or_default(),
            is_checked: control.is_checked,
            selected: selected.map(|(at, _)| at).collect(),
            is_entered: false,
            is_left: false,
        }
    }
}

/// Enters values; returns the states of all controls, and a step for each field that was named.
pub(super) fn apply(
    form: &WebForm,
    values: &[(String, Vec<String>)],
) -> Result<(Vec<ControlState>, Vec<FillStep>), Vec<FieldProblem>> {
    let mut states: Vec<_> = form.controls.iter().map(ControlState::initial).collect();
    let mut problems = Vec::new();
    let mut steps = Vec::new();
    let mut named = HashSet::new();
    for (field, values) in values {
        if !named.insert(field) {
            problems.push(FieldProblem::new(field, ValidityCode::TooManyValues, "The field is named twice."));
            continue;
        }
        match enter(form, &mut states, field, values) {
            Ok(of_field) => steps.extend(of_field),
            Err(problem) => problems.push(problem),
        }
    }
    if !problems.is_empty() {
        return Err(problems);
    }
    let place = |step: &FillStep| form.controls.iter().position(|own| own.node == step.node);
    steps.sort_by_key(place);
    Ok((states, steps))
}

/// Returns whether a person could change a control.
pub(in crate::domain::web_page) fn is_editable(control: &WebControl) -> bool {
    let kind = control.kind;
    let has_own_value = !kind.is_button() && !matches!(kind, ControlKind::Hidden | ControlKind::File);
    // read-only does not hold for what is checked or selected
    let is_read_only = control.is_read_only && !kind.is_checkable() && !kind.is_select();
    has_own_value && !control.is_disabled && !is_read_only && !control.is_in_datalist
}

fn enter(
    form: &WebForm,
    states: &mut [ControlState],
    field: &str,
    values: &[String],
) -> Result<Vec<FillStep>, FieldProblem> {
    let fault = |code, message: &str| Err(FieldProblem::new(field, code, message));
    let mut own: Vec<(&WebControl, &mut ControlState)> =
        form.controls.iter().zip(states).filter(|(control, _)| control.name == field).collect();
    if own.is_empty() || field.is_empty() {
        return fault(ValidityCode::UnknownField, "The form has no field of this name.");
    }
    own.retain(|(control, _)| is_editable(control));
    if own.is_empty() {
        return fault(ValidityCode::NotEditable, "The field cannot be changed by a person.");
    }
    if values.len() > own.iter().map(|(control, _)| control.options.len().max(1)).sum() {
        return fault(ValidityCode::TooManyValues, "The field has fewer controls than values.");
    }
    let mut rest: Vec<&str> = values.iter().map(String::as_str).collect();
    let mut steps = choose(field, &mut own, &mut rest);
    let mut has_texts = false;
    for (control, state) in own.iter_mut() {
        if control.kind.is_checkable() || control.kind.is_select() {
            continue;
        }
        has_texts = true;
        if rest.is_empty() {
            state.is_left = true;
            continue;
        }
        let entered = text::entered(control, rest.remove(0))?;
        let before = std::mem::replace(&mut state.value, entered);
        state.is_entered = true;
        steps.push(FillStep {
            field: field.to_owned(),
            node: control.node,
            layer: FillLayer::Data,
            before: vec![before],
            after: vec![state.value.clone()],
        });
    }
    match rest.first() {
        Some(_) if has_texts => {
            fault(ValidityCode::TooManyValues, "The field has fewer controls than values.")
        }
        Some(_) => fault(ValidityCode::NotAnOption, "A value is none of those that can be chosen."),
        None => Ok(steps),
    }
}

/// Checks and selects what the values name, and removes those from the list.
fn choose(field: &str, own: &mut [(&WebControl, &mut ControlState)], rest: &mut Vec<&str>) -> Vec<FillStep> {
    let first = own.iter().find(|(control, _)| control.kind.is_checkable()).map(|(control, _)| control.node);
    let before = chosen(own);
    let boxes = own.iter().filter(|(control, _)| control.kind == ControlKind::Checkbox).count();
    let mut steps = Vec::new();
    let has_radios = own.iter().any(|(control, _)| control.kind == ControlKind::Radio);
    let chooses_radio = own
        .iter()
        .any(|(control, _)| control.kind == ControlKind::Radio && rest.first() == Some(&&*control.value));
    for (control, state) in own.iter_mut() {
        match control.kind {
            ControlKind::Checkbox => {
                let is_alone = boxes == 1 && !has_radios;
                let at = rest.iter().position(|value| {
                    *value == control.value || (is_alone && matches!(*value, "on" | "true"))
                });
                state.is_checked = at.is_some();
                if let Some(at) = at {
                    rest.remove(at);
                } else if is_alone && *rest == ["false"] {
                    rest.clear();
                }
            }
            ControlKind::Radio if chooses_radio => {
                state.is_checked = rest.first() == Some(&&*control.value);
            }
            ControlKind::Radio => state.is_left = true,
            ControlKind::SelectOne | ControlKind::SelectMany => {
                let step = select(field, control, state, rest);
                state.is_left = step.is_none();
                steps.extend(step);
            }
            _ => {}
        }
    }
    if chooses_radio {
        leave_one_checked(own);
        rest.remove(0);
    }
    if let Some(node) = first {
        let (field, after) = (field.to_owned(), chosen(own));
        steps.push(FillStep { field, node, layer: FillLayer::Interaction, before, after });
    }
    steps
}

/// Unchecks all but the first of several checked radio buttons with one value.
fn leave_one_checked(own: &mut [(&WebControl, &mut ControlState)]) {
    let checked =
        own.iter_mut().filter(|(control, state)| control.kind == ControlKind::Radio && state.is_checked);
    for (_, state) in checked.skip(1) {
        state.is_checked = false;
    }
}

/// Returns the values of what is checked.
fn chosen(own: &[(&WebControl, &mut ControlState)]) -> Vec<String> {
    let checked = own.iter().filter(|(control, state)| control.kind.is_checkable() && state.is_checked);
    checked.map(|(control, _)| control.value.clone()).collect()
}

fn select(
    field: &str,
    control: &WebControl,
    state: &mut ControlState,
    rest: &mut Vec<&str>,
) -> Option<FillStep> {
    let values = |selected: &[usize]| {
        selected.iter().filter_map(|at| control.options.get(*at)).map(|option| option.value.clone()).collect()
    };
    let before = values(&state.selected);
    let most = if control.kind == ControlKind::SelectOne { 1 } else { usize::MAX };
    // several options may have one value, and each is chosen once
    let mut free: HashMap<&str, VecDeque<usize>> = HashMap::new();
    for (at, option) in control.options.iter().enumerate().filter(|(_, option)| !option.is_disabled) {
        free.entry(&option.value).or_default().push_back(at);
    }
    let mut selected = Vec::new();
    rest.retain(|value| {
        let has_room = selected.len() < most;
        let at = free.get_mut(value).filter(|_| has_room).and_then(VecDeque::pop_front);
        selected.extend(at);
        at.is_none()
    });
    // nobody can choose nothing in a select of one
    if selected.is_empty() && control.kind == ControlKind::SelectOne {
        return None;
    }
    selected.sort_unstable();
    state.selected = selected;
    let (field, after) = (field.to_owned(), values(&state.selected));
    Some(FillStep { field, node: control.node, layer: FillLayer::Interaction, before, after })
}
