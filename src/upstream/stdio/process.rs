//! One running program, in a process group of its own that ends as a whole.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::time::timeout;

use super::command::Command;

/// How long a program may take to end after its standard input has.
const INPUT_GRACE: Duration = Duration::from_secs(1);
/// How long it may take after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(3);

/// A running program. Dropped, its whole group is killed.
pub(super) struct Process {
    child: Child,
    group: Option<Pid>,
}

/// What it is talked to over.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Process {
    /// Starts a program with its own environment and nothing of ours.
    ///
    /// # Errors
    /// Why not; names neither the program nor its arguments.
    pub(super) fn spawn(command: &Command) -> Result<(Self, Pipes), String> {
        let (program, arguments) = command.argv().ok_or_else(|| "its entry names no program".to_owned())?;
        let spawned = tokio::process::Command::new(program)
            .args(arguments)
            .env_clear()
            .envs(command.env())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = spawned.map_err(|error| format!("it cannot be started: {}", error.kind()))?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Self { child, group };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err("it cannot be started: it has no pipes".to_owned());
        };
        Ok((process, Pipes { stdin, stdout, stderr }))
    }

    /// The id of the program and of its group.
    pub(super) fn id(&self) -> Option<i32> {
        self.group.map(|group| group.as_raw_nonzero().get())
    }

    /// Waits until the program has ended; others of its group may live on.
    pub(super) async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => described(status),
            Err(_) => "an unknown status".to_owned(),
        }
    }

    /// Whether the program has ended; others of its group may live on.
    pub(super) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Ends the group of a program whose standard input has been closed: waits, asks, insists.
    pub(super) async fn end(mut self) {
        if timeout(INPUT_GRACE, self.child.wait()).await.is_err() {
            self.signal(Signal::TERM);
            if timeout(TERM_GRACE, self.child.wait()).await.is_err() {
                self.signal(Signal::KILL);
                drop(timeout(TERM_GRACE, self.child.wait()).await);
            }
        }
        self.kill_group();
    }

    /// Kills whatever is left of the group. Its number is not another's while one of it lives.
    pub(super) fn kill_group(&mut self) {
        self.signal(Signal::KILL);
        self.group = None;
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // there may be nobody left, which is as well
            kill_process_group(group, signal).ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_group();
    }
}

fn described(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "an unknown status".to_owned(),
    }
}
