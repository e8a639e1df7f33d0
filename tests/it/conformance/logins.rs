//! The suite's client scenarios for authorisation, through the gateway: the suite's server is the one behind it, and a program plays its
//! administrator and a person (`tests/conformance/client/driver.mjs`).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::process::Command;

use super::suite::modules;
use crate::support::{Stage, node};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const PUBLIC_URL: &str = "https://gw.example";
/// Client id that the suite expects where it takes the metadata of a client.
const CLIENT: &str = "https://conformance-test.local/client-metadata.json";
/// Longest time of one scenario.
const SCENARIO_MAX: Duration = Duration::from_secs(40);
/// Scenarios at the same time.
const AT_ONCE: usize = 4;

/// Scenarios for authorisation that a revision requires of clients.
fn required(revision: &str) -> Vec<String> {
    let list = modules().join(format!("@modelcontextprotocol/conformance/requirements/{revision}.yaml"));
    let text = std::fs::read_to_string(list).unwrap();
    text.lines()
        .filter_map(|line| line.strip_prefix("  - auth/"))
        .map(|name| format!("auth/{name}"))
        .collect()
}

async fn run(revision: &str, count: usize) {
    let settings = [
        ("MCPPROXY__SERVER__PUBLIC_URL", PUBLIC_URL),
        ("MCPPROXY__OAUTH__CLIENT_METADATA_URL", CLIENT),
        ("MCPPROXY__EGRESS__ALLOW", "127.0.0.0/8,::1/128"),
    ];
    let stage = Stage::with(&settings).await;
    let admin = stage.tenant("acme").await.admin().await;
    let scenarios = required(revision);
    assert_eq!(scenarios.len(), count, "{scenarios:?}");
    let driver = Path::new(ROOT).join("tests/conformance/client/driver.mjs");
    let command = format!("{} {}", node().display(), driver.display());
    let failed: Vec<String> = futures_util::stream::iter(scenarios)
        .map(|scenario| {
            let mut suite = Command::new(node());
            suite
                .arg(modules().join("@modelcontextprotocol/conformance/dist/index.js"))
                .args(["client", "--command", &command, "--scenario", &scenario, "--spec-version", revision])
                .args(["--timeout", "20000"])
                .env("NO_COLOR", "1")
                .env("GATEWAY", admin.base_url())
                .env("ADMIN_KEY", admin.key.as_deref().unwrap())
                .env("PUBLIC_URL", PUBLIC_URL)
                .stdin(Stdio::null())
                .kill_on_drop(true);
            async move {
                let ended = tokio::time::timeout(SCENARIO_MAX, suite.output()).await;
                let output = ended.unwrap_or_else(|_| panic!("{scenario} is not over")).unwrap();
                let told = String::from_utf8_lossy(&output.stdout).into_owned();
                let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
                let has_passed =
                    output.status.success() && format!("{told}{complaints}").contains("OVERALL: PASSED");
                (!has_passed).then(|| format!("{scenario}\n{told}\n{complaints}"))
            }
        })
        .buffer_unordered(AT_ONCE)
        .filter_map(async |failed| failed)
        .collect()
        .await;
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_as_revision_2025_11_25_requires_of_clients() {
    run("2025-11-25", 14).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_as_revision_2026_07_28_requires_of_clients() {
    run("2026-07-28", 25).await;
}
