//! ACP clients and three replicas: asked on one, answered on another, run on a third, and each of them dies.

use std::time::Duration;

use serde_json::json;

use super::round_robin::{Hold, Three, WAITING};
use super::{asked, asking_of, state, write};
use crate::support::upstream::Say;
use crate::support::{Acp, Gateway, Tool, settle};

const SOON: Duration = Duration::from_secs(10);

#[tokio::test]
async fn the_replica_that_asked_dies_while_a_client_elsewhere_decides() {
    let mut three = Three::start().await;
    let (agent, approver) = (three.tenant.agent().await, three.tenant.approver().await);
    let mut acp = Acp::open(&three.second.ask_as(&approver)).await;
    let args = json!({"n": 1});
    let id = asked(&agent, &args).await;
    let request = acp.asked().await;
    three.stage.gateway.kill();
    acp.answer(&request, "allow_once").await;
    assert_eq!(acp.status().await, "in_progress");
    let there = three.third.ask_as(&agent);
    write(&there, &args).await.ok();
    assert_eq!(acp.status().await, "completed");
    assert_ne!(asked(&there, &args).await, id, "a permission is used up");
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn the_replica_of_a_client_dies_with_its_answer() {
    let mut three = Three::start().await;
    let (agent, approver) = (three.tenant.agent().await, three.tenant.approver().await);
    let runs = three.third.ask_as(&agent);
    let database = &three.stage.database;
    // in the middle of the answer: there was none, and the client is asked again where it comes back
    let mut acp = Acp::open(&three.second.ask_as(&approver)).await;
    let id = asked(&agent, &json!({"n": 1})).await;
    let request = acp.asked().await;
    let hold = Hold::begin(database).await;
    acp.answer(&request, "allow_once").await;
    settle(1, SOON, || database.count(WAITING)).await;
    three.second.kill();
    assert_eq!(acp.next().await, None);
    hold.end().await;
    settle(0, SOON, || database.count(WAITING)).await;
    assert_eq!(state(&approver, &id).await, "pending");
    let mut acp = Acp::load(&three.stage.gateway.ask_as(&approver), &acp.session).await;
    let request = acp.asked().await;
    assert_eq!(request["params"]["toolCall"]["toolCallId"], id);
    acp.answer(&request, "allow_once").await;
    assert_eq!(acp.status().await, "in_progress");
    write(&runs, &json!({"n": 1})).await.ok();
    assert_eq!((acp.status().await, three.calls()), (json!("completed"), 1));
    // right after it: it holds, and the client at the other replica loses
    let second = Gateway::start(database, &[]).await;
    let mut there = Acp::open(&second.ask_as(&approver)).await;
    let id = asked(&agent, &json!({"n": 2})).await;
    let (request, late) = (there.asked().await, acp.asked().await);
    there.answer(&request, "allow_once").await;
    settle(json!("granted"), SOON, || state(&approver, &id)).await;
    drop(second);
    acp.answer(&late, "reject_once").await;
    assert_eq!(acp.status().await, "in_progress");
    write(&runs, &json!({"n": 2})).await.ok();
    assert_eq!((acp.status().await, three.calls()), (json!("completed"), 2));
    assert_ne!(asked(&runs, &json!({"n": 2})).await, id);
}

#[tokio::test]
async fn the_replica_that_runs_the_call_dies() {
    let tools = vec![Tool::writes("writer").says(Say::Hang)];
    let (stage, tenant, upstream) = asking_of(&[], json!([]), tools).await;
    let second = Gateway::start(&stage.database, &[]).await;
    let mut third = Gateway::start(&stage.database, &[]).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let mut acp = Acp::open(&second.ask_as(&approver)).await;
    let id = asked(&agent, &json!({"n": 1})).await;
    let request = acp.asked().await;
    acp.answer(&request, "allow_once").await;
    assert_eq!(acp.status().await, "in_progress");
    let there = third.ask_as(&agent);
    let running = tokio::spawn(async move { write(&there, &json!({"n": 1})).await });
    settle(1, SOON, async || upstream.counts().calls).await;
    third.kill();
    drop(running);
    let mut connection = stage.database.connect().await;
    // as if it had been silent for long; the others beat on
    let silent = "update replicas set heartbeat_at = now() - interval '1 minute'";
    sqlx::query(silent).execute(&mut connection).await.unwrap();
    settle(json!("unknown"), Duration::from_secs(30), || state(&approver, &id)).await;
    assert_eq!(acp.status().await, "failed");
    assert_ne!(asked(&second.ask_as(&agent), &json!({"n": 1})).await, id, "nothing runs again");
    assert_eq!(upstream.counts().calls, 1);
}

#[tokio::test]
async fn answers_of_nothing_decide_nothing_and_nobody_waits_for_them() {
    let three = Three::start().await;
    let (agent, approver) = (three.tenant.agent().await, three.tenant.approver().await);
    let (mut one, mut silent) =
        (Acp::open(&three.second.ask_as(&approver)).await, Acp::open(&three.third.ask_as(&approver)).await);
    let id = asked(&agent, &json!({"n": 1})).await;
    let request = one.asked().await;
    silent.asked().await;
    // no responses at all
    for nothing in [json!({"result": null}), json!({}), json!({"result": {}, "error": {}})] {
        let mut answer = json!({"jsonrpc": "2.0", "id": request["id"]});
        answer.as_object_mut().unwrap().extend(nothing.as_object().unwrap().clone());
        one.say(&answer).await;
        assert_eq!(one.next().await.unwrap()["error"]["code"], -32600, "{answer}");
    }
    one.outcome(&request, json!({})).await;
    let again = one.asked().await;
    one.say(&json!({"jsonrpc": "2.0", "id": again["id"], "error": {"code": -32603, "message": "broken"}}))
        .await;
    assert!(one.said("pending").await.contains("somebody else has to decide"));
    one.answer(&again, "allow_once").await;
    assert!(one.prompt().await.contains(&id));
    assert_eq!(state(&approver, &id).await, "pending");
    // the call waits for none of them: a third person decides, and it runs once
    let other = three.tenant.approver().await;
    super::decide(&other, &id, "allow_once").await.expect(200);
    write(&agent, &json!({"n": 1})).await.ok();
    for acp in [&mut one, &mut silent] {
        while acp.status().await != "completed" {}
    }
    assert_eq!(three.calls(), 1);
}
