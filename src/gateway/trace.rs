//! Traces: which trace a request belongs to, what it hands on to upstreams, and the spans that are told of it.
//!
//! Whether a request is recorded is decided before anything is built for it: whoever sent it decides, and else chance.
//! What is not recorded has no span, and hands on that it is not.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use crate::domain::end::End;
use crate::domain::json;
use crate::domain::span::{Span, SpanKind};
use crate::domain::trace::{Incoming, SpanId, TraceId, TraceParent};

/// Members of `_meta` that say which trace a request belongs to (SEP-414).
const MEMBERS: [&str; 3] = ["traceparent", "tracestate", "baggage"];

tokio::task_local! {
    /// The span that this task works for.
    static CURRENT: Option<TraceParent>;
}

/// Whoever collects finished spans. It never waits.
pub trait SpanSink: Send + Sync {
    /// Takes a span.
    fn take(&self, span: Span);

    /// How many it could not keep, or tell.
    fn lost(&self) -> LostSpans;
}

/// Spans that nobody was told of, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostSpans {
    /// All places for those that wait were taken.
    pub full: u64,
    /// The part of these places was taken that a tenant may have, or that is for what only callers want recorded.
    pub over_share: u64,
    /// The collector did not take them.
    pub unsent: u64,
}

impl LostSpans {
    /// All of them.
    pub fn all(&self) -> u64 {
        self.full + self.over_share + self.unsent
    }
}

/// Begins traces, where there is somebody to tell of them.
pub struct Tracer {
    sink: Box<dyn SpanSink>,
    /// Of the traces that begin here, those are recorded whose id is below this.
    recorded_below: u64,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("recorded_below", &self.recorded_below).finish_non_exhaustive()
    }
}

impl Tracer {
    /// One that records this share of the traces that begin here, from 0 to 1.
    pub fn new(sink: Box<dyn SpanSink>, sample_ratio: f64) -> Tracer {
        // a float has no 2^63 - 1; casts saturate
        let recorded_below = (sample_ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64;
        Tracer { sink, recorded_below }
    }

    /// What nobody was told of.
    pub fn lost(&self) -> LostSpans {
        self.sink.lost()
    }

    /// Finds out which trace a request belongs to that came in at `began`, and begins its span if it is recorded. `None`
    /// without chance to make ids of.
    pub fn begin(
        self: &Arc<Self>,
        incoming: Incoming,
        began: Instant,
    ) -> Option<(Arc<Trace>, Option<OpenSpan>)> {
        let Incoming { parent, state, baggage, link } = incoming;
        let (trace, own) = fresh_ids()?;
        // of our own chance: callers choose the ids of their traces
        let is_chosen = self.records(&trace);
        let is_sampled = parent.map_or(is_chosen, |parent| parent.is_sampled);
        let is_forced = is_sampled && !is_chosen;
        let trace = parent.map_or(trace, |parent| parent.trace);
        let here = match parent {
            Some(parent) if !is_sampled => parent,
            _ => TraceParent { trace, span: own, is_sampled },
        };
        let span = is_sampled.then(|| {
            let above = parent.map(|parent| (parent.span, true));
            let mut span = self.open(SpanKind::Server, here, above, state.clone(), link);
            span.note(|span| {
                span.start = span.start.checked_sub(began.elapsed()).unwrap_or(span.start);
                span.is_forced = is_forced;
            });
            span
        });
        Some((Arc::new(Trace { tracer: Arc::clone(self), here, is_forced, state, baggage }), span))
    }

    /// As samplers by share do, so that all who see a trace decide alike.
    fn records(&self, trace: &TraceId) -> bool {
        let [.., a, b, c, d, e, f, g, h] = *trace;
        u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1 < self.recorded_below
    }

    fn open(
        self: &Arc<Self>,
        kind: SpanKind,
        context: TraceParent,
        above: Option<(SpanId, bool)>,
        state: Option<String>,
        link: Option<TraceParent>,
    ) -> OpenSpan {
        let now = SystemTime::now();
        let span = Span {
            context,
            state,
            parent: above.map(|(parent, _)| parent),
            is_parent_remote: above.is_some_and(|(_, is_remote)| is_remote),
            is_forced: false,
            link,
            kind,
            name: "".into(),
            start: now,
            end: now,
            attributes: Vec::with_capacity(16),
            is_error: false,
        };
        OpenSpan { tracer: Arc::clone(self), span: Some(Box::new(span)) }
    }
}

/// The trace that a request belongs to.
#[derive(Debug)]
pub struct Trace {
    tracer: Arc<Tracer>,
    /// What hangs on it hangs on this: the request's own span, or, where it is not recorded, whatever came with it.
    here: TraceParent,
    is_forced: bool,
    state: Option<String>,
    baggage: Option<String>,
}

impl Trace {
    /// The request's own span; of one that is not recorded, the one that others are told of.
    pub fn here(&self) -> TraceParent {
        self.here
    }

