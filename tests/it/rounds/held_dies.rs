//! Calls that are held open, when a replica dies or stops at one of the steps.

use super::held::{ANA, SOON, Three, WAY, answer, more, text};
use super::{Way, assert_invalid, client};
use crate::support::{Api, Outcome, eventually, settle};

/// Makes the third replica, which has died, so long gone that everybody knows.
async fn age(three: &Three) {
    let mut connection = three.stage.database.connect().await;
    let old = "update replicas set heartbeat_at = now() - interval '1 minute'
        where replica_id = (select replica_id from replicas order by started_at desc limit 1)";
    assert_eq!(sqlx::raw_sql(old).execute(&mut connection).await.unwrap().rows_affected(), 1);
}

/// A later round in the background.
fn answering(way: Way, api: &Api, state: &str) -> tokio::task::JoinHandle<Outcome> {
    let (api, state) = (api.clone(), state.to_owned());
    tokio::spawn(async move { answer(way, client(&api), ANA, &state).await })
}

async fn replied(three: &Three) {
    settle(1, SOON, || async { three.upstream.replies().len() }).await;
}

/// The status of the record of the call, once it is closed.
async fn status(three: &Three, agent: &Api) -> String {
    let path = format!("/api/v1/activity?key={}&type=tool_call", agent.id);
    eventually("the record of the call", SOON * 8, || async {
        let items = three.second.ask_as(&three.tenant.platform).items(&path).await;
        let call = items.into_iter().find(|record| record["parent_id"].is_null())?;
        (call["status"] != "pending").then(|| call["status"].as_str().unwrap().to_owned())
    })
    .await
}

#[tokio::test]
async fn the_holder_dies_before_the_answer() {
    let mut three = Three::start(true).await;
    let agent = three.tenant.agent().await;
    let state = WAY.begin(client(&three.third.ask_as(&agent))).await;
    three.third.kill();
    age(&three).await;
    for api in [&agent, &three.second.ask_as(&agent)] {
        let said = answer(WAY, client(api), ANA, &state).await.refused("upstream_lost");
        assert!(said["message"].as_str().unwrap().contains("may have run"), "{said}");
    }
    assert_eq!(status(&three, &agent).await, "unknown");
    assert_eq!((three.calls(), three.upstream.replies().len()), (1, 0));
}

#[tokio::test]
async fn the_holder_dies_after_the_answer() {
    let mut three = Three::start(false).await;
    let agent = three.tenant.agent().await;
    let state = WAY.begin(client(&three.third.ask_as(&agent))).await;
    let waiting = answering(WAY, &agent, &state);
    replied(&three).await;
    three.third.kill();
    age(&three).await;
    waiting.await.unwrap().refused("upstream_lost");
    assert_eq!(status(&three, &agent).await, "unknown");
    answer(WAY, client(&three.second.ask_as(&agent)), ANA, &state).await.refused("upstream_lost");
    assert_eq!((three.calls(), three.upstream.replies().len()), (1, 1));
}

#[tokio::test]
async fn the_replica_of_the_answer_dies() {
    let mut three = Three::start(false).await;
    let agent = three.tenant.agent().await;
    let state = WAY.begin(client(&agent)).await;
    let there = three.third.ask_as(&agent);
    let body = client(&there).unsent("7", "tools/call", &params(&more(ANA, &state)));
    let waiting = tokio::spawn(body.send());
    replied(&three).await;
    three.third.kill();
    assert!(waiting.await.unwrap().is_err(), "the connection breaks");
    three.gate.send_replace(true);
    assert_eq!(status(&three, &agent).await, "success", "the call goes on");
    assert_invalid(&answer(WAY, client(&three.second.ask_as(&agent)), ANA, &state).await, "it was given");
    assert_eq!((three.calls(), three.upstream.replies().len()), (1, 1));
}

/// `params` of the call.
fn params(more: &str) -> String {
    let inner = format!(r#"{{"name":"{}","args":{}}}"#, WAY.tool, WAY.arguments);
    format!(r#"{{"name":"call_tool_write","arguments":{inner}{more}}}"#)
}

#[tokio::test]
async fn a_holder_that_stops_refuses_the_question() {
    let mut three = Three::start(true).await;
    let agent = three.tenant.agent().await;
    let state = WAY.begin(client(&three.third.ask_as(&agent))).await;
    three.third.terminate();
    assert!(three.third.ended().await.success());
    let [reply] = &three.upstream.replies()[..] else { panic!("one reply") };
    assert!(reply.contains("-32603"), "{reply}");
    assert_eq!(status(&three, &agent).await, "success", "the server answered all the same");
    answer(WAY, client(&agent), ANA, &state).await.refused("upstream_lost");
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn a_holder_that_stops_lets_the_call_end_that_has_its_answer() {
    let mut three = Three::start(false).await;
    let agent = three.tenant.agent().await;
    let state = WAY.begin(client(&three.third.ask_as(&agent))).await;
    let waiting = answering(WAY, &agent, &state);
    replied(&three).await;
    three.third.terminate();
    three.gate.send_replace(true);
    assert!(text(&waiting.await.unwrap()).contains("ana"));
    assert!(three.third.ended().await.success());
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_call_back() {
    let three = Three::start(false).await;
    let cancelled = || three.upstream.notifications("notifications/cancelled").len();
    for (round, gateway) in [(1, &three.stage.gateway), (2, &three.second)] {
        let agent = three.tenant.agent().await;
        let state = WAY.begin(client(&agent)).await;
        let there = gateway.ask_as(&agent);
        let waiting =
            tokio::spawn(client(&there).unsent("7", "tools/call", &params(&more(ANA, &state))).send());
        settle(round, SOON, || async { three.upstream.replies().len() }).await;
        waiting.abort();
        settle(round, SOON, || async { cancelled() }).await;
        assert_eq!(status(&three, &agent).await, "cancelled");
        let path = format!("key={}&status=cancelled&type=tool_call", agent.id);
        let records = three.tenant.records(&path, 2).await;
        assert!(records.iter().all(|record| record["error_code"] == "cancelled"), "{records:?}");
        assert_invalid(&answer(WAY, client(&agent), ANA, &state).await, "it was given");
    }
    assert_eq!(three.calls(), 2);
}
