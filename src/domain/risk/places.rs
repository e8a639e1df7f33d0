//! Places in the arguments of a call that raise its risk, for the person who decides.

use std::borrow::Cow;

use super::arguments::{SignalSink, scan};
use super::{RiskSignal, Signals, names};

/// Most characters of an excerpt before the place, and behind it.
const AROUND_CHARS_MAX: usize = 24;
/// Length of the longest mark of a character, in bytes.
const MARK_BYTES_MAX: usize = 10;
/// Length of the longest escape of JSON, in bytes.
const ESCAPE_BYTES_MAX: usize = 6;

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

/// Returns the first place of each signal in the masked arguments of a tool, of which `is_cut` says whether they are the beginning of longer ones.
/// Arguments that are no JSON any more, since something was masked, are looked at as far as they can be read.
pub fn risk_places(canonical: &str, arguments: &str, is_cut: bool) -> Vec<RiskPlace> {
    let mut places = Places::default();
    let closed = if is_cut { Cow::Owned(closed(arguments)) } else { Cow::Borrowed(arguments) };
    scan(&closed, names::runs_commands(canonical), &mut places);
    places.found
}

/// Returns the beginning of a JSON text, in which a string may have been cut, with the end of that string.
fn closed(text: &str) -> String {
    let open = text.rfind('\\').filter(|at| text.len() - at < ESCAPE_BYTES_MAX);
    let whole = open.and_then(|at| text.get(..at)).unwrap_or(text).trim_end_matches('\\');
    format!("{whole}\"")
}

#[derive(Default)]
struct Places {
    found: Vec<RiskPlace>,
    signals: Signals,
    member: String,
    text: String,
}

impl SignalSink for Places {
    fn text(&mut self, member: &str, text: &str) {
        member.clone_into(&mut self.member);
        text.clone_into(&mut self.text);
    }

    fn signal(&mut self, signal: RiskSignal, at: usize) {
        if self.signals.has(signal) || is_of_mark(&self.text, at) {
            return;
        }
        self.signals.add(signal);
        let excerpt = around(&self.text, at);
        self.found.push(RiskPlace { signal, member: self.member.clone(), excerpt });
    }
}

/// Returns whether a byte is that of a mark such as `<U+202E>`, which stands for a character of the arguments.
fn is_of_mark(text: &str, at: usize) -> bool {
    let from = text.floor_char_boundary(at.saturating_sub(MARK_BYTES_MAX));
    let to = text.floor_char_boundary(at + MARK_BYTES_MAX);
    let around = text.get(from..to).unwrap_or_default();
    around.match_indices("<U+").any(|(start, _)| {
        let rest = around.get(start + 3..).unwrap_or_default();
        let Some((digits, _)) = rest.split_once('>') else { return false };
        let mark = from + start..=from + start + 3 + digits.len();
        digits.bytes().all(|digit| digit.is_ascii_hexdigit()) && mark.contains(&at)
    })
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
