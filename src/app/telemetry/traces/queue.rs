//! Bounded queue of the spans that wait to be sent, with shares of it.
//!
//! A caller that says that its trace is sampled has all its requests recorded. So that it cannot fill the queue, spans
//! that only callers want have a bounded share of it, and so has each tenant.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::domain::measure::Count;
use crate::domain::shares::{Amount, Shares, TENANT_PART};
use crate::domain::span::Span;
use crate::domain::trace::SpanId;
use crate::gateway::LostSpans;

/// Most spans in the queue; further ones are lost.
pub(super) const QUEUE_SPANS_MAX: usize = 8192;
/// Most bytes of the spans in the queue.
pub(super) const QUEUE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Most spans in the queue, and their size.
const CAPACITY: Amount = Amount { items: QUEUE_SPANS_MAX, bytes: QUEUE_BYTES_MAX };
/// Divisor of the queue for spans that are recorded only because a caller wants it: they take at most a half.
const FORCED_PART: usize = 2;
/// Divisor of the queue below which tenants need not keep to their share of a quarter: a half.
const ROOMY_PART: usize = 2;

/// Queue of spans, with the numbers of lost ones.
#[derive(Debug, Default)]
pub(super) struct Queue {
    places: Mutex<Places>,
    full: Count,
    over_share: Count,
    unsent: Count,
}

#[derive(Debug, Default)]
struct Places {
    tenants: Shares<Arc<str>>,
    forced: Amount,
    held: HashMap<SpanId, Place>,
}

/// Slot of a waiting span.
#[derive(Debug)]
struct Place {
    tenant: Arc<str>,
    is_forced: bool,
    bytes: usize,
}

impl Queue {
    /// Takes a slot for a span. Returns false if there is none: the span is lost.
    pub(super) fn enter(&self, span: &Span) -> bool {
        let lost = match self.places.lock().enter(span) {
            Ok(()) => return true,
            Err(lost) => lost,
        };
        match lost {
            Lost::Full => self.full.one(),
            Lost::OverShare => self.over_share.one(),
        }
        false
    }

    /// Frees the slots of spans that were sent, or could not be sent.
    pub(super) fn leave(&self, spans: impl Iterator<Item = SpanId>) {
        let mut places = self.places.lock();
        spans.for_each(|span| places.leave(span));
    }

    /// Counts spans that had a slot and could not be sent.
    pub(super) fn unsent(&self, spans: usize) {
        self.unsent.add(spans as u64);
    }

    /// Returns the numbers of spans lost so far.
    pub(super) fn lost(&self) -> LostSpans {
        let (full, over_share) = (self.full.get(), self.over_share.get());
        LostSpans { full, over_share, unsent: self.unsent.get() }
    }
}

/// Reason why there is no slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    Full,
    OverShare,
}

impl Places {
    fn enter(&mut self, span: &Span) -> Result<(), Lost> {
        let (id, bytes) = (span.context.span, span.bytes());
        let (all, more) = (self.tenants.all(), Amount::one(bytes));
        if !all.has_room(more, CAPACITY, 1) {
            return Err(Lost::Full);
        }
        // every span has a tenant: requests without a known one are not traced
        let tenant: Arc<str> = span.tenant().unwrap_or_default().into();
        let is_over = span.is_forced && !self.forced.has_room(more, CAPACITY, FORCED_PART);
        // while the queue is not half full, no tenant has to keep to its share
        let has_share = self.tenants.of(&tenant).has_room(more, CAPACITY, TENANT_PART)
            || all.has_room(more, CAPACITY, ROOMY_PART);
        if is_over || !has_share {
            return Err(Lost::OverShare);
        }
        self.tenants.take(Arc::clone(&tenant), more);
        if span.is_forced {
            self.forced.add(more);
        }
        // ids are random; if one occurs twice, the first span gives its slot to the second
        let place = Place { tenant, is_forced: span.is_forced, bytes };
        if let Some(before) = self.held.insert(id, place) {
            self.give_back(&before);
        }
        Ok(())
    }

