//! The house stands: floors, neighbours, homes of crates, tenants in queries. A test of the architecture,
//! not of taste.

#![expect(clippy::expect_used, clippy::indexing_slicing, reason = "a test that cannot go on says why")]

#[path = "tidy/decisions.rs"]
mod decisions;
#[path = "tidy/figures.rs"]
mod figures;
#[path = "tidy/modules.rs"]
mod modules;
#[path = "tidy/prose.rs"]
mod prose;

use std::fs;
use std::path::{Path, PathBuf};

/// Floors from the ground up; a room may use its own floor's own room and everything below.
const FLOORS: [(&str, u8); 6] =
    [("domain", 0), ("store", 1), ("upstream", 1), ("gateway", 2), ("faces", 3), ("app", 4)];

/// Crates with one home.
const HOMES: [(&str, &[&str]); 28] = [
    ("cel", &["src/domain/policy/when.rs"]),
    ("cookie_store", &["src/upstream/web/"]),
    ("jsonwebtoken", &["src/domain/identity/"]),
    ("encoding_rs", &["src/domain/web_page/charset.rs"]),
    ("flate2", &["src/upstream/web/"]),
    ("html5ever", &["src/domain/web_page/dom/"]),
    ("sqlx", &["src/store/"]),
    ("axum", &["src/faces/", "src/app/"]),
    ("hyper", &["src/upstream/", "src/faces/listener.rs"]),
    ("hyper_util", &["src/upstream/", "src/faces/listener.rs"]),
    ("regex_automata", &["src/domain/schema/pattern.rs"]),
    ("rmcp", &["src/upstream/"]),
    ("sse_stream", &["src/upstream/http/rmcp/", "src/faces/cli/"]),
    (
        "rustix",
        &[
            "src/app/open_files.rs",
            "src/app/own_memory.rs",
            "src/faces/cli/connect/replace.rs",
            "src/app/telemetry/metrics/",
            "src/upstream/admission/egress/",
            "src/upstream/admission/shares/reading.rs",
            "src/upstream/stdio/",
        ],
    ),
    ("clap", &["src/main.rs", "src/faces/cli/"]),
    ("clap_complete", &["src/faces/cli/"]),
    ("clap_mangen", &["src/faces/cli/"]),
    ("toml_edit", &["src/faces/cli/"]),
    ("comfy_table", &["src/faces/cli/"]),
    ("csv", &["src/faces/query/export.rs"]),
    ("reqwest", &["src/faces/cli/"]),
    ("serde_saphyr", &["src/domain/yaml.rs", "src/faces/cli/"]),
    ("serde_path_to_error", &["src/faces/cli/"]),
    ("prometheus_client", &["src/app/telemetry/metrics"]),
    ("unicode_normalization", &["src/domain/web_page/wording/"]),
    ("opentelemetry", &["src/app/telemetry"]),
    ("opentelemetry_otlp", &["src/app/telemetry"]),
    ("opentelemetry_sdk", &["src/app/telemetry"]),
];

/// What the ground floor must not know.
const NOT_IN_DOMAIN: [&str; 6] = ["tokio", "sqlx", "axum", "hyper", "std::fs", "std::net"];

/// Tables whose rows belong to a tenant.
const TENANT_TABLES: [&str; 24] = [
    "api_keys",
    "settings",
    "policies",
    "servers",
    "server_secrets",
    "data_keys",
    "tools",
    "tool_names",
    "offers",
    "prompt_names",
    "offer_pins",
    "tool_embeddings",
    "revisions",
    "activity_open",
    "response_cache",
    "activity",
    "server_logs",
    "consent_webhooks",
    "webhook_events",
    "web_provenance",
    "web_drafts",
    "web_cookies",
    "identity_rules",
    "identities",
];

fn rust_files(dir: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, into);
        } else if path.extension().is_some_and(|e| e == "rs") {
            into.push(path);
        }
    }
}

