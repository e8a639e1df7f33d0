//! Figures for operators, and a doctor for asks that nobody can answer.

use std::time::Duration;

use serde_json::{Value, json};

use super::{asked, asking, decide, redefine, set, state, write};
use crate::support::{ADMIN, Api, Database, Gateway, Page, Stage, cli, eventually};

const ENDS: &str = "mcpproxy_consent_decisions_total";
const WAITS: &str = "mcpproxy_consent_decision_duration_seconds";
const PENDING: &str = "mcpproxy_consent_pending_requests";
const HOUR_S: f64 = 3600.0;

/// Changes a request in the database.
pub(super) async fn shift(database: &Database, id: &str, change: &str) {
    let statement = format!("update consent_requests set {change} where id = '{id}'");
    let mut connection = database.connect().await;
    let changed = sqlx::query(sqlx::AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    assert_eq!(changed.rows_affected(), 1, "{id}: {change}");
}

/// Decisions of a way, granted, denied and cancelled.
fn decided(page: &Page, via: &str) -> [f64; 3] {
    ["granted", "denied", "cancelled"].map(|outcome| page.sum(ENDS, &[("outcome", outcome), ("via", via)]))
}

#[tokio::test]
async fn people_take_their_time_in_no_other_figure() {
    let (stage, tenant, _upstream) = asking(&[ADMIN], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"n": 1})).await;
    assert_eq!(stage.gateway.scrape().await.sum(&format!("{WAITS}_count"), &[]), 0.0);
    // as if the person had been away for an hour
    shift(&stage.database, &id, "created_at = created_at - interval '1 hour'").await;
    decide(&approver, &id, "allow_once").await.expect(200);
    write(&agent, &json!({"n": 1})).await.ok();
    let records = tenant.records(&format!("type=tool_call&consent_id={id}"), 2).await;
    for record in &records {
        for name in ["duration_ms", "upstream_ms"] {
            assert!(record[name].as_f64().unwrap_or_default() < HOUR_S, "{name}: {record}");
        }
    }
    let run = records.iter().find(|record| record["status"] == "success").unwrap();
    assert!(run["wait_ms"].as_f64().unwrap() >= HOUR_S * 1000.0, "{run}");
    let page = stage.gateway.scrape().await;
    let sums = page.samples.iter().filter(|sample| sample.name.ends_with("_seconds_sum"));
    let (waits, others): (Vec<_>, Vec<_>) = sums.partition(|sample| sample.name.starts_with(WAITS));
    let (waits, others): (f64, f64) =
        (waits.iter().map(|sample| sample.value).sum(), others.iter().map(|sample| sample.value).sum());
    assert!((HOUR_S..HOUR_S + 600.0).contains(&waits), "{waits}");
    assert!(others > 0.0 && others < 600.0, "{others}\n{}", page.text);
    let below = |bound: &str| page.sum(&format!("{WAITS}_bucket"), &[("via", "rest"), ("le", bound)]);
    assert_eq!((below("1800.0"), below("14400.0")), (0.0, 1.0), "{}", page.text);
}

