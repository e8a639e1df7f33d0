//! What is known of one program on this replica: whether it runs, who asks it, how often it failed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::children::{Children, Full, Place};
use super::command::Command;
use super::journal::ServerLog;
use super::life;
use super::wire::Wire;
use crate::upstream::discover::Era;
use crate::upstream::error::{Kind, UpstreamError};
use crate::upstream::shares::Share;
use crate::upstream::target::Target;

/// The pause after a program failed; each is twice the one before.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// A program that ran this long was a good one: its failure is the first.
const GOOD_LIFE: Duration = Duration::from_secs(60);
/// What the keeper and the task of its program share.
pub(super) struct Shared {
    pub(super) children: Arc<Children>,
    pub(super) tenant: Uuid,
    pub(super) server: Uuid,
    pub(super) command: Arc<Command>,
    pub(super) share: Share,
    pub(super) log: Arc<ServerLog>,
    /// It is never started again.
    pub(super) stop: CancellationToken,
    /// Whether it is idle is another question than before.
    looked_at: Notify,
    state: Mutex<State>,
    /// The phase is another.
    pub(super) moved: Notify,
}

struct State {
    phase: Phase,
    failures: u32,
    era: Option<Era>,
    announces: Option<bool>,
    /// How often it was started.
    start: u64,
    /// Ends the program of that start, and none that is started later.
    end: CancellationToken,
    /// Requests under way.
    asked: usize,
    /// Of them listings.
    listings: usize,
    /// When it was listed last since it came up.
    listed: Option<Instant>,
    /// When the last call ended, or it came up.
    used: Instant,
}

enum Phase {
    /// It does not run.
    Off,
    /// It was ended because nobody called it.
    Asleep,
    /// It is being started.
    Starting,
    /// It is being ended.
    Ending,
    /// It can be asked.
    Up(Arc<Session>),
    /// It failed, and is left alone until then.
    Resting { until: Instant, why: String },
}

/// What whoever wants the program finds.
pub(super) enum Now {
    Up(Arc<Session>),
    /// It is on its way.
    Coming,
    /// There is no place for it.
    Full(Full),
}

/// A program that has shaken hands.
pub(in crate::upstream) struct Session {
    pub(in crate::upstream) era: Era,
    pub(super) announces: Option<bool>,
    pub(super) wire: Arc<Wire>,
}

/// How a program ended.
pub(super) enum Ended {
    /// Nobody called it.
    Idle,
    /// Somebody wanted it.
    Asked,
    /// By itself, or it never came up: a sentence for callers.
    Failed(String),
}

impl Shared {
    /// Starts nothing.
    pub(super) fn new(
        children: &Arc<Children>,
        target: &Target,
        command: Arc<Command>,
        share: Share,
    ) -> Self {
        let log = ServerLog::new(
            (target.tenant, target.server),
            Arc::clone(&command),
            children.journal.clone(),
            share.log_turns(),
        );
        let state = State {
            phase: Phase::Off,
            failures: 0,
            era: target.era,
            announces: None,
            start: 0,
            end: CancellationToken::new(),
            asked: 0,
            listings: 0,
            listed: None,
            used: Instant::now(),
        };
        Self {
            children: Arc::clone(children),
            tenant: target.tenant,
            server: target.server,
            command,
            share,
            log: Arc::new(log),
            stop: children.stop.child_token(),
            looked_at: Notify::new(),
            state: Mutex::new(state),
            moved: Notify::new(),
        }
    }

    /// The running program, or what is to be waited for.
    pub(super) fn session_now(self: &Arc<Self>) -> Result<Now, UpstreamError> {
        let mut state = self.state();
        match &state.phase {
            Phase::Up(session) => return Ok(Now::Up(Arc::clone(session))),
            Phase::Starting | Phase::Ending => return Ok(Now::Coming),
            Phase::Resting { until, why } if Instant::now() < *until => {
                let rest = *until - Instant::now();
                let retry_s = u32::try_from(rest.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
                let kind = Kind::NotRunning { retry_s: Some(retry_s) };
                return Err(UpstreamError::unsent(kind, why.clone()));
            }
            Phase::Off | Phase::Asleep | Phase::Resting { .. } => {}
        }
        if self.stop.is_cancelled() {
            return Err(UpstreamError::unsent(
                Kind::NotRunning { retry_s: None },
                "it is being switched off",
            ));
        }
        let place = match self.children.admit(self) {
            Ok(place) => place,
            Err(full) => return Ok(Now::Full(full)),
        };
        state.phase = Phase::Starting;
        state.start += 1;
        state.end = self.stop.child_token();
        let end = state.end.clone();
        drop(state);
        self.start(place, end);
        Ok(Now::Coming)
    }

    fn start(self: &Arc<Self>, place: Place, end: CancellationToken) {
        let shared = Arc::clone(self);
        self.children.tasks.spawn(async move {
            let began = Instant::now();
            let ended = life::run(&shared, &end).await;
            drop(place);
            shared.ended(ended, began.elapsed());
        });
    }

    /// The era that the program spoke last time.
    pub(super) fn era(&self) -> Option<Era> {
        self.state().era
    }

    /// Whether the program says that it announces changes of its tools.
    pub(super) fn announces(&self) -> Option<bool> {
        self.state().announces
    }

    /// From now on it can be asked.
    pub(super) fn is_up(&self, session: Session) {
        let mut state = self.state();
        state.era = Some(session.era);
        state.announces = session.announces;
        // however long it took to start
        state.used = Instant::now();
        state.listed = None;
        state.phase = Phase::Up(Arc::new(session));
        drop(state);
        self.moved.notify_waiters();
    }

    /// From now on nobody gets to ask it.
    pub(super) fn is_ending(&self) {
        self.state().phase = Phase::Ending;
        self.moved.notify_waiters();
    }

    /// Waits until the program has not been called for long enough, and nobody waits for an answer; from then on
    /// nobody gets to ask it.
    pub(super) async fn idle(&self) {
        loop {
            let until = {
                let mut state = self.state();
                if let Phase::Ending = state.phase {
                    return;
                }
                if state.asked > 0 {
                    // whoever is the last to ask says so
                    Instant::now() + self.children.rules.idle
                } else if self.is_overdue(&state) {
                    state.phase = Phase::Ending;
                    return;
                } else {
                    state.used + self.children.rules.idle
                }
            };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.looked_at.notified() => {}
            }
        }
    }