/// Returns every source file that is not a test: its path from the root, and where it is.
fn production_files() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    rust_files(&root.join("src"), &mut files);
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root).expect("inside").to_string_lossy().replace('\\', "/");
        (name, path)
    };
    let is_test = |name: &str| ["/tests/", "/tests.rs", "/fuzz.rs"].iter().any(|test| name.contains(test));
    files.into_iter().map(named).filter(|(name, _)| !is_test(name)).collect()
}

/// Every source file with its path from the root, and its text without its tests.
fn sources() -> Vec<(String, String)> {
    let text = |path| fs::read_to_string(path).expect("a text");
    let own = |path| text(path).split("#[cfg(test)]").next().unwrap_or_default().to_owned();
    production_files().into_iter().map(|(name, path)| (name, own(path))).collect()
}

fn room(path: &str) -> Option<(&str, u8)> {
    let first = path.strip_prefix("src/")?.split(['/', '.']).next()?;
    FLOORS.into_iter().find(|(name, _)| *name == first)
}

fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

fn complain(problems: &[String]) {
    assert!(problems.is_empty(), "the house is untidy:\n{}", problems.join("\n"));
}

#[test]
fn floors_use_only_what_is_below() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        let Some((own, floor)) = room(&path) else { continue };
        for (number, line) in text.lines().enumerate() {
            for used in code(line).split("crate::").skip(1) {
                let name = used.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default();
                let Some((other, at)) = FLOORS.into_iter().find(|(room, _)| *room == name) else { continue };
                if other != own && at >= floor {
                    problems.push(format!("{path}:{}: {own} uses {other}", number + 1));
                }
            }
        }
    }
    complain(&problems);
}

#[test]
fn faces_meet_on_the_porch_only() {
    let rooms = ["mcp", "rest", "cli", "console", "acp"];
    let mut problems = Vec::new();
    for (path, text) in sources() {
        let Some(own) = path.strip_prefix("src/faces/").and_then(|p| p.split(['/', '.']).next()) else {
            continue;
        };
        if !rooms.contains(&own) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            for other in rooms.iter().filter(|other| **other != own) {
                if code(line).contains(&format!("faces::{other}")) {
                    problems.push(format!("{path}:{}: {own} uses its neighbour {other}", number + 1));
                }
            }
        }
    }
    complain(&problems);
}

#[test]
fn crates_stay_at_home() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        for (number, line) in text.lines().map(code).enumerate() {
            for (name, homes) in HOMES {
                let path_of = format!("{name}::");
                let is_path = |at: usize| {
                    let before = line.get(..at).unwrap_or_default();
                    !before.ends_with(|before: char| before.is_alphanumeric() || before == '_')
                };
                let uses = line.match_indices(&path_of).any(|(at, _)| is_path(at));
                let uses = uses || line.contains(&format!("use {name};"));
                if uses && !homes.iter().any(|home| path.starts_with(home)) {
                    problems.push(format!("{path}:{}: {name} belongs in {}", number + 1, homes.join(", ")));
                }
            }
        }
    }
    complain(&problems);
}

/// rmcp gets no way of its own to the network: every connection passes the guard.
#[test]
fn rmcp_brings_no_network() {
    let manifest =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).expect("a text");
    let line = manifest.lines().find(|line| line.starts_with("rmcp = ")).expect("rmcp");
    let features = line.split(" features = ").nth(1).expect("features");
    assert!(line.contains("default-features = false"), "{line}");
    assert_eq!(features, "[\"client\", \"transport-streamable-http-client\"] }", "{line}");
}

/// JSON keeps the order of members of `serde_json` without features: no crate of the build, tests included, switches it to
/// another one (decision 53).
#[test]
fn no_crate_changes_the_order_of_json() {
    let lock = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.lock")).expect("a text");
    let package = |name: &str| {
        lock.split("[[package]]").find(|package| package.contains(&format!("name = \"{name}\"")))
    };
    let json = package("serde_json").expect("serde_json");
    assert!(!json.contains("\"indexmap\""), "serde_json has preserve_order:{json}");
    assert!(package("agent-client-protocol-schema").is_none(), "it needs preserve_order");
}

