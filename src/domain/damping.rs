//! Damping of servers and tools that come and go (behaviour, section 6). Two returns within a minute are let in at once;
//! further ones wait, with a backoff. Departures never wait. The time is a parameter.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};

use super::backoff::doubled;
use super::redact;

/// Window of the damping: the third return within it is held back. The history is forgotten after such a time without a
/// return.
const LATELY: Duration = Duration::from_secs(60);
/// Hold of the first return that waits; it doubles with each further one.
const HOLD_MIN: Duration = Duration::from_secs(5);
/// Longest hold of a return.
pub const HOLD_MAX: Duration = Duration::from_secs(60);
/// Longest note about tools that are held back, in bytes.
const NOTE_BYTES_MAX: usize = 500;

/// Recent returns of a server, or of tools of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Damping {
    /// Time of the last return that was let in; `None` before the first.
    pub returned_at: Option<DateTime<Utc>>,
    /// Time of the return that was let in before [`Self::returned_at`].
    pub returned_before: Option<DateTime<Utc>>,
    /// Number of holds in a row, the exponent of the backoff.
    pub holds: u32,
    /// End of the current hold; `None` when there is none.
    pub held_until: Option<DateTime<Utc>>,
}

/// Decision on a return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Return {
    /// Let in now.
    Now,
    /// Held back until this time, for every attempt before it.
    HeldUntil(DateTime<Utc>),
}

impl Damping {
    /// Decides on a return at `now`. After the end of a hold, the next call lets the return in.
    pub fn comes_back(&mut self, now: DateTime<Utc>) -> Return {
        if let Some(until) = self.held_until {
            let left = until.signed_duration_since(now);
            match left.to_std() {
                // a clock that was set back must not hold it for days
                Ok(left) if !left.is_zero() && left <= HOLD_MAX => return Return::HeldUntil(until),
                Err(_) if left.abs().to_std().is_ok_and(|over| over >= LATELY) => *self = Damping::default(),
                _ => return self.let_in(now),
            }
        }
        let is_late = |at: Option<DateTime<Utc>>| {
            at.and_then(|at| now.signed_duration_since(at).to_std().ok()).is_some_and(|since| since < LATELY)
        };
        if !is_late(self.returned_at) {
            self.holds = 0;
        }
        if self.holds == 0 && !is_late(self.returned_before) {
            return self.let_in(now);
        }
        let hold = doubled(HOLD_MIN, HOLD_MAX, self.holds);
        self.holds = self.holds.saturating_add(1);
        self.held_until = Some(now + hold);
        Return::HeldUntil(now + hold)
    }

    fn let_in(&mut self, now: DateTime<Utc>) -> Return {
        *self = Damping {
            returned_at: Some(now),
            returned_before: self.returned_at,
            holds: self.holds,
            held_until: None,
        };
        Return::Now
    }
}

/// Returns the note about a server that is held back.
pub fn server_note(until: DateTime<Utc>) -> String {
    format!("it answers, but comes and goes: held back until {} (refresh lets it in)", shown(until))
}

/// Returns the note about tools that are held back, at most 500 bytes.
pub fn tools_note(until: DateTime<Utc>, tools: &[&str]) -> String {
    let which = if tools.len() == 1 {
        "1 tool comes and goes".to_owned()
    } else {
        format!("{} tools come and go", tools.len())
    };
    let text = format!("{which}: held back until {} (refresh lets in): {}", shown(until), tools.join(", "));
    redact::preview(&text, NOTE_BYTES_MAX).text
}

fn shown(until: DateTime<Utc>) -> String {
    until.to_rfc3339_opts(SecondsFormat::Secs, true)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + seconds)
    }

    /// Returns the decisions on returns at these seconds: 0 for one that is let in, else the second until which it waits.
    fn returns(seconds: &[u64]) -> Vec<u64> {
        let mut damping = Damping::default();
        let one = |second: &u64| match damping.comes_back(at(*second)) {
            Return::Now => 0,
            Return::HeldUntil(until) => until.signed_duration_since(at(0)).num_seconds().unsigned_abs(),
        };
        seconds.iter().map(one).collect()
    }

    #[test]
    fn from_the_third_within_a_minute_on_returns_wait_twice_as_long_each_time() {
        for (seconds, expected) in [
            (vec![0, 1], vec![0, 0]),
            (vec![0, 1, 2, 3, 6], vec![0, 0, 7, 7, 7]),
            // a held return is let in after its hold; the next hold is twice as long
            (vec![0, 1, 2, 7, 8, 17, 18, 19], vec![0, 0, 7, 0, 18, 18, 0, 39]),
            (
                vec![0, 1, 2, 7, 8, 18, 19, 39, 40, 80, 81, 141, 142],
                vec![0, 0, 7, 0, 18, 0, 39, 0, 80, 0, 141, 0, 202],
            ),
            // three, but not within a minute
            (vec![0, 50, 61, 62], vec![0, 0, 0, 67]),
            // a minute without returns, and the history is forgotten
            (vec![0, 1, 2, 7, 8, 18, 78, 79, 80], vec![0, 0, 7, 0, 18, 0, 0, 0, 85]),
            // no attempt at the end of the hold, nor for long after
            (vec![0, 1, 2, 500, 501, 502], vec![0, 0, 7, 0, 0, 507]),
        ] {
            assert_eq!(returns(&seconds), expected, "{seconds:?}");
        }
    }

    #[test]
    fn a_clock_that_was_set_back_holds_nothing_for_longer_than_ever() {
        let mut damping = Damping { held_until: Some(at(5000)), holds: 4, ..Damping::default() };
        assert_eq!(damping.comes_back(at(5000 - 61)), Return::Now);
        let mut damping =
            Damping { returned_at: Some(at(9)), returned_before: Some(at(9)), ..Damping::default() };
        assert_eq!(damping.comes_back(at(0)), Return::Now);
    }

    #[test]
    fn notes_are_short_and_say_until_when() {
        assert!(
            server_note(at(0)).contains("held back until 1970-01-12T13:46:40Z"),
            "{}",
            server_note(at(0))
        );
        assert!(tools_note(at(0), &["a"]).starts_with("1 tool comes and goes"));
        assert!(tools_note(at(0), &["a", "b"]).ends_with(": a, b"));
        assert!(tools_note(at(0), &["x".repeat(9999).as_str()]).len() <= 2 * NOTE_BYTES_MAX);
    }

    proptest! {
        /// Checks attempts at any times: no return waits longer than the bound, and at most five per minute are let in.
        #[test]
        fn few_are_let_in_and_all_in_the_end(pauses in prop::collection::vec(0_u64..70, 1..200)) {
            let (mut damping, mut now, mut let_in) = (Damping::default(), 0, Vec::new());
            for pause in pauses {
                now += pause;
                match damping.comes_back(at(now)) {
                    Return::Now => let_in.push(now),
                    Return::HeldUntil(until) => {
                        prop_assert!(until > at(now) && until <= at(now) + HOLD_MAX);
                        let mut later = damping;
                        prop_assert_eq!(later.comes_back(until), Return::Now);
                    }
                }
            }
            for (first, sixth) in let_in.iter().zip(let_in.iter().skip(5)) {
                prop_assert!(sixth - first >= 60, "{let_in:?}");
            }
        }
    }
}
