//! The log cannot be written for a while: what writes waits, then gives up, and was not run.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{Connection, PgConnection, Postgres, Transaction};

use crate::support::{Api, Database, Mcp, Stage, Tool, Upstream, settle};

const CALLS: usize = 12;

/// Holds every table of the log against everybody.
async fn lock(connection: &mut PgConnection) -> Transaction<'_, Postgres> {
    let mut tx = connection.begin().await.unwrap();
    sqlx::query("lock table activity_open, activity in access exclusive mode")
        .execute(&mut *tx)
        .await
        .unwrap();
    tx
}

/// Waits until a call stands at the lock: checked, and not recorded yet.
async fn waits_to_open(database: &Database) {
    settle(true, Duration::from_secs(5), || async {
        let mut connection = database.connect().await;
        let standing: i64 = sqlx::query_scalar(
            "select count(*) from pg_stat_activity where datname = current_database()
             and wait_event_type = 'Lock' and query ilike '%open_activity(%'",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        standing > 0
    })
    .await;
}

fn start_writes(agent: &Api) -> Vec<tokio::task::JoinHandle<(String, Duration)>> {
    (0..CALLS)
        .map(|n| {
            let client = Mcp::bare(agent);
            tokio::spawn(async move {
                let began = Instant::now();
                let code = client.run("write", "up:echo", &json!({"ticket": format!("w{n}")})).await.code();
                (code, began.elapsed())
            })
        })
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pause_delays_what_writes_and_nothing_else() {
    let held = Duration::from_secs(3);
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let upstream =
        Upstream::handshake(vec![Tool::writes("echo"), Tool::reads("look"), Tool::new("plain")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let mut connection = stage.database.connect().await;
    let tx = lock(&mut connection).await;
    let began = Instant::now();
    let writes = start_writes(&agent);
    let unknown = {
        let client = Mcp::bare(&agent);
        tokio::spawn(async move { client.run("read", "up:plain", &json!({"ticket": "plain"})).await.code() })
    };
    // reads go on all the time, and nothing that writes gets through
    let mut reads = 0;
    while began.elapsed() < held {
        Mcp::bare(&agent).run("read", "up:look", &json!({"ticket": "r"})).await.ok();
        reads += 1;
        let tickets = upstream.tickets();
        assert!(tickets.iter().all(|ticket| ticket == "r"), "dispatched before its record: {tickets:?}");
    }
    assert_eq!(upstream.counts().calls, reads);
    tx.rollback().await.unwrap();
    for write in writes {
        let (code, took) = write.await.unwrap();
        assert_eq!(code, "ok");
        assert!(took >= Duration::from_secs(2), "{took:?}");
    }
    assert_eq!(unknown.await.unwrap(), "ok");
    let mut tickets: Vec<String> = upstream.tickets().into_iter().filter(|ticket| ticket != "r").collect();
    tickets.sort();
    tickets.dedup();
    assert_eq!(tickets.len(), CALLS + 1);
    tenant.records("type=tool_call&status=success&tool=echo", CALLS).await;
    tenant.records("type=tool_call&status=success&tool=plain", 1).await;
    tenant.records("type=tool_call&tool=look", reads).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_one_ends_in_record_unavailable_and_one_record() {
    // as long as the server lets a statement of the writer wait, which looks for another connection after 5 s
    let held = Duration::from_secs(7);
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RECORD_COMMIT_TIMEOUT_S", "5")]).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
    tenant.add("up", &upstream).await;
    let agent = tenant.agent().await;
    let mut connection = stage.database.connect().await;
    let tx = lock(&mut connection).await;
    let began = Instant::now();
    for write in start_writes(&agent) {
        let (code, took) = write.await.unwrap();
        assert_eq!(code, "record_unavailable");
        assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(9), "{took:?}");
    }
    settle(true, held, || async { began.elapsed() >= held }).await;
    tx.rollback().await.unwrap();
    let records = tenant.records("type=tool_call&status=rejected", CALLS).await;
    for record in &records {
        assert_eq!(record["error_code"], "record_unavailable", "{record}");
    }
    let database = &stage.database;
    settle(0_i64, Duration::from_secs(10), || async {
        let mut connection = database.connect().await;
        sqlx::query_scalar("select count(*) from activity_open").fetch_one(&mut connection).await.unwrap()
    })
    .await;
    tenant.records("type=tool_call", CALLS).await;
    assert_eq!(upstream.counts().calls, 0);
    // and the log works again
    Mcp::bare(&agent).run("write", "up:echo", &json!({})).await.ok();
    tenant.records("type=tool_call&status=success", 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_changes_while_a_call_waits_for_its_record_is_not_run() {
    // an administrator's act would wait for its own record: the change is found by listing again
    let stage = Stage::with(&[("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "1")]).await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.agent().await;
    let mut connection = stage.database.connect().await;
    for (name, auto_approve) in [("strict", false), ("auto", true)] {
        let upstream = Upstream::handshake(vec![Tool::writes("echo")]).await;
        tenant.add_with(name, &upstream, json!({"auto_approve": auto_approve})).await;
        let client = Mcp::bare(&agent);
        let tx = lock(&mut connection).await;
        let tool = format!("{name}:echo");
        let call = tokio::spawn(async move { client.run("write", &tool, &json!({"ticket": "late"})).await });
        waits_to_open(&stage.database).await;
        // still one that writes: only its definition is another
        let annotations = r#"{"readOnlyHint":false,"destructiveHint":false,"title":"Another"}"#;
        upstream.set_tools(vec![Tool::annotated("echo", annotations)]);
        let expected = if auto_approve { json!(["Another"]) } else { json!([]) };
        settle(expected, Duration::from_secs(8), || async {
            let found = Mcp::bare(&agent).search(&json!({"query": "echo", "server": name})).await;
            let tools = found["tools"].as_array().unwrap().clone();
            tools.iter().map(|tool| tool["annotations"]["title"].clone()).collect()
        })
        .await;
        assert!(!call.is_finished(), "{name}");
        tx.rollback().await.unwrap();
        let outcome = call.await.unwrap();
        assert_eq!(outcome.refused("tool_changed")["tool"], format!("{name}:echo"));
        assert_eq!(upstream.counts().calls, 0, "{name}: {:?}", upstream.calls());
        let records = tenant.records(&format!("type=tool_call&server={name}"), 1).await;
        assert_eq!(
            (&records[0]["status"], &records[0]["error_code"]),
            (&json!("blocked"), &json!("tool_changed")),
            "{name}: {}",
            records[0]
        );
        // the next call is checked against what there is now
        let expected = if auto_approve { "ok" } else { "tool_changed" };
        let again = Mcp::bare(&agent).run("write", &format!("{name}:echo"), &json!({"ticket": "next"})).await;
        assert_eq!(again.code(), expected, "{name}");
        tenant.records(&format!("type=tool_call&server={name}"), 2).await;
    }
    let mut connection = stage.database.connect().await;
    let left: i64 =
        sqlx::query_scalar("select count(*) from activity_open").fetch_one(&mut connection).await.unwrap();
    assert_eq!(left, 0);
}
