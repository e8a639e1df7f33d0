//! pgbouncer in transaction mode, in front of the run's Postgres.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection, PgConnection};

use super::database::Database;
use super::own_postgres::is_root;
use super::wait::eventually;

/// A running pgbouncer; killed when dropped.
pub struct PgBouncer {
    child: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

impl PgBouncer {
    /// Its major and minor version.
    pub fn version() -> (u32, u32) {
        let said = Command::new(program()).arg("--version").output().expect(MISSING).stdout;
        let said = String::from_utf8_lossy(&said).to_lowercase();
        let (_, rest) = said.split_once("pgbouncer ").unwrap();
        let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    }

    /// Starts one whose few sessions many clients share. A test that needs it fails where it is missing.
    pub async fn start(database: &Database) -> PgBouncer {
        let folder = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(path("users"), "\"postgres\" \"\"\n").unwrap();
        let settings = format!(
            "[databases]\n{name} = host=127.0.0.1 port={to} dbname={name}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {users}\npool_mode = transaction\n\
             default_pool_size = 4\nmax_client_conn = 200\nlogfile = {log}\n",
            name = database.name(),
            to = database.port(),
            users = path("users"),
            log = path("log"),
        );
        fs::write(path("ini"), settings).unwrap();
        let program = program();
        let mut command = if is_root() {
            let chown = Command::new("chown").args(["-R", "postgres:"]).arg(folder.path()).status();
            assert!(chown.unwrap().success());
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--", program]);
            command
        } else {
            Command::new(program)
        };
        command.args(["-q", &path("ini")]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect(MISSING);
        let mut bouncer = PgBouncer { child, port, _folder: folder };
        let url = bouncer.url(database);
        eventually("pgbouncer to answer", Duration::from_secs(15), || {
            let ended = bouncer.child.try_wait().unwrap();
            assert!(ended.is_none(), "pgbouncer ended ({ended:?}); is the package pgbouncer installed?");
            let url = url.clone();
            async move { PgConnection::connect_with(&plain(&url)).await.ok() }
        })
        .await;
        bouncer
    }

    /// A superuser's URL of a database, through it.
    pub fn url(&self, database: &Database) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{}", self.port, database.name())
    }
}

const MISSING: &str = "pgbouncer is missing: install the package pgbouncer";

fn program() -> &'static str {
    // Debian keeps it where only root looks
    let found = ["/usr/sbin/pgbouncer"].into_iter().find(|path| Path::new(path).exists());
    found.unwrap_or("pgbouncer")
}

/// sqlx without the parameters and the statements that a pooler minds.
pub fn plain(url: &str) -> PgConnectOptions {
    let options: PgConnectOptions = url.parse().unwrap();
    options.extra_float_digits(None).statement_cache_capacity(0)
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
