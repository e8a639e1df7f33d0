//! Everything starts again, Postgres too.

use std::time::Duration;

use serde_json::json;

use super::in_band::{ARGS, accept, answer, call, question};
use super::{asked, asking_on, decide, state, write};
use crate::rounds::client;
use crate::support::{Gateway, Mcp, OwnPostgres, Stage, settle, upstream};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_when_everything_starts_again() {
    let mut postgres = OwnPostgres::start().await;
    let database = postgres.database();
    Gateway::migrate(&database);
    let stage = Stage { gateway: Gateway::start(&database, &[]).await, database };
    let (tenant, upstream) = asking_on(&stage, json!([]), upstream::zoo()).await;
    let others = [Gateway::start(&stage.database, &[]).await, Gateway::start(&stage.database, &[]).await];
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let pending = asked(&agent, &json!({"n": 1})).await;
    let granted = asked(&others[0].ask_as(&agent), &json!({"n": 2})).await;
    decide(&others[1].ask_as(&approver), &granted, "allow_once").await.expect(200);
    let denied = asked(&agent, &json!({"n": 3})).await;
    decide(&approver, &denied, "reject_once").await.expect(200);
    let read = Mcp::bare(&agent).run("read", "zoo:reader", &json!({})).await.refused("consent_pending");
    decide(&approver, read["consent_id"].as_str().unwrap(), "allow_always").await.expect(200);
    let at_client = tenant.agent().await;
    let (_, sealed) = question(&at_client).await;
    let shown = approver.get(&format!("/api/v1/consent/{pending}")).await.expect(200);

    let Stage { gateway, database } = stage;
    drop((gateway, others));
    postgres.kill();
    postgres.start_again().await;
    let mut replicas = Vec::new();
    for _ in 0..3 {
        replicas.push(Gateway::start(&database, &[]).await);
    }
    let [first, second, third] = &replicas[..] else { unreachable!() };
    let (agent, approver) = (first.ask_as(&agent), second.ask_as(&approver));
    assert_eq!(approver.get(&format!("/api/v1/consent/{pending}")).await.expect(200), shown);
    assert_eq!(asked(&agent, &json!({"n": 1})).await, pending);
    write(&agent, &json!({"n": 2})).await.ok();
    write(&agent, &json!({"n": 3})).await.refused("consent_denied");
    Mcp::bare(&agent).run("read", "zoo:reader", &json!({"n": 2})).await.ok();
    let allow = answer(&accept("allow_once"), &sealed);
    call(client(&third.ask_as(&at_client)), "writer", ARGS, &allow).await.ok();
    assert_eq!(upstream.counts().calls, 3);
    decide(&approver, &pending, "allow_once").await.expect(200);
    write(&third.ask_as(&agent), &json!({"n": 1})).await.ok();
    settle(json!("succeeded"), SOON, || state(&approver, &pending)).await;
    assert_ne!(asked(&agent, &json!({"n": 1})).await, pending);
    assert_eq!(upstream.counts().calls, 4);
}
