//! Keeps the program of one server: there when it is needed, gone when nobody calls it, left alone for a while
//! when it fails.

use std::sync::atomic::AtomicBool;
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
use super::wire::{Request, Wire};
use crate::upstream::connection::Ask;
use crate::upstream::discover::Era;
use crate::upstream::error::{Kind, UpstreamError};
use crate::upstream::jsonrpc::{self, Answer, Meta};
use crate::upstream::shares::Share;
use crate::upstream::target::{Program, Target};

/// The pause after a program failed; each is twice the one before.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// A program that ran this long was a good one: its failure is the first.
const GOOD_LIFE: Duration = Duration::from_secs(60);
/// Longest wait for a program to end that is started anew.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(10);

/// The program of one server on this replica. Dropped, it ends.
pub(in crate::upstream) struct Keeper {
    shared: Arc<Shared>,
}

/// What the keeper and the task of its program share.
pub(super) struct Shared {
    pub(super) children: Arc<Children>,
    pub(super) tenant: Uuid,
    pub(super) command: Arc<Command>,
    pub(super) share: Share,
    pub(super) log: Arc<ServerLog>,
    /// It is never started again.
    pub(super) stop: CancellationToken,
    /// Its place is for another.
    leaves: Notify,
    state: Mutex<State>,
    /// The phase is another.
    moved: Notify,
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
    /// Of them calls.
    open: usize,
    /// When the last call ended.
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
enum Now {
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

impl Keeper {
    /// Starts nothing: the first request does.
    ///
    /// # Errors
    /// [`Kind::NotRunning`] if the deployment has no such program for this tenant.
    pub(in crate::upstream) fn new(
        children: &Arc<Children>,
        target: &Target,
        program: &Program,
        share: Share,
    ) -> Result<Self, UpstreamError> {
        let not_running = Kind::NotRunning { retry_s: None };
        let command = program.command.clone();
        let command = command.map_err(|error| UpstreamError::unsent(not_running, error.sentence()))?;
        let journal = children.journal.clone();
        let turns = share.log_turns();
        let log = ServerLog::new((target.tenant, target.server), Arc::clone(&command), journal, turns);
        let state = State {
            phase: Phase::Off,
            failures: 0,
            era: target.era,
            announces: None,
            start: 0,
            end: CancellationToken::new(),
            asked: 0,
            open: 0,
            used: Instant::now(),
        };
        let shared = Shared {
            children: Arc::clone(children),
            tenant: target.tenant,
            command,
            share,
            log: Arc::new(log),
            stop: children.stop.child_token(),
            leaves: Notify::new(),
            state: Mutex::new(state),
            moved: Notify::new(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Sends a request and waits for its answer; starts the program first if need be.
    pub(in crate::upstream) async fn exchange(
        &self,
        ask: &Ask<'_>,
        dispatched: &AtomicBool,
    ) -> Result<Answer, UpstreamError> {
        // the gateway's own questions keep no program awake
        let _open = match ask.method {
            "tools/call" => Open::new(&self.shared, 1),
            _ => Open::new(&self.shared, 0),
        };
        let session = self.session().await?;
        let id = session.wire.id();
        let meta = Meta {
            modern: session.era == Era::Modern,
            progress_token: ask.progress.is_some().then_some(id),
            extra: ask.meta,
        };
        let request = Request {
            id,
            body: jsonrpc::request(id, ask.method, ask.members, meta),
            bytes_max: ask.bytes_max,
            progress: ask.progress,
            dispatched,
            farewell: Some(jsonrpc::cancelled(id)),
        };
        session.wire.ask(request).await
    }

    /// The running program; whoever comes first starts it, the others wait for the same.
    pub(in crate::upstream) async fn session(&self) -> Result<Arc<Session>, UpstreamError> {
        loop {
            let moved = self.shared.moved.notified();
            tokio::pin!(moved);
            // from here on no change is missed
            moved.as_mut().enable();
            let children = &self.shared.children;
            let freed = children.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.shared.session_now()? {
                Now::Up(session) => return Ok(session),
                Now::Coming => moved.await,
                Now::Full(full) if children.make_room(self.shared.tenant, full) => tokio::select! {
                    () = moved => {}
                    () = freed => {}
                },
                Now::Full(full) => return Err(UpstreamError::unsent(Kind::NoPlace, full.sentence())),
            }
        }
    }

    /// The era, once it is known.
    pub(in crate::upstream) fn era(&self) -> Option<Era> {
        self.shared.state().era
    }

    /// Whether the program says that it announces changes of its tools.
    pub(in crate::upstream) fn announces(&self) -> Option<bool> {
        self.shared.state().announces
    }

    /// Whether the program was ended because nobody called it.
    pub(in crate::upstream) fn is_asleep(&self) -> bool {
        matches!(self.shared.state().phase, Phase::Asleep)
    }

    /// Forgets failures: the next request starts the program.
    pub(in crate::upstream) fn end_rest(&self) {
        self.shared.state().failures = 0;
        self.shared.set(|phase| {
            if let Phase::Resting { .. } = phase {
                *phase = Phase::Off;
            }
        });
    }

    /// Ends the program, with whatever it is at; the next request starts it anew.
    pub(in crate::upstream) async fn restart(&self) {
        let found = {
            let state = self.shared.state();
            state.end.cancel();
            state.start
        };
        let ended = async {
            loop {
                let moved = self.shared.moved.notified();
                tokio::pin!(moved);
                moved.as_mut().enable();
                if self.shared.has_ended(found) {
                    return;
                }
                moved.await;
            }
        };
        drop(tokio::time::timeout(RESTART_WAIT_MAX, ended).await);
        self.end_rest();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl Shared {
    /// The running program, or what is to be waited for.
    fn session_now(self: &Arc<Self>) -> Result<Now, UpstreamError> {
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
        // a request that is still on its way must not end it again
        state.used = Instant::now();
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

    /// From now on it can be asked.
    pub(super) fn is_up(&self, session: Session) {
        let mut state = self.state();
        state.era = Some(session.era);
        state.announces = session.announces;
        state.phase = Phase::Up(Arc::new(session));
        drop(state);
        self.moved.notify_waiters();
    }

    /// From now on nobody gets to ask it.
    pub(super) fn is_ending(&self) {
        self.set(|phase| *phase = Phase::Ending);
    }

    /// Waits until the program has not been called for long enough; from then on nobody gets to ask it.
    pub(super) async fn idle(&self) {
        let idle = self.children.rules.idle;
        loop {
            let until = {
                let mut state = self.state();
                if let Phase::Ending = state.phase {
                    return;
                }
                let until = state.used + idle;
                if state.open == 0 && Instant::now() >= until {
                    state.phase = Phase::Ending;
                    return;
                }
                if state.open == 0 { until } else { Instant::now() + idle }
            };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.leaves.notified() => {}
            }
        }
    }

    /// Whether the program of this start, or an earlier one, has ended.
    fn has_ended(&self, start: u64) -> bool {
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

    /// Puts it to sleep, unless it has come into use.
    pub(super) fn leaves(&self) -> bool {
        let mut state = self.state();
        let leaves = state.asked == 0 && matches!(state.phase, Phase::Up(_));
        if leaves {
            state.phase = Phase::Ending;
            self.leaves.notify_one();
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

    fn set(&self, change: impl FnOnce(&mut Phase)) {
        change(&mut self.state().phase);
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

/// A request under way: it keeps the program from making room for another; a call also from being idle.
struct Open<'a> {
    shared: &'a Shared,
    calls: usize,
}

impl<'a> Open<'a> {
    fn new(shared: &'a Shared, calls: usize) -> Self {
        let mut state = shared.state();
        state.asked += 1;
        state.open += calls;
        Self { shared, calls }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.asked = state.asked.saturating_sub(1);
        state.open = state.open.saturating_sub(self.calls);
        if self.calls > 0 {
            state.used = Instant::now();
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
