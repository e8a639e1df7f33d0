//! Places in the arguments of a call that raise its risk, for the person who decides.

use super::arguments::{Finds, scan};
use super::{RiskSignal, Signals, names};

/// Most characters of an excerpt before the place, and behind it.
const AROUND_CHARS_MAX: usize = 24;

/// Place in the arguments that raises a risk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RiskPlace {
    /// Signal that is there.
    pub signal: RiskSignal,
    /// Name of the member that holds it.
    pub member: String,
    /// Text around it; empty where the member itself is the signal.
    pub excerpt: String,
}

/// Returns the first place of each signal in the arguments of a tool. Arguments that are cut are looked at as far as they go.
pub fn risk_places(canonical: &str, arguments: &str) -> Vec<RiskPlace> {
    let mut places = Places::default();
    scan(arguments, names::runs_commands(canonical), &mut places);
    places.found
}

#[derive(Default)]
struct Places {
    found: Vec<RiskPlace>,
    signals: Signals,
    member: String,
    text: String,
}

impl Finds for Places {
    fn reads(&mut self, member: &str, text: &str) {
        member.clone_into(&mut self.member);
        text.clone_into(&mut self.text);
    }

    fn finds(&mut self, signal: RiskSignal, at: usize) {
        if self.signals.has(signal) {
            return;
        }
        self.signals.add(signal);
        let excerpt = around(&self.text, at);
        self.found.push(RiskPlace { signal, member: self.member.clone(), excerpt });
    }
}

/// Returns the text around a byte, with a mark at each end that is cut.
fn around(text: &str, at: usize) -> String {
    let (before, behind) = text.split_at(text.floor_char_boundary(at));
    let start = before.char_indices().rev().nth(AROUND_CHARS_MAX - 1).map_or(0, |(start, _)| start);
    let end = behind.char_indices().nth(AROUND_CHARS_MAX).map_or(behind.len(), |(end, _)| end);
    let [from, to] = [start > 0, end < behind.len()].map(|is_cut| if is_cut { "…" } else { "" });
    let shown = (before.get(start..).unwrap_or_default(), behind.get(..end).unwrap_or_default());
    format!("{from}{}{}{to}", shown.0, shown.1)
}
