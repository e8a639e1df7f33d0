//! agentgateway, the nearest peer that is a gateway in Rust, as it ships: stateful MCP, its request log on.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::process::Process;

/// Names its program; without it the peer is left out.
const PROGRAM: &str = "AGENTGATEWAY";
/// How long its start may take.
const START_WAIT_MAX: Duration = Duration::from_secs(10);
/// How often it is tried while it starts.
const TRY_EVERY: Duration = Duration::from_millis(5);

/// A running agentgateway.
pub struct Agentgateway {
    process: Process,
    /// Where it listens.
    pub at: SocketAddr,
}

impl Agentgateway {
    /// Starts it in front of the upstream; `None` when its program is not named.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start(folder: &Path, upstream: SocketAddr) -> Result<Option<Agentgateway>> {
        let Some(program) = std::env::var_os(PROGRAM) else { return Ok(None) };
        std::fs::create_dir(folder)?;
        // held together until all are known, so that they differ
        let ports = [0; 4].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
        let mut free = Vec::new();
        for port in &ports {
            free.push(port.as_ref().map_err(|error| anyhow::anyhow!("no free port: {error}"))?.local_addr()?);
        }
        drop(ports);
        let [at, admin, stats, ready] = free.as_slice() else { anyhow::bail!("no free ports") };
        let config = folder.join("config.yaml");
        std::fs::write(&config, settings(*at, [*admin, *stats, *ready], upstream))?;
        let mut command = Command::new(program);
        command.arg("-f").arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut process = Process::start(&mut command)?;
        let deadline = Instant::now() + START_WAIT_MAX;
        while TcpStream::connect(at).is_err() {
            ensure!(!process.has_ended() && Instant::now() < deadline, "agentgateway does not start");
            std::thread::sleep(TRY_EVERY);
        }
        Ok(Some(Agentgateway { process, at: *at }))
    }

    /// Its process.
    pub fn pids(&self) -> Vec<u32> {
        vec![self.process.pid()]
    }
}

fn settings(at: SocketAddr, [admin, stats, ready]: [SocketAddr; 3], upstream: SocketAddr) -> String {
    let port = at.port();
    format!(
        "config:
  adminAddr: \"{admin}\"
  statsAddr: \"{stats}\"
  readinessAddr: \"{ready}\"
binds:
- port: {port}
  listeners:
  - routes:
    - backends:
      - mcp: {{statefulMode: stateful, targets: [{{name: up, mcp: {{host: \"http://{upstream}/mcp\"}}}}]}}
"
    )
}
