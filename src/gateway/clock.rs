//! Real time, for this floor.

use chrono::{DateTime, Utc};

/// Now.
pub(super) fn now() -> DateTime<Utc> {
    Utc::now()
}
