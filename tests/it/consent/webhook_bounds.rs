//! Bounds of what waits for a webhook: how long, how much, and nothing while the tenant is suspended.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use super::{asked, asking, decide};
use crate::support::{ADMIN, Api, Nod, Receiver};
use crate::support::{eventually, settle};

const SOON: Duration = Duration::from_secs(8);
const HOOK: &str = "/api/v1/consent/webhook";
const OUTCOMES: &str = "mcpproxy_webhook_deliveries_total";

pub(super) async fn put(api: &Api, receiver: &Receiver) {
    let secret = "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=";
    let body = json!({"url": receiver.url, "secret": secret});
    api.ask(Method::PUT, HOOK, Some(&body)).await.expect(200);
}

async fn waiting(api: &Api) -> Value {
    api.get(HOOK).await.expect(200)["waiting"].clone()
}

#[tokio::test]
async fn a_tenant_has_so_many_and_what_is_dropped_is_recorded() {
    let (stage, tenant, _upstream) = asking(&[ADMIN], json!([])).await;
    let (agent, receiver) = (tenant.agent().await, Receiver::start().await);
    receiver.then(Nod::Status(503));
    put(&tenant.platform, &receiver).await;
    let open = asked(&agent, &json!({"n": 1})).await;
    receiver.expect(1, SOON).await;
    let mut connection = stage.database.connect().await;
    // a request that still waits is older than all of these, which wait for nobody; they go without a pause in between
    let flood = "insert into webhook_events (tenant_id, id, request_id, state, gives_up_at)
        select tenant_id, gen_random_uuid(), gen_random_uuid(), 'denied', now() + interval '1 hour'
        from consent_webhooks, generate_series(1, 4700)";
    sqlx::query(flood).execute(&mut connection).await.unwrap();
    settle(json!(1000), SOON, || waiting(&tenant.platform)).await;
    let kept: i64 = sqlx::query_scalar("select count(*) from webhook_events where request_id = $1::uuid")
        .bind(&open)
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(kept, 1);
    let page = stage
        .gateway
        .scrape_until("all that was dropped", |page| page.sum(OUTCOMES, &[("outcome", "dropped")]) >= 3701.0)
        .await;
    assert_eq!(page.sum(OUTCOMES, &[("outcome", "dropped")]), 3701.0);
    let recorded = "select count(*), min(error_message), max(error_message) from activity
        where tool = 'consent.webhook' and status = 'error'";
    let recorded: (i64, String, String) = sqlx::query_as(recorded).fetch_one(&mut connection).await.unwrap();
    let said = "the event was dropped: more than 1000 events of the tenant waited".to_owned();
    assert_eq!(recorded, (3701, said.clone(), said));
}

#[tokio::test]
async fn events_end_in_time_however_slow_the_receiver_is() {
    let rules = json!([{"id": "long", "effect": "ask", "ask": {"ttl_s": 7200}}]);
    let (stage, tenant, _upstream) = asking(&[ADMIN], rules).await;
    let (agent, approver, receiver) =
        (tenant.agent().await, tenant.approver().await, Receiver::start().await);
    receiver.then(Nod::Hang);
    put(&tenant.platform, &receiver).await;
    let id = asked(&agent, &json!({"n": 1})).await;
    let mut connection = stage.database.connect().await;
    let minutes = "select max(extract(epoch from gives_up_at - now()) / 60)::float8 from webhook_events";
    let left: f64 = sqlx::query_scalar(minutes).fetch_one(&mut connection).await.unwrap();
    assert!(left > 115.0, "{left}: as long as the request is open");
    decide(&approver, &id, "reject_once").await.expect(200);
    let left: f64 = sqlx::query_scalar(minutes).fetch_one(&mut connection).await.unwrap();
    assert!(left > 9.0 && left <= 10.0, "{left}: both events of a request that has ended");
    assert_eq!(waiting(&tenant.platform).await, 2);

    // far more than are tried before the assertion ends, since each try takes 10 s
    let flood = "insert into webhook_events (tenant_id, id, request_id, state, gives_up_at)
        select tenant_id, gen_random_uuid(), gen_random_uuid(), 'denied', now() + interval '1 second'
        from consent_webhooks, generate_series(1, 600)";
    sqlx::query(flood).execute(&mut connection).await.unwrap();
    eventually("the end of all but those under way", SOON, || async {
        (waiting(&tenant.platform).await.as_i64()? <= 10).then_some(())
    })
    .await;
    let page = stage
        .gateway
        .scrape_until("all that was given up", |page| page.sum(OUTCOMES, &[("outcome", "given_up")]) >= 592.0)
        .await;
    assert_eq!(page.sum(OUTCOMES, &[("outcome", "dropped")]), 0.0);
}

