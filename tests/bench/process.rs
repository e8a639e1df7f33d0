//! Child processes that never outlive the benchmark.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How long a child may take to end in order: the gateway drains, then stops its database.
const STOP_WAIT_MAX: Duration = Duration::from_secs(30);
/// How often a child is looked at while it ends.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A running child; told to stop, waited for, and in the end killed when dropped.
pub struct Process(Child);

/// Share of the processors that a child gets beside others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// As large as that of the gateway.
    Usual,
    /// As small as it can be: `nice -n 19`.
    Lowest,
}

impl Process {
    /// Starts it.
    ///
    /// # Errors
    /// If there is no such program.
    pub fn start(command: &mut Command) -> Result<Process> {
        let name = command.get_program().to_string_lossy().into_owned();
        Ok(Process(command.spawn().with_context(|| format!("{name} could not be started"))?))
    }

    /// Starts this very program in one of its other roles, with the lines of its standard output. It ends when its standard
    /// input does, so also when the benchmark is killed.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn start_role(role: &str, priority: Priority) -> Result<(Process, Lines<BufReader<ChildStdout>>)> {
        let program = std::env::current_exe().context("the benchmark cannot find itself")?;
        let mut command = match priority {
            Priority::Usual => Command::new(program),
            Priority::Lowest => {
                let mut nice = Command::new("nice");
                nice.args(["-n", "19"]).arg(program);
                nice
            }
        };
        let mut process = Process::start(command.arg(role).stdin(Stdio::piped()).stdout(Stdio::piped()))?;
        let output = process.child().stdout.take().with_context(|| format!("the {role} has no output"))?;
        Ok((process, BufReader::new(output).lines()))
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

/// Lets this process open as many files as the system allows.
///
/// # Errors
/// If the system refuses.
pub fn open_many_files() -> Result<()> {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum })?)
}

/// Sends a signal; that the process is gone already is fine.
pub fn signal(pid: u32, name: &str) {
    let mut kill = Command::new("sh");
    kill.args(["-c", &format!("kill -{name} {pid}")]).stderr(Stdio::null());
    drop(kill.status());
}
