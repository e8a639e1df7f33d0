//! The cluster on disk, and the server process that runs it.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use std::os::unix::process::CommandExt;

use tokio::net::UnixStream;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

use super::account::Account;
use super::command::{QUICK_WAIT, run, tail};
use super::error::LocalPostgresError;
use super::place;
use super::programs::Programs;

/// Name of the database and of the superuser of the cluster.
pub(super) const NAME: &str = "mcpproxy";
/// Port, which is only part of the socket's name; nothing listens on the network.
pub(super) const PORT: u16 = 5432;
/// Longest wait for the creation of a cluster.
const INIT_WAIT: Duration = Duration::from_secs(120);
/// Longest wait for the server to get ready: it may have to recover after a crash.
const START_WAIT: Duration = Duration::from_secs(120);
/// Poll interval while waiting for a condition.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Most bytes of a small file that is read.
const SMALL_FILE_BYTES_MAX: u64 = 4096;

/// A cluster on disk.
#[derive(Clone, Debug)]
pub(super) struct Cluster {
    pub(super) path: PathBuf,
    pub(super) programs: Programs,
}

/// Content of `postmaster.pid`, which the server writes about itself.
#[derive(Debug, PartialEq, Eq)]
struct PidFile {
    pid: u32,
    socket_folder: Option<PathBuf>,
    ready: bool,
}

impl PidFile {
    fn parse(text: &str) -> Option<PidFile> {
        let mut lines = text.lines().map(str::trim);
        let pid = lines.next()?.parse().ok()?;
        let socket_folder = lines.nth(3).map(PathBuf::from).filter(|folder| folder.is_absolute());
        let ready = lines.nth(2) == Some("ready");
        Some(PidFile { pid, socket_folder, ready })
    }
}

/// Returns the major version that made the cluster; `None` if there is none yet.
pub(super) fn major(path: &Path) -> Result<Option<u32>, LocalPostgresError> {
    if let Some(text) = small_file(&path.join("PG_VERSION"))? {
        let not_a_cluster = || LocalPostgresError::NotACluster { path: path.to_owned() };
        return text.trim().parse().map(Some).map_err(|_| not_a_cluster());
    }
    match std::fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
        Ok(true) => Err(LocalPostgresError::NotACluster { path: path.to_owned() }),
        Ok(false) => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LocalPostgresError::io("read", path)(error)),
    }
}