#[test]
fn the_ground_floor_is_pure() {
    let mut problems = Vec::new();
    for (path, text) in sources().into_iter().filter(|(path, _)| path.starts_with("src/domain/")) {
        for (number, line) in text.lines().map(code).enumerate() {
            let names = NOT_IN_DOMAIN.iter().filter(|name| line.contains(&format!("{name}::")));
            problems.extend(names.map(|name| format!("{path}:{}: {name} in domain", number + 1)));
            for banned in ["async fn", ".await", "Utc::now", "Instant::now", "SystemTime::now"] {
                if line.contains(banned) {
                    problems.push(format!("{path}:{}: {banned} in domain", number + 1));
                }
            }
        }
    }
    complain(&problems);
}

/// Every statement on a tenant's table names `tenant_id`, except where all tenants are meant.
#[test]
fn queries_name_their_tenant() {
    let across = [
        "src/store/system.rs",
        "src/store/master_keys.rs",
        "src/store/migrate.rs",
        "src/store/partitions.rs",
        "src/store/replicas.rs",
    ];
    let mut problems = Vec::new();
    let mut seen = 0;
    for (path, text) in sources() {
        if !path.starts_with("src/store/") || across.contains(&path.as_str()) {
            continue;
        }
        for statement in text.split("sqlx::query").skip(1) {
            let statement = statement.split(".bind").next().unwrap_or_default();
            let names = |table: &&str| {
                ["from ", "into ", "update ", "join "].iter().any(|verb| {
                    statement
                        .split(&format!("{verb}{table}"))
                        .skip(1)
                        .any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
                })
            };
            if TENANT_TABLES.iter().any(names) {
                seen += 1;
                if !statement.contains("tenant_id") {
                    let shown: String = statement.chars().take(90).collect();
                    problems.push(format!("{path}: a query without tenant_id: {shown}"));
                }
            }
        }
    }
    assert!(seen > 20, "the test has lost sight of the queries: {seen}");
    complain(&problems);
}

/// One statement at a time may hold SQL only in the store.
#[test]
fn sql_lives_in_the_store() {
    let mut problems = Vec::new();
    for (path, text) in sources() {
        if path.starts_with("src/store/") {
            continue;
        }
        for (number, line) in text.lines().map(code).enumerate() {
            let lower = line.to_lowercase();
            if lower.contains("\"select ") || lower.contains("\"insert into") || lower.contains("\"update ") {
                problems.push(format!("{path}:{}: SQL outside the store", number + 1));
            }
        }
    }
    complain(&problems);
}

#[test]
fn every_folder_of_the_plan_is_there_and_nothing_else_on_top() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for path in ["migrations/README.md", "docs/architecture.md", "README.md", "deploy", "src/lib.rs"] {
        assert!(root.join(path).exists(), "{path} is missing");
    }
    let known = [
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE",
        "Makefile",
        "README.md",
        "SECURITY.md",
        "clippy.toml",
        "deny.toml",
        "deploy",
        "docs",
        "helm",
        "migrations",
        "rust-toolchain.toml",
        "rustfmt.toml",
        "src",
        "target",
        "tests",
        "typos.toml",
    ];
    for entry in fs::read_dir(root).expect("the root") {
        let name = entry.expect("an entry").file_name().to_string_lossy().into_owned();
        assert!(
            name.starts_with('.') || known.contains(&name.as_str()),
            "{name} does not belong on the top level"
        );
    }
    let readme = fs::read_to_string(root.join("README.md")).expect("README.md");
    assert!(readme.lines().count() <= 150, "README.md is over 150 lines");
}

/// Every checkbox of docs/permissions-r4.md names a test; none is left out.
#[test]
fn checkboxes_name_their_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/permissions-r4.md")).expect("docs/permissions-r4.md");
    let rows: Vec<&str> =
        text.lines().filter(|line| line.starts_with("| ") && !line.contains("| tests |")).collect();
    assert_eq!(rows.len(), 56, "checkboxes of the requirement");
    let names_none = |row: &&&str| !row.rsplit(" | ").next().is_some_and(|cell| cell.contains("::"));
    let nameless: Vec<String> = rows.iter().filter(names_none).map(|row| format!("no test: {row}")).collect();
    complain(&nameless);
}

