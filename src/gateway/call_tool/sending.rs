//! A request on its way to an upstream, until it is known what became of it. Measured here, for every way in.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use super::CallOutcome;
use crate::domain::measure::OTHER;
use crate::domain::refusal::Refusal;
use crate::upstream::{Ending, Measures, SentAs, Took};

/// One that may be sent.
pub(super) struct Sending {
    method: &'static str,
    began: Instant,
    /// Set while the upstream may have seen it.
    pub(super) dispatched: Arc<AtomicBool>,
    /// Set once it is its turn, and again when it is known what came of it.
    pub(super) took: Took,
    /// Filled in as it is sent, where somebody wants to know.
    pub(super) sent_as: Option<Arc<SentAs>>,
}

impl Sending {
    /// From now on it waits for its turn.
    pub(super) fn begin(method: &'static str) -> Sending {
        let (dispatched, took) = (Arc::default(), Took::default());
        Sending { method, began: Instant::now(), dispatched, took, sent_as: None }
    }

    /// Since when it waits, or is under way.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// It has ended like this; gives how long the upstream took. What never had its turn is no request.
    pub(super) fn ended(
        &self,
        measures: &Measures,
        concluded: &Result<CallOutcome, Refusal>,
    ) -> Option<Duration> {
        let (took, between) = self.took.get()?;
        let ending = match concluded {
            Ok(CallOutcome::Result { head, .. }) => Ending::result(head.is_error),
            Ok(CallOutcome::InputRequired { .. }) => Ending::result(false),
            Ok(CallOutcome::UpstreamError(raw)) => Ending::error(raw),
            Ok(CallOutcome::Refused(_) | CallOutcome::InvalidState) => Ending::failed(OTHER),
            Err(refusal) => Ending::failed(refusal.code.as_str()),
        };
        measures.asked(self.method, between, took, ending);
        Some(took)
    }
}
