//! What becomes of a request, for whoever sent it: known even of one whose future was dropped.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use crate::domain::measure::{Between, Transport};

/// How far a request has come. It is filled in on the way.
#[derive(Debug, Default)]
pub struct Sent {
    /// Set while the upstream may have seen it.
    pub(super) dispatched: AtomicBool,
    /// Since when it is its turn, and what carries it.
    turn: OnceLock<(Instant, Transport)>,
    /// When it was known that there is an answer, or that there is none.
    settled: OnceLock<Instant>,
    sent_as: Mutex<Option<(u64, &'static str)>>,
}

impl Sent {
    /// Whether the upstream may have seen it.
    pub fn is_dispatched(&self) -> bool {
        self.dispatched.load(Ordering::Relaxed)
    }

    /// The id and the revision that it was sent with last.
    pub fn sent_as(&self) -> Option<(u64, &'static str)> {
        *self.sent_as.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long it took from its turn on, and between whom; of one that was given up meanwhile, until now. What never had
    /// its turn took nothing.
    pub fn took(&self) -> Option<(Duration, Between)> {
        let (turn, transport) = *self.turn.get()?;
        let settled = self.settled.get().copied().unwrap_or_else(Instant::now);
        let version = self.sent_as().map(|(_, version)| version);
        Some((settled.duration_since(turn), Between { transport, version }))
    }

    /// It is its turn.
    pub(super) fn begins(&self, transport: Transport) {
        self.turn.get_or_init(|| (Instant::now(), transport));
    }

    /// It goes out with this id and in this revision, perhaps not for the first time.
    pub(super) fn goes_out(&self, id: u64, version: &'static str) {
        *self.sent_as.lock().unwrap_or_else(PoisonError::into_inner) = Some((id, version));
    }

    /// There is an answer, or it is known that there is none.
    pub(super) fn settles(&self) {
        self.settled.get_or_init(Instant::now);
    }
}
