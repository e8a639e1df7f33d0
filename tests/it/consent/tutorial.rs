//! The commands of `docs/permissions-tutorial.md`, as people type them, and what they print.

use std::collections::HashMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::rounds::client;
use crate::support::{Api, Mcp, Stage, Tool, Upstream, cli_typed, eventually};

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/permissions-tutorial.md");
/// Line of the page that stands for any number of lines.
const LEFT_OUT: &str = "…";
const SOON: Duration = Duration::from_secs(5);
/// Words of commands that change nothing, and may be run until the log has caught up.
const READING: [&str; 4] = ["activity", " show ", " list", "history"];

/// Returns a line with a word in the place of each id, time and duration, and one blank between words.
fn normal(line: &str) -> String {
    let mut text = String::new();
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_of_word(c) != is_of_word(first)).unwrap_or(rest.len());
        let (run, after) = rest.split_at(end);
        text.push_str(kind_of(run).unwrap_or(run));
        rest = after;
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || "-:.+".contains(c)
}

fn kind_of(run: &str) -> Option<&'static str> {
    let run = run.trim_end_matches('.');
    let digits = run.trim_end_matches(char::is_alphabetic);
    let is_number = !digits.is_empty() && digits.chars().all(|c| c.is_ascii_digit() || c == '.');
    if is_id(run) {
        Some("ID")
    } else if run.contains(char::is_numeric)
        && run.chars().all(|c| c.is_ascii_digit() || "-:.+TZ".contains(c))
    {
        (run.contains(':') || run.matches('-').count() == 2).then_some("TIME")
    } else {
        (is_number && ["µs", "ms", "s"].contains(&run.strip_prefix(digits)?)).then_some("DURATION")
    }
}

fn is_id(run: &str) -> bool {
    let is_ulid = run.len() == 26 && run.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
    is_ulid || uuid::Uuid::try_parse(run).is_ok_and(|_| run.contains('-'))
}

fn ids(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_of_word(c)).map(|run| run.trim_end_matches('.')).filter(|run| is_id(run))
}

/// Returns pairs of lines, the page's and the real one, if the page's lines stand for the real ones.
fn pairs<'a>(page: &[&'a str], real: &[&'a str]) -> Option<Vec<(&'a str, &'a str)>> {
    match (page, real) {
        ([], []) => Some(Vec::new()),
        ([first, more @ ..], _) if *first == LEFT_OUT => {
            (0..=real.len()).find_map(|skipped| pairs(more, &real[skipped..]))
        }
        ([first, more @ ..], [line, rest @ ..]) if normal(first) == normal(line) => {
            let mut found = pairs(more, rest)?;
            found.push((first, line));
            Some(found)
        }
        _ => None,
    }
}

/// Tenant of the page.
struct Team {
    _stage: Stage,
    _servers: [Upstream; 2],
    people: HashMap<&'static str, Api>,
}

/// The tenant of the page, after a week of work.
async fn team() -> Team {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let inside = |name: &str, about: &str, hint: bool| {
        let hints = json!({"readOnlyHint": false, "destructiveHint": hint, "openWorldHint": false});
        let schema = json!({"type": "object"});
        let definition =
            json!({"name": name, "description": about, "inputSchema": schema, "annotations": hints});
        Tool::raw(name, &definition.to_string())
    };
    let text = |text: &str| json!({"content": [{"type": "text", "text": text}]}).to_string();
    let github = Upstream::handshake(vec![
        Tool::reads("list_issues").returns(&text("2 open issues")),
        Tool::writes("create_issue").returns(&text("created")),
        Tool::destroys("delete_repo").returns(&text("deleted")),
    ]);
    let ops = Upstream::handshake(vec![
        inside("deploy_staging", "Deploy a version to staging.", false).returns(&text("deployed")),
        inside("deploy_production", "Deploy a version to production.", false).returns(&text("deployed")),
        inside("query", "Run a statement.", true).returns(&text("ok")),
    ]);
    let (github, ops) = tokio::join!(github, ops);
    tenant.add("github", &github).await;
    tenant.add("ops", &ops).await;
    let mut people = HashMap::new();
    for (name, role, owner) in
        [("ana", "admin", "ana"), ("eva", "approver", "eva"), ("robot", "agent", "ben")]
    {
        people.insert(name, tenant.key(&json!({"role": role, "name": name, "owner": owner})).await);
    }
    let robot = Mcp::bare(&people["robot"]);
    for (variant, tool, args) in [
        ("read", "github:list_issues", json!({"repo": "acme/demo"})),
        ("read", "github:list_issues", json!({"repo": "acme/scratch"})),
        ("read", "github:list_issues", json!({"repo": "acme/site"})),
        ("write", "github:create_issue", json!({"repo": "acme/demo", "title": "Flaky test"})),
        ("write", "ops:deploy_staging", json!({"version": "1.4.0"})),
        ("write", "ops:deploy_staging", json!({"version": "1.4.1"})),
        ("write", "ops:deploy_production", json!({"version": "1.4.1"})),
        ("destructive", "github:delete_repo", json!({"repo": "acme/scratch"})),
        ("destructive", "ops:query", json!({"sql": "DROP TABLE old_sessions"})),
        ("destructive", "ops:query", json!({"sql": "DELETE FROM sessions WHERE expired"})),
    ] {
        robot.run(variant, tool, &args).await.ok();
    }
    Team { _stage: stage, _servers: [github, ops], people }
}

