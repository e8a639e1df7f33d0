//! Entry list of a submission ("4.10.22.4 Constructing the entry list").

use super::super::charset::PageEncoding;
use super::super::form::{ControlKind, WebControl, WebForm, WritingDirection};
use super::apply::ControlState;

/// Entry of a submission.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FormEntry {
    /// Name.
    pub name: String,
    /// Value; of a file, its name.
    pub value: String,
    /// True for a file. None is ever chosen, so that such an entry is empty.
    pub is_file: bool,
}

/// Entry with the control that it comes from.
#[derive(Clone, Debug)]
pub(in crate::domain::web_page) struct ControlEntry {
    /// Place among [`WebForm::controls`].
    pub(in crate::domain::web_page) control: usize,
    /// True for the writing direction of a text (`dirname`), which has a name of its own.
    pub(in crate::domain::web_page) is_direction: bool,
    /// Entry as it is sent.
    pub(in crate::domain::web_page) entry: FormEntry,
}

/// Lists the entries that a form has on its page, before anybody changes anything or presses a button.
pub(in crate::domain::web_page) fn of_page(form: &WebForm) -> Vec<ControlEntry> {
    let places = 0..form.controls.len();
    places.flat_map(|place| of_page_control(form, place, false)).collect()
}

/// Lists the entries that a button of a form adds when it is pressed.
pub(in crate::domain::web_page) fn of_button(form: &WebForm, place: usize) -> Vec<ControlEntry> {
    of_page_control(form, place, true)
}

fn of_page_control(form: &WebForm, place: usize, is_pressed: bool) -> Vec<ControlEntry> {
    let Some(control) = form.controls.get(place) else { return Vec::new() };
    let mut entries = Vec::new();
    let state = ControlState::initial(control);
    of_control(
        control,
        &state,
        is_pressed,
        PageEncoding::UTF_8,
        &mut |name, value, is_file, is_direction| {
            let entry = FormEntry { name: name.to_owned(), value: value.to_owned(), is_file };
            entries.push(ControlEntry { control: place, is_direction, entry });
        },
    );
    entries
}

/// Lists the entries of a form.
pub(super) fn list(
    form: &WebForm,
    states: &[ControlState],
    submitter: Option<&WebControl>,
    encoding: PageEncoding,
) -> Vec<FormEntry> {
    let mut entries = Vec::new();
    let mut add = |name: &str, value: &str, is_file, _: bool| {
        entries.push(FormEntry { name: name.to_owned(), value: value.to_owned(), is_file });
    };
    for (control, state) in form.controls.iter().zip(states) {
        let is_pressed = submitter.is_some_and(|own| own.node == control.node);
        of_control(control, state, is_pressed, encoding, &mut add);
    }
    entries
}

/// Lists the entries of one control: name, value, whether it is a file, and whether it is the direction of a text.
fn of_control(
    control: &WebControl,
    state: &ControlState,
    is_pressed: bool,
    encoding: PageEncoding,
    add: &mut impl FnMut(&str, &str, bool, bool),
) {
    let is_left_out = control.is_disabled
        || control.is_in_datalist
        || (control.kind.is_button() && !is_pressed)
        || (control.kind.is_checkable() && !state.is_checked);
    if is_left_out {
        return;
    }
    let name = control.name.as_str();
    if control.kind == ControlKind::Image {
        // where a key presses it, and not a pointer
        let prefix = if name.is_empty() { String::new() } else { format!("{name}.") };
        add(&format!("{prefix}x"), "0", false, false);
        add(&format!("{prefix}y"), "0", false, false);
        return;
    }
    if name.is_empty() {
        return;
    }
    match control.kind {
        ControlKind::SelectOne | ControlKind::SelectMany => {
            let chosen = state.selected.iter().filter_map(|at| control.options.get(*at));
            for option in chosen.filter(|option| !option.is_disabled) {
                add(name, &option.value, false, false);
            }
        }
        ControlKind::File => add(name, "", true, false),
        ControlKind::Hidden if name.eq_ignore_ascii_case("_charset_") => {
            add(name, encoding.name(), false, false);
        }
        kind if kind.is_checkable() || kind.is_button() => add(name, &control.value, false, false),
        _ => add(name, &state.value, false, false),
    }
    if let Some(direction_name) = &control.direction_name
        && has_direction(control.kind)
    {
        let is_right_to_left = match control.direction {
            WritingDirection::LeftToRight => false,
            WritingDirection::RightToLeft => true,
            WritingDirection::Auto => begins_right_to_left(&state.value),
        };
        add(direction_name, if is_right_to_left { "rtl" } else { "ltr" }, false, true);
    }
}

fn has_direction(kind: ControlKind) -> bool {
    kind.is_text() || matches!(kind, ControlKind::TextArea | ControlKind::Hidden | ControlKind::Submit)
}

/// Returns whether the first letter of a text is of a script that is written from right to left.
fn begins_right_to_left(text: &str) -> bool {
    let first = text.chars().find(|c| c.is_alphabetic());
    first.is_some_and(|c| {
        let is_hebrew_to_arabic = ('\u{590}'..='\u{8ff}').contains(&c);
        let is_presentation_form = matches!(c, '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}');
        let is_supplementary = matches!(c, '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}');
        is_hebrew_to_arabic || is_presentation_form || is_supplementary
    })
}
