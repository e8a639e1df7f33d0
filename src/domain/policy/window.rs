//! Times of the week in which a rule holds.

use chrono::{DateTime, Datelike, TimeDelta, Timelike, Utc};

/// Days as rules spell them, from Monday.
pub(super) const DAYS: [&str; 7] = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"];
const MINUTES_OF_A_DAY: u32 = 24 * 60;
/// Largest distance from UTC, in minutes.
const OFFSET_MIN_MAX: i64 = 14 * 60;

/// Times of the week, at a fixed distance from UTC. A window that ends before it begins goes on into the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeWindow {
    /// Days on which the window begins, a bit for each.
    pub(super) days: u8,
    /// First minute of the day.
    pub(super) from_min: u32,
    /// First minute that is outside again.
    pub(super) to_min: u32,
    /// Distance of the local time from UTC, in minutes, positive to the east.
    pub(super) offset_min: i64,
}

impl TimeWindow {
    /// Every minute of every day.
    pub(super) const ALWAYS: TimeWindow =
        TimeWindow { days: 0x7f, from_min: 0, to_min: MINUTES_OF_A_DAY, offset_min: 0 };

    /// Returns whether the window is open at `at`.
    pub(super) fn contains(&self, at: DateTime<Utc>) -> bool {
        let Some(local) = at.checked_add_signed(TimeDelta::minutes(self.offset_min)) else { return false };
        let minute = local.hour() * 60 + local.minute();
        let today = local.weekday().num_days_from_monday();
        let begins_on = |day: u32| self.days >> (day % 7) & 1 == 1;
        if self.from_min < self.to_min {
            return begins_on(today) && (self.from_min..self.to_min).contains(&minute);
        }
        (begins_on(today) && minute >= self.from_min) || (begins_on(today + 6) && minute < self.to_min)
    }
}

/// Reads `08:30`; `24:00` is the end of a day.
pub(super) fn minute(text: &str) -> Option<u32> {
    let (hour, minute) = text.split_once(':')?;
    let two = |part: &str| {
        (part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit())).then(|| part.parse().ok())?
    };
    let (hour, minute): (u32, u32) = (two(hour)?, two(minute)?);
    let all = hour * 60 + minute;
    (minute < 60 && all <= MINUTES_OF_A_DAY).then_some(all)
}

/// Reads `+02:00`, a distance from UTC, in minutes.
pub(super) fn offset(text: &str) -> Option<i64> {
    let (sign, rest) = match text.split_at_checked(1)? {
        ("+", rest) => (1, rest),
        ("-", rest) => (-1, rest),
        _ => return None,
    };
    let all = i64::from(minute(rest)?);
    (all <= OFFSET_MIN_MAX).then_some(sign * all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn windows_open_and_close() {
        let work = TimeWindow { days: 0b1_1111, from_min: 8 * 60, to_min: 18 * 60, offset_min: 120 };
        // 24 November 2026 is a Tuesday
        for (time, expected) in [
            ("2026-11-24T05:59:59Z", false),
            ("2026-11-24T06:00:00Z", true),
            ("2026-11-24T15:59:59Z", true),
            ("2026-11-24T16:00:00Z", false),
            ("2026-11-28T10:00:00Z", false),
        ] {
            assert_eq!(work.contains(at(time)), expected, "{time}");
        }
        let night = TimeWindow { days: 0b0_0010, from_min: 22 * 60, to_min: 6 * 60, offset_min: 0 };
        for (time, expected) in [
            ("2026-11-24T21:59:00Z", false),
            ("2026-11-24T22:00:00Z", true),
            ("2026-11-25T05:59:00Z", true),
            ("2026-11-25T06:00:00Z", false),
            ("2026-11-24T05:00:00Z", false),
        ] {
            assert_eq!(night.contains(at(time)), expected, "{time}");
        }
        assert!(TimeWindow::ALWAYS.contains(at("2026-11-24T23:59:59Z")));
        assert!(!TimeWindow { offset_min: 1, ..TimeWindow::ALWAYS }.contains(DateTime::<Utc>::MAX_UTC));
    }

    #[test]
    fn times_are_exact() {
        assert_eq!([minute("00:00"), minute("08:30"), minute("24:00")], [Some(0), Some(510), Some(1440)]);
        for wrong in ["8:30", "08:60", "24:01", "+8:30", "08", "08:3a", ""] {
            assert_eq!(minute(wrong), None, "{wrong}");
        }
        assert_eq!([offset("+02:00"), offset("-05:30")], [Some(120), Some(-330)]);
        for wrong in ["02:00", "+15:00", "Z", "", "é1:00"] {
            assert_eq!(offset(wrong), None, "{wrong}");
        }
    }
}
