//! The gateway, run as users run it.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::api::Api;
use super::database::Database;
use super::postgres::Cluster;
use super::wait::eventually;

/// Roots of the system would take longer to read than all else that a start does, and nothing here is asked over TLS.
const ROOTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/root.pem");
const BINARY: &str = env!("CARGO_BIN_EXE_mcpproxy");
/// Anybody but root.
const NOBODY: u32 = 65534;
/// The platform operator's key.
const BOOTSTRAP_KEY: &str = "bootstrap-key-of-the-integration-tests";
const SESSIONS_KEY: &str = "sessions-key-of-the-integration-tests!";
/// The master key of all tests that say nothing else.
pub const MASTER_KEY: &str = "lUWWG8XuWKvA73bCSxTQXOjDkZDKLyLsOm3Xy+22iQk=";
/// How long a start may take; generous, the machine may be busy.
const START_WAIT_MAX: Duration = Duration::from_secs(30);
/// How long an orderly end may take: 25 s of drain and a little.
const STOP_WAIT_MAX: Duration = Duration::from_secs(40);
/// Longest wait for the last lines of the log of a gateway that has ended.
const LAST_LINES_WAIT_MAX: Duration = Duration::from_secs(1);

/// A running gateway; killed when dropped.
pub struct Gateway {
    child: Child,
    /// `http://127.0.0.1:PORT`
    pub url: String,
    log: Arc<Mutex<Vec<String>>>,
    /// Closed once the log has been read to its end.
    log_ends: watch::Receiver<()>,
    http: reqwest::Client,
    /// False for another release, whose answers this one's document does not describe.
    is_documented: bool,
}