impl Cluster {
    /// Creates the cluster with its database in a folder beside its place, and moves it there as a whole. So an
    /// interrupted first start leaves nothing that looks like a cluster.
    pub(super) async fn init(&self, account: Option<&Account>) -> Result<(), LocalPostgresError> {
        let draft = self.path.with_file_name("postgres.new");
        match std::fs::remove_dir_all(&draft) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(LocalPostgresError::io("removed", &draft)(error));
            }
            _ => {}
        }
        place::private_folder(&draft, account)?;
        let mut initdb = self.programs.command("initdb");
        initdb.arg("-D").arg(&draft).args(["-U", NAME, "-E", "UTF8", "--locale=C", "--no-instructions"]);
        initdb.args(["--auth-local=trust", "--auth-host=reject"]);
        run("initdb", initdb, "", INIT_WAIT).await?;
        let made = Cluster { path: draft.clone(), programs: self.programs.clone() };
        made.single(&format!("CREATE DATABASE {NAME}\n")).await?;
        std::fs::rename(&draft, &self.path).map_err(LocalPostgresError::io("moved into place", &draft))
    }

    /// Runs a statement on a cluster whose server does not run.
    pub(super) async fn single(&self, statement: &str) -> Result<(), LocalPostgresError> {
        let mut single = self.programs.command("postgres");
        single.args(["--single", "-D"]).arg(&self.path).args(["-c", "exit_on_error=on", "postgres"]);
        run("postgres --single", single, statement, INIT_WAIT).await.map(drop)
    }

    /// Waits for a server that a killed gateway left running, and returns its socket folder; `None` if there is none.
    pub(super) async fn take_over(&self) -> Result<Option<PathBuf>, LocalPostgresError> {
        let deadline = Instant::now() + START_WAIT;
        while let Some(found) = self.pid_file()? {
            if !self.is_server(found.pid).await {
                self.forget_reused(found.pid).await?;
                return Ok(None);
            }
            if let Some(folder) = found.socket_folder.filter(|_| found.ready)
                && answers(&folder).await
            {
                return Ok(Some(folder));
            }
            if Instant::now() > deadline {
                return Err(self.not_ready());
            }
            sleep(LOOK_EVERY).await;
        }
        Ok(None)
    }

    /// Starts the server and waits until it answers.
    pub(super) async fn start(&self, socket_folder: &Path) -> Result<Child, LocalPostgresError> {
        let log = self.log();
        if log.exists() {
            let before = log.with_extension("log.1");
            std::fs::rename(&log, &before).map_err(LocalPostgresError::io("renamed", &log))?;
        }
        let output = File::create(&log).map_err(LocalPostgresError::io("written", &log))?;
        let errors = output.try_clone().map_err(LocalPostgresError::io("written", &log))?;
        let mut command = self.server_command(socket_folder);
        command.stdout(Stdio::from(output)).stderr(Stdio::from(errors));
        let spawned = tokio::process::Command::from(command).spawn();
        let mut child = spawned.map_err(|error| LocalPostgresError::Program {
            program: "postgres",
            output: error.to_string(),
        })?;
        let deadline = Instant::now() + START_WAIT;
        loop {
            let found = self.pid_file()?.filter(|found| Some(found.pid) == child.id());
            if found.is_some_and(|found| found.ready) && answers(socket_folder).await {
                return Ok(child);
            }
            let ended = child.try_wait().map_err(LocalPostgresError::io("watched", &self.path))?;
            if ended.is_some() {
                return Err(self.not_ready());
            }
            if Instant::now() > deadline {
                self.signal_stop("immediate").await?;
                return Err(self.not_ready());
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn server_command(&self, socket_folder: &Path) -> Command {
        let mut folder = OsString::from("unix_socket_directories=\"");
        // A list of folders to the server: quotes keep commas and spaces in one of them.
        folder.push(socket_folder.to_string_lossy().replace('"', "\"\""));
        folder.push("\"");
        let mut command = self.programs.command("postgres");
        command.arg("-D").arg(&self.path).arg("-c").arg(folder);
        for setting in [
            "listen_addresses=",
            "unix_socket_permissions=0700",
            "shared_buffers=32MB",
            "max_connections=100",
            "logging_collector=off",
            // Errors of statements reach the client that caused them; in a log they could show data.
            "log_min_messages=log",
            "log_min_error_statement=panic",
            "log_checkpoints=off",
        ] {
            command.args(["-c", setting]);
        }
        command.args(["-p", &PORT.to_string()]);
        // Ctrl-C in a terminal goes to the whole group: the gateway must be able to finish first.
        command.process_group(0);
        command
    }

    /// Asks the server to stop, `fast` or `immediate`, without waiting for it.
    pub(super) async fn signal_stop(&self, mode: &str) -> Result<(), LocalPostgresError> {
        run("pg_ctl", self.stop_command(mode), "", QUICK_WAIT).await.map(|_| ())
    }

    /// Returns the command behind [`Cluster::signal_stop`].
    pub(super) fn stop_command(&self, mode: &str) -> Command {
        let mut command = self.programs.command("pg_ctl");
        command.args(["stop", "--silent", "--no-wait", "--mode", mode, "-D"]).arg(&self.path);
        command
    }

    /// Waits until no server runs on the cluster. Returns whether that was so within `wait`.
    pub(super) async fn ended(&self, wait: Duration) -> bool {
        let deadline = Instant::now() + wait;
        loop {
            match self.pid_file() {
                Ok(Some(found)) if self.is_server(found.pid).await => {}
                _ => return true,
            }
            if Instant::now() > deadline {
                return false;
            }
            sleep(LOOK_EVERY).await;
        }
    }

    fn pid_file(&self) -> Result<Option<PidFile>, LocalPostgresError> {
        Ok(small_file(&self.path.join("postmaster.pid"))?.as_deref().and_then(PidFile::parse))
    }

    /// Returns whether the process is the server of this cluster, and not another process with the same id.
    async fn is_server(&self, pid: u32) -> bool {
        if Path::new("/proc/self").exists() {
            // The server works in its data directory.
            let works_in = std::fs::read_link(format!("/proc/{pid}/cwd"));
            return works_in
                .ok()
                .is_some_and(|folder| std::fs::canonicalize(&self.path).is_ok_and(|own| own == folder));
        }
        let mut ps = Command::new("ps");
        ps.args(["-o", "command=", "-p", &pid.to_string()]).env_clear().env("PATH", "/usr/bin:/bin");
        let line = run("ps", ps, "", QUICK_WAIT).await.unwrap_or_default();
        self.path.to_str().is_some_and(|path| line.contains(path))
    }

    /// Deletes `postmaster.pid` if another process has got the server's id, as is usual after the restart of a
    /// container. The server itself deletes it only if no process has that id.
    async fn forget_reused(&self, pid: u32) -> Result<(), LocalPostgresError> {
        let path = self.path.join("postmaster.pid");
        let pid = pid.to_string();
        let mut ps = Command::new("kill");
        ps.args(["-0", &pid]).env_clear().env("PATH", "/usr/bin:/bin");
        let taken = Path::new("/proc").join(&pid).exists() || run("kill", ps, "", QUICK_WAIT).await.is_ok();
        if !taken {
            return Ok(());
        }
        std::fs::remove_file(&path).map_err(LocalPostgresError::io("removed", &path))
    }

    fn log(&self) -> PathBuf {
        self.path.with_file_name("postgres.log")
    }

    fn not_ready(&self) -> LocalPostgresError {
        let log = self.log();
        let mut end = Vec::new();
        let read = File::open(&log).and_then(|mut file| {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(SMALL_FILE_BYTES_MAX)))?;
            file.take(SMALL_FILE_BYTES_MAX).read_to_end(&mut end)
        });
        let tail = read.map_or_else(|error| format!("(cannot be read: {error})"), |_| tail(&end));
        LocalPostgresError::NotReady { log, tail }
    }
}

