//! Value sanitisation of each type of control.

use super::super::form::{ControlKind, WebControl};
use super::range::StepRange;
use super::{FieldProblem, ValidityCode, moment, range};

/// Returns a value as the control holds it; `None` for text that the control cannot hold.
pub(super) fn sanitised(control: &WebControl, value: &str) -> Option<String> {
    let without_line_ends = || value.replace(['\r', '\n'], "");
    match control.kind {
        ControlKind::Text | ControlKind::Search | ControlKind::Tel | ControlKind::Password => {
            Some(without_line_ends())
        }
        ControlKind::Url => Some(trimmed(&without_line_ends()).to_owned()),
        ControlKind::Email if control.is_multiple => {
            let value = without_line_ends();
            Some(value.split(',').map(trimmed).collect::<Vec<_>>().join(","))
        }
        ControlKind::Email => Some(trimmed(&without_line_ends()).to_owned()),
        ControlKind::Number => range::number(value).map(|_| value.to_owned()),
        ControlKind::Range => StepRange::of(control).map(|own| own.clamp(range::number(value)).to_string()),
        ControlKind::DateTimeLocal => moment::normal_date_time(value),
        ControlKind::Date | ControlKind::Month | ControlKind::Week | ControlKind::Time => {
            moment::parse(control.kind, value).map(|_| value.to_owned())
        }
        ControlKind::Color => Some(color(value).unwrap_or_else(|| "#000000".to_owned())),
        ControlKind::TextArea => Some(value.replace("\r\n", "\n").replace('\r', "\n")),
        _ => Some(value.to_owned()),
    }
}

/// Returns an entered value as the control holds it. Empty text clears the control.
///
/// # Errors
/// For text that the control cannot hold, which a person could not enter.
pub(super) fn entered(control: &WebControl, value: &str) -> Result<String, FieldProblem> {
    let is_color = control.kind != ControlKind::Color || color(value).is_some();
    let is_number = control.kind != ControlKind::Range || range::number(value).is_some();
    let held = sanitised(control, value).filter(|_| is_color && is_number);
    match held {
        Some(held) => Ok(held),
        None if value.is_empty() && is_color && is_number => Ok(String::new()),
        None => {
            let message = format!("The value is {}.", wanted(control.kind));
            Err(FieldProblem::new(&control.name, ValidityCode::BadInput, message))
        }
    }
}

fn wanted(kind: ControlKind) -> &'static str {
    match kind {
        ControlKind::Number | ControlKind::Range => "not a number such as 1.5",
        ControlKind::Date => "not a date such as 2026-11-24",
        ControlKind::Month => "not a month such as 2026-11",
        ControlKind::Week => "not a week such as 2026-W48",
        ControlKind::Time => "not a time such as 14:30",
        ControlKind::DateTimeLocal => "not a date with a time such as 2026-11-24T14:30",
        _ => "not a color such as #00ff7f",
    }
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(['\t', '\n', '\u{c}', '\r', ' '])
}

/// Reads a color of six hexadecimal digits. Names such as `red`, which Chromium reads as well, are none.
fn color(text: &str) -> Option<String> {
    let digits = text.strip_prefix('#')?;
    let is_color = digits.len() == 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_color.then(|| text.to_ascii_lowercase())
}