/// Runs a command of the page; returns what the terminal shows, and the pairs of lines if it is what the page says.
async fn typed(
    api: &Api,
    folder: &Path,
    command: &str,
    page: &[&str],
) -> Result<Vec<(String, String)>, String> {
    let is_reading = READING.iter().any(|word| command.contains(word));
    let began = std::time::Instant::now();
    eventually("the command to say so", SOON * 2, async || {
        let real = cli_typed(api, folder, command).await;
        let found = pairs(page, &real.lines().collect::<Vec<_>>())
            .map(|pairs| pairs.iter().map(|(page, real)| ((*page).to_owned(), (*real).to_owned())).collect());
        let is_over = found.is_some() || !is_reading || began.elapsed() > SOON;
        is_over.then(|| found.ok_or(real))
    })
    .await
}

#[tokio::test]
async fn every_command_prints_what_the_page_says() {
    let page = fs::read_to_string(PAGE).unwrap();
    let team = team().await;
    let people = &team.people;
    let folder = tempfile::tempdir().unwrap();
    // ids of the page, and the real ones
    let mut known: HashMap<String, String> = HashMap::new();
    let mut wrong = Vec::new();
    let mut commands = 0;
    for block in page.split("\n```").skip(1).step_by(2) {
        let (language, text) = block.split_once('\n').unwrap();
        match language {
            "yaml" => fs::write(folder.path().join("rules.yaml"), text).unwrap(),
            "text" => wrong.extend(form(&people["robot"], text).await),
            _ => {}
        }
        let lines: Vec<&str> = text.lines().collect();
        let starts_of = |line: &&str| people.keys().any(|name| line.starts_with(&format!("{name}$ ")));
        let starts: Vec<usize> = (0..lines.len()).filter(|at| starts_of(&lines[*at])).collect();
        for (number, start) in starts.iter().enumerate() {
            let end = starts.get(number + 1).copied().unwrap_or(lines.len());
            let (name, command) = lines[*start].split_once("$ ").unwrap();
            let command = known.iter().fold(command.to_owned(), |text, (old, new)| text.replace(old, new));
            commands += 1;
            match typed(&people[name], folder.path(), &command, &lines[start + 1..end]).await {
                Ok(pairs) => known.extend(pairs.iter().flat_map(|(page, real)| {
                    ids(page).map(str::to_owned).zip(ids(real).map(str::to_owned)).collect::<Vec<_>>()
                })),
                Err(real) => wrong.push(format!("{name}$ {command}\n{real}")),
            }
        }
    }
    assert!(commands > 25, "{commands} commands were found");
    assert!(wrong.is_empty(), "the page is out of date:\n{}", wrong.join("\n"));
}

/// Compares the form that a client shows with the page's; returns the real one if it differs.
async fn form(robot: &Api, page: &str) -> Option<String> {
    let intent = json!({"operation_type": "destructive", "reason": "Sessions are kept for 100 days"});
    let args = json!({"sql": "DELETE FROM sessions WHERE day < 103"});
    let call = json!({"name": "ops:query", "args": args, "intent": intent});
    let asked: Value = client(robot).call("call_tool_destructive", &call).await.result();
    let says = asked["inputRequests"]["mcpproxy.consent"]["params"]["message"].as_str().unwrap().to_owned();
    let is_same = pairs(&page.lines().collect::<Vec<_>>(), &says.lines().collect::<Vec<_>>()).is_some();
    (!is_same).then_some(says)
}

#[test]
fn ids_times_and_durations_differ_from_run_to_run() {
    let line = "01M875W74D8BZ88DK0DF1FK7AQ  2026-11-24 16:22:58 +00:00  ops  query   success  6.4ms";
    assert_eq!(normal(line), "ID TIME TIME TIME ops query success DURATION");
    let line = "(01a20e5e-1860-7fb5-a897-1b6290b015bb, until 2026-11-24T16:52:57Z). ops:query 1.4.3 3 rules";
    assert_eq!(normal(line), "(ID, until TIME). ops:query 1.4.3 3 rules");
    assert!(pairs(&["a", LEFT_OUT, "c"], &["a", "b", "b", "c"]).is_some());
    assert!(pairs(&["a", LEFT_OUT, "c"], &["a", "b"]).is_none());
}
