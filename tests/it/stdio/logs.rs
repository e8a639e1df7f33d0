//! The log of a server: on every replica, without secrets, bounded.

use serde_json::json;

use super::{SECRET, SOON, add, log, stage, text};
use crate::support::{Following, Gateway, Mcp, Stage, cli, eventually};

/// The advisory lock under which lines are written.
const TURN: i64 = 0x6c6f_6773;

#[tokio::test]
async fn another_replica_shows_it_without_secrets_and_control_characters() {
    let (stage, tenant, client) = stage(&[]).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let there = other.ask_as(&tenant.platform);
    let said = "\u{1b}[31mred\u{1b}[0m key=sk_live_0123456789abcdefABCDEF \u{7}end";
    text(&client, "say", json!({ "text": said })).await;
    let lines = eventually("the line", SOON, || async {
        let lines = log(&there).await;
        lines.iter().any(|line| line.starts_with("red key=[redacted]")).then_some(lines)
    })
    .await;
    assert!(lines.iter().any(|line| line.starts_with("started, process ")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("connected, MCP 2025-03-26 to 2025-11-25, ")), "{lines:?}");

    // from the end on
    let page = there.get("/api/v1/servers/up/logs?limit=1").await.expect(200);
    assert_eq!(page["items"][0]["source"], "stderr", "{page}");
    let next = format!("/api/v1/servers/up/logs?cursor={}", page["next_cursor"].as_str().unwrap());
    assert_eq!(there.get(&next).await.expect(200)["items"], json!([]));
    text(&client, "say", json!({"text": "later"})).await;
    let items = eventually("the next line", SOON, || async {
        let items = there.get(&next).await.expect(200)["items"].clone();
        (items != json!([])).then_some(items)
    })
    .await;
    assert_eq!((&items[0]["line"], items.as_array().unwrap().len()), (&json!("later"), 1));
    there.get("/api/v1/servers/up/logs?cursor=x").await.expect(400);
    there.get("/api/v1/servers/up/logs?limit=501").await.expect(400);

    let shown = cli(&there, &["upstream", "logs", "up", "-n", "2"]).await.ok();
    assert_eq!(shown.out.lines().count(), 2, "{shown:?}");
    assert!(shown.out.lines().last().unwrap().ends_with("stderr   later"), "{shown:?}");
    let globex = stage.tenant("globex").await;
    globex.platform.get("/api/v1/servers/up/logs").await.refused(404, "not_found");
    tenant.auditor().await.get("/api/v1/servers/up/logs").await.refused(403, "forbidden");
    assert_bounded(&stage).await;
    tenant.platform.delete("/api/v1/servers/up").await.expect(204);
    eventually("no line is left", SOON, || async {
        let mut connection = stage.database.connect().await;
        let left: i64 =
            sqlx::query_scalar("select count(*) from server_logs").fetch_one(&mut connection).await.unwrap();
        (left == 0).then_some(())
    })
    .await;
}

async fn assert_bounded(stage: &Stage) {
    let mut connection = stage.database.connect().await;
    let (lines, bytes): (i64, i64) =
        sqlx::query_as("select count(*), coalesce(sum(octet_length(line)), 0) from server_logs")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert!(lines <= 500 && bytes <= 128 * 1024, "{lines} lines, {bytes} bytes");
}

#[tokio::test]
async fn a_program_that_fails_says_its_last_lines_at_once() {
    let script =
        "for n in 1 2 3 4 5 6; do echo line $n >&2; done; echo no folder for $PROGRAM_OWN >&2; exit 3";
    let entry = json!({"argv": ["sh", "-c", script], "env": {"PROGRAM_OWN": SECRET}, "tenants": ["*"]});
    let commands = json!({ "prog": entry }).to_string();
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands)]).await;
    let tenant = stage.tenant("acme").await;
    let says = "it ended with exit status 3; its standard error ends with: line 3 / line 4 / line 5 / line 6 / no folder for [redacted]";
    let added = add(&tenant.platform, "up", "prog").await;
    assert!(added["last_error"].as_str().unwrap().ends_with(says), "{added}");
    let added = cli(&tenant.platform, &["upstream", "add", "again", "--command", "prog"]).await;
    assert!(added.code == 1 && added.err.contains(says), "{added:?}");
    // whoever calls hears why it does not run, and nothing that it wrote
    let search = Mcp::session(&tenant.agent().await).await.search(&json!({"query": "folder"})).await;
    assert!(!search.to_string().contains("line 6"), "{search}");
}

