//! One throw-away Postgres for a whole test run. The first test that needs it starts it, and its script stops
//! it when the run is over: `cargo nextest` has a process per test, whose parent is the run; `cargo test` has
//! one process, which is the run.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::{CommandExt, parent_id};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long starting may take.
const START_WAIT_MAX: Duration = Duration::from_secs(60);

/// The running cluster.
pub(super) struct Cluster {
    port: u16,
    state: PathBuf,
}

impl Cluster {
    /// The cluster of this run.
    pub(super) fn of_this_run() -> &'static Cluster {
        static CLUSTER: OnceLock<Cluster> = OnceLock::new();
        CLUSTER.get_or_init(start_or_join)
    }

    /// A superuser's URL of a database.
    pub(super) fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// Where the process id of a gateway, or of nginx, is noted, so that none outlives the run.
    pub(super) fn note_of(&self, pid: u32) -> PathBuf {
        self.state.join("gateways").join(pid.to_string())
    }
}

fn start_or_join() -> Cluster {
    let (run, watched) = match std::env::var_os("NEXTEST_RUN_ID") {
        Some(run) => (run.to_string_lossy().into_owned(), parent_id()),
        None => (std::process::id().to_string(), std::process::id()),
    };
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(folder).unwrap();
    let lock = File::create(folder.join("postgres.lock")).unwrap();
    lock.lock().unwrap();
    let state = folder.join(format!("postgres-{run}"));
    let noted = state.join("port");
    if let Ok(port) = fs::read_to_string(&noted) {
        return Cluster { port: port.parse().unwrap(), state };
    }
    let port = start(&state, watched);
    fs::write(&noted, port.to_string()).unwrap();
    Cluster { port, state }
}

fn start(state: &Path, watched: u32) -> u16 {
    fs::create_dir_all(state).unwrap();
    let log = File::create(state.join("log")).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut script = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/support/postgres.sh"))
        .arg(state)
        .args([port.to_string(), watched.to_string()])
        // a signal to the tests must not reach it before the tests have ended
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    std::thread::spawn(move || script.wait());
    let deadline = Instant::now() + START_WAIT_MAX;
    while !state.join("ready").exists() {
        let failed = state.join("failed").exists() || Instant::now() > deadline;
        assert!(
            !failed,
            "Postgres did not start:\n{}",
            fs::read_to_string(state.join("log")).unwrap_or_default()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    port
}
