//! The official client of the Agent Client Protocol, as a process: `tests/clients/acp`.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::api::Api;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/acp/target/debug/acp-client");
/// How long a test waits for an event.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A running client; killed when dropped.
pub struct AcpProgram {
    commands: ChildStdin,
    events: Lines<BufReader<ChildStdout>>,
    /// Events that were passed over.
    passed: VecDeque<Value>,
    _child: Child,
}

impl AcpProgram {
    /// Connects as this caller; loads the session, or opens one.
    pub async fn start(api: &Api, session: Option<&str>) -> AcpProgram {
        assert!(Path::new(PROGRAM).exists(), "run tests/it/setup.sh first");
        let url = api.base_url().replace("http://", "ws://");
        let mut command = Command::new(PROGRAM);
        command.arg(url).arg(api.key.as_deref().unwrap()).args(session);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let events = BufReader::new(child.stdout.take().unwrap()).lines();
        AcpProgram { commands: child.stdin.take().unwrap(), events, passed: VecDeque::new(), _child: child }
    }

    /// Returns the next event of this name; others before it are kept for later.
    pub async fn event(&mut self, name: &str) -> Value {
        if let Some(at) = self.passed.iter().position(|event| event.get(name).is_some()) {
            return self.passed.remove(at).unwrap()[name].clone();
        }
        loop {
            let line = tokio::time::timeout(WAIT_MAX, self.events.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no {name} in time: {:?}", self.passed));
            let event: Value = serde_json::from_str(&line.unwrap().expect("the client ended")).unwrap();
            if event.get(name).is_some() {
                return event[name].clone();
            }
            self.passed.push_back(event);
        }
    }

    /// Gives a command.
    pub async fn tell(&mut self, command: &str) {
        self.commands.write_all(format!("{command}\n").as_bytes()).await.unwrap();
    }
}
