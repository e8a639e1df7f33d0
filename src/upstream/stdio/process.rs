//! Running program, in a process group of its own that ends as a whole.

use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, waitpgid};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};
use tokio::time::{sleep, timeout};

use super::confine::{Confinement, not_started};
use crate::upstream::target::command::ProgramCommand;

/// Longest time for a program to end after its standard input was closed.
const INPUT_GRACE: Duration = Duration::from_secs(1);
/// Longest time for a program to end after SIGTERM.
const TERM_GRACE: Duration = Duration::from_secs(3);
/// Interval between polls for the end of killed processes, of which there are at most [`COLLECT_PAUSES_MAX`].
const COLLECT_PAUSE: Duration = Duration::from_millis(10);
const COLLECT_PAUSES_MAX: u32 = 50;

/// Running program. Dropping it kills its whole process group.
pub(super) struct Process {
    child: Child,
    group: Option<Pid>,
}

/// Standard streams of a program.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
    pub(super) stderr: ChildStderr,
}

impl Process {
    /// Starts a program with its own environment and none of ours, confined if `confinement` is given.
    ///
    /// # Errors
    /// The reason, which names neither the program nor its arguments.
    pub(super) fn spawn(
        command: &ProgramCommand,
        confinement: Option<&Confinement>,
    ) -> Result<(Self, Pipes), String> {
        let (program, arguments) = command.argv().ok_or_else(|| "its entry names no program".to_owned())?;
        let mut started = match confinement {
            Some(confinement) => confinement.command(program),
            None => tokio::process::Command::new(program),
        };
        let spawned = started
            .args(arguments)
            .env_clear()
            .envs(command.env())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        let mut child = spawned.map_err(|error| not_started(program.as_ref(), &error))?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Self { child, group };
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err("it cannot be started: it has no pipes".to_owned());
        };
        Ok((process, Pipes { stdin, stdout, stderr }))
    }

    /// Returns the id of the program and of its process group.
    pub(super) fn id(&self) -> Option<i32> {
        self.group.map(|group| group.as_raw_nonzero().get())
    }

    /// Waits until the program has ended, and describes how; other processes of its group may live on.
    pub(super) async fn ended(&mut self) -> String {
        match self.child.wait().await {
            Ok(status) => described(status),
            Err(_) => "an unknown status".to_owned(),
        }
    }

    /// Returns whether the program has ended; other processes of its group may live on.
    pub(super) fn has_ended(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(Some(_)))
    }

    /// Ends the process group of a program whose standard input was closed: waits, sends SIGTERM, then SIGKILL.
    pub(super) async fn end(mut self) {
        if timeout(INPUT_GRACE, self.child.wait()).await.is_err() {
            self.signal(Signal::TERM);
            if timeout(TERM_GRACE, self.child.wait()).await.is_err() {
                self.signal(Signal::KILL);
                drop(timeout(TERM_GRACE, self.child.wait()).await);
            }
        }
        self.kill_group().await;
    }

    /// Kills what is left of the process group. No other group can get its number while a process of it lives.
    pub(super) async fn kill_group(&mut self) {
        self.signal(Signal::KILL);
        let group = self.group.take();
        if let Some(group) = group.filter(|_| self.has_ended()) {
            collect(group).await;
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // the group may be empty already, which is fine
            kill_process_group(group, signal).ok();
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// Waits for the orphans of a killed group. Where this process is process 1, they are its children, and no other
/// process collects them. Elsewhere there are none.
async fn collect(group: Pid) {
    let mut pauses = 0;
    loop {
        match waitpgid(group, WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) if pauses < COLLECT_PAUSES_MAX => {
                pauses += 1;
                sleep(COLLECT_PAUSE).await;
            }
            Ok(None) | Err(_) => return,
        }
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn orphans_of_a_group_are_collected_where_they_fall_to_us() {
        // as for process 1
        rustix::process::set_child_subreaper(Pid::from_raw(1)).unwrap();
        let script = "sleep 60 & (sleep 60 & sleep 60) & read line";
        let argv = ["sh", "-c", script].map(str::to_owned);
        let (process, pipes) =
            Process::spawn(&ProgramCommand::new(argv.to_vec(), [].into(), vec![]), None).unwrap();
        let group = process.group.unwrap();
        drop(pipes);
        process.end().await;
        assert_eq!(waitpgid(group, WaitOptions::NOHANG).unwrap_err(), rustix::io::Errno::CHILD);
    }
}