    /// Begins the span of a request to an upstream, if it is recorded.
    pub(super) fn client(&self) -> Option<OpenSpan> {
        let (_, span) = fresh_ids().filter(|_| self.here.is_sampled)?;
        let context = TraceParent { span, ..self.here };
        let above = Some((self.here.span, false));
        let mut span = self.tracer.open(SpanKind::Client, context, above, self.state.clone(), None);
        span.note(|span| span.is_forced = self.is_forced);
        Some(span)
    }

    /// Says in `_meta` which span a request to an upstream belongs to, in the place of whatever the caller's said.
    pub(super) fn carry(&self, span: Option<&OpenSpan>, meta: &mut Vec<(String, Bytes)>) {
        meta.retain(|(name, _)| !MEMBERS.contains(&name.as_str()));
        let parent = span.and_then(OpenSpan::context).unwrap_or(self.here).render();
        let values = [Some(&parent), self.state.as_ref(), self.baggage.as_ref()];
        for (name, value) in MEMBERS.into_iter().zip(values) {
            let Some(value) = value else { continue };
            let mut quoted = String::with_capacity(value.len() + 2);
            json::escape_into(&mut quoted, value);
            meta.push((name.to_owned(), quoted.into()));
        }
    }
}

/// A span that has not ended. Dropped, its request was given up.
pub struct OpenSpan {
    tracer: Arc<Tracer>,
    /// Taken out when it ends.
    span: Option<Box<Span>>,
}

impl OpenSpan {
    /// Changes what is known of it.
    pub fn note(&mut self, note: impl FnOnce(&mut Span)) {
        if let Some(span) = &mut self.span {
            note(span);
        }
    }

    /// It was none: nobody is told.
    pub(super) fn forget(mut self) {
        self.span = None;
    }

    /// Ends it.
    pub fn end(mut self) {
        self.note(|span| span.end = SystemTime::now());
        self.tell();
    }

    /// Ends it so long after its beginning.
    pub fn end_after(mut self, took: Duration) {
        self.note(|span| span.end = span.start.checked_add(took).unwrap_or(span.start));
        self.tell();
    }

    fn context(&self) -> Option<TraceParent> {
        self.span.as_ref().map(|span| span.context)
    }

    fn tell(&mut self) {
        if let Some(span) = self.span.take() {
            self.tracer.sink.take(*span);
        }
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        self.note(|span| {
            End::GIVEN_UP.tell(span);
            span.end = SystemTime::now();
        });
        self.tell();
    }
}

/// Does something in the name of a span: log lines written meanwhile say which.
pub fn within<F: Future>(span: Option<TraceParent>, work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(span, work)
}

/// The span in whose name this is running.
pub fn current() -> Option<TraceParent> {
    CURRENT.try_with(|current| *current).ok().flatten()
}

/// Ids for a trace and a span in it.
fn fresh_ids() -> Option<(TraceId, SpanId)> {
    let chance = CHANCE.with_borrow_mut(Chance::next)?;
    let (trace, span) = chance.split_first_chunk()?;
    let (trace, span): (TraceId, SpanId) = (*trace, span.try_into().ok()?);
    Some((trace, span)).filter(|_| trace != TraceId::default() && span != SpanId::default())
}

thread_local! {
    static CHANCE: RefCell<Chance> = const { Chance::new() };
}

/// Pairs of ids whose chance is fetched at once: asking the system for each costs more than all else about a span.
const CHANCE_PAIRS: usize = 32;

/// Chance at hand.
struct Chance {
    pairs: [[u8; 24]; CHANCE_PAIRS],
    used: usize,
}

impl Chance {
    const fn new() -> RefCell<Chance> {
        RefCell::new(Chance { pairs: [[0; 24]; CHANCE_PAIRS], used: CHANCE_PAIRS })
    }