#[tokio::test]
async fn a_program_that_dies_while_it_is_listed_says_its_last_lines_at_once() {
    let commands = super::commands(&[("prog", "falls", &["*"])]);
    let stage = Stage::with(&[("MCPPROXY__STDIO__COMMANDS", &commands)]).await;
    let tenant = stage.tenant("acme").await;
    let added = add(&tenant.platform, "up", "prog").await;
    let error = added["last_error"].as_str().unwrap();
    for says in
        ["without an answer", "exit status 3", "its standard error ends with: no folder for [redacted]"]
    {
        assert!(error.contains(says), "{says}: {error}");
    }
}

/// The transactions that wait for the turn of writers.
async fn waiting(stage: &Stage) -> Vec<String> {
    let query = "select virtualtransaction from pg_locks where locktype = 'advisory' and not granted
                 and database = (select oid from pg_database where datname = current_database())";
    sqlx::query_scalar(query).fetch_all(&mut stage.database.connect().await).await.unwrap()
}

#[tokio::test]
async fn a_removal_takes_lines_along_that_are_being_written() {
    let (stage, tenant, _client) = stage(&[]).await;
    let mut writer = stage.database.connect().await;
    sqlx::query("begin").execute(&mut writer).await.unwrap();
    sqlx::query("select pg_advisory_xact_lock($1)").bind(TURN).execute(&mut writer).await.unwrap();
    let line = "insert into server_logs (tenant_id, server_id, at, source, line)
                select tenant_id, server_id, now(), 'gateway', 'late' from servers";
    sqlx::query(line).execute(&mut writer).await.unwrap();
    let platform = tenant.platform.clone();
    let removed = tokio::spawn(async move { platform.delete("/api/v1/servers/up").await });
    eventually("the removal to wait, or to be done", SOON, || async {
        (removed.is_finished() || !waiting(&stage).await.is_empty()).then_some(())
    })
    .await;
    sqlx::query("commit").execute(&mut writer).await.unwrap();
    removed.await.unwrap().expect(204);
    assert_eq!(stage.database.count("select count(*) from server_logs").await, 0);
}

#[tokio::test]
async fn lines_that_cannot_be_written_are_tried_once_more() {
    let (stage, tenant, client) = stage(&[]).await;
    let mut other = stage.database.connect().await;
    sqlx::query("select pg_advisory_lock($1)").bind(TURN).execute(&mut other).await.unwrap();
    text(&client, "say", json!({"text": "patient"})).await;
    let first = eventually("a writer", SOON, || async { waiting(&stage).await.pop() }).await;
    eventually("its second try", SOON, || async {
        waiting(&stage).await.pop().filter(|second| *second != first)
    })
    .await;
    sqlx::query("select pg_advisory_unlock($1)").bind(TURN).execute(&mut other).await.unwrap();
    eventually("the line", SOON, || async {
        log(&tenant.platform).await.iter().any(|line| line == "patient").then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_flood_hurts_nobody() {
    let (stage, tenant, client) = stage(&[]).await;
    // 20 MB
    assert_eq!(text(&client, "flood", json!({"lines": 20_000})).await, "flooded");
    let lines = eventually("the flood's end", SOON, || async {
        let lines = log(&tenant.platform).await;
        lines.iter().any(|line| line.contains("lines are left out here")).then_some(lines)
    });
    text(&client, "say", json!({"text": "after"})).await;
    assert!(lines.await.len() <= 500);
    assert_bounded(&stage).await;
    assert!(stage.gateway.memory_peak_mib() < 200, "{} MiB", stage.gateway.memory_peak_mib());
}

#[tokio::test]
async fn following_shows_more_than_the_lines_it_began_with() {
    let (_stage, tenant, client) = stage(&[]).await;
    let mut following =
        Following::start(&tenant.platform, &["upstream", "logs", "up", "-n", "1", "--follow"]);
    for number in 1..=30 {
        text(&client, "say", json!({ "text": format!("line {number}") })).await;
    }
    let last = async { while !following.line().await.unwrap().ends_with("line 30") {} };
    tokio::time::timeout(SOON, last).await.expect("all of them at once");
}
