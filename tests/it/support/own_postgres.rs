//! A Postgres of one test, to be killed and started again.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::database::Database;
use super::wait::eventually;

/// How long a start may take.
const START_WAIT_MAX: Duration = Duration::from_secs(30);
const DATABASE: &str = "own";

/// The cluster; gone at the end of the test.
pub struct OwnPostgres {
    folder: tempfile::TempDir,
    programs: PathBuf,
    port: u16,
    server: Option<Child>,
}

impl OwnPostgres {
    /// Makes a cluster with an empty database, and starts it.
    pub async fn start() -> OwnPostgres {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut own = OwnPostgres { folder, programs: programs(), port, server: None };
        if is_root() {
            let chown = Command::new("chown").arg("postgres:").arg(own.folder.path()).status();
            assert!(chown.unwrap().success());
        }
        let made = own
            .program("initdb")
            .args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .arg("--pgdata")
            .arg(own.data())
            .stdout(Stdio::null())
            .status();
        assert!(made.unwrap().success(), "initdb");
        own.start_again().await;
        own.admin("create database own").await;
        own
    }

    /// A standby of it, to which from now on every commit has to get before it is one. It is the same after the end of
    /// this one, once it is [promoted](Self::promote).
    pub async fn standby(&self) -> OwnPostgres {
        const NAME: &str = "standby";
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut standby = OwnPostgres { folder, programs: self.programs.clone(), port, server: None };
        if is_root() {
            let chown = Command::new("chown").arg("postgres:").arg(standby.folder.path()).status();
            assert!(chown.unwrap().success());
        }
        let from = format!("host=127.0.0.1 port={} user=postgres application_name={NAME}", self.port);
        let copied = standby
            .program("pg_basebackup")
            .args(["--write-recovery-conf", "--wal-method=stream", "--checkpoint=fast", "--no-sync"])
            .args(["--dbname", &from, "--pgdata"])
            .arg(standby.data())
            .status();
        assert!(copied.unwrap().success(), "pg_basebackup");
        standby.start_again().await;
        self.admin(&format!("alter system set synchronous_standby_names = '{NAME}'")).await;
        self.admin("select pg_reload_conf()").await;
        eventually("the standby to be waited for", START_WAIT_MAX, || async {
            let mut admin = PgConnection::connect(&self.url("postgres")).await.unwrap();
            let state = "select sync_state = 'sync' from pg_stat_replication";
            let is_waited_for: Option<bool> =
                sqlx::query_scalar(state).fetch_optional(&mut admin).await.unwrap();
            is_waited_for.filter(|is| *is)
        })
        .await;
        standby
    }

    /// Makes a standby the one that writes.
    pub async fn promote(&self) {
        self.admin("select pg_promote()").await;
    }

    /// Its database.
    pub fn database(&self) -> Database {
        Database::at(DATABASE, self.url(DATABASE))
    }

    /// Port on loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Folder of the programs of PostgreSQL.
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Runs a statement as superuser, outside the database.
    pub async fn admin(&self, statement: &str) {
        let mut admin = PgConnection::connect(&self.url("postgres")).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&mut admin).await.unwrap();
    }

    /// From now on commits wait for a standby of this name, or for none. Returns when it is so.
    pub async fn wait_for_standby(&self, name: &str) {
        self.admin(&format!("alter system set synchronous_standby_names = '{name}'")).await;
        self.admin("select pg_reload_conf()").await;
        // the setting holds a moment later: a commit of ours shows when
        eventually("the setting to hold", Duration::from_secs(5), || async {
            let commit = self.admin("comment on database own is 'of one test'");
            let waits = tokio::time::timeout(Duration::from_millis(200), commit).await.is_err();
            (waits != name.is_empty()).then_some(())
        })
        .await;
    }

    /// kill -9 of the server; its sessions end with it.
    pub fn kill(&mut self) {
        if let Some(mut server) = self.server.take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// Starts the server and waits until it takes connections.
    pub async fn start_again(&mut self) {
        let url = self.url("postgres");
        for _ in 0..50 {
            let mut server = self.spawn();
            let started = eventually("Postgres to start or to give up", START_WAIT_MAX, || {
                let ended = server.try_wait().unwrap().is_some();
                let url = url.clone();
                async move {
                    if ended {
                        return Some(false);
                    }
                    PgConnection::connect(&url).await.is_ok().then_some(true)
                }
            })
            .await;
            if started {
                self.server = Some(server);
                return;
            }
            // sessions of the one that was killed may take a moment to notice
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("Postgres does not start");
    }

    fn spawn(&self) -> Child {
        let mut command = self.program("postgres");
        command.arg("-D").arg(self.data()).args(["-p", &self.port.to_string(), "-h", "127.0.0.1", "-k"]);
        command.arg(self.folder.path()).args(["-c", "shared_buffers=16MB", "-c", "fsync=on"]);
        command.args(["-c", "log_min_messages=fatal"]).stdin(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir(self.folder.path());
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for OwnPostgres {
    fn drop(&mut self) {
        if let Some(mut server) = self.server.take() {
            drop(server.kill());
            drop(server.wait());
        }
    }
}

/// Whether the tests run as root, as which neither Postgres nor pgbouncer runs.
pub(super) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// The folder of the server programs, as `postgres.sh` finds them.
fn programs() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // where a link leads, since not all of the others are linked beside it
    let found = std::env::split_paths(&path)
        .find_map(|folder| Some(folder.join("initdb").canonicalize().ok()?.parent()?.to_owned()));
    let mut versions: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|version| Some(version.ok()?.path().join("bin")))
        .filter(|folder: &PathBuf| Path::exists(&folder.join("initdb")))
        .collect();
    versions.sort();
    found.or(versions.pop()).expect("initdb is missing: install postgresql")
}