/// Pages for users name no tests: those stand on the pages for maintainers, operators and reviewers.
#[test]
fn pages_for_users_name_no_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = [
        "README.md",
        "docs/api.md",
        "docs/cli.md",
        "docs/clients.md",
        "docs/configuration.md",
        "docs/intent.md",
        "docs/kubernetes.md",
        "docs/permissions.md",
        "docs/permissions-tutorial.md",
        "docs/web-pages.md",
    ];
    let mut named = Vec::new();
    for page in pages {
        let text = fs::read_to_string(root.join(page)).expect(page);
        let is_test = |code: &&str| code.starts_with("it::") || code.contains("::tests::");
        named.extend(text.split('`').filter(is_test).map(|test| format!("{page}: {test}")));
    }
    complain(&named);
}

/// Every row of docs/web-pages-r5.md names a test; none is left out.
#[test]
fn rows_of_web_pages_name_their_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(root.join("docs/web-pages-r5.md")).expect("docs/web-pages-r5.md");
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect::<Vec<_>>())
        .filter(|cells| cells.first().is_some_and(|number| number.parse::<u32>().is_ok()))
        .collect();
    let numbers: Vec<String> = rows.iter().map(|cells| cells[0].to_owned()).collect();
    let expected: Vec<String> = (1..=38).map(|number| number.to_string()).collect();
    assert_eq!(numbers, expected, "rows of the requirement");
    let names_none = |cells: &&Vec<&str>| !cells.last().is_some_and(|cell| cell.contains("::"));
    complain(&rows.iter().filter(names_none).map(|cells| format!("no test: {cells:?}")).collect::<Vec<_>>());
    let table_rows = text.lines().filter(|line| line.starts_with("| ") && !line.ends_with("| tests |"));
    let nameless = table_rows.filter(|row| !row.rsplit(" | ").next().is_some_and(|cell| cell.contains("::")));
    complain(&nameless.map(|row| format!("no test: {row}")).collect::<Vec<_>>());
}

/// The tests that docs/security.md, docs/permissions-r4.md and docs/web-pages-r5.md name exist, under exactly these names.
#[test]
fn promises_name_their_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = ["docs/security.md", "docs/permissions-r4.md", "docs/web-pages-r5.md"];
    let text = pages.map(|page| fs::read_to_string(root.join(page)).expect(page)).concat();
    let is_name = |code: &&str| code.contains("::") && !code.contains(' ') && !code.starts_with("it::");
    let named: Vec<&str> = text.split('`').skip(1).step_by(2).filter(is_name).collect();
    assert!(named.len() > 50, "{} tests are named", named.len());
    // the text of a module without its `mod tests { … }`, and that alone
    let halves = |modules: &str| {
        let file = modules.replace("::", "/");
        let places = ["src/", "tests/it/"]
            .into_iter()
            .flat_map(|top| [".rs", "/mod.rs"].map(|end| root.join(format!("{top}{file}{end}"))));
        let texts = places.filter_map(|place| fs::read_to_string(place).ok());
        let split = |text: String| match text.split_once("mod tests {") {
            Some((own, tests)) => (own.to_owned(), tests.to_owned()),
            None => (text, String::new()),
        };
        texts.map(split).collect::<Vec<_>>()
    };
    let exists = |name: &str| {
        let (modules, test) = name.rsplit_once("::").expect("a path");
        let test = format!("fn {test}(");
        let inside = modules.strip_suffix("::tests").map(halves).unwrap_or_default();
        halves(modules).iter().any(|(own, _)| own.contains(&test))
            || inside.iter().any(|(_, tests)| tests.contains(&test))
    };
    assert!(exists("upstream::http::sse::tests::bounds_hold_while_reading"), "a test within its module");
    assert!(!exists("upstream::http::sse::bounds_hold_while_reading"), "the same without `tests`");
    complain(
        &named
            .into_iter()
            .filter(|name| !exists(name))
            .map(|name| format!("no test {name}"))
            .collect::<Vec<_>>(),
    );
}