#[tokio::test]
async fn every_end_is_counted_once() {
    let (stage, tenant, upstream) = asking(&[ADMIN], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let page = stage.gateway.scrape().await;
    let series = page.samples.iter().filter(|sample| sample.name == ENDS).count();
    assert_eq!((series, page.sum(ENDS, &[])), (17, 0.0), "all series are there from the start");
    let id = asked(&agent, &json!({"n": 1})).await;
    decide(&approver, &id, "allow_once").await.expect(200);
    // whoever comes too late decides nothing
    decide(&approver, &id, "reject_once").await.refused(409, "conflict");
    write(&agent, &json!({"n": 1})).await.ok();
    let id = asked(&agent, &json!({"n": 2})).await;
    cli(&approver, &["consent", "deny", &id]).await.ok();
    let ended = [asked(&agent, &json!({"n": 3})).await, asked(&agent, &json!({"n": 4})).await];
    decide(&approver, &ended[0], "cancel_turn").await.expect(200);
    assert_eq!(state(&approver, &ended[1]).await, "cancelled");
    let page = stage.gateway.scrape_until("decisions", |page| page.sum(ENDS, &[]) == 4.0).await;
    assert_eq!(decided(&page, "rest"), [1.0, 0.0, 2.0], "{}", page.text);
    assert_eq!(decided(&page, "cli"), [0.0, 1.0, 0.0], "{}", page.text);
    // one that was cancelled along was not looked at
    assert_eq!(page.sum(&format!("{WAITS}_count"), &[]), 3.0);

    // whether the sweep ends it or the next call
    let agent = tenant.agent().await;
    let id = asked(&agent, &json!({"n": 5})).await;
    shift(&stage.database, &id, "expires_at = now() - interval '1 second'").await;
    write(&agent, &json!({"n": 5})).await.refused("consent_timed_out");
    let id = asked(&agent, &json!({"n": 6})).await;
    shift(&stage.database, &id, "expires_at = now() - interval '2 hours'").await;
    assert_ne!(asked(&agent, &json!({"n": 6})).await, id);
    let id = asked(&agent, &json!({"n": 7})).await;
    shift(&stage.database, &id, "expires_at = now() - interval '1 second'").await;
    let unused = asked(&agent, &json!({"n": 8})).await;
    decide(&approver, &unused, "allow_once").await.expect(200);
    shift(&stage.database, &unused, "expires_at = now() - interval '1 second'").await;
    // a definition that changes ends what was allowed, and what is still asked
    let allowed = asked(&agent, &json!({"n": 9})).await;
    decide(&approver, &allowed, "allow_once").await.expect(200);
    asked(&agent, &json!({"n": 10})).await;
    redefine(&tenant, &upstream).await;
    write(&agent, &json!({"n": 9})).await.refused("consent_lapsed");
    asked(&agent, &json!({"n": 10})).await;
    let page = stage
        .gateway
        .scrape_until("the sweep", |page| {
            page.sum(ENDS, &[("outcome", "timed_out")]) == 3.0
                && page.sum(ENDS, &[("outcome", "lapsed")]) == 3.0
        })
        .await;
    assert_eq!(decided(&page, "rest"), [3.0, 0.0, 2.0], "{}", page.text);
    // counted whole, by the state of the rows
    let page = stage.gateway.scrape_until("what is left", |page| page.sum(PENDING, &[]) == 2.0).await;
    assert_eq!(page.sum(ENDS, &[]), 12.0, "{}", page.text);
}

/// The status, once a number of requests is said to wait.
async fn status(api: &Api, pending: i64) -> Value {
    eventually("the count", Duration::from_secs(15), async || {
        let status = api.get("/api/v1/status").await.expect(200);
        (status["consent"]["pending"] == pending).then_some(status)
    })
    .await
}

#[tokio::test]
async fn every_replica_counts_all_and_no_tenant_another() {
    let (stage, tenant, _upstream) = asking(&[ADMIN], json!([])).await;
    let other = Gateway::start(&stage.database, &[ADMIN]).await;
    let stranger = stage.tenant("globex").await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    for n in 0..3 {
        asked(&agent, &json!({ "n": n })).await;
    }
    for gateway in [&stage.gateway, &other] {
        gateway.scrape_until("the count", |page| page.sum(PENDING, &[]) == 3.0).await;
    }
    for api in [&approver, &other.ask_as(&approver), &tenant.auditor().await] {
        status(api, 3).await;
    }
    assert_eq!(status(&stranger.admin().await, 0).await["consent"]["asking_keys"], 0);
    let own = agent.get("/api/v1/status").await.expect(200);
    let figures = json!({"pending": null, "asking_keys": 1, "unanswered_keys": 0, "unapproved_keys": 0,
        "unanswered": [], "unapproved": []});
    assert_eq!(own["consent"], figures);
    assert_eq!(stage.platform().get("/api/v1/status").await.expect(200)["consent"], Value::Null);
    let shown = cli(&approver, &["status"]).await.ok().out;
    assert!(shown.contains("\npermission requests:\npending: "), "{shown}");
}

/// Lines of the doctor about permission requests.
async fn found(api: &Api) -> String {
    let report = cli(api, &["doctor"]).await.ok().out;
    report.lines().filter(|line| line.contains("consent  ")).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn the_doctor_finds_asks_that_nobody_can_answer() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let agent = tenant.key(&json!({"role": "agent", "owner": "ana"})).await;
    let auditor = tenant.auditor().await;
    assert_eq!((found(&agent).await, found(&auditor).await), (String::new(), String::new()), "nothing asks");
    set(&tenant, json!([])).await;
    let add = "mcpproxy key add --role approver --owner NAME";
    let nobody = |of: &str| {
        format!(
            "WARN  consent  {of} may need the approval of another person, and there is none; an admin whose own calls do not \
             ask adds a key for somebody else: {add}"
        )
    };
    assert_eq!(found(&agent).await, nobody("calls of this key"));
    let key = format!("calls of 1 key ({} of ana)", agent.id);
    assert_eq!(found(&auditor).await, nobody(&key));
    // the same person answers what a client might, but nothing that takes another one
    let same = tenant.key(&json!({"role": "approver", "owner": "Ana"})).await;
    assert_eq!(found(&agent).await, nobody("calls of this key"));
    assert_eq!(found(&same).await, nobody(&key));
    tenant.key(&json!({"role": "approver", "owner": "eva"})).await;
    assert_eq!(
        found(&agent).await,
        "ok    consent  calls of this key may ask a person, and somebody may answer"
    );
    // who has expired is nobody
    let eva = tenant.key(&json!({"role": "agent", "owner": "eva"})).await;
    assert_eq!(
        found(&eva).await,
        "ok    consent  calls of this key may ask a person, and somebody may answer"
    );
}

#[tokio::test]
async fn only_keys_that_live_and_may_decide_can_answer() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let rule = json!([{"id": "asks", "effect": "ask", "match": {"tool": "up:*"}}]);
    let agent = tenant.agent().await;
    let path = format!("/api/v1/keys/{}/policy", agent.id);
    let body = json!({"version": 0, "mode": "always_allow", "rules": rule});
    tenant.platform.ask(reqwest::Method::PUT, &path, Some(&body)).await.expect(200);
    let consent = async |api: &Api| api.get("/api/v1/status").await.expect(200)["consent"].clone();
    let owner = agent.get("/api/v1/status").await.expect(200)["owner"].clone();
    let key = json!({"key_id": agent.id, "owner": owner});
    let figures = |unanswered: usize| {
        json!({"pending": null, "asking_keys": 1, "unanswered_keys": unanswered,
        "unapproved_keys": 0, "unanswered": vec![&key; unanswered], "unapproved": []})
    };
    tenant.operator().await;
    let expires_at = chrono::Utc::now() + chrono::TimeDelta::seconds(2);
    tenant.key(&json!({"role": "approver", "expires_at": expires_at})).await;
    // the policy of another key asks nothing of this one
    assert_eq!(consent(&tenant.agent().await).await["asking_keys"], 0);
    eventually("the end of the key", Duration::from_secs(15), async || {
        (consent(&agent).await == figures(1)).then_some(())
    })
    .await;
    let approver = tenant.approver().await;
    assert_eq!(consent(&agent).await, figures(0));
    tenant.platform.delete(&format!("/api/v1/keys/{}", approver.id)).await.expect(204);
    assert_eq!(consent(&agent).await, figures(1));
    // what needs no other person, the bootstrap key may answer
    let says = format!(
        "ok    consent  calls of 1 key ({} of {}) may ask a person, and only the bootstrap key may answer; an admin adds another: \
         mcpproxy key add --role approver --owner NAME",
        agent.id,
        key["owner"].as_str().unwrap()
    );
    assert_eq!(found(&tenant.auditor().await).await, says);
    // an admin who asks is no answer to the own calls
    let admin = tenant.key(&json!({"role": "admin", "settings": {"policy_mode": "by_risk"}})).await;
    let all = consent(&admin).await;
    let counts = ["asking_keys", "unanswered_keys", "unapproved_keys"].map(|name| &all[name]);
    assert_eq!(counts, [&json!(2), &json!(0), &json!(1)], "{all}");
    // to what an admin made, the bootstrap key is another person
    let path = "/api/v1/keys";
    let settings = json!({"policy_mode": "by_risk"});
    let made = admin.post(path, &json!({"role": "operator", "settings": settings})).await.expect(201);
    let far = stage.gateway.anonymous().with_key(made["key"].as_str().unwrap());
    tenant.platform.delete(&format!("{path}/{}", admin.id)).await.expect(204);
    let left = consent(&far).await;
    let counts = ["asking_keys", "unanswered_keys", "unapproved_keys"].map(|name| &left[name]);
    assert_eq!(counts, [&json!(2), &json!(2), &json!(0)], "{left}");
}
