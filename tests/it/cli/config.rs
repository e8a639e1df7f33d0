//! `mcpproxy config`: asks no gateway.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{MASTER_KEY, cli_with};

const SECRET: &str = "Kq83hv02bGkz71LwPq5xNn4tRr9cVy6s";

fn setting<'a>(shown: &'a Value, name: &str) -> &'a Value {
    shown.as_array().unwrap().iter().find(|setting| setting["name"] == name).unwrap()
}

#[tokio::test]
async fn a_deployment_is_shown_without_its_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mcpproxy.toml");
    fs::write(&path, "[limits]\ndrain_s = 7\n").unwrap();
    let file = ["--config", path.to_str().unwrap()];
    let env = [
        ("DATABASE_URL", "postgres://app:hunter2-hunter2@127.0.0.1:1/mcpproxy"),
        ("MCPPROXY__AUTH__BOOTSTRAP_KEY", SECRET),
        ("MCPPROXY__SESSIONS__KEY", SECRET),
        ("MCPPROXY__SECRETS__MASTER_KEY", MASTER_KEY),
    ];
    let checked = cli_with(&env, &["config", "check", file[0], file[1]]).await.ok();
    assert!(checked.out.contains("can be used: 5 of") && checked.out.contains("database.url"), "{checked:?}");
    let shown = cli_with(&env, &["config", "show", file[0], file[1], "-o", "json"]).await.ok();
    let settings = shown.json();
    assert_eq!(
        (&setting(&settings, "limits.drain_s")["value"], &setting(&settings, "limits.drain_s")["origin"]),
        (&json!("7"), &json!(format!("in {}", path.display())))
    );
    assert_eq!(setting(&settings, "server.listen")["origin"], "the built-in default");
    assert_eq!(setting(&settings, "sessions.key")["value"], "[redacted]");
    let changed = cli_with(&env, &["config", "show", file[0], file[1], "--changed"]).await.ok();
    insta::assert_snapshot!(changed.out.replace(file[1], "[file]"), @"
    SETTING             VALUE       FROM
    auth.bootstrap_key  [redacted]  environment variable MCPPROXY__AUTH__BOOTSTRAP_KEY
    database.url        [redacted]  environment variable DATABASE_URL
    limits.drain_s      7           in [file]
    secrets.master_key  [redacted]  environment variable MCPPROXY__SECRETS__MASTER_KEY
    sessions.key        [redacted]  environment variable MCPPROXY__SESSIONS__KEY
    ");
    for run in [&checked, &shown, &changed] {
        for secret in [SECRET, MASTER_KEY, "hunter2"] {
            assert!(!format!("{run:?}").contains(secret), "{run:?}");
        }
    }
}

#[tokio::test]
async fn what_would_not_start_is_named() {
    let url = ("DATABASE_URL", "postgres://app@127.0.0.1:1/mcpproxy");
    for (env, says) in [
        (vec![url], "auth.bootstrap_key (MCPPROXY__AUTH__BOOTSTRAP_KEY)"),
        (vec![("MCPPROXY__SERVER__LISTEM", "x")], "did you mean"),
        (vec![("MCPPROXY__LIMITS__DRAIN_S", "-1")], "limits.drain_s"),
        (vec![url, ("MCPPROXY__AUTH__BOOTSTRAP_KEY", "changeme")], "auth.bootstrap_key"),
    ] {
        for command in ["check", "show"] {
            cli_with(&env, &["config", command]).await.failed(2, says);
        }
    }
    cli_with(&[], &["config", "check", "--config", "/no/such/file"]).await.failed(2, "/no/such/file");
}

#[tokio::test]
async fn looking_generates_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data_dir = folder.path().join("data");
    let env = [("MCPPROXY__DATA_DIR", data_dir.to_str().unwrap())];
    let checked = cli_with(&env, &["config", "check"]).await.ok();
    assert!(checked.out.contains("generates auth.bootstrap_key, sessions.key, secrets.master_key"));
    cli_with(&env, &["config", "show"]).await.ok();
    assert!(!data_dir.exists());
    // a secret that is there and unusable
    fs::create_dir_all(data_dir.join("secrets")).unwrap();
    cli_with(&env, &["config", "check"]).await.failed(2, "chmod 700");
    fs::set_permissions(data_dir.join("secrets"), fs::Permissions::from_mode(0o700)).unwrap();
    let key = data_dir.join("secrets/sessions_key");
    fs::write(&key, "short").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    cli_with(&env, &["config", "check"]).await.failed(2, "sessions.key");
}
