//! Counters and histograms, which many threads add to at once without a lock. The names of the metrics are given
//! elsewhere.

mod operation;

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::text_enum::TextEnum;

pub use self::operation::{
    Between, Measures, OTHER, OperationKey, TOOL_ERROR, Transport, code_name, known_method, known_version,
};

/// Bounds of operations between MCP clients and servers, in seconds (OpenTelemetry's conventions for MCP).
pub const OPERATION_BOUNDS_S: &[f64] =
    &[0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];
/// Bounds of the gateway's own work, in seconds; finer, as it should take far less time than an operation.
pub const OWN_BOUNDS_S: &[f64] =
    &[0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Bounds of the time that people take, in seconds: up to the longest time that an ask stays open, a day.
pub const PERSON_BOUNDS_S: &[f64] =
    &[1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 14400.0, 43200.0, 86400.0];
/// Most series of one family. Keys are made of closed lists; this bound holds if one is not.
const SERIES_MAX: usize = 1000;

/// Counter of events.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds one.
    pub fn one(&self) {
        self.add(1);
    }

    /// Adds `more`.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    /// Returns the current count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Histogram of durations.
#[derive(Debug)]
pub struct Durations {
    bounds_s: &'static [f64],
    /// Counts per bucket: one for each bound, and one for durations above all bounds.
    counts: Box<[AtomicU64]>,
    sum_ns: AtomicU64,
}

/// Snapshot of a histogram.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Sum of all durations, in seconds.
    pub sum_s: f64,
    /// Number of durations.
    pub count: u64,
    /// Upper bound in seconds and count of each bucket, not cumulative; the last bound is `f64::MAX`.
    pub buckets: Vec<(f64, u64)>,
}

impl Durations {
    /// Creates an empty histogram with these upper bounds, ascending, in seconds.
    pub fn new(bounds_s: &'static [f64]) -> Durations {
        let counts = (0..=bounds_s.len()).map(|_| AtomicU64::new(0)).collect();
        Durations { bounds_s, counts, sum_ns: AtomicU64::new(0) }
    }

    /// Adds one duration.
    pub fn observe(&self, took: Duration) {
        let took_s = took.as_secs_f64();
        let place = self.bounds_s.partition_point(|bound| *bound < took_s);
        if let Some(count) = self.counts.get(place) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        let took_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(took_ns, Ordering::Relaxed);
    }

    /// Takes a snapshot. Durations that are added meanwhile may be in it, also in part.
    pub fn seen(&self) -> Seen {
        let counts = self.counts.iter().map(|count| count.load(Ordering::Relaxed));
        let bounds = self.bounds_s.iter().copied().chain([f64::MAX]);
        let buckets: Vec<(f64, u64)> = bounds.zip(counts).collect();
        Seen {
            sum_s: self.sum_ns.load(Ordering::Relaxed) as f64 / 1e9,
            count: buckets.iter().map(|(_, count)| count).sum(),
            buckets,
        }
    }
}

/// Key that tells the series of a family apart: a few values, each from a closed list.
pub trait SeriesKey: Copy + Eq + Hash {
    /// Returns the key that is used instead of this one when the family has too many series.
    fn rest(self) -> Self;
}

/// Family of counters or histograms, by key. A known key costs one map lookup, a key beyond the bound two. A new key
/// copies the map.
#[derive(Debug)]
pub struct Family<K, V> {
    fresh: fn() -> V,
    by_key: ArcSwap<HashMap<K, Arc<V>>>,
}

/// Histograms by key.
pub type Series<K> = Family<K, Durations>;
/// Counters by key.
pub type Counts<K> = Family<K, Count>;

impl<K: SeriesKey, V> Family<K, V> {
    /// Creates an empty family; `fresh` makes the measure of a new key.
    pub fn new(fresh: fn() -> V) -> Family<K, V> {
        Family { fresh, by_key: ArcSwap::default() }
    }

    /// Calls `note` with the measure of a key, which is created on first use.
    pub fn note(&self, key: K, note: impl FnOnce(&V)) {
        match self.by_key.load().get(&key) {
            Some(known) => note(known),
            None => note(&self.enter(key)),
        }
    }

    fn enter(&self, key: K) -> Arc<V> {
        let known = self.by_key.load();
        let key = if known.len() < SERIES_MAX { key } else { key.rest() };
        if let Some(known) = known.get(&key) {
            return Arc::clone(known);
        }
        let fresh = Arc::new((self.fresh)());
        self.by_key.rcu(|known| {
            let mut known = HashMap::clone(known);
            known.entry(key).or_insert_with(|| Arc::clone(&fresh));
            known
        });
        self.by_key.load().get(&key).map_or(fresh, Arc::clone)
    }

    /// Returns all keys so far, with their measures.
    pub fn all(&self) -> Vec<(K, Arc<V>)> {
        self.by_key.load().iter().map(|(key, value)| (*key, Arc::clone(value))).collect()
    }
}

impl<K: SeriesKey> Series<K> {
    /// Creates an empty family with the bounds of MCP operations.
    pub fn of_operations() -> Series<K> {
        Family::new(|| Durations::new(OPERATION_BOUNDS_S))
    }

    /// Creates an empty family with the bounds of the gateway's own work.
    pub fn of_own() -> Series<K> {
        Family::new(|| Durations::new(OWN_BOUNDS_S))
    }

    /// Adds one duration to the histogram of a key.
    pub fn observe(&self, key: K, took: Duration) {
        self.note(key, |durations| durations.observe(took));
    }
}

/// Value from a closed list; `None` for all others.
impl<T: TextEnum + Eq + Hash> SeriesKey for Option<T> {
    fn rest(self) -> Self {
        None
    }
}

/// Text from a closed list.
impl SeriesKey for &'static str {
    fn rest(self) -> Self {
        OTHER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl SeriesKey for u32 {
        fn rest(self) -> u32 {
            u32::MAX
        }
    }

    #[test]
    fn durations_fall_between_bounds() {
        let durations = Durations::new(&[0.01, 0.1]);
        for ms in [1, 10, 11, 100, 101] {
            durations.observe(Duration::from_millis(ms));
        }
        let seen = durations.seen();
        assert_eq!(seen.buckets, [(0.01, 2), (0.1, 2), (f64::MAX, 1)]);
        assert_eq!((seen.count, seen.sum_s), (5, 0.223));
    }

    #[test]
    fn series_have_a_bound_and_lose_nothing() {
        let series: Series<u32> = Series::of_own();
        for key in 0..3000 {
            series.observe(key, Duration::ZERO);
        }
        let all = series.all();
        assert_eq!(all.len(), SERIES_MAX + 1);
        assert_eq!(all.iter().map(|(_, durations)| durations.seen().count).sum::<u64>(), 3000);
        // a key beyond the bound does not copy the map
        let before = series.by_key.load_full();
        series.observe(5000, Duration::ZERO);
        assert!(Arc::ptr_eq(&before, &series.by_key.load_full()));
        assert_eq!(before[&u32::MAX].seen().count, 2001);
    }

    #[test]
    fn many_threads_count_together() {
        let series: Arc<Series<u32>> = Arc::new(Series::of_own());
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let series = Arc::clone(&series);
                std::thread::spawn(move || {
                    (0..1000).for_each(|n| series.observe(n % 50, Duration::from_secs(1)));
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let all = series.all();
        assert_eq!(all.len(), 50);
        for (_, durations) in all {
            let Seen { sum_s, count, .. } = durations.seen();
            assert_eq!((sum_s, count), (80.0, 80));
        }
    }
}