/// Returns whether something accepts connections on the socket.
async fn answers(folder: &Path) -> bool {
    UnixStream::connect(folder.join(format!(".s.PGSQL.{PORT}"))).await.is_ok()
}

/// Reads the beginning of a small file; `None` if there is none.
pub(super) fn small_file(path: &Path) -> Result<Option<String>, LocalPostgresError> {
    let mut text = String::new();
    match File::open(path).and_then(|file| file.take(SMALL_FILE_BYTES_MAX).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(LocalPostgresError::io("read", path)(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pid_files_are_read() {
        let whole = "4711\n/data/postgres\n1700000000\n5432\n/data/run\n\n  12345  6789\nready   \n";
        let expected = PidFile { pid: 4711, socket_folder: Some("/data/run".into()), ready: true };
        assert_eq!(PidFile::parse(whole), Some(expected));
        assert!(!PidFile::parse(&whole.replace("ready", "stopping")).unwrap().ready);
        for (text, pid) in
            [("17\n", Some(17)), ("17\n/d\n1\n5432\n\n\n", Some(17)), ("", None), ("x\n", None)]
        {
            let found = PidFile::parse(text);
            assert_eq!(found.as_ref().map(|found| found.pid), pid, "{text:?}");
            assert!(found.is_none_or(|found| !found.ready && found.socket_folder.is_none()));
        }
    }
}
