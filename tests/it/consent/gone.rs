//! Clients that leave, and a database that is away.

use std::time::Duration;

use serde_json::json;
use sqlx::{AssertSqlSafe, Executor};
use tokio::sync::watch;

use super::{asked, asking, asking_of, asking_on, decide, state, write};
use crate::support::upstream::Say;
use crate::support::{Api, Database, Gateway, Line, Mcp, Stage, Tool, Way, settle, upstream};

const SOON: Duration = Duration::from_secs(5);

/// Makes a call that was allowed, and leaves once it is under way.
async fn leave(client: Mcp, calls: usize, sent: impl Fn() -> usize) {
    let call = json!({"name": "zoo:writer", "args": {"n": calls}});
    let running = tokio::spawn(async move { client.call("call_tool_write", &call).await });
    settle(calls, SOON, async || sent()).await;
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
}

async fn allowed(agent: &Api, approver: &Api, n: usize) -> String {
    let id = asked(agent, &json!({ "n": n })).await;
    decide(approver, &id, "allow_once").await.expect(200);
    id
}

#[tokio::test]
async fn a_client_that_leaves_uses_its_permission_up() {
    let (gate, opened) = watch::channel(false);
    let tools = vec![Tool::writes("writer").says(Say::Gate(opened, Box::new(Say::Echo)))];
    let (_stage, tenant, upstream) = asking_of(&[], json!([]), tools).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let sent = || upstream.counts().calls;
    // in the modern era its call is cancelled, and may have run
    let id = allowed(&agent, &approver, 1).await;
    leave(Mcp::modern(&agent), 1, sent).await;
    settle(json!("unknown"), SOON, || state(&approver, &id)).await;
    assert_ne!(asked(&agent, &json!({"n": 1})).await, id);
    // a call of a session goes on to its end
    let id = allowed(&agent, &approver, 2).await;
    leave(Mcp::session(&agent).await, 2, sent).await;
    assert_eq!(state(&approver, &id).await, "consumed");
    gate.send(true).unwrap();
    settle(json!("succeeded"), SOON, || state(&approver, &id)).await;
    assert_ne!(asked(&agent, &json!({"n": 2})).await, id);
    assert_eq!(sent(), 2);
}

#[tokio::test]
async fn without_a_database_nobody_is_asked_and_nothing_runs() {
    let database = Database::migrated().await;
    let line = Line::to(database.port()).await;
    let url = line.url(&database.url());
    let settings = [("MCPPROXY__DATABASE__URL", &*url), ("MCPPROXY__LIMITS__RECORD_COMMIT_TIMEOUT_S", "3")];
    let gateway = Gateway::start(&database, &settings).await;
    let stage = Stage { gateway, database };
    let (tenant, upstream) = asking_on(&stage, json!([]), upstream::zoo()).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let pending = asked(&agent, &json!({"n": 1})).await;
    let granted = allowed(&agent, &approver, 2).await;
    line.turn(Way::Refuses).await;
    let calls = [json!({"n": 1}), json!({"n": 2}), json!({"n": 3})];
    let refused = futures_util::future::join_all(calls.iter().map(|args| write(&agent, args)));
    let (refused, answer) = tokio::join!(refused, decide(&approver, &pending, "allow_once"));
    for outcome in refused {
        let code = outcome.code();
        assert!(["consent_undeliverable", "record_unavailable"].contains(&&*code), "{code}");
    }
    assert_eq!(answer.status, 503, "{answer:?}");
    line.turn(Way::Open).await;
    settle(json!("pending"), SOON * 2, async || {
        approver.get(&format!("/api/v1/consent/{pending}")).await.json()["state"].clone()
    })
    .await;
    assert_eq!(upstream.counts().calls, 0);
    // the same requests, once more
    decide(&approver, &pending, "allow_once").await.expect(200);
    for (n, id) in [(1, pending), (2, granted)] {
        settle("ok".to_owned(), SOON, async || write(&agent, &json!({ "n": n })).await.code()).await;
        settle(json!("succeeded"), SOON, || state(&approver, &id)).await;
    }
    assert_eq!(upstream.counts().calls, 2);
}

/// Days that the log has no partition for, as with a clock that is far off: each step makes what it needs.
#[tokio::test]
async fn steps_are_taken_on_a_day_without_a_partition() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let mut connection = stage.database.connect().await;
    let mut forget = async || {
        let day = chrono::Utc::now().format("activity_%Y%m%d");
        connection.execute(AssertSqlSafe(format!("drop table if exists {day}"))).await.unwrap();
    };
    forget().await;
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_once").await.expect(200);
    forget().await;
    write(&agent, &json!({"n": 1})).await.ok();
    settle(json!("succeeded"), SOON, || state(&approver, &id)).await;
    let (one, other) = (asked(&agent, &json!({"n": 2})).await, asked(&agent, &json!({"n": 3})).await);
    forget().await;
    decide(&approver, &one, "cancel_turn").await.expect(200);
    assert_eq!(state(&approver, &other).await, "cancelled");
    // the record of its being asked went with the partition
    let records = tenant.records(&format!("type=consent&consent_id={other}"), 1).await;
    assert_eq!(records[0]["tool"], "consent.cancelled");
}
