//! Handshake clients behind a round robin: the reply to a question reaches another replica than the one that asked.

use std::time::Duration;

use serde_json::json;

use super::held::{Held, client, reply, result};
use super::in_band::accept;
use super::round_robin::Three;
use super::{decide, state};
use crate::support::{Mcp, settle};

const SOON: Duration = Duration::from_secs(5);
/// Replies on their way.
const STORED: &str = "select count(*) from client_replies";

#[tokio::test]
async fn asked_on_one_replica_and_answered_on_another_the_call_ends_once() {
    let three = Three::start().await;
    let (agent, _) = three.people().await;
    let client = client(&agent).await;
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    reply(&client, &question, &result(&accept("allow_once"))).await;
    assert_eq!(held.code().await, "ok");
    assert_eq!(three.served(&agent), [0, 1, 2], "the handshake, the call, the reply");
    // the same reply at every replica runs nothing
    for api in three.everywhere(&agent) {
        reply(&Mcp::in_session(&api, client.session_id()), &question, &result(&accept("allow_once"))).await;
    }
    settle(0, SOON, || three.stage.database.count(STORED)).await;
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn a_reply_whose_notice_is_lost_is_found() {
    let three = Three::start().await;
    let (agent, _) = three.people().await;
    let client = client(&agent).await;
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    // another replica stored it, and its notice never came
    let silent = "
        create table kept_back as select * from client_replies with no data;
        create function keep_back() returns trigger language plpgsql security definer as $$ begin
            insert into public.kept_back select new.*;
            return null;
        end $$;
        create trigger keep_back before insert on client_replies for each row execute function keep_back()";
    let mut connection = three.stage.database.connect().await;
    sqlx::raw_sql(silent).execute(&mut connection).await.unwrap();
    reply(&client, &question, &result(&accept("allow_once"))).await;
    settle(1, SOON, || three.stage.database.count("select count(*) from kept_back")).await;
    let back = "
        drop trigger keep_back on client_replies;
        insert into client_replies select * from kept_back";
    sqlx::raw_sql(back).execute(&mut connection).await.unwrap();
    assert_eq!(held.code().await, "ok");
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn the_replica_that_waits_dies() {
    let mut three = Three::start().await;
    let (agent, _) = three.people().await;
    let client = client(&agent).await;
    let there = Mcp::in_session(&three.third.ask_as(&agent), client.session_id());
    let mut held = Held::begin(&there, "7").await;
    let (question, _) = held.question().await;
    three.third.kill();
    assert!(held.next().await.is_none(), "the stream breaks");
    // the reply is for nobody
    let second = Mcp::in_session(&three.second.ask_as(&agent), client.session_id());
    reply(&second, &question, &result(&accept("allow_once"))).await;
    settle(1, SOON, || three.stage.database.count(STORED)).await;
    assert_eq!(three.calls(), 0);
    // the same call asks again, and runs once
    let mut held = Held::begin(&second, "8").await;
    let (again, _) = held.question().await;
    assert_ne!(again, question);
    reply(&client, &again, &result(&accept("allow_once"))).await;
    assert_eq!(held.code().await, "ok");
    let items = three.stage.gateway.ask_as(&agent).items("/api/v1/consent").await;
    assert_eq!(items.len(), 1, "{items:?}");
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn a_decision_or_the_end_of_a_session_on_another_replica_ends_the_wait() {
    let three = Three::start().await;
    let (agent, approver) = three.people().await;
    let [first, second, _] = three.everywhere(&agent);
    let client = client(&first).await;
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    let id = first.items("/api/v1/consent").await[0]["id"].as_str().unwrap().to_owned();
    decide(&three.third.ask_as(&approver), &id, "allow_once").await.expect(200);
    held.withdrawn(&question).await;
    assert_eq!(held.code().await, "ok");
    settle(json!("succeeded"), SOON, || state(&first, &id)).await;
    let mut held = Held::begin(&client, "8").await;
    let (question, _) = held.question().await;
    let elsewhere = Mcp::in_session(&second, client.session_id());
    assert_eq!(second.send(elsewhere.http(reqwest::Method::DELETE)).await.status, 204);
    held.withdrawn(&question).await;
    assert_eq!(held.code().await, "consent_pending");
    assert_eq!(three.calls(), 1);
}
