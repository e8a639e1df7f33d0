//! Child processes that never outlive the benchmark.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// How long a child may take to end in order: the gateway drains, then stops its database.
const STOP_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often a child is looked at while it ends.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running child; told to stop, waited for, and in the end killed when dropped.
pub struct Process(Child);

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// If there is no such program.
    pub fn start(command: &mut Command) -> Result<Process> {
        let name = command.get_program().to_string_lossy().into_owned();
        Ok(Process(command.spawn().with_context(|| format!("{name} could not be started"))?))
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }

    /// Whether it ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.has_ended() {
            return;
        }
        signal(self.pid(), "TERM");
        let deadline = Instant::now() + STOP_WAIT_MAX;
        while Instant::now() < deadline {
            if self.has_ended() {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
        }
        // it had its time; should even this fail, there is nothing left to try
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Sends a signal; that the process is gone already is fine.
pub fn signal(pid: u32, name: &str) {
    let mut kill = Command::new("sh");
    kill.args(["-c", &format!("kill -{name} {pid}")]).stderr(Stdio::null());
    drop(kill.status());
}
