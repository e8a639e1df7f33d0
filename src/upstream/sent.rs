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

    /// When it was known that there is an answer, or that there is none.
    pub fn settled(&self) -> Option<Instant> {
        self.settled.get().copied()
    }

    /// How long it took from its turn on, and between whom; of one that was given up meanwhile, until now. What never had
    /// its turn took nothing.
    pub fn took(&self) -> Option<(Duration, Between)> {
        let (turn, transport) = *self.turn.get()?;
        let settled = self.settled().unwrap_or_else(Instant::now);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_had_its_turn_took_something_whatever_became_of_it() {
        let sent = Sent::default();
        assert!(sent.took().is_none() && sent.settled().is_none());
        sent.begins(Transport::Pipe);
        let given_up = sent.took().unwrap();
        assert_eq!(given_up.1, Between { transport: Transport::Pipe, version: None });
        // refused unread in one revision, it goes out once more
        sent.goes_out(3, "2026-07-28");
        sent.goes_out(4, "2025-11-25");
        sent.settles();
        let settled = sent.took().unwrap();
        assert!(settled.0 >= given_up.0);
        assert_eq!((settled.1.version, sent.sent_as()), (Some("2025-11-25"), Some((4, "2025-11-25"))));
        assert_eq!(sent.took(), Some(settled), "it is over");
    }
}
