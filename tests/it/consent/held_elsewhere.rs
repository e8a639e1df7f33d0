//! Handshake clients behind a round robin: the reply to a question reaches another replica than the one that asked.

use std::time::Duration;

use serde_json::json;

use super::held::{Held, client, reply, result};
use super::in_band::accept;
use super::round_robin::Three;
use super::{decide, state};
use crate::support::upstream::Say;
use crate::support::{Database, Mcp, Tool, settle};

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

/// Replies that are kept back on their way, with their notices.
struct Kept<'a>(&'a Database);

impl Kept<'_> {
    async fn begin(database: &Database) -> Kept<'_> {
        let keep_back = "
            create table kept_back as select * from client_replies with no data;
            create function keep_back() returns trigger language plpgsql security definer as $$ begin
                insert into public.kept_back select new.*;
                return null;
            end $$;
            create trigger keep_back before insert on client_replies for each row execute function keep_back()";
        sqlx::raw_sql(keep_back).execute(&mut database.connect().await).await.unwrap();
        Kept(database)
    }

    /// Waits until a replica has stored one.
    async fn one(&self) {
        settle(1, SOON, || self.0.count("select count(*) from kept_back")).await;
    }

    /// Lets them be found. No notice tells of them.
    async fn put_back(self) {
        let back = "
            drop trigger keep_back on client_replies;
            insert into client_replies select * from kept_back";
        sqlx::raw_sql(back).execute(&mut self.0.connect().await).await.unwrap();
    }
}

#[tokio::test]
async fn a_reply_whose_notice_is_lost_is_found() {
    let three = Three::start().await;
    let (agent, _) = three.people().await;
    let client = client(&agent).await;
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    // another replica stored it, and its notice never came
    let kept = Kept::begin(&three.stage.database).await;
    reply(&client, &question, &result(&accept("allow_once"))).await;
    kept.one().await;
    kept.put_back().await;
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
async fn the_replica_that_took_the_reply_dies() {
    let mut three = Three::start().await;
    let (agent, _) = three.people().await;
    let [first, second, third] = three.everywhere(&agent);
    let client = client(&first).await;
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    let allow = result(&accept("allow_once"));
    let kept = Kept::begin(&three.stage.database).await;
    reply(&Mcp::in_session(&second, client.session_id()), &question, &allow).await;
    kept.one().await;
    three.second.kill();
    assert_eq!(three.calls(), 0, "the waiter has no reply yet");
    kept.put_back().await;
    assert_eq!(held.code().await, "ok");
    assert!(held.next().await.is_none(), "the answer is the last message");
    // a client that does not know whether its reply was taken replies again
    for at in [&first, &third] {
        reply(&Mcp::in_session(at, client.session_id()), &question, &allow).await;
    }
    settle(0, SOON, || three.stage.database.count(STORED)).await;
    let [request] = &first.items("/api/v1/consent").await[..] else { panic!("one request") };
    assert_eq!(request["decided_via"], "elicitation");
    settle(json!("succeeded"), SOON, || state(&first, request["id"].as_str().unwrap())).await;
    assert_eq!(three.calls(), 1);
}

#[tokio::test]
async fn the_replica_that_runs_an_allowed_call_dies() {
    let mut three = Three::with(vec![Tool::writes("writer").says(Say::Hang)]).await;
    let (agent, _) = three.people().await;
    let [first, second, third] = three.everywhere(&agent);
    let client = client(&first).await;
    let mut held = Held::begin(&Mcp::in_session(&third, client.session_id()), "7").await;
    let (question, _) = held.question().await;
    let allow = result(&accept("allow_once"));
    reply(&client, &question, &allow).await;
    settle(1, SOON, async || three.calls()).await;
    let [request] = &first.items("/api/v1/consent").await[..] else { panic!("one request") };
    assert_eq!((&request["state"], &request["decided_via"]), (&json!("consumed"), &json!("elicitation")));
    let id = request["id"].as_str().unwrap();
    three.third.kill();
    assert!(held.next().await.is_none(), "the stream breaks");
    // as if it had been silent for long; the others beat on
    sqlx::query("update replicas set heartbeat_at = now() - interval '1 minute'")
        .execute(&mut three.stage.database.connect().await)
        .await
        .unwrap();
    settle(json!("unknown"), Duration::from_secs(30), || state(&first, id)).await;
    three.tenant.records(&format!("type=tool_call&status=unknown&consent_id={id}"), 1).await;
    // the same reply again, and the same call: nothing runs without another permission
    reply(&client, &question, &allow).await;
    let mut held = Held::begin(&Mcp::in_session(&second, client.session_id()), "8").await;
    let (again, _) = held.question().await;
    assert_ne!(again, question);
    let [new, old] = &first.items("/api/v1/consent").await[..] else { panic!("two requests") };
    assert_eq!(
        (&new["state"], &old["id"], &old["state"]),
        (&json!("pending"), &json!(id), &json!("unknown"))
    );
    reply(&client, &again, &result(&accept("reject_once"))).await;
    assert_eq!(held.code().await, "consent_denied");
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
