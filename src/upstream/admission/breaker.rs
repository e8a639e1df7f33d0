//! Circuit breaker of one upstream: a plain state machine, to which time and randomness are passed in.
//!
//! Consecutive failures open the breaker; while it is open, no request is sent. After the backoff, one probe may
//! pass, never a caller's own request. A probe that succeeds closes the breaker on trial: only an answered request
//! shows that requests work. Until then, one more failure opens the breaker again, for a longer backoff.

use std::time::Duration;

use tokio::time::Instant;

use crate::domain::backoff::Backoff;

/// Multiple of the longest backoff after which earlier failures no longer count.
const MEMORY_RESTS: u32 = 4;

/// Threshold and backoff of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerRules {
    /// Consecutive failures that open the breaker.
    pub failures_max: u32,
    /// First backoff. Jitter shortens each backoff by up to a half.
    pub rest_min: Duration,
    /// Longest backoff; each backoff is twice the one before, up to this.
    pub rest_max: Duration,
}

/// State of a circuit breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BreakerState {
    /// Calls pass.
    Closed,
    /// No calls pass until the backoff has ended and a probe has succeeded.
    Open,
    /// A probe is under way; calls wait for its end.
    HalfOpen,
}

/// Decision of the circuit breaker about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::upstream) enum Admission {
    /// Requests pass.
    Open,
    /// The caller sends a probe and reports its end; no other caller gets this decision meanwhile.
    Probe,
    /// Requests wait until the probe has ended.
    Wait,
    /// No request passes for this long.
    Rest(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Resting { until: Instant },
    Probing,
}

/// Circuit breaker of one upstream.
#[derive(Clone, Copy, Debug)]
pub(in crate::upstream) struct Breaker {
    rules: BreakerRules,
    state: State,
    /// Backoff since a request was last answered.
    backoff: Backoff,
    /// Time of the last failure, or of the last closing on trial; `None` if there was neither.
    moved: Option<Instant>,
    /// Time when the breaker was last closed on trial; `None` if it never was.
    tried: Option<Instant>,
}

impl Breaker {
    pub(in crate::upstream) fn new(rules: BreakerRules) -> Self {
        let backoff = Backoff::new(rules.rest_min, rules.rest_max);
        Self { rules, state: State::Closed { failures: 0 }, backoff, moved: None, tried: None }
    }

    /// Returns whether a request may be sent at `now`. Only one caller at a time gets [`Admission::Probe`].
    pub(in crate::upstream) fn admit(&mut self, now: Instant) -> Admission {
        match self.state {
            State::Closed { .. } => Admission::Open,
            State::Probing => Admission::Wait,
            State::Resting { until } if now < until => Admission::Rest(until - now),
            State::Resting { .. } => {
                self.state = State::Probing;
                Admission::Probe
            }
        }
    }

    /// Returns the state of the breaker.
    pub(in crate::upstream) fn state(&self) -> BreakerState {
        match self.state {
            State::Closed { .. } => BreakerState::Closed,
            State::Resting { .. } => BreakerState::Open,
            State::Probing => BreakerState::HalfOpen,
        }
    }

