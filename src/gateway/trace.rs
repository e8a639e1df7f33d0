//! Traces: the trace of a request, its propagation to upstreams, and the exported spans.
//!
//! The sampling decision comes first: the sender's if there is one, otherwise by ratio. A request that is not sampled has no
//! span, and propagates that decision.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;

use crate::domain::end::End;
use crate::domain::json;
use crate::domain::span::{Span, SpanKind};
use crate::domain::trace::{Incoming, SpanId, TraceId, TraceParent};

/// Members of `_meta` that propagate a trace (SEP-414).
const MEMBERS: [&str; 3] = ["traceparent", "tracestate", "baggage"];

tokio::task_local! {
    /// Span that this task belongs to.
    static CURRENT: Option<TraceParent>;
}

/// Receiver of finished spans. Its methods never wait.
pub trait SpanSink: Send + Sync {
    /// Takes a span.
    fn take(&self, span: Span);

    /// Returns the number of spans that were dropped or could not be exported.
    fn lost(&self) -> LostSpans;
}

/// Spans that were not exported, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostSpans {
    /// Spans dropped because the queue was full.
    pub full: u64,
    /// Spans dropped because a share of the queue was full: a tenant's, or that for spans sampled only on callers' request.
    pub over_share: u64,
    /// Spans that the collector did not accept.
    pub unsent: u64,
}

impl LostSpans {
    /// Returns the total.
    pub fn all(&self) -> u64 {
        self.full + self.over_share + self.unsent
    }
}

/// Beginner of traces, with the receiver of their spans.
pub struct Tracer {
    sink: Box<dyn SpanSink>,
    /// Sampling bound: traces that begin here are sampled if their id is below it.
    recorded_below: u64,
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracer").field("recorded_below", &self.recorded_below).finish_non_exhaustive()
    }
}

impl Tracer {
    /// Creates a tracer that samples this share of the traces that begin here, from 0 to 1.
    pub fn new(sink: Box<dyn SpanSink>, sample_ratio: f64) -> Tracer {
        // an `f64` cannot represent 2^63 - 1; casts saturate
        let recorded_below = (sample_ratio.clamp(0.0, 1.0) * (1_u64 << 63) as f64) as u64;
        Tracer { sink, recorded_below }
    }

    /// Returns the number of spans that were not exported.
    pub fn lost(&self) -> LostSpans {
        self.sink.lost()
    }

    /// Determines the trace of a request that came in at `began`, and begins its span if it is sampled. Returns `None` if
    /// the system gives no random ids.
    pub fn begin(
        self: &Arc<Self>,
        incoming: Incoming,
        began: Instant,
    ) -> Option<(Arc<Trace>, Option<OpenSpan>)> {
        let Incoming { parent, state, baggage, link } = incoming;
        let (trace, own) = fresh_ids()?;
        // from a fresh random id: callers choose the ids of their traces
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

    /// Decides as other ratio samplers do, so that all participants of a trace agree.
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

/// Trace that a request belongs to.
#[derive(Debug)]
pub struct Trace {
    tracer: Arc<Tracer>,
    /// Parent of further spans: the request's own span if it is sampled, otherwise the caller's.
    here: TraceParent,
    is_forced: bool,
    state: Option<String>,
    baggage: Option<String>,
}

impl Trace {
    /// Returns the request's own span; if it is not sampled, the one that is propagated.
    pub fn here(&self) -> TraceParent {
        self.here
    }

    /// Begins the span of a request to an upstream; `None` if the trace is not sampled.
    pub(super) fn client(&self) -> Option<OpenSpan> {
        let (_, span) = fresh_ids().filter(|_| self.here.is_sampled)?;
        let context = TraceParent { span, ..self.here };
        let above = Some((self.here.span, false));
        let mut span = self.tracer.open(SpanKind::Client, context, above, self.state.clone(), None);
        span.note(|span| span.is_forced = self.is_forced);
        Some(span)
    }

    /// Writes the span of a request to an upstream into `_meta`, in place of the caller's.
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

/// A span that has not ended. If dropped, it ends as given up.
pub struct OpenSpan {
    tracer: Arc<Tracer>,
    /// Data of the span; taken out when it ends.
    span: Option<Box<Span>>,
}

impl OpenSpan {
    /// Changes the data of the span.
    pub fn note(&mut self, note: impl FnOnce(&mut Span)) {
        if let Some(span) = &mut self.span {
            note(span);
        }
    }

    /// Discards the span without exporting it.
    pub(super) fn forget(mut self) {
        self.span = None;
    }

    /// Ends the span now.
    pub fn end(mut self) {
        self.note(|span| span.end = SystemTime::now());
        self.tell();
    }

    /// Ends the span at a duration after its beginning.
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

/// Runs a future within a span, whose ids appear in log lines written meanwhile.
pub fn within<F: Future>(span: Option<TraceParent>, work: F) -> impl Future<Output = F::Output> {
    CURRENT.scope(span, work)
}

/// Returns the span that the current task runs in; `None` without one.
pub fn current() -> Option<TraceParent> {
    CURRENT.try_with(|current| *current).ok().flatten()
}

/// Returns random ids for a trace and a span; `None` if the system gives no random bytes.
fn fresh_ids() -> Option<(TraceId, SpanId)> {
    let chance = CHANCE.with_borrow_mut(Chance::next)?;
    let (trace, span) = chance.split_first_chunk()?;
    let (trace, span): (TraceId, SpanId) = (*trace, span.try_into().ok()?);
    Some((trace, span)).filter(|_| trace != TraceId::default() && span != SpanId::default())
}

thread_local! {
    static CHANCE: RefCell<Chance> = const { Chance::new() };
}

/// Pairs of ids made of one read of random bytes: a system call for each would cost more than the rest of a span.
const CHANCE_PAIRS: usize = 32;

/// Buffer of random bytes.
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
            // an id that would be sampled anyway is the caller's choice, too
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
