//! Ends the programs of a gateway that was killed. A helper process knows the process groups of all programs, and
//! kills them when the pipe from the gateway closes. The kernel closes it however the gateway ends.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal, kill_process_group};

/// Time between SIGTERM and SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(2);

/// Gateway's side of the helper process.
pub(super) struct Warden {
    /// Program and argument of the helper; `None` runs no helper.
    program: Option<(PathBuf, String)>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    groups: BTreeSet<i32>,
    running: Option<Child>,
}

impl Warden {
    /// Creates the gateway's side; the helper starts later. `program` with its argument must lead to [`run_warden`].
    pub(super) fn new(program: Option<(PathBuf, String)>) -> Self {
        Self { program, state: Mutex::default() }
    }

    /// Adds a process group that must end with the gateway.
    pub(super) fn watch(&self, group: i32) {
        let mut state = self.state.lock();
        state.groups.insert(group);
        let told = state.tell(&format!("+{group}\n"));
        if told || self.program.is_none() {
            return;
        }
        // the helper has not started yet, or is gone
        if let Some(mut gone) = state.running.take() {
            drop(gone.kill());
            drop(gone.wait());
        }
        state.running = self.start();
        let all: String = state.groups.iter().map(|group| format!("+{group}\n")).collect();
        if !state.tell(&all) {
            tracing::warn!("nobody will end the programs of stdio servers should this gateway be killed");
        }
    }

    /// Removes a process group that has ended.
    pub(super) fn forget(&self, group: i32) {
        let mut state = self.state.lock();
        state.groups.remove(&group);
        state.tell(&format!("-{group}\n"));
    }

    fn start(&self) -> Option<Child> {
        let (program, argument) = self.program.as_ref()?;
        Command::new(program)
            .arg(argument)
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // a Ctrl-C at the terminal is for the gateway, which ends its programs itself
            .process_group(0)
            .spawn()
            .ok()
    }
}

impl State {
    fn tell(&mut self, text: &str) -> bool {
        let input = self.running.as_mut().and_then(|child| child.stdin.as_mut());
        input.is_some_and(|input| input.write_all(text.as_bytes()).is_ok())
    }
}

/// Runs the helper: follows standard input to its end, then ends the process groups that are left.
pub fn run_warden() {
    let mut groups = BTreeSet::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        match line.split_at_checked(1) {
            Some(("+", group)) => groups.extend(group.parse::<i32>().ok()),
            Some(("-", group)) => drop(group.parse().map(|group| groups.remove(&group))),
            _ => {}
        }
    }
    let signal = |signal| {
        for group in groups.iter().filter(|group| **group > 1).filter_map(|group| Pid::from_raw(*group)) {
            kill_process_group(group, signal).ok();
        }
    };
    if !groups.is_empty() {
        signal(Signal::TERM);
        std::thread::sleep(TERM_GRACE);
        signal(Signal::KILL);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn one_that_died_is_replaced_and_collected() {
        let warden = Warden::new(Some((PathBuf::from("true"), String::new())));
        let id = || warden.state.lock().running.as_ref().map(Child::id);
        warden.watch(1);
        let first = id();
        // what is written before its end is not refused
        let replaced = (2..10_000).any(|group| {
            std::thread::sleep(Duration::from_millis(1));
            warden.watch(group);
            id() != first
        });
        let folder = format!("/proc/{}", first.unwrap());
        assert!(replaced && !std::path::Path::new(&folder).exists());
    }
}
