//! Progress of a request, which its sender can read even after dropping the request's future.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::domain::measure::{Between, Transport};

/// Progress of a request to an upstream, filled in on the way.
#[derive(Debug, Default)]
pub struct Sent {
    /// Set while the upstream may have seen the request.
    pub(in crate::upstream) dispatched: AtomicBool,
    /// Time when the request was admitted, and its transport; empty before.
    turn: OnceLock<(Instant, Transport)>,
    /// Time when the outcome was known, an answer or none; empty before.
    settled: OnceLock<Instant>,
    sent_as: Mutex<Option<(u64, &'static str)>>,
    asking: Mutex<AskedTime>,
}

/// Longest time, in all, by which questions to a person put off the deadline of a request.
pub(in crate::upstream) const ASKED_MAX: Duration = Duration::from_secs(600);

/// Time during which a person is asked in the middle of a request.
#[derive(Debug, Default)]
struct AskedTime {
    open: usize,
    /// Time since which a question is open; `None` while none is.
    since: Option<Instant>,
    /// Time of earlier questions.
    before: Duration,
}

impl AskedTime {
    fn whole(&self, now: Instant) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| now.saturating_duration_since(since))
    }

    fn begin(&mut self, now: Instant) {
        self.open += 1;
        self.since.get_or_insert(now);
    }

    fn end(&mut self, now: Instant) {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            self.before = self.whole(now);
            self.since = None;
        }
    }
}

/// Guard of a question to a person.
pub(in crate::upstream) struct OpenQuestionTime<'a>(&'a Sent);

impl Drop for OpenQuestionTime<'_> {
    fn drop(&mut self) {
        self.0.asking.lock().end(Instant::now());
    }
}

impl Sent {
    /// Returns whether the upstream may have seen the request.
    pub fn is_dispatched(&self) -> bool {
        self.dispatched.load(Ordering::Relaxed)
    }

    /// Returns the id and the protocol revision of the last sending; `None` if the request was not sent.
    pub fn sent_as(&self) -> Option<(u64, &'static str)> {
        *self.sent_as.lock()
    }

    /// Returns the time when the outcome was known, an answer or none; `None` before.
    pub fn settled(&self) -> Option<Instant> {
        self.settled.get().copied()
    }

    /// Returns the time during which a person was asked: it is not the upstream's.
    pub fn asked(&self) -> Duration {
        self.asking.lock().whole(Instant::now())
    }

    /// Returns the time from admission to the outcome, or until now without one, with transport and revision. The time
    /// during which a person was asked is left out. `None` if the request was never admitted.
    pub fn took(&self) -> Option<(Duration, Between)> {
        let (turn, transport) = *self.turn.get()?;
        let settled = self.settled().unwrap_or_else(Instant::now);
        let version = self.sent_as().map(|(_, version)| version);
        Some((settled.duration_since(turn).saturating_sub(self.asked()), Between { transport, version }))
    }

    /// Notes that a person is being asked, until the guard is dropped.
    pub(in crate::upstream) fn asks(&self) -> OpenQuestionTime<'_> {
        self.asking.lock().begin(Instant::now());
        OpenQuestionTime(self)
    }

    /// Returns whether a person is being asked now.
    pub(in crate::upstream) fn is_asking(&self) -> bool {
        self.asking.lock().since.is_some()
    }

    /// Records that the request is admitted.
    pub(in crate::upstream) fn begins(&self, transport: Transport) {
        self.turn.get_or_init(|| (Instant::now(), transport));
    }

    /// Records the id and the revision of a sending, which need not be the first.
    pub(in crate::upstream) fn goes_out(&self, id: u64, version: &'static str) {
        *self.sent_as.lock() = Some((id, version));
    }

    /// Records that the outcome is known.
    pub(in crate::upstream) fn settles(&self) {
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

    #[test]
    fn time_of_questions_counts_once() {
        let (mut asked, began) = (AskedTime::default(), Instant::now());
        let at = |seconds| began + Duration::from_secs(seconds);
        let whole = |asked: &AskedTime, seconds| asked.whole(at(seconds)).as_secs();
        asked.begin(at(1));
        asked.begin(at(2));
        asked.end(at(3));
        assert_eq!((whole(&asked, 4), asked.since), (3, Some(at(1))), "one of two is open");
        asked.end(at(5));
        assert_eq!((whole(&asked, 9), asked.since), (4, None));
        asked.begin(at(10));
        assert_eq!(whole(&asked, 12), 6);
        let sent = Sent::default();
        let asking = sent.asks();
        assert!(sent.is_asking());
        drop(asking);
        assert!(!sent.is_asking());
    }
}
