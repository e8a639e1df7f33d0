//! State of one program on this replica: its phase, its use, its failures.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::children::{ChildPlace, Children, Full, RunningProgram};
use super::journal::ServerLog;
use super::usage::ProgramUsage;
use super::wire::PipeWire;
use crate::domain::backoff::Backoff;
use crate::domain::era::Era;
use crate::domain::relay::Relay;
use crate::upstream::admission::shares::Share;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::measures::Life;
use crate::upstream::protocol::offers::DeclaredOffers;
use crate::upstream::target::Target;
use crate::upstream::target::command::ProgramCommand;

/// Shortest interval between idle checks of a program that has requests under way.
const LOOK_MIN: Duration = Duration::from_secs(1);

/// First backoff after a program failed; doubles up to [`REST_MAX`].
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);
/// Run time after which earlier failures of a program no longer count.
const GOOD_LIFE: Duration = Duration::from_secs(60);

/// State that the handle of a program and the task of the program share.
pub(super) struct Shared {
    pub(super) children: Arc<Children>,
    pub(super) tenant: Uuid,
    pub(super) server: Uuid,
    pub(super) command: Arc<ProgramCommand>,
    pub(super) share: Share,
    /// Messages to callers that are allowed, which the handshake declares.
    pub(super) relay: Relay,
    pub(super) log: Arc<ServerLog>,
    /// Cancelled when the program must never start again.
    pub(super) stop: CancellationToken,
    /// Notified when the idle check has to run again.
    looked_at: Notify,
    state: Mutex<State>,
    /// Notified when the phase changes.
    pub(super) moved: Notify,
}

struct State {
    phase: Phase,
    backoff: Backoff,
    era: Option<Era>,
    offers: Option<DeclaredOffers>,
    /// Number of starts so far.
    start: u64,
    /// Whether the program has shaken hands since its last start.
    came_up: bool,
    /// Token that ends the program of the last start, and none that is started later.
    end: CancellationToken,
    usage: ProgramUsage,
}

enum Phase {
    /// The program does not run.
    Off,
    /// The program was ended for lack of calls.
    Asleep,
    /// The program is being started.
    Starting,
    /// The program is being ended.
    Ending,
    /// The program is being ended for lack of calls.
    FallingAsleep,
    /// The program takes requests.
    Up(Arc<ProgramSession>),
    /// The program failed, and does not start again until then.
    Resting { until: Instant, why: String, last_lines: Option<String> },
}

/// State of a program for a caller that wants to use it.
pub(super) enum Now {
    Up(Arc<ProgramSession>),
    /// The program starts or ends; the caller waits for the next phase.
    Coming,
    /// The program has to be started, by this caller.
    Due(Start),
    /// There is no slot for the program.
    Full(Full),
}

/// Right to start a program.
pub(super) struct Start {
    /// Slot of the program on this replica, held while it runs.
    pub(super) place: ChildPlace,
    /// Token that ends the program.
    pub(super) end: CancellationToken,
}

/// Cause of a program's end.
pub(super) enum Ended {
    /// Lack of calls.
    Idle,
    /// Decision of the gateway, such as a restart or a shutdown.
    Asked,
    /// Failure: the program ended by itself or never came up. Holds a sentence for callers.
    Failed(String),
}

/// Session with a program that has shaken hands.
pub(in crate::upstream) struct ProgramSession {
    pub(in crate::upstream) era: Era,
    /// Protocol revision that is spoken.
    pub(super) version: &'static str,
    pub(in crate::upstream) offers: DeclaredOffers,
    pub(super) wire: Arc<PipeWire>,
    /// Measure of how long the session lasts; `None` in the modern era.
    pub(super) life: Option<Life>,
}

