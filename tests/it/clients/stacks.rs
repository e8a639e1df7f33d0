//! The official clients, each with how to run it. All take `URL KEY STEPS_JSON` and print one line of JSON.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use futures_util::stream;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;

use super::servers::{INSTALL, ROOT, installed, tools};
use crate::support::{Api, MODERN, node};

/// Clients that run at the same time.
const AT_ONCE: usize = 3;
/// The newest handshake revision.
const HANDSHAKE: &str = "2025-11-25";

/// Longer than any test; a listener is killed when its test is over.
const LISTEN: &str = r#"[{"listen": {"seconds": 100}}]"#;
/// Lines of a listener that nobody read yet.
const LINES_MAX: usize = 1000;

/// An official client in one of its modes.
#[derive(Clone, Copy, Debug)]
pub struct Stack {
    /// What it is, for messages.
    pub name: &'static str,
    script: &'static str,
    mode: &'static [&'static str],
    /// The revision it ends up with.
    pub version: &'static str,
    /// What it calls itself, beyond the name that it was given.
    pub suffix: &'static str,
}

impl Stack {
    pub fn is_modern(&self) -> bool {
        self.version == MODERN
    }

    /// Whether its report tells the revision and has every body from the wire.
    pub fn keeps_wire(&self) -> bool {
        matches!(self.script, "sdk1.mjs" | "client2.mjs")
    }
}

const fn stack(
    name: &'static str,
    script: &'static str,
    mode: &'static [&'static str],
    version: &'static str,
) -> Stack {
    Stack { name, script, mode, version, suffix: "" }
}

/// Every client that runs a script of steps.
pub const STACKS: [Stack; 8] = [
    stack("npm sdk 1.x", "sdk1.mjs", &[], HANDSHAKE),
    stack("npm client 2.x, modern", "client2.mjs", &["--mode", "modern"], MODERN),
    stack("npm client 2.x, legacy", "client2.mjs", &["--mode", "legacy"], HANDSHAKE),
    stack("npm client 2.x, auto", "client2.mjs", &["--mode", "auto"], MODERN),
    stack("PyPI mcp 1.x", "client1.py", &[], HANDSHAKE),
    stack("PyPI mcp 2.x, legacy", "client2.py", &["legacy"], HANDSHAKE),
    stack("PyPI mcp 2.x, auto", "client2.py", &["auto"], MODERN),
    Stack {
        suffix: " (via mcp-remote 0.15.1)",
        ..stack("stdio through mcp-remote", "remote.mjs", &[], HANDSHAKE)
    },
];

fn folder() -> PathBuf {
    PathBuf::from(ROOT).join("tests/clients")
}

/// A program of the clients for JavaScript.
fn module(path: &str) -> String {
    installed(&folder().join("node_modules").join(path))
}

