//! A gateway with a private database, as somebody who tries it out has it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;

use crate::support::{Gateway, Mcp};

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
