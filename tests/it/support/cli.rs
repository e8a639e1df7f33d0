//! The command line, run as people run it.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, ChildStdout, Command};

use super::api::Api;

/// How long a test waits for the next line of a command.
const LINE_WAIT_MAX: Duration = Duration::from_secs(20);

/// A command that has ended.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Run {
    /// Checks that it went well.
    #[track_caller]
    pub fn ok(self) -> Run {
        assert_eq!(self.code, 0, "{self:?}");
        self
    }

    /// Checks that it failed with this exit code, saying this on standard error and nothing on standard output.
    #[track_caller]
    pub fn failed(&self, code: i32, says: &str) {
        assert_eq!((self.code, &*self.out), (code, ""), "{self:?}");
        assert!(self.err.contains(says), "{self:?}");
    }

    /// Standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The rows of a table, without its head, by columns.
    pub fn rows(&self) -> Vec<Vec<String>> {
        let cells = |line: &str| {
            line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
        };
        self.out.lines().skip(1).map(cells).collect()
    }
}

/// `mcpproxy` with nothing of this machine's settings.
fn bare() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcpproxy"));
    command.env_clear().env("PATH", "/usr/bin:/bin").env("HOME", "/nonexistent").env("TZ", "UTC");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// The same as this caller.
fn of(api: &Api) -> Command {
    let mut command = bare();
    command.env("MCPPROXY_URL", &api.base);
    if let Some(key) = &api.key {
        command.env("MCPPROXY_API_KEY", key);
    }
    if let Some(tenant) = &api.tenant {
        command.env("MCPPROXY_TENANT", tenant);
    }
    command
}

fn run(output: Output) -> Run {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs a command as this caller.
pub async fn cli(api: &Api, args: &[&str]) -> Run {
    run(of(api).args(args).output().await.unwrap())
}

/// Runs a command with these variables only.
pub async fn cli_with(env: &[(&str, &str)], args: &[&str]) -> Run {
    run(bare().envs(env.iter().copied()).args(args).output().await.unwrap())
}

/// Runs a line as this caller types it into a shell, in this folder; returns what the terminal shows.
pub async fn cli_typed(api: &Api, folder: &Path, line: &str) -> String {
    let own = of(api);
    let programs = Path::new(own.as_std().get_program()).parent().unwrap();
    let mut command = Command::new("sh");
    command.env_clear().stdin(Stdio::null()).kill_on_drop(true).current_dir(folder);
    for (name, value) in own.as_std().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    command.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
    command.args(["-c", &format!("exec 2>&1; {line}")]);
    run(command.output().await.unwrap()).out
}

/// Runs a command as this caller, with this on its standard input.
pub async fn cli_reading(api: &Api, args: &[&str], input: &str) -> Run {
    let mut command = of(api);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).await.unwrap();
    drop(stdin);
    run(child.wait_with_output().await.unwrap())
}

/// Runs a command as this caller at a terminal of its own, which shows what it says on either output.
pub async fn cli_at_terminal(api: &Api, args: &[&str]) -> Run {
    let own = of(api);
    let mut command = Command::new("script");
    command.env_clear().stdin(Stdio::null()).kill_on_drop(true);
    for (name, value) in own.as_std().get_envs() {
        command.env(name, value.unwrap_or_default());
    }
    let program = own.as_std().get_program().to_str().unwrap().to_owned();
    let line: Vec<String> = std::iter::once(&*program).chain(args.iter().copied()).map(quoted).collect();
    command.args(["--quiet", "--return", "--command", &line.join(" "), "/dev/null"]);
    let run = run(command.output().await.unwrap());
    Run { out: run.out.replace("\r\n", "\n"), ..run }
}

fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A command under way, which this caller reads line by line.
pub struct Following {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Following {
    /// Starts it.
    pub fn start(api: &Api, args: &[&str]) -> Following {
        let mut command = of(api);
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let err = BufReader::new(child.stderr.take().unwrap()).lines();
        Following { child, out, err }
    }

    /// The next line of its standard output; `None` at its end.
    pub async fn line(&mut self) -> Option<String> {
        tokio::time::timeout(LINE_WAIT_MAX, self.out.next_line()).await.expect("a line in time").unwrap()
    }

    /// The next line of its standard error; `None` at its end.
    pub async fn note(&mut self) -> Option<String> {
        tokio::time::timeout(LINE_WAIT_MAX, self.err.next_line()).await.expect("a line in time").unwrap()
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> std::process::ExitStatus {
        tokio::time::timeout(LINE_WAIT_MAX, self.child.wait()).await.expect("its end in time").unwrap()
    }

    /// Waits until it says this on standard error.
    pub async fn says(&mut self, what: &str) {
        loop {
            let line = tokio::time::timeout(LINE_WAIT_MAX, self.err.next_line()).await;
            let line = line.expect("a line in time").unwrap().expect("not its end");
            if line.contains(what) {
                return;
            }
        }
    }
}
