//! A load with something beside it, compared with the same load without, in turns.

use crate::load::Slice;

/// Columns of a comparison, for whoever names the rest of its line.
pub const COLUMNS: [&str; 8] = [
    "p50 ms, baseline",
    "beside bad",
    "×",
    "p99 ms, baseline",
    "beside bad",
    "×",
    "× of the control",
    "must",
];
/// Largest difference between the 99th percentiles of two equal loads, as a part of one of them. A run with a larger one says
/// nothing about the bound.
const CONTROL_MAX: f64 = 0.05;

/// Slices of one load, by what ran beside it.
#[derive(Clone, Default)]
pub struct Compared {
    /// Beside what it is compared with.
    pub baseline: Slice,
    /// Beside the same once more, where that was measured: how much two equal loads differ.
    pub control: Slice,
    /// Beside what is measured.
    pub bad: Slice,
}

impl Compared {
    /// Returns the cells of [`COLUMNS`], with the verdict on the most that the 99th percentile may be multiplied by.
    pub fn cells(&mut self, most: f64) -> Vec<String> {
        for slice in [&mut self.baseline, &mut self.control, &mut self.bad] {
            slice.latencies.sort_unstable();
        }
        let mut cells = Vec::new();
        for quantile in [0.5, 0.99] {
            let (baseline, bad) = (self.baseline.ms(quantile), self.bad.ms(quantile));
            cells.extend([format!("{baseline:.3}"), format!("{bad:.3}"), format!("{:.2}", bad / baseline)]);
        }
        let baseline = self.baseline.ms(0.99);
        let is_controlled = !self.control.latencies.is_empty();
        let control = is_controlled.then(|| self.control.ms(0.99) / baseline);
        cells.push(control.map(|control| format!("{control:.2}")).unwrap_or_default());
        let is_void = control.is_some_and(|control| (control - 1.0).abs() > CONTROL_MAX);
        cells.push(must(self.bad.ms(0.99) / baseline, most, "p99", "×", is_void));
        cells
    }
}

/// Word in the verdict on a bound that does not hold.
const MISSED: &str = "**missed**";
/// Word in the verdict of a run whose control differs too much.
const VOID: &str = "**void**, the control differs";

/// Returns a bound with the verdict on it.
pub fn must(value: f64, most: f64, what: &str, unit: &str, is_void: bool) -> String {
    let verdict = match () {
        () if is_void => VOID,
        // also what could not be measured
        () if value.is_nan() || value > most => MISSED,
        () => "met",
    };
    format!("{what} ≤ {most}{unit}: {verdict}").trim_start().to_owned()
}

/// Returns whether a report holds a verdict other than "met".
pub fn is_missed(report: &str) -> bool {
    report.contains(MISSED) || report.contains(VOID)
}

/// Returns the order in which the slices of a turn are run: none always comes first, or always after the same one.
pub fn order(turn: usize, slices: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..slices).map(|place| (place + turn / 2) % slices).collect();
    if turn % 2 == 1 {
        order.reverse();
    }
    order
}
