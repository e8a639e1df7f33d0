//! Log of a server: the standard error of its program, and events of the program.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use uuid::Uuid;

use crate::domain::log_line::{self, Raw};
use crate::upstream::admission::pace::Pace;
use crate::upstream::target::command::ProgramCommand;

/// Longest line that is kept, in bytes.
pub const LINE_BYTES_MAX: usize = 2048;
/// Most lines of one server that are kept at once, plus [`LINES_PER_S`]; further ones are counted.
const LINES_BURST: u32 = 200;
const LINES_PER_S: u32 = 50;
/// Most of the last lines of standard error that are told with a failure.
const LAST_LINES_MAX: usize = 5;
/// Longest part of such a line, in bytes.
const LAST_LINE_BYTES_MAX: usize = 150;

/// Source of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSource {
    /// Standard error of the program.
    Stderr,
    /// The gateway.
    Gateway,
}

/// Line of a server's log, fit to be stored and shown.
#[derive(Debug)]
pub struct LogLine {
    /// Tenant of the server.
    pub tenant: Uuid,
    /// Id of the server.
    pub server: Uuid,
    /// Time when the gateway logged the line.
    pub at: SystemTime,
    /// Source of the line.
    pub source: LogSource,
    /// Text without secrets, of at most [`LINE_BYTES_MAX`] bytes.
    pub text: String,
    /// Permit that counts the line among those of its tenant that wait to be written.
    pub turn: Option<OwnedSemaphorePermit>,
}

/// Bounded queue of lines. A line that finds it full is dropped, and counted at its server.
pub type Journal = mpsc::Sender<LogLine>;

/// Log of one server.
pub(super) struct ServerLog {
    tenant: Uuid,
    server: Uuid,
    command: Arc<ProgramCommand>,
    journal: Option<Journal>,
    turns: Arc<Semaphore>,
    pace: Mutex<Pace>,
    left_out: AtomicU64,
    /// Last lines of standard error since the program's start, without secrets.
    last: Mutex<VecDeque<String>>,
}

impl ServerLog {
    /// Creates the log of a server; `turns` are the permits for waiting lines of its tenant.
    pub(super) fn new(
        (tenant, server): (Uuid, Uuid),
        command: Arc<ProgramCommand>,
        journal: Option<Journal>,
        turns: Arc<Semaphore>,
    ) -> Self {
        let pace = Mutex::new(Pace::new(LINES_BURST, LINES_PER_S));
        Self {
            tenant,
            server,
            command,
            journal,
            turns,
            pace,
            left_out: AtomicU64::new(0),
            last: Mutex::default(),
        }
    }

    /// Logs a line of the program's standard error.
    pub(super) fn stderr(&self, raw: Raw<'_>) {
        if self.has_turn() {
            self.keep_last(raw);
            self.write(LogSource::Stderr, raw);
        }
    }

    /// Logs that the program was started; what was written before is not of this start.
    pub(super) fn started(&self, id: i32) {
        self.last.lock().clear();
        self.event(&format!("started, process {id}"));
    }

    /// Returns the last lines of the program's standard error since its start, on one line and without secrets; `None` if
    /// it wrote none.
    pub(super) fn last_lines(&self) -> Option<String> {
        let last = self.last.lock();
        (!last.is_empty()).then(|| last.iter().map(String::as_str).collect::<Vec<_>>().join(" / "))
    }

    fn keep_last(&self, raw: Raw<'_>) {
        let Some(text) = log_line::fit(raw, LAST_LINE_BYTES_MAX, self.command.secrets()) else { return };
        let mut last = self.last.lock();
        if last.len() >= LAST_LINES_MAX {
            last.pop_front();
        }
        last.push_back(text);
    }

    /// Logs something on the program's standard output that is no message; `what` describes it.
    pub(super) fn garbage(&self, what: &str, raw: &[u8]) {
        if self.has_turn() {
            let shown = log_line::fit(Raw::Whole(raw), LINE_BYTES_MAX / 4, self.command.secrets())
                .unwrap_or_default();
            let text = format!("{what} on standard output: {shown}");
            self.write(LogSource::Gateway, Raw::Whole(text.as_bytes()));
        }
    }

    /// Logs an event of the program, past the rate limit.
    pub(super) fn event(&self, text: &str) {
        self.say_what_is_left_out();
        self.write(LogSource::Gateway, Raw::Whole(text.as_bytes()));
    }

    fn has_turn(&self) -> bool {
        let has_turn = self.pace.lock().try_one(Instant::now());
        if has_turn {
            self.say_what_is_left_out();
        } else {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        has_turn
    }

    fn say_what_is_left_out(&self) {
        let lines = self.left_out.swap(0, Ordering::Relaxed);
        if lines > 0 {
            let text = format!("{lines} lines are left out here");
            self.write(LogSource::Gateway, Raw::Whole(text.as_bytes()));
        }
    }

    fn write(&self, source: LogSource, raw: Raw<'_>) {
        let Some(journal) = &self.journal else { return };
        let Some(text) = log_line::fit(raw, LINE_BYTES_MAX, self.command.secrets()) else { return };
        let turn = Arc::clone(&self.turns).try_acquire_owned();
        let sent = turn.is_ok_and(|turn| {
            let (tenant, server, at) = (self.tenant, self.server, SystemTime::now());
            journal.try_send(LogLine { tenant, server, at, source, text, turn: Some(turn) }).is_ok()
        });
        if !sent {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_tenant_has_a_share_of_what_waits() {
        let (journal, mut lines) = mpsc::channel(100);
        let command = || Arc::new(ProgramCommand::new(vec![], [].into(), vec![]));
        let of = |turns| ServerLog::new((Uuid::nil(), Uuid::nil()), command(), Some(journal.clone()), turns);
        let turns = Arc::new(Semaphore::new(25));
        let (one, same, other) =
            (of(Arc::clone(&turns)), of(Arc::clone(&turns)), of(Arc::new(Semaphore::new(25))));
        for _ in 0..40 {
            one.stderr(Raw::Whole(b"x"));
            same.stderr(Raw::Whole(b"x"));
        }
        assert_eq!(lines.len(), 25);
        other.stderr(Raw::Whole(b"y"));
        assert_eq!(lines.len(), 26);
        let mut written = Vec::new();
        lines.recv_many(&mut written, 25).await;
        drop(written);
        one.event("goes on");
        assert_eq!(lines.len(), 3, "what was left out is said too");
    }
}
