//! Real time, for this floor.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// Now.
pub(super) fn now() -> DateTime<Utc> {
    Utc::now()
}

/// A span of time as records have it: in milliseconds, to the microsecond.
pub(super) fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}