    /// Returns whether the breaker is closed, on trial or not.
    pub(in crate::upstream) fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed { .. })
    }

    /// Returns whether a probe is under way.
    pub(in crate::upstream) fn is_probing(&self) -> bool {
        self.state == State::Probing
    }

    #[cfg(test)]
    pub(in crate::upstream) fn is_resting(&self, now: Instant) -> bool {
        matches!(self.state, State::Resting { until } if now < until)
    }

    /// Records that a request was answered, possibly with an error of the tool: closes the breaker.
    pub(in crate::upstream) fn answered(&mut self) {
        self.state = State::Closed { failures: 0 };
        self.backoff.reset();
    }

    /// Records a sign of life that says nothing about requests: closes an open breaker on trial.
    pub(in crate::upstream) fn alive(&mut self, now: Instant) {
        if self.is_closed() {
            return;
        }
        self.state = State::Closed { failures: self.rules.failures_max.saturating_sub(1) };
        self.moved = Some(now);
        self.tried = Some(now);
    }

    /// Records that a request, begun at `began`, failed or was not answered. Returns true if that opened the breaker.
    /// `chance`, from 0 to 1, is the jitter of the backoff.
    pub(in crate::upstream) fn failed(&mut self, began: Instant, now: Instant, chance: f64) -> bool {
        // a request that was under way when the breaker opened says nothing new
        let State::Closed { failures } = self.state else { return false };
        if self.tried.is_some_and(|tried| began < tried) {
            return false;
        }
        let is_old =
            |moved: Instant| now.saturating_duration_since(moved) > self.rules.rest_max * MEMORY_RESTS;
        let failures = if self.moved.is_some_and(is_old) {
            self.backoff.reset();
            1
        } else {
            failures.saturating_add(1)
        };
        self.moved = Some(now);
        if failures < self.rules.failures_max {
            self.state = State::Closed { failures };
            return false;
        }
        self.rest(now, chance);
        true
    }

    /// Records that the probe failed or was given up: starts the next backoff.
    pub(in crate::upstream) fn probe_failed(&mut self, now: Instant, chance: f64) {
        // something else may have shown meanwhile that the upstream lives
        if self.state == State::Probing {
            self.rest(now, chance);
        }
    }

    /// Closes the breaker and forgets all failures and backoffs.
    pub(in crate::upstream) fn reset(&mut self) {
        *self = Self::new(self.rules);
    }

    /// Opens the breaker for the next backoff.
    fn rest(&mut self, now: Instant, chance: f64) {
        self.state = State::Resting { until: now + self.backoff.jittered(chance) };
        self.moved = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: BreakerRules =
        BreakerRules { failures_max: 3, rest_min: Duration::from_secs(1), rest_max: Duration::from_secs(30) };

    /// Event in the life of a breaker.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Event {
        Fail,
        /// Failure of a request that began this many milliseconds ago.
        FailLate(u64),
        Answer,
        Alive,
        Ask,
        ProbeFails,
        Wait(u64),
        Reset,
    }

    /// Plays events; returns the decision for each `Ask`, a backoff as its remaining milliseconds.
    fn play(events: &[Event]) -> Vec<String> {
        let mut now = Instant::now();
        let mut breaker = Breaker::new(RULES);
        let mut told = Vec::new();
        for event in events {
            match *event {
                Event::Fail => {
                    let _opened = breaker.failed(now, now, 1.0);
                }
                Event::FailLate(ms) => {
                    let _opened = breaker.failed(now - Duration::from_millis(ms), now, 1.0);
                }
                Event::Answer => breaker.answered(),
                Event::Alive => breaker.alive(now),
                Event::ProbeFails => breaker.probe_failed(now, 1.0),
                Event::Wait(ms) => now += Duration::from_millis(ms),
                Event::Reset => breaker.reset(),
                Event::Ask => told.push(match breaker.admit(now) {
                    Admission::Open => "open".to_owned(),
                    Admission::Probe => "probe".to_owned(),
                    Admission::Wait => "wait".to_owned(),
                    Admission::Rest(rest) => rest.as_millis().to_string(),
                }),
            }
        }
        told
    }

    #[test]
    fn what_askers_are_told() {
        use Event::{Alive, Answer, Ask, Fail, FailLate, ProbeFails, Reset, Wait};
        let table: &[(&str, &[Event], &[&str])] = &[
            ("new", &[Ask], &["open"]),
            ("too few failures", &[Fail, Fail, Ask], &["open"]),
            ("enough", &[Fail, Fail, Fail, Ask], &["1000"]),
            ("an answer between", &[Fail, Fail, Answer, Fail, Fail, Ask], &["open"]),
            ("a sign of life between is no answer", &[Fail, Fail, Alive, Fail, Ask], &["1000"]),
            ("the rest goes by", &[Fail, Fail, Fail, Wait(400), Ask], &["600"]),
            ("one probe", &[Fail, Fail, Fail, Wait(1000), Ask, Ask, Ask], &["probe", "wait", "wait"]),
            ("late failures while open", &[Fail, Fail, Fail, Wait(500), Fail, Fail, Ask], &["500"]),
            (
                "late failures while probing",
                &[Fail, Fail, Fail, Wait(1000), Ask, Fail, Ask],
                &["probe", "wait"],
            ),
            (
                "twice as long",
                &[Fail, Fail, Fail, Wait(1000), Ask, ProbeFails, Ask, Wait(2000), Ask, ProbeFails, Ask],
                &["probe", "2000", "probe", "4000"],
            ),
            ("a probe works", &[Fail, Fail, Fail, Wait(1000), Ask, Alive, Ask], &["probe", "open"]),
            ("on trial", &[Fail, Fail, Fail, Wait(1000), Ask, Alive, Fail, Ask], &["probe", "2000"]),
            (
                "a request from before the rest fails on trial",
                &[Fail, Fail, Fail, Wait(1000), Ask, Alive, FailLate(1), Ask, FailLate(0), Ask],
                &["probe", "open", "2000"],
            ),
            (
                "the trial passed",
                &[Fail, Fail, Fail, Wait(1000), Ask, Alive, Answer, Fail, Fail, Ask, Fail, Ask],
                &["probe", "open", "1000"],
            ),
            ("a call from before", &[Fail, Fail, Fail, Answer, Ask], &["open"]),
            ("a listing works meanwhile", &[Fail, Fail, Fail, Alive, Ask, Fail, Ask], &["open", "2000"]),
            (
                "the probe is late",
                &[Fail, Fail, Fail, Wait(1000), Ask, Answer, ProbeFails, Ask],
                &["probe", "open"],
            ),
            ("reset", &[Fail, Fail, Fail, Reset, Ask, Fail, Fail, Ask], &["open", "open"]),
            ("long ago", &[Fail, Fail, Wait(120_001), Fail, Ask], &["open"]),
            (
                "a trial of long ago",
                &[Fail, Fail, Fail, Wait(1000), Ask, Alive, Wait(120_001), Fail, Ask],
                &["probe", "open"],
            ),
        ];
        for (name, events, want) in table {
            assert_eq!(play(events), *want, "{name}");
        }
    }

    #[test]
    fn rests_have_a_bound() {
        let mut breaker = Breaker::new(RULES);
        let mut now = Instant::now();
        for _ in 0..3 {
            breaker.failed(now, now, 0.0);
        }
        for n in 0..80 {
            let Admission::Rest(rest) = breaker.admit(now) else { panic!("not resting") };
            let least = Duration::from_millis(500) * 2_u32.pow(n.min(5));
            assert_eq!(rest, least.min(RULES.rest_max / 2), "rest {n}");
            now += rest;
            assert_eq!(breaker.admit(now), Admission::Probe);
            breaker.probe_failed(now, 0.0);
        }
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            4 => Just(Event::Fail),
            1 => Just(Event::Answer),
            1 => Just(Event::Alive),
            4 => Just(Event::Ask),
            2 => Just(Event::ProbeFails),
            3 => (1_u64..40_000).prop_map(Event::Wait),
        ]
    }

    proptest! {
        /// Holds for any events: one probe at a time, no backoff over the bound, none without enough failures, and
        /// repeated requests are admitted in the end.
        #[test]
        fn rules_hold(events in prop::collection::vec((event(), 0.0..1.0), 0..200)) {
            let mut now = Instant::now();
            let mut breaker = Breaker::new(RULES);
            let mut probing = false;
            for (event, chance) in events {
                match event {
                    Event::Fail => {
                        prop_assert!(!(breaker.failed(now, now, chance) && probing), "a late failure ends a probe");
                    }
                    Event::Answer => {
                        breaker.answered();
                        probing = false;
                        prop_assert_eq!(breaker.admit(now), Admission::Open);
                    }
                    Event::Alive => {
                        breaker.alive(now);
                        probing = false;
                        prop_assert_eq!(breaker.admit(now), Admission::Open);
                    }
                    Event::ProbeFails => {
                        breaker.probe_failed(now, chance);
                        probing = false;
                    }
                    Event::Wait(ms) => now += Duration::from_millis(ms),
                    Event::Reset | Event::FailLate(_) => {}
                    Event::Ask => match breaker.admit(now) {
                        Admission::Open => prop_assert!(!probing),
                        Admission::Probe => {
                            prop_assert!(!probing, "two probes");
                            probing = true;
                        }
                        Admission::Wait => prop_assert!(probing, "waits for nobody"),
                        Admission::Rest(rest) => {
                            prop_assert!(!probing);
                            prop_assert!(rest <= RULES.rest_max && !rest.is_zero());
                        }
                    },
                }
            }
            now += RULES.rest_max;
            prop_assert!(!matches!(breaker.admit(now), Admission::Rest(_)));
        }
    }
}