impl Shared {
    /// Creates the state of a program that does not run.
    pub(super) fn new(
        children: &Arc<Children>,
        target: &Target,
        command: Arc<ProgramCommand>,
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
            backoff: Backoff::new(REST_MIN, REST_MAX),
            era: target.era,
            offers: None,
            start: 0,
            came_up: false,
            end: CancellationToken::new(),
            usage: ProgramUsage::new(),
        };
        Self {
            children: Arc::clone(children),
            tenant: target.tenant,
            server: target.server,
            command,
            share,
            relay: target.relay,
            log: Arc::new(log),
            stop: children.stop.child_token(),
            looked_at: Notify::new(),
            state: Mutex::new(state),
            moved: Notify::new(),
        }
    }

    /// Returns the session with the running program, or what the caller has to do or to wait for.
    pub(super) fn session_now(self: &Arc<Self>) -> Result<Now, UpstreamError> {
        let mut state = self.state.lock();
        match &state.phase {
            Phase::Up(session) => return Ok(Now::Up(Arc::clone(session))),
            Phase::Starting | Phase::Ending | Phase::FallingAsleep => return Ok(Now::Coming),
            Phase::Resting { until, why, last_lines } if Instant::now() < *until => {
                let rest = *until - Instant::now();
                let retry_s = u32::try_from(rest.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
                let kind = FailureKind::NotRunning { retry_s: Some(retry_s) };
                let failed = UpstreamError::unsent(kind, why.clone());
                return Err(match last_lines {
                    Some(lines) => failed.with_aside(ends_with(lines)),
                    None => failed,
                });
            }
            Phase::Off | Phase::Asleep | Phase::Resting { .. } => {}
        }
        if self.stop.is_cancelled() {
            return Err(UpstreamError::unsent(
                FailureKind::NotRunning { retry_s: None },
                "it is being switched off",
            ));
        }
        let program: Weak<dyn RunningProgram> = Arc::<Self>::downgrade(self);
        let place = match self.children.admit(self.owner(), program) {
            Ok(place) => place,
            Err(full) => return Ok(Now::Full(full)),
        };
        state.phase = Phase::Starting;
        state.start += 1;
        state.came_up = false;
        state.end = self.stop.child_token();
        let end = state.end.clone();
        drop(state);
        Ok(Now::Due(Start { place, end }))
    }

    /// Returns the number of the program's last start.
    pub(super) fn start(&self) -> u64 {
        self.state.lock().start
    }

    /// Returns how the program failed, with its last lines; `None` if it did not, or has been started again.
    pub(super) fn last_end(&self) -> Option<String> {
        match &self.state.lock().phase {
            Phase::Resting { why, last_lines: Some(lines), .. } => {
                Some(format!("{why}; {}", ends_with(lines)))
            }
            Phase::Resting { why, .. } => Some(why.to_string()),
            _ => None,
        }
    }

    /// Returns the era that the program spoke last; `None` if it is unknown.
    pub(super) fn era(&self) -> Option<Era> {
        self.state.lock().era
    }

    /// Returns what the program declared at its last start; `None` if it never started.
    pub(super) fn offers(&self) -> Option<DeclaredOffers> {
        self.state.lock().offers
    }

    /// Records that the program has shaken hands and takes requests.
    pub(super) fn is_up(&self, session: ProgramSession) {
        let mut state = self.state.lock();
        state.era = Some(session.era);
        state.came_up = true;
        state.offers = Some(session.offers);
        state.usage.came_up();
        state.phase = Phase::Up(Arc::new(session));
        drop(state);
        self.moved.notify_waiters();
    }

    /// Notes that the program ended by itself.
    pub(super) fn broke(&self) {
        if let Phase::Up(session) = &self.state.lock().phase
            && let Some(life) = &session.life
        {
            life.broke(FailureKind::Lost.name());
        }
    }

    /// Notes that the program is being ended: no further request reaches it.
    pub(super) fn is_ending(&self, how: &Ended) {
        self.state.lock().phase = if let Ended::Idle = how { Phase::FallingAsleep } else { Phase::Ending };
        self.moved.notify_waiters();
    }

    /// Waits until the program was idle for long enough, with no request under way. From then on no request
    /// reaches it.
    pub(super) async fn idle(&self) {
        let idle = self.children.rules.idle;
        loop {
            let until = {
                let mut state = self.state.lock();
                if let Phase::Ending | Phase::FallingAsleep = state.phase {
                    return;
                }
                let now = Instant::now();
                // the end of the last request is noticed below
                let until = state.usage.unused_since().map_or(now + idle.max(LOOK_MIN), |since| since + idle);
                if until <= now {
                    state.phase = Phase::FallingAsleep;
                    return;
                }
                until
            };
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.looked_at.notified() => {}
            }
        }
    }

    /// Changes the record of the program's use.
    pub(super) fn with_usage(&self, change: impl FnOnce(&mut ProgramUsage)) {
        let mut state = self.state.lock();
        change(&mut state.usage);
        let is_overdue = |since: Instant| since.elapsed() >= self.children.rules.idle;
        if state.usage.unused_since().is_some_and(is_overdue) {
            self.looked_at.notify_one();
        }
    }

    /// Returns whether the program was ended for lack of calls, or is being ended for it.
    pub(super) fn is_asleep(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Asleep | Phase::FallingAsleep)
    }

    /// Forgets failures: the next request starts the program.
    pub(super) fn end_rest(&self) {
        let mut state = self.state.lock();
        state.backoff.reset();
        if let Phase::Resting { .. } = state.phase {
            state.phase = Phase::Off;
        }
        drop(state);
        self.moved.notify_waiters();
    }

    /// Returns whether the program of this start, or of an earlier one, has ended.
    pub(super) fn has_ended(&self, start: u64) -> bool {
        let state = self.state.lock();
        state.start != start || matches!(state.phase, Phase::Off | Phase::Asleep | Phase::Resting { .. })
    }

    /// Notes how the program ended, and how long it had run.
    pub(super) fn ended(&self, ended: Ended, lived: Duration) {
        let mut state = self.state.lock();
        state.backoff.worked_for(lived, GOOD_LIFE);
        match ended {
            Ended::Idle => state.phase = Phase::Asleep,
            Ended::Asked => state.phase = Phase::Off,
            Ended::Failed(why) => {
                if !state.came_up {
                    // it may have been another program when the era was detected
                    state.era = None;
                }
                let rest = state.backoff.delay();
                let seconds = rest.as_secs();
                self.log.event(&format!("{why}; it is not started again for {seconds} s"));
                let last_lines = self.log.last_lines();
                state.phase = Phase::Resting { until: Instant::now() + rest, why, last_lines };
            }
        }
        drop(state);
        self.moved.notify_waiters();
    }
}