    fn leave(&mut self, span: SpanId) {
        if let Some(place) = self.held.remove(&span) {
            self.give_back(&place);
        }
    }

    fn give_back(&mut self, place: &Place) {
        let amount = Amount::one(place.bytes);
        self.tenants.give_back(&place.tenant, amount);
        if place.is_forced {
            self.forced.subtract(amount);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::domain::span::{SpanKind, TENANT};
    use crate::domain::trace::TraceParent;

    fn span(number: usize, tenant: &str, is_forced: bool) -> Span {
        let id = (number as u64 + 1).to_be_bytes();
        let mut span = Span {
            context: TraceParent { trace: [1; 16], span: id, is_sampled: true },
            state: None,
            parent: None,
            is_parent_remote: false,
            is_forced,
            link: None,
            kind: SpanKind::Server,
            name: "ping".into(),
            start: SystemTime::UNIX_EPOCH,
            end: SystemTime::UNIX_EPOCH,
            attributes: Vec::new(),
            is_error: false,
        };
        span.set(TENANT, tenant.to_owned());
        span
    }

    /// Returns how many of `count` spans get a slot.
    fn enter(queue: &Queue, from: usize, count: usize, tenant: &str, is_forced: bool) -> usize {
        (from..from + count).filter(|number| queue.enter(&span(*number, tenant, is_forced))).count()
    }

    #[test]
    fn one_tenant_alone_has_a_half_and_gets_it_back() {
        let (queue, quarter) = (Queue::default(), QUEUE_SPANS_MAX / 4);
        assert_eq!(enter(&queue, 0, QUEUE_SPANS_MAX, "a", false), 2 * quarter);
        assert_eq!(queue.lost(), LostSpans { over_share: 2 * quarter as u64, ..LostSpans::default() });
        for (number, tenant) in ["b", "c"].into_iter().enumerate() {
            assert_eq!(enter(&queue, (number + 1) * 10_000, 2 * quarter, tenant, false), quarter, "{tenant}");
        }
        assert_eq!(enter(&queue, 50_000, 1, "e", false), 0);
        assert_eq!((queue.lost().full, queue.lost().over_share), (quarter as u64 + 1, 3 * quarter as u64));
        let ids = |count: u64| (1..=count).map(u64::to_be_bytes);
        queue.leave(ids(2));
        assert_eq!(enter(&queue, 60_000, 3, "a", false), 0, "it has more than its share");
        assert_eq!(enter(&queue, 60_000, 3, "e", false), 2);
        queue.leave(ids(70_000));
        let places = queue.places.lock();
        assert_eq!((places.tenants.all(), places.held.len()), (Amount::default(), 0));
    }

    #[test]
    fn what_only_callers_want_has_a_half_whoever_they_are() {
        let (queue, part) = (Queue::default(), QUEUE_SPANS_MAX / 8);
        let tenants = ["a", "b", "c", "d", "e"].into_iter().enumerate();
        let entered = tenants.map(|(at, tenant)| enter(&queue, at * 10_000, part, tenant, true));
        assert_eq!(entered.collect::<Vec<_>>(), [part, part, part, part, 0]);
        assert_eq!(enter(&queue, 60_000, part, "e", false), part, "what was to be recorded anyway");
        queue.leave((1..=70_000_u64).map(u64::to_be_bytes));
        assert_eq!(enter(&queue, 0, part, "e", true), part);
    }

    #[test]
    fn large_spans_take_more() {
        let queue = Queue::default();
        let large = |number| Span { state: Some("x".repeat(500_000)), ..span(number, "a", false) };
        let entered = (0..20).filter(|number| queue.enter(&large(*number))).count();
        assert_eq!(entered, QUEUE_BYTES_MAX / ROOMY_PART / large(0).bytes());
        assert!((1..20).contains(&entered), "{entered}");
        assert!(queue.enter(&span(20, "a", false)), "a small one finds a place");
        // the same id again
        let before = queue.places.lock().tenants.all().bytes;
        assert!(queue.enter(&span(20, "a", false)));
        assert_eq!(queue.places.lock().tenants.all().bytes, before);
    }
}