/// The program with the settings of all tests, and nothing else in its environment.
fn program(database: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Command {
    program_at(Path::new(BINARY), database, arguments, settings)
}

fn program_at(binary: &Path, database: &str, arguments: &[&str], settings: &[(&str, &str)]) -> Command {
    let mut command = Command::new(binary);
    command.args(arguments).env_clear().stdin(Stdio::null());
    for name in ["PATH", "HOME"] {
        command.env(name, std::env::var_os(name).unwrap_or_default());
    }
    command
        .env("NO_COLOR", "1")
        .env("SSL_CERT_FILE", ROOTS)
        .env("MCPPROXY__DATABASE__URL", database)
        .env("MCPPROXY__SERVER__LISTEN", "127.0.0.1:0")
        .env("MCPPROXY__SERVER__ADMIN_LISTEN", "")
        // a scrape tells of what has happened by then
        .env("MCPPROXY__LIMITS__METRICS_AGE_MAX_MS", "1")
        .env("MCPPROXY__AUTH__BOOTSTRAP_KEY", BOOTSTRAP_KEY)
        .env("MCPPROXY__SESSIONS__KEY", SESSIONS_KEY)
        .env("MCPPROXY__SECRETS__MASTER_KEY", MASTER_KEY)
        .env("MCPPROXY__EGRESS__ALLOW", "127.0.0.0/8")
        .envs(settings.iter().copied());
    command
}

/// Starts the program.
pub fn spawn(database: &Database, arguments: &[&str]) -> Child {
    let mut command = program(&database.url(), arguments, &[]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs the program until it ends by itself; one that has not within the bound is killed.
pub fn run_to_end(database: &Database, arguments: &[&str], settings: &[(&str, &str)]) -> Output {
    finish(program(&database.url(), arguments, settings))
}

/// Runs a command until it ends by itself; one that has not within the bound is killed.
fn finish(mut command: Command) -> Output {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + START_WAIT_MAX;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    if child.try_wait().unwrap().is_none() {
        child.kill().unwrap();
    }
    child.wait_with_output().unwrap()
}

impl Gateway {
    /// Migrates a database.
    pub fn migrate(database: &Database) {
        Gateway::migrate_with(Path::new(BINARY), database);
    }

    /// Migrates a database with the program of another release. Returns what that logged.
    pub fn migrate_with(binary: &Path, database: &Database) -> String {
        let done = finish(program_at(binary, &database.url(), &["migrate"], &[]));
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "migrate: {said}");
        said
    }

    /// Starts on a migrated database; returns when it is ready.
    pub async fn start(database: &Database, settings: &[(&str, &str)]) -> Gateway {
        Gateway::run(program(&database.url(), &["serve"], settings)).await
    }

    /// Starts with a settings file, which alone says which networks are allowed.
    pub async fn start_with_file(database: &Database, file: &Path, settings: &[(&str, &str)]) -> Gateway {
        let file = file.to_str().unwrap();
        let mut command = program(&database.url(), &["serve", "--config", file], settings);
        command.env_remove("MCPPROXY__EGRESS__ALLOW");
        Gateway::run(command).await
    }

    /// Starts the program of another release on a migrated database; returns when it is ready.
    pub async fn start_other(binary: &Path, database: &Database, settings: &[(&str, &str)]) -> Gateway {
        let command = program_at(binary, &database.url(), &["serve"], settings);
        let mut gateway = Gateway::run(command).await;
        gateway.is_documented = false;
        gateway
    }

    /// Starts with a private database and the secrets that are kept beside it.
    pub async fn start_private(data_dir: &Path) -> Gateway {
        Gateway::start_private_with(data_dir, &[]).await
    }

    /// Starts as [`Gateway::start_private`] does, with settings.
    pub async fn start_private_with(data_dir: &Path, settings: &[(&str, &str)]) -> Gateway {
        let mut command = program("", &["serve"], settings);
        command.env("MCPPROXY__DATA_DIR", data_dir);
        for name in
            ["MCPPROXY__AUTH__BOOTSTRAP_KEY", "MCPPROXY__SESSIONS__KEY", "MCPPROXY__SECRETS__MASTER_KEY"]
        {
            command.env_remove(name);
        }
        Gateway::run(command).await
    }

    /// Starts in a shell that has run `command`, for example `ulimit -n 400`.
    pub async fn start_in_shell(command: &str, database: &Database, settings: &[(&str, &str)]) -> Gateway {
        let script = format!("{command}; exec \"$0\" serve");
        let arguments = ["-c", &script, BINARY];
        Gateway::run(program_at(Path::new("sh"), &database.url(), &arguments, settings)).await
    }

    /// Starts as an ordinary user, even where tests run as root. Its binary is put into `folder`, which everybody
    /// may read.
    pub async fn start_unprivileged(
        database: &Database,
        settings: &[(&str, &str)],
        folder: &Path,
    ) -> Gateway {
        let binary = folder.join("mcpproxy");
        if fs::hard_link(BINARY, &binary).is_err() {
            fs::copy(BINARY, &binary).unwrap();
        }
        let mut command = program_at(&binary, &database.url(), &["serve"], settings);
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            // it may not be able to read what is here
            command.uid(NOBODY).gid(NOBODY).env_remove("SSL_CERT_FILE");
        }
        Gateway::run(command).await
    }

    async fn run(mut command: Command) -> Gateway {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        drop(fs::write(Cluster::of_this_run().note_of(child.id()), ""));
        let log = Arc::new(Mutex::new(Vec::new()));
        let (found, url) = mpsc::channel();
        let (log_is_open, log_ends) = watch::channel(());
        let (lines, kept) = (BufReader::new(child.stderr.take().unwrap()), Arc::clone(&log));
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                if let Some((_, rest)) = line.split_once("listening on http://127.0.0.1:") {
                    let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
                    drop(found.send(format!("http://127.0.0.1:{port}")));
                }
                kept.lock().unwrap().push(line);
            }
            drop(log_is_open);
        });
        let mut gateway =
            Gateway { child, url: String::new(), log, log_ends, http: client(), is_documented: true };
        gateway.url = eventually("the gateway to listen", START_WAIT_MAX, || {
            gateway.fail_if_ended();
            let url = url.try_recv().ok();
            async { url }
        })
        .await;
        eventually("the gateway to be ready", START_WAIT_MAX, || {
            gateway.fail_if_ended();
            let asked = gateway.anonymous().get("/readyz");
            async { (asked.await.status == 200).then_some(()) }
        })
        .await;
        gateway
    }

    /// A caller without a credential.
    pub fn anonymous(&self) -> Api {
        Api { is_documented: self.is_documented, ..Api::new(self.http.clone(), &self.url) }
    }

    /// The platform operator.
    pub fn platform(&self) -> Api {
        self.anonymous().with_key(BOOTSTRAP_KEY)
    }

    /// The same caller, at this gateway.
    pub fn ask_as(&self, api: &Api) -> Api {
        let (base, http) = (self.url.clone(), self.http.clone());
        Api { base, http, is_documented: self.is_documented, ..api.clone() }
    }

    /// kill -9.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM; does not wait.
    pub fn terminate(&self) {
        self.signal("TERM");
    }

    /// SIGHUP; does not wait.
    pub fn hang_up(&self) {
        self.signal("HUP");
    }

    /// SIGSTOP: it does nothing until it is woken.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// SIGCONT.
    pub fn wake(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let kill = Command::new("sh").args(["-c", &format!("kill -{name} {}", self.child.id())]).status();
        assert!(kill.unwrap().success());
    }

    /// Waits for its end.
    pub async fn ended(&mut self) -> ExitStatus {
        let child = &mut self.child;
        let status = eventually("the gateway to end", STOP_WAIT_MAX, || {
            let status = child.try_wait().unwrap();
            async move { status }
        })
        .await;
        // what it wrote last may still be on its way; a program that it started may hold the pipe open
        drop(tokio::time::timeout(LAST_LINES_WAIT_MAX, self.log_ends.changed()).await);
        status
    }

    /// The most memory it has had so far, in MiB.
    pub fn memory_peak_mib(&self) -> usize {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        peak.trim().trim_end_matches("kB").trim().parse::<usize>().unwrap() / 1024
    }

    /// Everything it logged so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap().join("\n")
    }

    fn fail_if_ended(&mut self) {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("the gateway ended with {status}:\n{}", self.log());
        }
    }
}

/// A client of HTTP that asks what is on this machine, directly.
pub(super) fn local_http() -> reqwest::ClientBuilder {
    // the program's own client brings none with it; a second installation changes nothing
    drop(rustls::crypto::ring::default_provider().install_default());
    // as with the program: no roots are read
    reqwest::Client::builder().no_proxy().tls_certs_only([])
}

fn client() -> reqwest::Client {
    local_http().timeout(Duration::from_secs(60)).build().unwrap()
}

impl Drop for Gateway {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_file(Cluster::of_this_run().note_of(self.child.id())));
        if std::thread::panicking() {
            // shown by the test harness below the failure
            let lines = self.log.lock().map(|log| log.join("\n")).unwrap_or_default();
            drop(std::io::Write::write_all(
                &mut std::io::stderr(),
                format!("{}:\n{lines}\n", self.url).as_bytes(),
            ));
        }
    }
}
