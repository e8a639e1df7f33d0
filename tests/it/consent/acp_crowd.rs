//! ACP clients where more requests wait than one client is asked about, or than a replica keeps at hand.

use std::time::Duration;

use serde_json::{Value, json};

use super::{asked, asking, state};
use crate::support::{Acp, Api, Mcp, Stage, settle};

const SOON: Duration = Duration::from_secs(10);
const MANY: [(&str, &str); 2] = [
    ("MCPPROXY__LIMITS__CONSENT_PENDING_PER_KEY", "1000"),
    ("MCPPROXY__LIMITS__CONSENT_ASKS_PER_MINUTE", "1000"),
];

/// Copies a request so many times, as older ones of the same key; returns the id of the nth.
async fn copies(stage: &Stage, id: &str, count: usize) -> impl Fn(usize) -> String + use<> {
    let copy = format!(
        "insert into consent_requests select (jsonb_populate_record(r, jsonb_build_object(
             'id', '00000000-0000-7000-8000-' || lpad(n::text, 12, '0'),
             'digest', sha256(n::text::bytea)::text))).*
         from consent_requests r, generate_series(1, {count}) n where r.id = '{id}'"
    );
    let mut connection = stage.database.connect().await;
    sqlx::raw_sql(sqlx::AssertSqlSafe(copy)).execute(&mut connection).await.unwrap();
    |n| format!("00000000-0000-7000-8000-{n:012}")
}

async fn asked_about(acp: &mut Acp) -> (String, Value) {
    let request = acp.asked().await;
    (request["params"]["toolCall"]["toolCallId"].as_str().unwrap().to_owned(), request)
}

async fn calls_mild(api: &Api, n: usize) {
    Mcp::bare(api).run("write", "zoo:mild", &json!({ "n": n })).await.refused("consent_pending");
}

#[tokio::test]
async fn requests_for_other_channels_hide_none() {
    let inbox = json!({"id": "inbox", "effect": "ask", "match": {"tool": "zoo:mild"}, "ask": {"channels": ["inbox"]}});
    let (_stage, tenant, _upstream) = asking(&MANY, json!([inbox])).await;
    let (agent, approver) = (tenant.agent_with(json!({"rate_limit": 50_000})).await, tenant.approver().await);
    let id = asked(&agent, &json!({})).await;
    futures_util::future::join_all((0..110).map(|n| calls_mild(&agent, n))).await;
    let mut acp = Acp::open(&approver).await;
    assert_eq!(asked_about(&mut acp).await.0, id);
}

#[tokio::test]
async fn the_oldest_come_first_and_the_rest_as_they_are_decided() {
    let (stage, tenant, upstream) = asking(&MANY, json!([])).await;
    let (agent, other, approver) = (tenant.agent().await, tenant.agent().await, tenant.approver().await);
    let first = asked(&agent, &json!({"n": 1})).await;
    let nth = copies(&stage, &first, 510).await;
    // more are older than the replica keeps at hand for all
    let own = asked(&other, &json!({"n": 1})).await;
    let mut ide = Acp::open(&other).await;
    assert_eq!(asked_about(&mut ide).await.0, own);
    let mut acp = Acp::open(&approver).await;
    let mut requests = Vec::new();
    for n in 1..=100 {
        let (id, request) = asked_about(&mut acp).await;
        assert_eq!(id, nth(n));
        requests.push(request);
    }
    for n in [101, 102] {
        acp.answer(&requests[n - 50], "reject_once").await;
        let decided = nth(n - 49);
        settle(json!("denied"), SOON, || state(&approver, &decided)).await;
        assert_eq!(asked_about(&mut acp).await.0, nth(n));
    }
    assert_eq!(upstream.counts().calls, 0);
}

#[tokio::test]
async fn requests_that_another_person_must_decide_hide_none() {
    let four_eyes = json!({"id": "four-eyes", "effect": "ask", "match": {"tool": "zoo:wiper"}, "ask": {"assurance": "approver"}});
    let (stage, tenant, _upstream) = asking(&MANY, json!([four_eyes])).await;
    let key = async |role, owner| tenant.key(&json!({"role": role, "owner": owner})).await;
    let (eva, agent_of_eva) = (key("approver", "eva").await, key("agent", "eva").await);
    let other = key("agent", "max").await;
    let wiping = Mcp::bare(&agent_of_eva).run("destructive", "zoo:wiper", &json!({})).await;
    let wiping = wiping.refused("consent_pending")["consent_id"].as_str().unwrap().to_owned();
    let nth = copies(&stage, &wiping, 510).await;
    let id = asked(&other, &json!({})).await;
    let mut acp = Acp::open(&eva).await;
    assert_eq!(asked_about(&mut acp).await.0, id);
    // another person is asked about them
    let mut another = Acp::open(&tenant.approver().await).await;
    assert_eq!(asked_about(&mut another).await.0, nth(1));
}
