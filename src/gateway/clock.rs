//! The clock of the use cases.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// Returns the current time.
pub(super) fn now() -> DateTime<Utc> {
    Utc::now()
}

/// Converts a duration to milliseconds for records, rounded to microseconds.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}
