//! A private PostgreSQL for `mcpproxy serve` without a database URL: created, started and stopped with the gateway.
//!
//! The private PostgreSQL is the same engine as in production, found on the machine. It listens on a Unix socket in a
//! folder that only its user can enter. It asks for a password that is kept in the data directory. If the gateway runs
//! as root, the server runs as `postgres` or `nobody`. A gateway that was killed leaves the server running, and the
//! next gateway takes it over.

mod account;
mod cluster;
mod command;
mod error;
mod password;
mod place;
mod programs;

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use tokio::process::Child;
use tokio::time::timeout;

pub use error::LocalPostgresError;

use super::config::{Host, Secret};
use cluster::{Cluster, NAME, PORT};
use place::System;
use programs::Programs;

/// Longest wait for a `fast` stop of the server, before an `immediate` one.
const STOP_WAIT: Duration = Duration::from_secs(20);
/// Longest wait for an `immediate` stop of the server.
const ABORT_WAIT: Duration = Duration::from_secs(5);
/// Most bytes of the lock file that are read.
const LOCK_BYTES_MAX: u64 = 32;

/// Characters of a socket folder that its URL escapes: all but the unreserved ones of RFC 3986.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A running private PostgreSQL. If it is dropped without [`LocalPostgres::stop`], it is asked to stop, but nobody
/// waits for that.
#[derive(Debug)]
pub struct LocalPostgres {
    url: Secret,
    cluster: Cluster,
    /// Process of the server; `None` if an earlier gateway started it.
    child: Option<Child>,
    /// True if dropping this still has to stop the server.
    running: bool,
    /// Lock of the data directory, held as long as the server is ours; the system releases it when the gateway is
    /// killed.
    _lock: File,
}

impl LocalPostgres {
    /// Starts the server on the data in `data_dir`, which are created if need be, or takes over a server that still
    /// runs.
    ///
    /// # Errors
    /// The text says what is missing and what to do.
    pub async fn start(data_dir: &Path, host: &Host) -> Result<LocalPostgres, LocalPostgresError> {
        LocalPostgres::start_on(data_dir, host, &System::usual()).await
    }

    async fn start_on(
        data_dir: &Path,
        host: &Host,
        system: &System,
    ) -> Result<LocalPostgres, LocalPostgresError> {
        if host.in_kubernetes {
            return Err(LocalPostgresError::Kubernetes);
        }
        let lock = lock(data_dir)?;
        let data_dir = &std::fs::canonicalize(data_dir).map_err(LocalPostgresError::io("read", data_dir))?;
        let existing = place::existing(data_dir);
        let linked = existing.clone().unwrap_or_else(|| data_dir.join("postgres"));
        let account = account::choose(&linked).await?;
        let major = cluster::major(&linked)?;
        let wanted = major.map(|major| (linked.as_path(), major));
        let programs = Programs::find(&host.search_path, account.clone(), wanted).await?;
        let path = match existing {
            Some(path) => path,
            None => place::first(data_dir, &programs, system).await?,
        };
        let cluster = Cluster { path, programs };
        if major.is_none() {
            tracing::info!(cluster = %cluster.path.display(), "making a private PostgreSQL cluster");
            cluster.init(account.as_ref()).await?;
        }
        let running = cluster.take_over().await?;
        let password = password::settle(data_dir, &cluster, running.is_some()).await?;
        let (child, socket_folder) = match running {
            Some(folder) => (None, folder),
            None => {
                let folder = place::socket_folder(&cluster.path, account.as_ref(), system)?;
                (Some(cluster.start(&folder).await?), folder)
            }
        };
        tracing::info!(cluster = %cluster.path.display(), taken_over = child.is_none(), "private PostgreSQL is ready");
        let url = Secret::new(url(&socket_folder, password.as_deref()));
        Ok(LocalPostgres { url, cluster, child, running: true, _lock: lock })
    }

    /// Returns the URL of the database `mcpproxy`, as its superuser and over the socket.
    pub fn url(&self) -> &str {
        self.url.expose()
    }

    /// Stops the server: connections are cut, what was committed stays. Waits for its end, but not for ever.
    pub async fn stop(mut self) {
        self.running = false;
        for (mode, wait) in [("fast", STOP_WAIT), ("immediate", ABORT_WAIT)] {
            if let Err(error) = self.cluster.signal_stop(mode).await {
                tracing::debug!(%error, mode, "the private PostgreSQL could not be told to stop");
            }
            if self.ended(wait).await {
                return;
            }
        }
        tracing::error!(cluster = %self.cluster.path.display(), "the private PostgreSQL does not stop");
    }

    async fn ended(&mut self, wait: Duration) -> bool {
        match &mut self.child {
            Some(child) => timeout(wait, child.wait()).await.is_ok(),
            None => self.cluster.ended(wait).await,
        }
    }

    /// Leaves the server running, as `kill -9` of the gateway does.
    #[cfg(test)]
    fn abandon(mut self) {
        self.running = false;
    }
}

impl Drop for LocalPostgres {
    fn drop(&mut self) {
        if self.running && self.cluster.stop_command("fast").status().is_err() {
            tracing::warn!(cluster = %self.cluster.path.display(), "the private PostgreSQL was left running");
        }
    }
}

/// Creates the data directory and takes its lock.
fn lock(data_dir: &Path) -> Result<File, LocalPostgresError> {
    std::fs::create_dir_all(data_dir).map_err(LocalPostgresError::io("made", data_dir))?;
    let path = data_dir.join("gateway.lock");
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(LocalPostgresError::io("opened", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let read = (&mut file).take(LOCK_BYTES_MAX).read_to_string(&mut pid);
            let pid = pid.trim();
            let known = read.is_ok() && !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
            let pid = if known { pid } else { "unknown" };
            return Err(LocalPostgresError::InUse { pid: pid.to_owned(), path: data_dir.to_owned() });
        }
        Err(TryLockError::Error(error)) => return Err(LocalPostgresError::io("locked", &path)(error)),
    }
    let written = file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id()));
    written.map_err(LocalPostgresError::io("written", &path))?;
    Ok(file)
}

/// Returns the URL for a socket folder. Everything that the environment could otherwise decide is spelt out.
fn url(socket_folder: &Path, password: Option<&str>) -> String {
    let host = percent_encode(socket_folder.as_os_str().as_encoded_bytes(), ESCAPED);
    let password = password.map(|password| format!(":{password}")).unwrap_or_default();
    format!("postgres://{NAME}{password}@localhost:{PORT}/{NAME}?host={host}&sslmode=disable")
}
