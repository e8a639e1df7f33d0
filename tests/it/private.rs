//! A gateway with a private database, as somebody who tries it out has it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Gateway, Mcp};

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
