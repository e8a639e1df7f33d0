//! Ranges and steps of numbers, dates and times, computed as Chromium does.

use super::super::form::{ControlKind, WebControl};
use super::moment;

/// Largest ratio of value and step that a step is checked for: 2^53.
const RATIO_MAX: f64 = 9_007_199_254_740_992.0;
/// Largest error of a step that is accepted, as a part of it: 2^-24.
const ERROR: f64 = 1.0 / 16_777_216.0;

/// Range of a control.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepRange {
    /// Lowest value.
    pub(super) min: Option<f64>,
    /// Highest value.
    pub(super) max: Option<f64>,
    base: f64,
    step: Option<f64>,
    error: f64,
}

/// Parses a floating-point number as the standard defines valid ones.
pub(super) fn number(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_mantissa = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole.is_empty() || is_digits(whole)) && is_digits(fraction),
        None => is_digits(mantissa),
    };
    let is_exponent = |text: &str| is_digits(text.strip_prefix(['-', '+']).unwrap_or(text));
    if !is_mantissa || !exponent.is_none_or(is_exponent) {
        return None;
    }
    text.parse::<f64>().ok().filter(|value| value.is_finite())
}

/// Parses the value of a control with a range.
pub(super) fn parse(kind: ControlKind, text: &str) -> Option<f64> {
    match kind {
        ControlKind::Number | ControlKind::Range => number(text),
        _ => moment::parse(kind, text),
    }
}

/// Returns the step of a kind: the default, the unit in which values count, and the default base.
fn units(kind: ControlKind) -> (f64, f64, f64) {
    match kind {
        ControlKind::Date => (1.0, 86_400_000.0, 0.0),
        // weeks begin on Mondays, and 1970 on a Thursday
        ControlKind::Week => (1.0, 604_800_000.0, -259_200_000.0),
        ControlKind::Time | ControlKind::DateTimeLocal => (60.0, 1000.0, 0.0),
        _ => (1.0, 1.0, 0.0),
    }
}

impl StepRange {
    /// Returns the range of a control; `None` for kinds without one.
    pub(super) fn of(control: &WebControl) -> Option<StepRange> {
        let kind = control.kind;
        let is_number = matches!(kind, ControlKind::Number | ControlKind::Range);
        let is_moment = matches!(
            kind,
            ControlKind::Date
                | ControlKind::Month
                | ControlKind::Week
                | ControlKind::Time
                | ControlKind::DateTimeLocal
        );
        if !is_number && !is_moment {
            return None;
        }
        let value = |text: &Option<String>| text.as_deref().and_then(|text| parse(kind, text));
        let (default, unit, default_base) = units(kind);
        let min = value(&control.min);
        let base = min.or_else(|| parse(kind, &control.value)).unwrap_or(default_base);
        let given = control.step.as_deref();
        let step = given.and_then(number).filter(|step| *step > 0.0).unwrap_or(default);
        let step = match kind {
            _ if is_number => step,
            ControlKind::Time | ControlKind::DateTimeLocal => (step * unit).round().max(1.0),
            _ => step.round().max(1.0) * unit,
        };
        let is_any = given.is_some_and(|step| step.eq_ignore_ascii_case("any"));
        let is_range = kind == ControlKind::Range;
        let max = value(&control.max).or(is_range.then_some(100.0));
        let min = min.or(is_range.then_some(0.0));
        let max = if is_range { max.zip(min).map(|(max, min)| max.max(min)) } else { max };
        let error = if is_number { step * ERROR } else { 0.0 };
        Some(StepRange { min, max, base, step: (!is_any).then_some(step), error })
    }

    /// Returns whether a value is between two steps.
    pub(super) fn mismatches(&self, value: f64) -> bool {
        let Some(step) = self.step else { return false };
        let distance = (value - self.base).abs();
        if !distance.is_finite() || distance / RATIO_MAX > step {
            return false;
        }
        let rest = (distance - step * (distance / step).round()).abs();
        self.error < rest && rest < step - self.error
    }

    /// Returns the value of a slider nearest to a number; without one, in the middle.
    pub(super) fn clamp(&self, value: Option<f64>) -> f64 {
        let (min, max) = (self.min.unwrap_or(0.0), self.max.unwrap_or(100.0));
        let inside = value.unwrap_or(min + (max - min) / 2.0).min(max).max(min);
        let Some(step) = self.step else { return inside };
        let rounded = self.base + ((inside - self.base) / step).round() * step;
        match rounded {
            rounded if rounded > max => rounded - step,
            rounded if rounded < min => rounded + step,
            rounded => rounded,
        }
    }

    /// Returns whether the range of a time goes over midnight: its end is before its beginning.
    pub(super) fn is_reversed(&self, kind: ControlKind) -> bool {
        kind == ControlKind::Time && self.min.zip(self.max).is_some_and(|(min, max)| max < min)
    }
}
