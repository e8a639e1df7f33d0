//! A load with something beside it, compared with the same load without, in turns.

use crate::load::Slice;

/// Columns of a comparison, for whoever names the rest of its line.
pub const COLUMNS: [&str; 7] =
    ["p50 ms, baseline", "beside bad", "×", "p99 ms, baseline", "beside bad", "×", "× of the control"];

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
    /// Returns the ratio of the two 99th percentiles, and the cells of [`COLUMNS`].
    pub fn cells(&mut self) -> (f64, Vec<String>) {
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
        let control = is_controlled.then(|| format!("{:.2}", self.control.ms(0.99) / baseline));
        cells.push(control.unwrap_or_default());
        (self.bad.ms(0.99) / baseline, cells)
    }
}

/// Returns the order in which the slices of a turn are run: none always comes first, or always after the same one.
pub fn order(turn: usize, slices: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..slices).map(|place| (place + turn / 2) % slices).collect();
    if turn % 2 == 1 {
        order.reverse();
    }
    order
}
