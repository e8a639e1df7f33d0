//! The suite as a program: `@modelcontextprotocol/conformance`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::process::Command;

use crate::support::node;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const INSTALL: &str = "run tests/it/setup.sh first";
/// For one scenario, in milliseconds.
const SCENARIO_MS_MAX: &str = "12000";
/// For all of them.
const TOTAL_MAX: Duration = Duration::from_secs(90);

/// Of what the suite knows about one failure.
const DETAILS_BYTES_MAX: usize = 1000;

/// What one revision requires of a server.
#[derive(Clone, Copy)]
pub struct Suite {
    pub revision: &'static str,
    /// How many scenarios it runs, those included that do not count.
    pub scenarios: usize,
}

pub fn modules() -> PathBuf {
    Path::new(ROOT).join("tests/clients/node_modules")
}

impl Suite {
    /// The list of what is known to fail in front of the gateway.
    pub fn known_failures(&self) -> PathBuf {
        Path::new(ROOT).join(format!("tests/conformance/{}.yml", self.revision))
    }

    /// Runs all scenarios of the revision, which takes the suite's own comparison with the list: one fails that is not
    /// on it, or one passes that is, and the test fails.
    pub async fn run(&self, url: &str, known_failures: Option<&Path>) {
        let program = modules().join("@modelcontextprotocol/conformance/dist/index.js");
        assert!(program.exists(), "{} is missing; {INSTALL}", program.display());
        let results = tempfile::tempdir().unwrap();
        let mut command = Command::new(node());
        command
            .arg(program)
            .args(["server", "--url", url, "--requirements", self.revision])
            .args(["--timeout", SCENARIO_MS_MAX, "--output-dir"])
            .arg(results.path())
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        if let Some(list) = known_failures {
            command.arg("--expected-failures").arg(list);
        }
        let ended = tokio::time::timeout(TOTAL_MAX, command.output()).await;
        let output = ended.unwrap_or_else(|_| panic!("{} is not over after {TOTAL_MAX:?}", self.revision));
        let output = output.unwrap_or_else(|error| panic!("{}: {error}; {INSTALL}", node().display()));
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        let summary = told.split_once("=== SUMMARY ===").map_or("", |(_, summary)| summary);
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{} ended with {}\n{}\n{summary}\n{complaints}",
            self.revision,
            output.status,
            failures(results.path(), summary)
        );
        self.check_scenarios(summary, known_failures);
    }

    /// A suite that ran nothing would have passed, and so would a list of what it no longer has.
    fn check_scenarios(&self, summary: &str, known_failures: Option<&Path>) {
        let (ran, _) = summary.split_once("Total:").unwrap_or_else(|| panic!("{summary}"));
        let scenarios: Vec<&str> = ran
            .lines()
            .filter_map(|line| line.trim().trim_start_matches(['✓', '✗', ' ']).split(':').next())
            .filter(|name| !name.is_empty())
            .collect();
        assert_eq!(scenarios.len(), self.scenarios, "{summary}");
        for (name, _) in known_failures.map(read_list).unwrap_or_default() {
            let scenario = name.split(':').next().unwrap_or_default();
            assert!(scenarios.contains(&scenario), "{name} is on the list but not in the suite: {summary}");
        }
    }
}

/// A list of known failures: the names, each with its reason.
pub fn read_list(path: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let entries = text.lines().filter_map(|line| line.trim().strip_prefix("- "));
    let entry = |text: &str| {
        let (name, reason) = text.split_once(" # ").unwrap_or((text, ""));
        (name.trim().to_owned(), reason.trim().to_owned())
    };
    entries.map(entry).collect()
}

/// What failed or was warned of without being known, a line each.
fn failures(results: &Path, summary: &str) -> String {
    let unexpected = summary.split_once("Unexpected failures").map_or(summary, |(_, names)| names);
    let mut failures = String::new();
    for entry in std::fs::read_dir(results).unwrap() {
        let path = entry.unwrap().path();
        let folder = path.file_name().unwrap().to_string_lossy().into_owned();
        let is_unexpected = |line: &str| {
            let scenario = line.trim().trim_start_matches("✗ ").split(':').next().unwrap_or_default();
            !scenario.is_empty() && folder.starts_with(&format!("server-{scenario}-20"))
        };
        if !unexpected.lines().any(is_unexpected) {
            continue;
        }
        let checks = std::fs::read(path.join("checks.json")).unwrap_or_default();
        let checks: Value = serde_json::from_slice(&checks).unwrap_or_default();
        let checks = checks.as_array().into_iter().flatten();
        for check in checks.filter(|check| check["status"] == "FAILURE" || check["status"] == "WARNING") {
            let mut details = check["details"].to_string();
            details.truncate(details.floor_char_boundary(DETAILS_BYTES_MAX));
            let (id, error) = (&check["id"], &check["errorMessage"]);
            failures.push_str(&format!("{folder} {id}: {error} {details}\n"));
        }
    }
    failures
}