#[tokio::test]
async fn a_suspended_tenant_is_told_nothing() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, receiver) = (tenant.agent().await, Receiver::start().await);
    receiver.then(Nod::Status(503));
    put(&tenant.platform, &receiver).await;
    let [long, short] = [asked(&agent, &json!({"n": 1})).await, asked(&agent, &json!({"n": 2})).await];
    receiver.expect(2, SOON).await;
    stage.platform().post("/api/v1/tenants/acme/suspend", &json!({})).await.expect(200);
    receiver.then(Nod::Status(204));
    let mut connection = stage.database.connect().await;
    sqlx::query("update webhook_events set due_at = now(), is_held = false")
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query("update webhook_events set gives_up_at = now() where request_id = $1::uuid")
        .bind(&short)
        .execute(&mut connection)
        .await
        .unwrap();
    // the job that gives events up has run, after the other event was due
    let count = "select count(*) from webhook_events";
    settle(1_i64, SOON, || async {
        let mut connection = stage.database.connect().await;
        sqlx::query_scalar(count).fetch_one(&mut connection).await.unwrap()
    })
    .await;
    let told = |id: &str| {
        let of = |event: &&crate::support::Delivered| event.json()["data"]["id"] == *id;
        receiver.delivered().iter().filter(of).count()
    };
    let before = told(&long);
    // another tenant's event is delivered after it became due
    let other = stage.tenant("other").await;
    put(&other.platform, &receiver).await;
    other.platform.post(&format!("{HOOK}/test"), &json!({})).await.expect(200);
    assert_eq!(told(&long), before);
    stage.platform().post("/api/v1/tenants/acme/resume", &json!({})).await.expect(200);
    settle(before + 1, SOON, || async { told(&long) }).await;
    let given_up = tenant.records(&format!("consent_id={short}&tool=consent.webhook&status=error"), 1).await;
    assert!(given_up[0]["error_message"].as_str().unwrap().contains("time was over"), "{given_up:?}");
}

#[tokio::test]
async fn what_waits_goes_at_once_to_a_receiver_that_is_new_or_back_and_with_its_webhook() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, receiver) = (tenant.agent().await, Receiver::start().await);
    receiver.then(Nod::Status(503));
    put(&tenant.platform, &receiver).await;
    let count = || stage.database.count("select count(*) from webhook_events");
    // a try has failed, and the next one is far away
    let put_off = || async {
        let mut connection = stage.database.connect().await;
        let later =
            "update webhook_events set due_at = now() + interval '5 minutes' where tries > 0 and not is_held";
        sqlx::raw_sql(later).execute(&mut connection).await.unwrap().rows_affected()
    };
    asked(&agent, &json!({"n": 1})).await;
    settle(1, SOON, put_off).await;
    let other = Receiver::start().await;
    other.then(Nod::Status(503));
    put(&tenant.platform, &other).await;
    other.expect(1, SOON).await;
    settle(1, SOON, put_off).await;
    other.then(Nod::Status(204));
    tenant.platform.post(&format!("{HOOK}/test"), &json!({})).await.expect(200);
    settle(0, SOON, count).await;
    other.then(Nod::Status(503));
    asked(&agent, &json!({"n": 2})).await;
    settle(1, SOON, put_off).await;
    tenant.platform.delete(HOOK).await.expect(204);
    assert_eq!(count().await, 0);
}

#[tokio::test]
async fn an_event_whose_time_is_over_amid_a_try_stays_to_the_end_of_the_try() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, receiver) = (tenant.agent().await, Receiver::start().await);
    receiver.then(Nod::Hang);
    put(&tenant.platform, &receiver).await;
    asked(&agent, &json!({"n": 1})).await;
    receiver.expect(1, SOON).await;
    let mut connection = stage.database.connect().await;
    // beside it one that nobody delivers: both are given up by one statement, or by none
    let over = "begin;
        update webhook_events set gives_up_at = now();
        insert into webhook_events (tenant_id, id, request_id, state, due_at, gives_up_at)
        select tenant_id, gen_random_uuid(), gen_random_uuid(), 'denied', now() + interval '1 hour', now()
        from consent_webhooks;
        commit";
    sqlx::raw_sql(over).execute(&mut connection).await.unwrap();
    settle(1, SOON, || stage.database.count("select count(*) from webhook_events")).await;
    settle(0, SOON * 3, || stage.database.count("select count(*) from webhook_events")).await;
}

#[tokio::test]
async fn a_replica_that_lost_its_hold_changes_nothing_of_the_event() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, receiver) = (tenant.agent().await, Receiver::start().await);
    receiver.then(Nod::Hang);
    put(&tenant.platform, &receiver).await;
    asked(&agent, &json!({"n": 1})).await;
    receiver.expect(1, SOON).await;
    // another replica holds it meanwhile
    let taken = "update webhook_events set tries = tries + 1, due_at = now() + interval '1 hour'";
    let mut connection = stage.database.connect().await;
    assert_eq!(sqlx::raw_sql(taken).execute(&mut connection).await.unwrap().rows_affected(), 1);
    let failing = async || tenant.platform.get(HOOK).await.expect(200)["failing"].clone();
    settle(json!(true), SOON * 2, failing).await;
    let held = "select count(*) from webhook_events
        where tries = 2 and is_held and due_at > now() + interval '30 minutes'";
    assert_eq!((stage.database.count(held).await, receiver.delivered().len()), (1, 1));
}

#[tokio::test]
async fn a_receiver_that_fails_gets_one_event_at_a_time() {
    let (stage, tenant, upstream) = asking(&[], json!([])).await;
    let (agent, receiver) = (tenant.agent().await, Receiver::start().await);
    receiver.next([Nod::Status(503)]);
    receiver.then(Nod::Hang);
    put(&tenant.platform, &receiver).await;
    asked(&agent, &json!({"n": 1})).await;
    let failing = async || tenant.platform.get(HOOK).await.expect(200)["failing"].clone();
    settle(json!(true), SOON, failing).await;
    for n in 2..5 {
        asked(&agent, &json!({ "n": n })).await;
    }
    receiver.expect(2, SOON).await;
    // others are told meanwhile, twice: what is due of the first tenant was passed over
    let quick = stage.tenant("quick").await;
    quick.add("zoo", &upstream).await;
    super::set(&quick, json!([])).await;
    let (other, well) = (quick.agent().await, Receiver::start().await);
    put(&quick.platform, &well).await;
    for n in 1..3 {
        asked(&other, &json!({ "n": n })).await;
        well.expect(n, SOON).await;
    }
    assert_eq!(receiver.delivered().len(), 2);
}
