//! A gateway with a private database, as somebody who tries it out has it.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::{Gateway, Mcp, OwnPostgres, Tool, Upstream, cli_with};

/// Page with the commands that copy a private database.
const OPERATIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/operations.md");

/// Longest wait for the end of a start that fails; generous, the machine may be busy.
const START_WAIT_MAX: Duration = Duration::from_secs(30);

/// Program that is run as a server, under the gateway's own user.
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/stdio/program.py");

/// Returns what the program of a stdio server can do with each of these files.
async fn touched(gateway: &Gateway, key: &str, paths: &[&str]) -> Value {
    let platform = gateway.anonymous().with_key(key);
    platform.post("/api/v1/tenants", &json!({"name": "acme"})).await;
    let tenant = platform.as_tenant("acme");
    let server = json!({"name": "up", "kind": "stdio", "command": "prog"});
    tenant.post("/api/v1/servers", &server).await;
    let made = tenant.post("/api/v1/keys", &json!({"role": "agent"})).await.expect(201);
    let agent = Mcp::bare(&gateway.anonymous().with_key(made["key"].as_str().unwrap()));
    let result = agent.run("read", "up:files", &json!({"paths": paths})).await.ok();
    serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap()
}

/// Checks that programs reach neither secrets nor data, although files and programs have the same user.
#[tokio::test]
async fn programs_reach_neither_secrets_nor_data() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = folder.path().join("data");
    let beside = folder.path().join("beside");
    fs::create_dir(&beside).unwrap();
    fs::write(beside.join("file"), "").unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let commands = json!({"prog": {"argv": ["python3", PROGRAM], "tenants": ["*"]}}).to_string();
    let settings = [("MCPPROXY__STDIO__COMMANDS", &*commands)];
    let mut gateway = Gateway::start_private_with(&data, &settings).await;
    let key = fs::read_to_string(data.join("secrets/bootstrap_key")).unwrap();
    let names = [
        "data/secrets/bootstrap_key",
        "data/secrets/master_key",
        "data/postgres.password",
        "beside/file",
        "file",
    ];
    let paths = names.map(|name| folder.path().join(name).to_str().unwrap().to_owned());
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let seen = touched(&gateway, key.trim(), &paths).await;
    let can: Vec<&str> = paths.iter().map(|path| seen[path].as_str().unwrap()).collect();
    // a file right in a folder above can be used; moving it there would make another entry
    assert_eq!(can, ["", "", "", "rwm", "rw"], "{seen}");
    gateway.terminate();
    gateway.ended().await;

    let open = [settings[0], ("MCPPROXY__STDIO__HIDE_DATA_DIR", "false")];
    let mut gateway = Gateway::start_private_with(&data, &open).await;
    let seen = touched(&gateway, key.trim(), &paths[..1]).await;
    assert_eq!(seen[paths[0]], "rwm", "the file is where it was said to be: {seen}");
    gateway.terminate();
    gateway.ended().await;
}

#[tokio::test]
async fn a_port_that_is_taken_is_found_before_a_database_is_made() {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    for (listen, admin, variable) in [
        (&*taken, "", "MCPPROXY__SERVER__LISTEN"),
        ("127.0.0.1:0", &*taken, "MCPPROXY__SERVER__ADMIN_LISTEN"),
    ] {
        let data = folder.path().join(variable);
        let env = [
            ("MCPPROXY__DATA_DIR", data.to_str().unwrap()),
            ("MCPPROXY__SERVER__LISTEN", listen),
            ("MCPPROXY__SERVER__ADMIN_LISTEN", admin),
        ];
        let run = timeout(START_WAIT_MAX, cli_with(&env, &["serve"])).await.expect("it serves");
        run.failed(1, &format!("cannot listen on {taken}"));
        assert!(run.err.contains(variable), "{run:?}");
        assert!(!data.join("postgres").exists(), "{run:?}");
    }
}

