//! Metrics of the activity log: every attempt is counted at its end.

use crate::domain::activity::{Record, Status};
use crate::domain::annotations::Tier;
use crate::domain::measure::{Count, Counts, Durations, Family, OTHER, OWN_BOUNDS_S, SeriesKey};
use crate::domain::refusal::Code;

/// Labels of an ended attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attempted {
    /// `type`
    pub kind: &'static str,
    /// `source`
    pub source: &'static str,
    /// `status`
    pub status: &'static str,
    /// `tier`; `None` if no tool was found.
    pub tier: Option<&'static str>,
}

impl SeriesKey for Attempted {
    fn rest(self) -> Attempted {
        Attempted { kind: OTHER, source: OTHER, tier: None, ..self }
    }
}

/// Counters and histograms of the activity log.
#[derive(Debug)]
pub struct LogMeasures {
    /// Attempts that ended.
    pub attempts: Counts<Attempted>,
    /// Attempts that were refused or failed, by error code; `None` for any other code.
    pub refusals: Counts<Option<Code>>,
    /// Time to commit a batch of open records.
    pub opened: Durations,
    /// Time to commit a batch of ends.
    pub closed: Durations,
    /// Records stored as a stub, because the database refused the original.
    pub stubs: Count,
    /// Records that were lost.
    pub lost: Count,
    /// Attempts refused because the log's queue was full.
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
    /// Counts an attempt that has ended.
    pub(super) fn ended(&self, record: &Record) {
        let attempted = Attempted {
            kind: record.kind.as_str(),
            source: record.source.as_str(),
            status: record.status.as_str(),
            tier: record.tier.map(Tier::as_str),
        };
        self.attempts.note(attempted, Count::one);
        let is_ours = matches!(record.status, Status::Blocked | Status::Rejected | Status::Error);
        if let Some(code) = record.error_code.as_deref().filter(|_| is_ours) {
            // texts of records may be anybody's
            self.refusals.note(Code::parse(code), Count::one);
        }
    }
}