    fn is_overdue(&self, state: &State) -> bool {
        Instant::now() >= state.used + self.children.rules.idle
    }

    /// Whether it was ended because nobody called it.
    pub(super) fn is_asleep(&self) -> bool {
        matches!(self.state().phase, Phase::Asleep)
    }

    /// Forgets failures: the next request starts it.
    pub(super) fn end_rest(&self) {
        let mut state = self.state();
        state.failures = 0;
        if let Phase::Resting { .. } = state.phase {
            state.phase = Phase::Off;
        }
        drop(state);
        self.moved.notify_waiters();
    }

    /// Ends the program that runs, with whatever it is at; gives which start that was.
    pub(super) fn end_now(&self) -> u64 {
        let state = self.state();
        state.end.cancel();
        state.start
    }

    /// Whether the program of this start, or an earlier one, has ended.
    pub(super) fn has_ended(&self, start: u64) -> bool {
        let state = self.state();
        state.start != start || matches!(state.phase, Phase::Off | Phase::Asleep | Phase::Resting { .. })
    }

    /// Whether it is being ended.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.state().phase, Phase::Ending)
    }

    /// Since when nobody has called it; nothing if it is in use.
    pub(super) fn unused_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.asked == 0 && matches!(state.phase, Phase::Up(_))).then_some(state.used)
    }

    /// Whether it can be asked, and was not listed since it came up, or not for `interval`. If so, it counts as
    /// listed from now on.
    pub(super) fn take_unlisted(&self, interval: Duration) -> bool {
        let mut state = self.state();
        let is_due = state.listings == 0
            && matches!(state.phase, Phase::Up(_))
            && state.listed.is_none_or(|at| at.elapsed() >= interval);
        if is_due {
            state.listed = Some(Instant::now());
        }
        is_due
    }

    /// Puts it to sleep, unless it has come into use.
    pub(super) fn leaves(&self) -> bool {
        let mut state = self.state();
        let leaves = state.asked == 0 && matches!(state.phase, Phase::Up(_));
        if leaves {
            state.phase = Phase::Ending;
            self.looked_at.notify_one();
        }
        leaves
    }

    fn ended(&self, ended: Ended, lived: Duration) {
        let mut state = self.state();
        match ended {
            Ended::Idle => state.phase = Phase::Asleep,
            Ended::Asked => state.phase = Phase::Off,
            Ended::Failed(why) => {
                state.failures = if lived >= GOOD_LIFE { 1 } else { state.failures.saturating_add(1) };
                let rest = rest(state.failures);
                let seconds = rest.as_secs();
                self.log.event(&format!("{why}; it is not started again for {seconds} s"));
                state.phase = Phase::Resting { until: Instant::now() + rest, why };
            }
        }
        drop(state);
        self.moved.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long a program is left alone after so many failures.
fn rest(failures: u32) -> Duration {
    let doubled = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    REST_MIN.saturating_mul(doubled).min(REST_MAX)
}

/// A request under way: it keeps the program. A call also begins the time anew in which nobody calls it; the
/// gateway's own questions keep no program awake.
pub(super) struct Open<'a> {
    shared: &'a Shared,
    is_call: bool,
    is_listing: bool,
}

impl<'a> Open<'a> {
    pub(super) fn new(shared: &'a Shared, method: &str) -> Self {
        let (is_call, is_listing) = (method == "tools/call", method == "tools/list");
        let mut state = shared.state();
        state.asked += 1;
        state.listings += usize::from(is_listing);
        Self { shared, is_call, is_listing }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.asked = state.asked.saturating_sub(1);
        if self.is_call {
            state.used = Instant::now();
        }
        if self.is_listing {
            state.listings = state.listings.saturating_sub(1);
            state.listed = Some(Instant::now());
        }
        if state.asked == 0 && self.shared.is_overdue(&state) {
            self.shared.looked_at.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_to_a_bound() {
        let rests: Vec<u64> = (1..=9).map(|failures| rest(failures).as_secs()).collect();
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        assert_eq!(rest(u32::MAX), REST_MAX);
    }
}
