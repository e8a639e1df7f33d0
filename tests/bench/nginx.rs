//! nginx as a plain hop: what passing bytes on costs at the least.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::process::Process;

/// Where it may be: it is often not in the path of people.
const PROGRAMS: [&str; 2] = ["nginx", "/usr/sbin/nginx"];
/// How long its start may take.
const START_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often it is tried while it starts.
const TRY_EVERY: Duration = Duration::from_millis(5);

/// A running nginx.
pub struct Nginx {
    process: Process,
    /// Where it listens.
    pub at: SocketAddr,
}

impl Nginx {
    /// Starts it in front of the upstream; `None` where it is not installed.
    ///
    /// # Errors
    /// If it is installed and does not start.
    pub fn start(folder: &Path, upstream: SocketAddr) -> Result<Option<Nginx>> {
        let version = |name: &&str| Command::new(name).arg("-v").stderr(Stdio::null()).status();
        let Some(program) = PROGRAMS.into_iter().find(|name| match version(name) {
            Ok(status) => status.success(),
            Err(error) => error.kind() != ErrorKind::NotFound,
        }) else {
            return Ok(None);
        };
        std::fs::create_dir(folder)?;
        let at = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let config = folder.join("nginx.conf");
        std::fs::write(&config, settings(at, upstream))?;
        let mut command = Command::new(program);
        command.arg("-p").arg(folder).arg("-e").arg("stderr").arg("-c").arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let mut process = Process::start(&mut command)?;
        let deadline = Instant::now() + START_WAIT_MAX;
        while TcpStream::connect(at).is_err() {
            ensure!(!process.has_ended() && Instant::now() < deadline, "nginx does not start");
            std::thread::sleep(TRY_EVERY);
        }
        Ok(Some(Nginx { process, at }))
    }

    /// Its processes.
    pub fn pids(&self) -> Vec<u32> {
        crate::cpu::family(self.process.pid())
    }
}

/// Two workers, connections to the upstream kept, nothing written anywhere.
fn settings(at: SocketAddr, upstream: SocketAddr) -> String {
    format!(
        "worker_processes 2; daemon off; pid nginx.pid; error_log stderr warn;
events {{ worker_connections 2048; }}
http {{
  access_log off;
  client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
  client_body_buffer_size 64k;
  upstream up {{ server {upstream}; keepalive 256; keepalive_requests 100000000; }}
  server {{
    listen {at};
    keepalive_requests 100000000;
    location / {{
      proxy_pass http://up;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
    }}
  }}
}}
"
    )
}