    fn next(&mut self) -> Option<[u8; 24]> {
        if self.used >= CHANCE_PAIRS {
            getrandom::fill(self.pairs.as_flattened_mut()).ok()?;
            self.used = 0;
        }
        let pair = self.pairs.get(self.used).copied();
        self.used += 1;
        pair
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::domain::span::Value;

    #[derive(Default)]
    struct Kept(Mutex<Vec<Span>>);

    impl SpanSink for Arc<Kept> {
        fn take(&self, span: Span) {
            self.0.lock().unwrap().push(span);
        }

        fn lost(&self) -> LostSpans {
            LostSpans::default()
        }
    }

    fn tracer(ratio: f64) -> (Arc<Kept>, Arc<Tracer>) {
        let kept = Arc::<Kept>::default();
        (Arc::clone(&kept), Arc::new(Tracer::new(Box::new(kept), ratio)))
    }

    #[test]
    fn traces_are_recorded_by_their_ids() {
        let below = |share: f64| {
            let mut trace = [0xff; 16];
            let end = (share * u64::MAX as f64) as u64;
            trace[8..].copy_from_slice(&end.to_be_bytes());
            trace
        };
        for (ratio, share, is_recorded) in [
            (0.0, 0.0, false),
            (0.1, 0.09, true),
            (0.1, 0.11, false),
            (0.5, 0.49, true),
            (0.5, 0.51, false),
            (1.0, 1.0, true),
        ] {
            assert_eq!(tracer(ratio).1.records(&below(share)), is_recorded, "{ratio} {share}");
        }
    }

    #[test]
    fn what_is_recorded_only_because_a_caller_wants_it_says_so_on_both_sides() {
        let parent = |is_sampled| Some(TraceParent { trace: [0; 16], span: [1; 8], is_sampled });
        for (ratio, parent, is_forced) in [
            // an id that would be recorded by itself is the caller's choice, too
            (0.0, parent(true), Some(true)),
            (1.0, parent(true), Some(false)),
            (1.0, None, Some(false)),
            (0.0, None, None),
            (1.0, parent(false), None),
        ] {
            let (kept, tracer) = tracer(ratio);
            let (trace, span) =
                tracer.begin(Incoming { parent, ..Incoming::default() }, Instant::now()).unwrap();
            assert_eq!(span.is_some(), is_forced.is_some(), "{ratio} {parent:?}");
            drop((trace.client(), span));
            let kept = kept.0.lock().unwrap();
            assert_eq!(kept.len(), if is_forced.is_some() { 2 } else { 0 });
            assert!(kept.iter().all(|span| Some(span.is_forced) == is_forced), "{ratio} {parent:?}");
        }
    }

    #[test]
    fn ids_are_never_the_same() {
        let ids: std::collections::HashSet<_> = (0..3 * CHANCE_PAIRS).map(|_| fresh_ids().unwrap()).collect();
        let (traces, spans): (std::collections::HashSet<_>, std::collections::HashSet<_>) =
            ids.into_iter().unzip();
        assert_eq!((traces.len(), spans.len()), (3 * CHANCE_PAIRS, 3 * CHANCE_PAIRS));
    }

    #[test]
    fn a_span_ends_once_and_what_is_dropped_was_given_up() {
        let (kept, tracer) = tracer(1.0);
        let (trace, span) = tracer.begin(Incoming::default(), Instant::now()).unwrap();
        let client = trace.client().unwrap();
        let mut meta = vec![("tracestate".to_owned(), Bytes::new()), ("x".to_owned(), Bytes::new())];
        trace.carry(Some(&client), &mut meta);
        let names: Vec<&str> = meta.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["x", "traceparent"]);
        client.end();
        drop(span);
        trace.client().unwrap().forget();
        let kept = kept.0.lock().unwrap();
        let [client, server] = kept.as_slice() else { panic!("{kept:?}") };
        assert_eq!((client.parent, client.is_error), (Some(server.context.span), false));
        assert_eq!((server.parent, server.is_error), (None, true));
        assert_eq!(server.attributes, [("error.type", Value::from("cancelled"))]);
        let sent = format!("\"{}\"", client.context.render());
        assert_eq!(meta[1].1, sent);
    }
}
