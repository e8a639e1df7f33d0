//! The official clients of the Agent Client Protocol, as processes: `tests/clients/acp`, `acp_client.mjs`, `acp_client.py`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::api::Api;
use super::real::{node, tools};

const CLIENTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients");
/// Longest wait of a test for an event.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// An official client, by the language of its library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcpLibrary {
    Rust,
    JavaScript,
    Python,
}

impl AcpLibrary {
    pub const ALL: [AcpLibrary; 3] = [AcpLibrary::Rust, AcpLibrary::JavaScript, AcpLibrary::Python];

    /// True if it tells its program that a request needs no answer any more.
    pub fn hears_of_withdrawals(self) -> bool {
        self != AcpLibrary::Python
    }

    fn program(self) -> (PathBuf, &'static [&'static str]) {
        match self {
            AcpLibrary::Rust => (Path::new(CLIENTS).join("acp/target/debug/acp-client"), &[]),
            AcpLibrary::JavaScript => (node(), &["acp_client.mjs"]),
            AcpLibrary::Python => (tools().join("acp/bin/python"), &["acp_client.py"]),
        }
    }
}

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
    pub async fn start(library: AcpLibrary, api: &Api, session: Option<&str>) -> AcpProgram {
        let url = api.base_url().replace("http://", "ws://");
        let (program, arguments) = library.program();
        let mut command = Command::new(&program);
        command.args(arguments).arg(url).arg(api.key.as_deref().unwrap()).args(session).current_dir(CLIENTS);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}: run tests/it/setup.sh first", program.display()));
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
