use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::PathBuf;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, PgConnection};

use super::*;

/// A data directory that every user can reach, and system folders of its own.
struct Fixture {
    dir: tempfile::TempDir,
    system: System,
    host: Host,
}

impl Fixture {
    fn new() -> Fixture {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path(), 0o755);
        let system = System { state: dir.path().join("state"), temporary: dir.path().to_owned() };
        #[expect(clippy::disallowed_methods, reason = "tests find the programs as a user would")]
        let path = std::env::var("PATH").unwrap();
        let search_path = std::env::split_paths(&path).collect();
        Fixture { dir, system, host: Host { search_path, ..Host::default() } }
    }

    fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data, with \"odd\" ünits")
    }

    async fn start(&self) -> Result<LocalPostgres, LocalPostgresError> {
        LocalPostgres::start_on(&self.data_dir(), &self.host, &self.system).await
    }
}

fn open(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

async fn connect(postgres: &LocalPostgres) -> PgConnection {
    postgres.url().parse::<PgConnectOptions>().unwrap().connect().await.unwrap()
}

async fn rows(postgres: &LocalPostgres) -> i64 {
    let mut connection = connect(postgres).await;
    let count = sqlx::query_scalar("select count(*) from kept").fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    count
}

/// Returns whether a client on the socket can connect without the password.
async fn lets_anybody_in(postgres: &LocalPostgres) -> bool {
    let (before, rest) = postgres.url().split_once("//").unwrap();
    let (credentials, place) = rest.split_once('@').unwrap();
    let name = credentials.split(':').next().unwrap();
    let bare = format!("{before}//{name}@{place}");
    bare.parse::<PgConnectOptions>().unwrap().connect().await.is_ok()
}

#[tokio::test]
async fn whoever_reaches_the_socket_needs_the_password() {
    let fixture = Fixture::new();
    let first = fixture.start().await.unwrap();
    assert!(!lets_anybody_in(&first).await);
    let file = fixture.data_dir().join(password::FILE);
    let password = std::fs::read_to_string(&file).unwrap();
    assert!(first.url().contains(&password) && !format!("{first:?}").contains(&password));
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    connect(&first).await.close().await.unwrap();
    first.stop().await;

    // the state that an earlier release leaves: no password
    let cluster = std::fs::canonicalize(fixture.data_dir()).unwrap().join("postgres");
    std::fs::remove_file(&file).unwrap();
    std::fs::write(cluster.join("pg_hba.conf"), "local all all trust\n").unwrap();
    let second = fixture.start().await.unwrap();
    connect(&second).await.close().await.unwrap();
    assert!(!lets_anybody_in(&second).await);
    second.stop().await;
}

#[tokio::test]
async fn a_whole_life() {
    let fixture = Fixture::new();
    let first = fixture.start().await.unwrap();
    let pid = first.child.as_ref().unwrap().id().unwrap();
    let mut connection = connect(&first).await;
    sqlx::raw_sql("create table kept (n int); insert into kept values (1)")
        .execute(&mut connection)
        .await
        .unwrap();
    let settings: (String, String, String, String) = sqlx::query_as(
        "select current_setting('listen_addresses'), current_setting('shared_buffers'),
                current_setting('server_encoding'), current_database() || ':' || current_user",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    assert_eq!(settings, (String::new(), "32MB".into(), "UTF8".into(), "mcpproxy:mcpproxy".into()));

    let cluster = std::fs::canonicalize(fixture.data_dir()).unwrap().join("postgres");
    for path in [cluster.clone(), cluster.with_file_name("run")] {
        let found = std::fs::metadata(&path).unwrap();
        assert_eq!(found.mode() & 0o777, 0o700, "{}", path.display());
        assert!(found.uid() != 0, "{}", path.display());
    }

    let second = fixture.start().await.unwrap_err();
    assert!(second.to_string().contains(&format!("process {}", std::process::id())), "{second}");

    // An open connection does not delay the stop.
    first.stop().await;
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert!(!cluster.join("postmaster.pid").exists());
    drop(connection);

    let again = fixture.start().await.unwrap();
    assert_eq!(rows(&again).await, 1);

    // The gateway is killed, the server is not.
    let pid = again.child.as_ref().unwrap().id();
    again.abandon();
    let taken = fixture.start().await.unwrap();
    assert!(taken.child.is_none() && rows(&taken).await == 1);
    assert_eq!(taken.cluster_pid(), pid);
    taken.stop().await;
    assert!(!cluster.join("postmaster.pid").exists());

    // Gateway and server are killed, and another process has got the server's id.
    let last = fixture.start().await.unwrap();
    let pid = last.child.as_ref().unwrap().id().unwrap().to_string();
    let pid_file = std::fs::read_to_string(cluster.join("postmaster.pid")).unwrap();
    last.kill_server().await;
    let reused = pid_file.replacen(&pid, &std::process::id().to_string(), 1);
    std::fs::write(cluster.join("postmaster.pid"), reused).unwrap();
    let recovered = fixture.start().await.unwrap();
    assert_eq!(rows(&recovered).await, 1);

    // Dropped without a stop, as when the gateway fails later in its start, the server ends by itself.
    let copy = recovered.cluster.clone();
    drop(recovered);
    assert!(copy.ended(STOP_WAIT).await);
}

#[tokio::test]
async fn as_root_a_folder_that_the_servers_user_cannot_reach_is_linked() {
    let fixture = Fixture::new();
    let data_dir = fixture.data_dir();
    std::fs::create_dir(&data_dir).unwrap();
    if std::fs::metadata(&data_dir).unwrap().uid() != 0 {
        return;
    }
    open(&data_dir, 0o700);
    let postgres = fixture.start().await.unwrap();
    let cluster = std::fs::read_link(data_dir.join("postgres")).unwrap();
    assert!(cluster.starts_with(&fixture.system.state) && cluster.join("PG_VERSION").exists());
    postgres.stop().await;
    std::fs::remove_file(data_dir.join("postgres")).unwrap();
    let error = fixture.start().await.unwrap_err();
    assert!(matches!(&error, LocalPostgresError::LeftBehind { .. }), "{error}");
    std::os::unix::fs::symlink(cluster, data_dir.join("postgres")).unwrap();
    fixture.start().await.unwrap().stop().await;
}

#[tokio::test]
async fn what_cannot_work_is_refused_before_anything_is_touched() {
    let mut fixture = Fixture::new();
    fixture.host.in_kubernetes = true;
    let error = fixture.start().await.unwrap_err();
    assert!(matches!(error, LocalPostgresError::Kubernetes) && !fixture.data_dir().exists());

    fixture.host.in_kubernetes = false;
    let cluster = fixture.data_dir().join("postgres");
    std::fs::create_dir_all(&cluster).unwrap();
    std::fs::write(cluster.join("photos"), "dear").unwrap();
    let error = fixture.start().await.unwrap_err();
    assert!(matches!(&error, LocalPostgresError::NotACluster { .. }), "{error}");
    std::fs::remove_file(cluster.join("photos")).unwrap();
    std::fs::write(cluster.join("PG_VERSION"), "13\n").unwrap();
    let error = fixture.start().await.unwrap_err();
    assert!(matches!(&error, LocalPostgresError::WrongVersion { wanted: 13, .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_start_says_why() {
    let fixture = Fixture::new();
    fixture.start().await.unwrap().stop().await;
    let auto = fixture.data_dir().join("postgres/postgresql.auto.conf");
    std::fs::write(auto, "no_such_setting = 1\n").unwrap();
    let error = fixture.start().await.unwrap_err().to_string();
    assert!(error.contains("no_such_setting") && error.contains("postgres.log"), "{error}");
}

#[test]
fn the_url_is_read_back_whole() {
    for folder in ["/run/mcpproxy", "/tmp/a b&c=d?e#f%2F,ü\"", "/t@h:1/x"] {
        let options: PgConnectOptions = url(Path::new(folder), Some("secret")).parse().unwrap();
        assert_eq!(options.get_socket().unwrap(), Path::new(folder));
        assert_eq!(
            (options.get_username(), options.get_database(), options.get_port()),
            (NAME, Some(NAME), PORT)
        );
    }
}

impl LocalPostgres {
    fn cluster_pid(&self) -> Option<u32> {
        let text = std::fs::read_to_string(self.cluster.path.join("postmaster.pid")).unwrap();
        text.lines().next()?.parse().ok()
    }

    /// Kills the server, as a loss of power does.
    async fn kill_server(mut self) {
        self.running = false;
        self.child.as_mut().unwrap().kill().await.unwrap();
    }
}
