//! Times on pages: relative for reading, exact for whoever asks.

use std::fmt;

use askama::filters::Safe;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};

/// Seconds of a minute, an hour and a day.
const UNITS_S: [i64; 3] = [60, 3600, 86_400];

/// Time as a page shows it: relative to the time of the page, with the exact time in the element's `title`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    at: DateTime<Utc>,
    now: DateTime<Utc>,
}

impl Moment {
    /// Creates a moment for a page that is made at `now`.
    pub(super) fn new(at: DateTime<Utc>, now: DateTime<Utc>) -> Moment {
        Moment { at, now }
    }

    /// Returns the time itself.
    pub(super) fn at(self) -> DateTime<Utc> {
        self.at
    }

    /// Returns the time to the second.
    pub(super) fn exact(self) -> String {
        self.at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
    }

    /// Returns the element for a page. It holds digits and words of this file alone.
    pub(super) fn html(&self) -> Safe<Moment> {
        Safe(*self)
    }

    /// Returns the distance from now, such as `5 min ago` or `in 2 h`.
    fn relative(self) -> String {
        let apart = self.now - self.at;
        let [minute, hour, day] = UNITS_S;
        let is_future = apart < TimeDelta::zero();
        // what lasts 8 hours ends in 8 hours, also a moment later
        let of =
            |seconds: i64, unit: i64| if is_future { (seconds + unit / 2) / unit } else { seconds / unit };
        let distance = match apart.num_seconds().abs() {
            0 => return "now".to_owned(),
            seconds if seconds < minute => format!("{seconds} s"),
            seconds if of(seconds, minute) < 60 => format!("{} min", of(seconds, minute)),
            seconds if of(seconds, hour) < 24 => format!("{} h", of(seconds, hour)),
            seconds => format!("{} d", of(seconds, day)),
        };
        if is_future { format!("in {distance}") } else { format!("{distance} ago") }
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stamp = self.at.to_rfc3339_opts(SecondsFormat::Millis, true);
        write!(f, "<time datetime=\"{stamp}\" title=\"{}\">{}</time>", self.exact(), self.relative())
    }
}

/// Returns a duration in milliseconds as a page shows it.
pub(super) fn duration(ms: f64) -> String {
    match ms {
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms if ms < 59_950.0 => format!("{:.1} s", ms / 1000.0),
        ms => format!("{:.0} min", ms / 60_000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_relative_and_exact() {
        let now = DateTime::from_timestamp(1_769_860_800, 0).unwrap();
        for (seconds, shown) in [
            (0, "now"),
            (-1, "1 s ago"),
            (-59, "59 s ago"),
            (-60, "1 min ago"),
            (-3599, "59 min ago"),
            (-7200, "2 h ago"),
            (-86_400, "1 d ago"),
            (-8 * 86_400, "8 d ago"),
            (30, "in 30 s"),
            (3600, "in 1 h"),
        ] {
            let moment = Moment::new(now + TimeDelta::seconds(seconds), now);
            assert_eq!(moment.relative(), shown, "{seconds}");
        }
        assert_eq!(
            Moment::new(now, now).to_string(),
            "<time datetime=\"2026-01-31T12:00:00.000Z\" title=\"2026-01-31 12:00:00 UTC\">now</time>"
        );
    }

    #[test]
    fn durations_have_one_unit() {
        for (ms, shown) in [
            (0.04, "0.0 ms"),
            (9.94, "9.9 ms"),
            (10.4, "10 ms"),
            (999.4, "999 ms"),
            (999.6, "1.0 s"),
            (59_940.0, "59.9 s"),
            (60_000.0, "1 min"),
        ] {
            assert_eq!(duration(ms), shown, "{ms}");
        }
    }
}
