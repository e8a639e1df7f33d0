//! Values for any form: each control in turn gets ordinary, odd and wrong ones.

use mcpproxy::domain::web_page::dom::WebDom;
use mcpproxy::domain::web_page::form::{ControlKind, WebControl, WebForm, WebForms};
use url::Url;

use super::{FormCase, UTF_8, Values};

/// Number of ways in which each form is filled in.
const ROUNDS: usize = 4;

/// Returns the cases of all forms of a page.
pub(super) fn cases(html: &str) -> Vec<FormCase<'_>> {
    let url: Url = "http://127.0.0.1/dir/page".parse().unwrap();
    let forms = WebForms::read(&WebDom::parse(html).unwrap(), &url).forms;
    let of_form = |(place, form): (usize, &WebForm)| {
        let buttons = form.submitters().count();
        let case = |round: usize| FormCase {
            html,
            content_type: UTF_8,
            form: place,
            values: if round == 0 { Vec::new() } else { entered(form, round) },
            pressed: Some(round % (buttons + 1)).filter(|at| *at < buttons),
        };
        (0..ROUNDS).map(case).collect::<Vec<_>>()
    };
    forms.iter().enumerate().flat_map(of_form).collect()
}

/// Returns what is entered into a form in a round.
fn entered(form: &WebForm, round: usize) -> Values {
    let mut values = Values::new();
    for (place, control) in form.controls.iter().enumerate() {
        if !is_open(control) || values.iter().any(|(name, _)| *name == control.name) {
            continue;
        }
        values.push((control.name.clone(), of_field(form, control, round + place)));
    }
    values
}

fn is_open(control: &WebControl) -> bool {
    let is_of_page =
        control.kind.is_button() || matches!(control.kind, ControlKind::Hidden | ControlKind::File);
    !(is_of_page || control.name.is_empty() || control.is_disabled || control.is_read_only)
}

/// Returns the values for all controls of one name.
fn of_field(form: &WebForm, control: &WebControl, turn: usize) -> Vec<String> {
    let one = |texts: &[&str]| vec![texts[turn % texts.len()].to_owned()];
    match control.kind {
        ControlKind::Checkbox => {
            form.named(&control.name).skip(turn % 2).map(|own| own.value.clone()).collect()
        }
        ControlKind::Radio => {
            form.named(&control.name).nth(turn % 2).map(|own| own.value.clone()).into_iter().collect()
        }
        ControlKind::SelectOne => {
            let free: Vec<_> = control.options.iter().filter(|option| !option.is_disabled).collect();
            free.get(turn % free.len().max(1)).map(|option| option.value.clone()).into_iter().collect()
        }
        ControlKind::SelectMany => {
            control.options.iter().skip(turn % 2).step_by(2).map(|option| option.value.clone()).collect()
        }
        ControlKind::Email => one(&["a@b.example", "a b@c", "a@b_c", "", " a.b+c@d.example "]),
        ControlKind::Url => one(&["https://b.example/?a=b", "b.example", "", "mailto:a@b.example"]),
        ControlKind::Number | ControlKind::Range => one(&["3", "1e1", "x", "-2", "0.5", "", "10000"]),
        ControlKind::Date => one(&["2026-12-24", "2025-02-30", "2024-02-29", "", "24.12.2026"]),
        ControlKind::Month => one(&["2026-12", "2026-13", ""]),
        ControlKind::Week => one(&["2026-W48", "2026-W54", ""]),
        ControlKind::Time => one(&["23:59", "24:00", "", "10:00:30"]),
        ControlKind::DateTimeLocal => one(&["2026-12-24T23:59", "2026-12-24 23:59", "2026-12-24"]),
        ControlKind::Color => one(&["#00FF7f", "#zzz"]),
        ControlKind::TextArea => one(&["one\r\ntwo\nthree", "", " é→😀 ", "a&b=c+d%20"]),
        _ => one(&["shoes & laces", "AB123456", "é→😀", "", "a+b=c%20;\"'<", "12345", "x"]),
    }
}
