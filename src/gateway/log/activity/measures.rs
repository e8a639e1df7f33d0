//! What the log counts of what goes through it: every attempt passes here at its end.

use crate::domain::activity::{Record, Status};
use crate::domain::measure::{Count, Counts, Durations, Family, OTHER, OWN_BOUNDS_S, SeriesKey};
use crate::domain::refusal::Code;

/// What attempts are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempted {
    /// `type`
    pub kind: &'static str,
    /// `source`
    pub source: &'static str,
    /// `status`
    pub status: &'static str,
    /// `tier`, where a tool has one.
    pub tier: Option<&'static str>,
}

impl SeriesKey for Attempted {
    fn rest(self) -> Attempted {
        Attempted { kind: OTHER, source: OTHER, tier: None, ..self }
    }
}

/// What was counted.
#[derive(Debug)]
pub struct LogMeasures {
    /// Attempts that ended.
    pub attempts: Counts<Attempted>,
    /// Those that were refused or failed, by code.
    pub refusals: Counts<&'static str>,
    /// How long committing open records took, by batch.
    pub opened: Durations,
    /// How long committing ends took, by batch.
    pub closed: Durations,
    /// Records of which the database took only a stub.
    pub stubs: Count,
    /// Records that were lost.
    pub lost: Count,
    /// Attempts for which there was no room.
    pub no_room: Count,
}

impl Default for LogMeasures {
    fn default() -> LogMeasures {
        LogMeasures {
            attempts: Family::new(Count::default),
            refusals: Family::new(Count::default),
            opened: Durations::new(OWN_BOUNDS_S),
            closed: Durations::new(OWN_BOUNDS_S),
            stubs: Count::default(),
            lost: Count::default(),
            no_room: Count::default(),
        }
    }
}

impl LogMeasures {
    /// An attempt has ended like this.
    pub(super) fn ended(&self, record: &Record) {
        let attempted = Attempted {
            kind: record.kind.as_str(),
            source: record.source.as_str(),
            status: record.status.as_str(),
            tier: record.tier,
        };
        self.attempts.note(attempted, Count::one);
        let is_ours = matches!(record.status, Status::Blocked | Status::Rejected | Status::Error);
        if let Some(code) = record.error_code.as_deref().filter(|_| is_ours) {
            self.refusals.note(known(code), Count::one);
        }
    }
}

/// A code of the list: texts of records may be anybody's.
fn known(code: &str) -> &'static str {
    Code::ALL.into_iter().map(Code::as_str).find(|known| *known == code).unwrap_or(OTHER)
}