/// Two starts, of which the first makes the cluster: some seconds.
#[tokio::test]
async fn its_secrets_are_found_and_rotated_in_their_files() {
    let folder = tempfile::tempdir().unwrap();
    // Postgres does not run as root
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let secrets = folder.path().join("secrets");
    let mut gateway = Gateway::start_private(folder.path()).await;
    let key = fs::read_to_string(secrets.join("bootstrap_key")).unwrap();
    let platform = gateway.anonymous().with_key(key.trim());
    platform.post("/api/v1/tenants", &json!({"name": "acme"})).await.expect(201);
    let made = platform.as_tenant("acme").post("/api/v1/keys", &json!({"role": "agent"})).await.expect(201);
    let agent = platform.with_key(made["key"].as_str().unwrap());
    let session = Mcp::session(&agent).await;
    gateway.terminate();
    let status = gateway.ended().await;
    let log = gateway.log();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains(&format!("is in {}", secrets.join("bootstrap_key").display())), "{log}");
    assert!(!log.contains(key.trim()), "{log}");

    let old = fs::read_to_string(secrets.join("sessions_key")).unwrap();
    fs::write(secrets.join("sessions_key"), format!("a-new-key-of-the-test-Kq83hv02bGkz71,{old}")).unwrap();
    let mut gateway = Gateway::start_private(folder.path()).await;
    let again = Mcp::in_session(&gateway.ask_as(&agent), session.session_id());
    let outcome = again.request("tools/list", "{}").await;
    gateway.terminate();
    let status = gateway.ended().await;
    assert_eq!((outcome.status, status.code()), (200, Some(0)), "{}", gateway.log());
}

/// Returns the blocks of commands of a section of the page.
fn blocks(section: &str) -> Vec<String> {
    let page = fs::read_to_string(OPERATIONS).unwrap();
    let (_, rest) = page.split_once(&format!("\n### {section}\n")).unwrap();
    let text = rest.split("\n#").next().unwrap();
    text.split("```sh\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

/// Returns a text in which each word is replaced, which is in it.
fn with(text: &str, words: &[(&str, &str)]) -> String {
    words.iter().fold(text.to_owned(), |text, (word, other)| {
        assert!(text.contains(word), "{word} is not in {text}");
        text.replace(word, other)
    })
}

#[tokio::test]
async fn it_moves_to_another_postgres_by_the_commands_of_the_documentation() {
    let own = OwnPostgres::start().await;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let data = folder.path().join("data");
    let mut gateway = Gateway::start_private_with(&data, &[]).await;
    let key = fs::read_to_string(data.join("secrets/bootstrap_key")).unwrap();
    let platform = gateway.anonymous().with_key(key.trim());
    platform.post("/api/v1/tenants", &json!({"name": "acme"})).await.expect(201);
    let tenant = platform.as_tenant("acme");
    let upstream = Upstream::modern(vec![Tool::reads("look")]).await;
    let server =
        json!({"name": "up", "kind": "http", "url": upstream.url, "headers": {"x-secret": "of the server"}});
    tenant.post("/api/v1/servers", &server).await.expect(201);
    let made = tenant.post("/api/v1/keys", &json!({"role": "agent"})).await.expect(201);
    let agent = platform.with_key(made["key"].as_str().unwrap());
    let session = Mcp::session(&agent).await;

    let [copy, moved] = <[String; 2]>::try_from(blocks("The private database")).unwrap();
    let programs = own.programs().to_str().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_mcpproxy")).parent().unwrap().to_str().unwrap();
    let path =
        format!("{programs}:{program}:{}", std::env::var_os("PATH").unwrap_or_default().to_string_lossy());
    let copy = with(&copy, &[("~/.local/share/mcpproxy", data.to_str().unwrap())]);
    let mut shell = Command::new("bash");
    shell.args(["-euc", &copy]).current_dir(folder.path()).env("PATH", &path).env_remove("PGPORT");
    assert!(shell.status().unwrap().success(), "{copy}");
    gateway.terminate();
    gateway.ended().await;

    // a copy of the folder of a program that is stopped is a backup as well
    let kept = folder.path().join("kept");
    assert!(Command::new("cp").arg("-a").args([&data, &kept]).status().unwrap().success());
    let mut gateway = Gateway::start_private_with(&kept, &[]).await;
    Mcp::in_session(&gateway.ask_as(&agent), session.session_id())
        .run("read", "up:look", &json!({}))
        .await
        .ok();
    gateway.terminate();
    gateway.ended().await;

    let port = own.port().to_string();
    let place = format!("@127.0.0.1:{port}/");
    let moved = with(&moved, &[("@db.example:5432/", &place), ("\nmcpproxy serve\n", "\n")]);
    let script = format!("set -e; cd '{}'; {}", folder.path().display(), moved.trim_end());
    let settings = [("PATH", &*path), ("PGHOST", "127.0.0.1"), ("PGPORT", &port)];
    let gateway = Gateway::start_in_shell(&script, &own.database(), &settings).await;
    let again = Mcp::in_session(&gateway.ask_as(&agent), session.session_id());
    again.run("read", "up:look", &json!({})).await.ok();
    assert_eq!(upstream.sent("x-secret").last().map(String::as_str), Some("of the server"));
    let tenants = gateway.anonymous().with_key(key.trim()).items("/api/v1/tenants").await;
    assert_eq!(tenants.len(), 1, "{tenants:?}");
}
