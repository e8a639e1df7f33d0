//! Changes while an allowed call waits for its record, or for the person at its client.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;

use super::held::{Held, client, reply, result};
use super::in_band::accept;
use super::{asked, asking, decide, redefine, write};
use crate::support::{
    Api, Gateway, HELD_RECORDS, Outcome, Stage, Tenant, Upstream, eventually, settle, upstream,
};

const SOON: Duration = Duration::from_secs(5);

/// Call that a person has allowed. It passed its checks at a replica of its own, and waits for its record.
struct Waiting {
    stage: Stage,
    other: Gateway,
    tenant: Tenant,
    upstream: Upstream,
    agent: Api,
    /// Id of the permission.
    id: String,
    held: PgConnection,
    call: JoinHandle<Outcome>,
}

impl Waiting {
    async fn begin() -> Waiting {
        let (stage, tenant, upstream) = asking(&[], json!([])).await;
        let other = Gateway::start(&stage.database, &[]).await;
        let (agent, approver) = (tenant.agent().await, tenant.approver().await);
        let id = asked(&agent, &json!({})).await;
        decide(&approver, &id, "allow_once").await.expect(200);
        let held = stage.database.hold_records("writer").await;
        let there = other.ask_as(&agent);
        let call = tokio::spawn(async move { write(&there, &json!({})).await });
        settle(1, SOON, || stage.database.count(HELD_RECORDS)).await;
        Waiting { stage, other, tenant, upstream, agent, id, held, call }
    }

    /// Waits until the replica of the call asks about equal calls of another key as something else, by the count.
    async fn known(&self, count: &'static str) {
        let bystander = self.other.ask_as(&self.tenant.agent().await);
        settle(2, SOON, async || {
            write(&bystander, &json!({})).await.refused("consent_pending");
            self.stage.database.count(count).await
        })
        .await;
    }

    /// Lets the call go on; returns its refusal.
    async fn refused(self, code: &str) -> Value {
        let Waiting { upstream, held, call, .. } = self;
        assert!(!call.is_finished());
        held.close().await.unwrap();
        let refused = call.await.unwrap().refused(code);
        assert_eq!(upstream.counts().calls, 0);
        refused
    }
}

#[tokio::test]
async fn a_call_whose_definition_changes_does_not_run() {
    let waiting = Waiting::begin().await;
    redefine(&waiting.tenant, &waiting.upstream).await;
    waiting.known("select count(distinct pin) from consent_requests").await;
    let refused = waiting.refused("tool_changed").await;
    assert!(refused["message"].as_str().unwrap().contains("changed meanwhile"), "{refused}");
}

#[tokio::test]
async fn a_call_whose_server_moves_does_not_run() {
    let waiting = Waiting::begin().await;
    let elsewhere = Upstream::handshake(upstream::zoo()).await;
    let platform = &waiting.tenant.platform;
    let moved = json!({"url": elsewhere.url, "auto_approve": true});
    platform.patch("/api/v1/servers/zoo", &moved).await.expect(200);
    platform.post("/api/v1/servers/zoo/unquarantine", &json!({})).await.expect(200);
    eventually("the calls to be asked about", SOON, async || {
        let bystander = waiting.other.ask_as(&waiting.tenant.agent().await);
        (write(&bystander, &json!({})).await.code() == "consent_pending").then_some(())
    })
    .await;
    waiting.known("select count(distinct digest) from consent_requests").await;
    let id = json!(waiting.id);
    assert_eq!((&waiting.refused("consent_lapsed").await["consent_id"], elsewhere.counts().calls), (&id, 0));
}

#[tokio::test]
async fn a_call_whose_key_is_revoked_does_not_run() {
    let waiting = Waiting::begin().await;
    waiting.tenant.platform.delete(&format!("/api/v1/keys/{}", waiting.agent.id)).await.expect(204);
    let there = waiting.other.ask_as(&waiting.agent);
    settle(401, SOON, async || there.get("/api/v1/status").await.status).await;
    waiting.refused("operation_not_permitted").await;
}

/// No act of the gateway changes these columns: they are checked all the same where a permission is used.
#[tokio::test]
async fn a_permission_that_is_for_another_call_is_not_used() {
    for (change, says) in [
        ("pin = 'v1:other'", "changed after approval"),
        ("digest = digest || '1'", "was used by another call"),
        ("principal = gen_random_uuid()", "was used by another call"),
        ("expires_at = now()", "was used by another call"),
    ] {
        let waiting = Waiting::begin().await;
        let mut connection = waiting.stage.database.connect().await;
        let statement = sqlx::AssertSqlSafe(format!("update consent_requests set {change}"));
        assert_eq!(sqlx::raw_sql(statement).execute(&mut connection).await.unwrap().rows_affected(), 1);
        let refused = waiting.refused("consent_lapsed").await;
        assert!(refused["message"].as_str().unwrap().contains(says), "{change}: {refused}");
    }
}

#[tokio::test]
async fn an_answer_at_the_client_is_about_the_definition_that_was_shown() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let client = client(&tenant.agent().await).await;
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    redefine(&tenant, &upstream).await;
    reply(&client, &question, &result(&accept("allow_once"))).await;
    let answer = held.next().await.expect("an answer");
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let [request] = &tenant.platform.items("/api/v1/consent").await[..] else { panic!("one request") };
    assert_eq!((&request["state"], upstream.counts().calls), (&json!("pending"), 0));
}

#[tokio::test]
async fn a_held_call_whose_key_is_revoked_does_not_run() {
    let (_stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let client = client(&agent).await;
    let mut held = Held::begin(&client, "7").await;
    let (question, _) = held.question().await;
    let id = agent.items("/api/v1/consent").await[0]["id"].as_str().unwrap().to_owned();
    tenant.platform.delete(&format!("/api/v1/keys/{}", agent.id)).await.expect(204);
    held.withdrawn(&question).await;
    decide(&approver, &id, "allow_once").await.refused(409, "conflict");
    assert_eq!((&*held.code().await, upstream.counts().calls), ("operation_not_permitted", 0));
}