fn ends_with(lines: &str) -> String {
    format!("its standard error ends with: {lines}")
}

impl RunningProgram for Shared {
    fn owner(&self) -> (Uuid, Uuid) {
        (self.tenant, self.server)
    }

    fn end_now(&self) -> u64 {
        let state = self.state.lock();
        state.end.cancel();
        state.start
    }

    fn is_leaving(&self) -> bool {
        matches!(self.state.lock().phase, Phase::Ending | Phase::FallingAsleep)
    }

    fn unused_since(&self) -> Option<Instant> {
        let state = self.state.lock();
        state.usage.unused_since().filter(|_| matches!(state.phase, Phase::Up(_)))
    }

    fn take_unlisted(&self, interval: Duration) -> bool {
        let mut state = self.state.lock();
        matches!(state.phase, Phase::Up(_)) && state.usage.take_unlisted(interval)
    }

    fn take_announced(&self) -> bool {
        match &self.state.lock().phase {
            Phase::Up(session) => session.wire.take_announced(),
            _ => false,
        }
    }

    fn leaves(&self) -> bool {
        let mut state = self.state.lock();
        let leaves = state.usage.unused_since().is_some() && matches!(state.phase, Phase::Up(_));
        if leaves {
            state.phase = Phase::FallingAsleep;
            self.looked_at.notify_one();
        }
        leaves
    }
}