/// A program that keeps what it keeps in a folder of its own.
fn command(program: &str, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.current_dir(folder()).stdin(Stdio::null()).kill_on_drop(true);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("HOME", home).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// A client's program; it reads its steps from standard input. With an answer it shows forms, and answers all of them so.
fn client(stack: &Stack, answer: Option<&Value>, endpoint: &str, key: &str, home: &Path) -> Command {
    let program = match stack.script {
        "client1.py" => installed(&tools().join("py1/bin/python")),
        "client2.py" => installed(&tools().join("venv/bin/python")),
        _ => node().to_str().unwrap().to_owned(),
    };
    for needed in ["@modelcontextprotocol/sdk", "@modelcontextprotocol/client", "mcp-remote"] {
        module(needed);
    }
    let mut command = command(&program, home);
    command.args([stack.script, endpoint, key, "-"]).args(stack.mode);
    if stack.script == "remote.mjs" {
        command.arg(home);
    }
    if let Some(answer) = answer {
        let option = ["--answer"].into_iter().filter(|_| stack.script == "client2.mjs");
        command.args(option).arg(answer.to_string());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Exit code and report of a client that ran these steps at this address with this key.
async fn run(
    stack: &Stack,
    answer: Option<&Value>,
    endpoint: &str,
    key: &str,
    steps: &Value,
) -> (Option<i32>, Value) {
    let home = tempfile::tempdir().unwrap();
    let mut child = client(stack, answer, endpoint, key, home.path())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}; {INSTALL}", stack.script));
    // a client that does not even start says so itself
    drop(child.stdin.take().unwrap().write_all(steps.to_string().as_bytes()).await);
    let output = child.wait_with_output().await.unwrap();
    let report = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}: {}", stack.name, String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report)
}

/// The official clients of the modern era, as their users have them: each settles on it by itself.
pub const MODERN_STACKS: [Stack; 2] = [STACKS[3], STACKS[6]];

/// The official clients of the handshake era that can show forms.
pub const HANDSHAKE_STACKS: [Stack; 4] = [STACKS[0], STACKS[2], STACKS[4], STACKS[5]];

/// Runs these steps on a client, whose user gives this answer to every form; without, it shows none.
pub async fn asking(
    stack: &Stack,
    answer: Option<&Value>,
    endpoint: &str,
    key: &Api,
    steps: &Value,
) -> Value {
    let (code, report) = run(stack, answer, endpoint, key.key.as_deref().unwrap(), steps).await;
    assert_eq!(
        (code, &report["protocolVersion"]),
        (Some(0), &Value::from(stack.version)),
        "{}: {report}",
        stack.name
    );
    report
}

/// Runs every client on `/mcp` with a key of its own, a few at a time: with its exit code, 0 once it is connected.
pub async fn run_all(url: &str, keys: Vec<Api>, steps: &Value) -> Vec<(Stack, Api, Option<i32>, Value)> {
    run_all_at(&format!("{url}/mcp"), keys, steps).await
}

/// The same at this address.
pub async fn run_all_at(
    endpoint: &str,
    keys: Vec<Api>,
    steps: &Value,
) -> Vec<(Stack, Api, Option<i32>, Value)> {
    assert_eq!(keys.len(), STACKS.len());
    let runs = STACKS.into_iter().zip(keys).map(|(stack, key)| async move {
        let (code, report) = run(&stack, None, endpoint, key.key.as_deref().unwrap(), steps).await;
        (stack, key, code, report)
    });
    stream::iter(runs).buffered(AT_ONCE).collect().await
}

/// The inspector's CLI with these arguments: its exit code, what it printed, and what it complained about.
pub async fn inspector(url: &str, key: &str, era: &str, arguments: &[&str]) -> (Option<i32>, Value, String) {
    let home = tempfile::tempdir().unwrap();
    let launcher = module("@modelcontextprotocol/inspector/clients/launcher/build/index.js");
    let output = command(node().to_str().unwrap(), home.path())
        .args([&launcher, "--cli", &format!("{url}/mcp"), "--transport", "http", "--format", "json"])
        .args(["--header", &format!("X-API-Key: {key}"), "--protocol-era", era])
        .args(arguments)
        .output()
        .await
        .unwrap_or_else(|error| panic!("node: {error}; {INSTALL}"));
    let printed = serde_json::from_slice(&output.stdout).unwrap_or_default();
    (output.status.code(), printed, String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The time as listeners tell it: milliseconds since 1970.
pub fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

/// A client that listens on a stream; killed when dropped.
pub struct Listener {
    name: &'static str,
    child: Child,
    lines: mpsc::Receiver<String>,
    said: Vec<String>,
    _home: tempfile::TempDir,
}

impl Listener {
    /// The step `listen` and no other.
    pub fn start(stack: &Stack, endpoint: &str, key: &str) -> Listener {
        let home = tempfile::tempdir().unwrap();
        let mut command = client(stack, None, endpoint, key, home.path());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (found, lines) = mpsc::channel(LINES_MAX);
        tokio::spawn(async move {
            drop(stdin.write_all(LISTEN.as_bytes()).await);
            drop(stdin);
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                drop(found.send(line).await);
            }
        });
        Listener { name: stack.name, child, lines, said: Vec::new(), _home: home }
    }

    /// Which of the stacks it is.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The next line with this word: its time in milliseconds, and the rest.
    pub async fn heard(&mut self, word: &str, bound: Duration) -> (u128, String) {
        let next = async {
            while let Some(line) = self.lines.recv().await {
                self.said.push(line.clone());
                let mut parts = line.splitn(3, ' ');
                if parts.next() == Some(word) {
                    let at = parts.next().and_then(|at| at.parse().ok()).unwrap_or_default();
                    return Some((at, parts.next().unwrap_or_default().to_owned()));
                }
            }
            None
        };
        let found = tokio::time::timeout(bound, next).await;
        found.ok().flatten().unwrap_or_else(|| panic!("{}: no {word} after {:?}", self.name, self.said))
    }

    /// Waits for such a list of tools.
    pub async fn listed(&mut self, bound: Duration, is_right: impl Fn(&str) -> bool) {
        while !is_right(&self.heard("TOOLS", bound).await.1) {}
    }

    /// Waits for a notice of other tools that came after this time, and says how many milliseconds after.
    pub async fn told_after(&mut self, since: u128, bound: Duration) -> u128 {
        loop {
            let (at, list) = self.heard("CHANGED", bound).await;
            // another one, of all kinds, may have come for a list that was served out of date
            if list == "tools" && at >= since {
                return at - since;
            }
        }
    }

    /// How many of the lines that were read so far have this word.
    pub fn said(&self, word: &str) -> usize {
        self.said.iter().filter(|line| line.split(' ').next() == Some(word)).count()
    }

    /// Whether it still listens.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}
