//! Metrics of permission requests: how many wait for a person, how they end, and how long people take.

use std::collections::HashMap;

use chrono::TimeDelta;
use parking_lot::Mutex;

use crate::domain::consent::{ConsentState, DecidedVia};
use crate::domain::id::TenantId;
use crate::domain::measure::{Count, Counts, Durations, Family, PERSON_BOUNDS_S, Series, SeriesKey};

/// States in which a request ends without a person.
const UNDECIDED: [ConsentState; 2] = [ConsentState::TimedOut, ConsentState::Lapsed];
/// States that a person decides for.
const DECIDED: [ConsentState; 3] = [ConsentState::Granted, ConsentState::Denied, ConsentState::Cancelled];

/// Labels of a request that was decided, or that has ended without a person.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConsentEnd {
    /// State of the request then.
    pub state: ConsentState,
    /// Way of the decision; `None` if time or a changed tool ended the request.
    pub via: Option<DecidedVia>,
}

impl SeriesKey for ConsentEnd {
    fn rest(self) -> ConsentEnd {
        self
    }
}

impl SeriesKey for DecidedVia {
    fn rest(self) -> DecidedVia {
        self
    }
}

/// Counters and histograms of permission requests. All series are there from the start.
#[derive(Debug)]
pub struct ConsentMeasures {
    /// Decisions, and ends without one.
    pub ends: Counts<ConsentEnd>,
    /// Time from the ask to the decision of a person.
    pub waits: Series<DecidedVia>,
    /// Requests that wait, by tenant, as of the last count; `None` before the first one.
    pending: Mutex<Option<HashMap<TenantId, i64>>>,
}

impl Default for ConsentMeasures {
    fn default() -> ConsentMeasures {
        let (ends, waits) = (Counts::new(Count::default), Family::new(|| Durations::new(PERSON_BOUNDS_S)));
        for state in UNDECIDED {
            ends.note(ConsentEnd { state, via: None }, |_| ());
        }
        for via in DecidedVia::ALL {
            waits.note(via, |_| ());
            for state in DECIDED {
                ends.note(ConsentEnd { state, via: Some(via) }, |_| ());
            }
        }
        ConsentMeasures { ends, waits, pending: Mutex::default() }
    }
}

impl ConsentMeasures {
    /// Counts the decision of a person, made `after` the ask, and the requests that it cancelled along with its own.
    pub(super) fn decided(
        &self,
        state: ConsentState,
        via: DecidedVia,
        after: TimeDelta,
        also_cancelled: u64,
    ) {
        let via_it = |state| ConsentEnd { state, via: Some(via) };
        self.ends.note(via_it(state), Count::one);
        self.also_cancelled(via, also_cancelled);
        self.waits.observe(via, after.to_std().unwrap_or_default());
    }

    /// Counts requests that ended with their turn.
    pub(super) fn also_cancelled(&self, via: DecidedVia, requests: u64) {
        let end = ConsentEnd { state: ConsentState::Cancelled, via: Some(via) };
        self.ends.note(end, |count| count.add(requests));
    }

    /// Counts a request that has ended without a person.
    pub(super) fn ended(&self, state: ConsentState) {
        if UNDECIDED.contains(&state) {
            self.ends.note(ConsentEnd { state, via: None }, Count::one);
        }
    }

    /// Notes how many requests wait, by tenant.
    pub(super) fn counted(&self, pending: Vec<(TenantId, i64)>) {
        *self.pending.lock() = Some(pending.into_iter().collect());
    }

    /// Returns how many requests of all tenants wait, as of the last count; `None` before the first one.
    pub fn pending(&self) -> Option<i64> {
        self.pending.lock().as_ref().map(|by_tenant| by_tenant.values().sum())
    }

    /// Returns how many requests of one tenant wait, as of the last count; `None` before the first one.
    pub(super) fn pending_of(&self, tenant: TenantId) -> Option<i64> {
        self.pending.lock().as_ref().map(|by_tenant| by_tenant.get(&tenant).copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ends_without_a_person_count_as_such() {
        let measures = ConsentMeasures::default();
        let series = measures.ends.all().len();
        for state in ConsentState::ALL {
            measures.ended(state);
        }
        measures.decided(ConsentState::Cancelled, DecidedVia::Rest, TimeDelta::seconds(90), 3);
        measures.decided(ConsentState::Granted, DecidedVia::Cli, TimeDelta::seconds(-1), 0);
        let count = |state, via| {
            let all = measures.ends.all();
            all.iter().find(|(key, _)| *key == ConsentEnd { state, via }).map(|(_, count)| count.get())
        };
        assert_eq!(count(ConsentState::TimedOut, None), Some(1));
        assert_eq!(count(ConsentState::Lapsed, None), Some(1));
        assert_eq!(count(ConsentState::Cancelled, Some(DecidedVia::Rest)), Some(4));
        assert_eq!(count(ConsentState::Granted, Some(DecidedVia::Cli)), Some(1));
        assert_eq!(measures.ends.all().len(), series, "all series are there from the start");
        let waits: Vec<f64> = measures.waits.all().iter().map(|(_, took)| took.seen().sum_s).collect();
        assert_eq!(waits.iter().sum::<f64>(), 90.0);
    }

    #[test]
    fn tenants_are_counted_apart() {
        let (one, other) = (TenantId(uuid::Uuid::from_u128(1)), TenantId(uuid::Uuid::from_u128(2)));
        let measures = ConsentMeasures::default();
        assert_eq!((measures.pending(), measures.pending_of(one)), (None, None));
        measures.counted(vec![(one, 3), (TenantId(uuid::Uuid::from_u128(3)), 4)]);
        assert_eq!((measures.pending(), measures.pending_of(one)), (Some(7), Some(3)));
        assert_eq!(measures.pending_of(other), Some(0));
    }
}
