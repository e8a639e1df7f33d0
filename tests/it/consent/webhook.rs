//! Webhooks: the receiver of a tenant is told of each request and its end, signed, and by one replica at a time.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use ring::hmac;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::{asked, asking, asking_of, decide, documented_program, set, write};
use crate::support::{
    ADMIN, Api, Collector, Delivered, Gateway, Nod, Receiver, Stage, Tenant, Upstream, cli, cli_reading,
};
use crate::support::{eventually, settle, upstream};

const SOON: Duration = Duration::from_secs(5);
/// After this a replica that holds an event is taken for dead.
const HELD: Duration = Duration::from_secs(25);
pub(super) const HOOK: &str = "/api/v1/consent/webhook";

/// A secret of these bytes.
fn secret(of: u8) -> String {
    format!("whsec_{}", STANDARD.encode([of; 32]))
}

pub(super) async fn put(api: &Api, url: &str, of: u8) -> Value {
    let body = json!({"url": url, "secret": secret(of)});
    api.ask(Method::PUT, HOOK, Some(&body)).await.expect(200)
}

/// Verifies an event as its receiver does, with the secret of these bytes alone.
#[track_caller]
fn verify(event: &Delivered, of: u8) {
    verify_all(event, &[&[of; 32]]);
}

/// Verifies an event that is signed with these secrets, in this order, and with no other.
#[track_caller]
pub(super) fn verify_all(event: &Delivered, secrets: &[&[u8]]) {
    let signed = [event.header("webhook-id"), ".", event.header("webhook-timestamp"), "."].concat();
    let signed = [signed.as_bytes(), &event.body].concat();
    let signatures: Vec<&str> = event.header("webhook-signature").split(' ').collect();
    assert_eq!(signatures.len(), secrets.len(), "{signatures:?}");
    for (signature, secret) in signatures.into_iter().zip(secrets) {
        let signature = STANDARD.decode(signature.strip_prefix("v1,").unwrap()).unwrap();
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), &signed, &signature).unwrap();
        let other: Vec<u8> = secret.iter().map(|byte| byte ^ 1).collect();
        assert!(hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &other), &signed, &signature).is_err());
    }
    let sent: i64 = event.header("webhook-timestamp").parse().unwrap();
    assert!((chrono::Utc::now().timestamp() - sent).abs() < 60);
    assert_eq!(event.json()["id"], event.header("webhook-id"));
    assert_eq!(event.header("content-type"), "application/json");
}

/// Waits until the receiver has confirmed all.
async fn told(api: &Api) -> Value {
    eventually("the end of all deliveries", SOON, || async {
        let shown = api.get(HOOK).await.expect(200);
        (shown["waiting"] == 0).then_some(shown)
    })
    .await
}

#[tokio::test]
async fn a_request_and_its_end_are_told_once_and_signed() {
    let (stage, tenant, _upstream) = asking(&[], json!([])).await;
    let other = Gateway::start(&stage.database, &[]).await;
    let (agent, approver, receiver) =
        (tenant.agent().await, tenant.approver().await, Receiver::start().await);
    let none = tenant.platform.get(HOOK).await.expect(200);
    assert_eq!((&none["url"], &none["waiting"]), (&Value::Null, &json!(0)));
    tenant.platform.ask(Method::DELETE, HOOK, None).await.refused(404, "not_found");
    asked(&agent, &json!({"before": 1})).await;
    let shown = put(&tenant.platform, &format!("{}?key=planted", receiver.url), 7).await;
    assert_eq!(shown["url"], format!("{}?[redacted]", receiver.url));

    let id = asked(&agent, &json!({"path": "/a"})).await;
    let open = approver.get(&format!("/api/v1/consent/{id}")).await.expect(200);
    let [event] = &receiver.expect(1, SOON).await[..] else { panic!("more than one") };
    verify(event, 7);
    let body = event.json();
    assert_eq!((&body["type"], &body["tenant"]), (&json!("consent.pending"), &json!("acme")));
    assert_eq!(body["data"], open);
    assert_eq!(body["answer"]["path"], format!("/api/v1/consent/{id}/decision"));
    // a repeat of the call is the same request
    assert_eq!(asked(&agent, &json!({"path": "/a"})).await, id);
    decide(&other.ask_as(&approver), &id, "reject_once").await.expect(200);
    let [_, ended] = &receiver.expect(2, SOON).await[..] else { panic!("more than two") };
    verify(ended, 7);
    assert_ne!(ended.header("webhook-id"), event.header("webhook-id"));
    let body = ended.json();
    assert_eq!((&body["type"], &body["data"]["state"]), (&json!("consent.denied"), &json!("denied")));
    assert_eq!((&body["answer"], &body["data"]["id"]), (&Value::Null, &json!(id)));
    let shown = told(&tenant.platform).await;
    assert_eq!((&shown["failing"], shown["last_success_at"].is_string()), (&json!(false), true));
    let records = tenant.records(&format!("type=consent&consent_id={id}&tool=consent.webhook"), 2).await;
    assert!(records.iter().all(|record| record["status"] == "success"), "{records:?}");

    // time ends one as well, and a turn another
    set(&tenant, json!([{"id": "short", "effect": "ask", "ask": {"ttl_s": 10}}])).await;
    let short = asked(&agent, &json!({"n": 2})).await;
    let mut connection = stage.database.connect().await;
    let over = "update consent_requests set expires_at = now() where state = 'pending' and ttl_s = 10";
    sqlx::query(over).execute(&mut connection).await.unwrap();
    let events = receiver.expect(4, Duration::from_secs(15)).await;
    let of_short: Vec<String> =
        events.iter().filter(|event| event.json()["data"]["id"] == short).map(Delivered::kind).collect();
    assert_eq!(of_short, ["consent.pending", "consent.timed_out"]);
    let last = asked(&agent, &json!({"n": 3})).await;
    decide(&approver, &last, "cancel_turn").await.expect(200);
    settle(true, SOON, async || {
        receiver
            .delivered()
            .iter()
            .any(|event| event.kind() == "consent.cancelled" && event.json()["data"]["id"] == last)
    })
    .await;
    told(&tenant.platform).await;
    tenant.platform.ask(Method::DELETE, HOOK, None).await.expect(204);
    let count = receiver.delivered().len();
    let fresh = tenant.agent().await;
    asked(&fresh, &json!({"n": 4})).await;
    let waiting: i64 =
        sqlx::query_scalar("select count(*) from webhook_events").fetch_one(&mut connection).await.unwrap();
    assert_eq!((waiting, receiver.delivered().len()), (0, count));
}

#[tokio::test]
async fn failures_are_tried_again_in_order_and_redirects_not_followed() {
    let (stage, tenant, _upstream) = asking(&[ADMIN], json!([])).await;
    let (agent, approver, receiver) =
        (tenant.agent().await, tenant.approver().await, Receiver::start().await);
    put(&tenant.platform, &receiver.url, 7).await;
    let elsewhere = receiver.url.replace("/hook", "/elsewhere");
    receiver.next([Nod::Status(500), Nod::Redirect(elsewhere), Nod::Status(429)]);
    let id = asked(&agent, &json!({"n": 1})).await;
    receiver.expect(1, SOON).await;
    decide(&approver, &id, "allow_once").await.expect(200);
    let tries = receiver.expect(5, Duration::from_secs(20)).await;
    assert!(tries.iter().all(|event| event.path == "/hook"), "{tries:?}");
    let ids: Vec<&str> = tries.iter().map(|event| event.header("webhook-id")).collect();
    assert!(ids[..4].iter().all(|id| *id == ids[0]) && ids[4] != ids[0], "{ids:?}");
    tries.iter().for_each(|event| verify(event, 7));
    let kinds: Vec<String> = tries.iter().map(Delivered::kind).collect();
    assert_eq!(kinds[3..], ["consent.pending", "consent.granted"]);
    // what a receiver reads late is how things are now
    assert_eq!(tries[3].json()["data"]["state"], "granted");
    for (at, least_ms) in [(1, 125), (2, 500), (3, 2000)] {
        let pause = tries[at].at - tries[at - 1].at;
        assert!(pause >= Duration::from_millis(least_ms), "try {at} after {pause:?}");
    }
    told(&tenant.platform).await;
    // the call needs none of that
    write(&agent, &json!({"n": 1})).await.ok();

    // an event whose time is over is given up, and the next of its request told
    receiver.next([Nod::Status(500)]);
    let late = asked(&agent, &json!({"n": 2})).await;
    receiver.expect(6, SOON).await;
    let mut connection = stage.database.connect().await;
    sqlx::query("update webhook_events set gives_up_at = now()").execute(&mut connection).await.unwrap();
    decide(&approver, &late, "reject_once").await.expect(200);
    let ended = receiver.expect(7, SOON).await.pop().unwrap();
    assert_eq!((ended.kind(), &ended.json()["data"]["id"]), ("consent.denied".to_owned(), &json!(late)));
    let tries = "mcpproxy_webhook_deliveries_total";
    let page = stage.gateway.scrape_until("three outcomes", |page| page.sum(tries, &[]) >= 8.0).await;
    let outcomes =
        ["confirmed", "failed", "given_up"].map(|outcome| page.sum(tries, &[("outcome", outcome)]));
    assert_eq!(outcomes, [3.0, 4.0, 1.0]);
    let given_up = tenant.records(&format!("consent_id={late}&tool=consent.webhook&status=error"), 1).await;
    assert!(given_up[0]["error_message"].as_str().unwrap().contains("time was over"), "{given_up:?}");
    let path = format!("/api/v1/activity/{}", given_up[0]["id"].as_str().unwrap());
    let record = tenant.platform.get(&path).await.expect(200);
    let told = json!({"tool": "writer", "event": "pending", "tries": 1});
    let arguments: Value = serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap();
    assert_eq!((&record["server"], &arguments), (&json!("zoo"), &told));
}

#[tokio::test]
async fn another_replica_takes_over_what_a_dead_one_held() {
    let (mut stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, receiver) = (tenant.agent().await, Receiver::start().await);
    put(&tenant.platform, &receiver.url, 7).await;
    receiver.next([Nod::Hang]);
    asked(&agent, &json!({"n": 1})).await;
    receiver.expect(1, SOON).await;
    stage.gateway.kill();
    let other = Gateway::start(&stage.database, &[]).await;
    let tries = receiver.expect(2, HELD).await;
    assert_eq!(tries[0].header("webhook-id"), tries[1].header("webhook-id"));
    verify(&tries[1], 7);
    told(&other.ask_as(&tenant.platform)).await;
    assert_eq!(receiver.delivered().len(), 2);
}

#[tokio::test]
async fn a_receiver_that_hangs_costs_only_its_own_tenant() {
    let (stage, slow, upstream) = asking(&[], json!([])).await;
    let quick = stage.tenant("quick").await;
    quick.add("zoo", &upstream).await;
    set(&quick, json!([])).await;
    let [hanging, well] = [Receiver::start().await, Receiver::start().await];
    hanging.then(Nod::Hang);
    put(&slow.platform, &hanging.url, 7).await;
    put(&quick.platform, &well.url, 9).await;
    let agent = slow.agent().await;
    for n in 0..15 {
        asked(&agent, &json!({ "n": n })).await;
    }
    // one tenant has so many at a time
    hanging.expect(8, SOON).await;
    let id = asked(&quick.agent().await, &json!({"n": 1})).await;
    let [event] = &well.expect(1, Duration::from_secs(2)).await[..] else { panic!("more than one") };
    verify(event, 9);
    assert_eq!((&event.json()["tenant"], &event.json()["data"]["id"]), (&json!("quick"), &json!(id)));
    assert!(hanging.delivered().len() <= 8, "{}", hanging.delivered().len());
    for event in hanging.delivered() {
        verify(&event, 7);
        assert_eq!(event.json()["tenant"], "acme");
    }
    let shown = slow.platform.get(HOOK).await.expect(200);
    assert_eq!(shown["waiting"], 15);
}

#[tokio::test]
async fn addresses_pass_the_guard_when_they_are_set_and_at_each_delivery() {
    let (mut stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, receiver) = (tenant.agent().await, Receiver::at("127.0.0.2").await);
    for (url, field) in [
        ("http://10.0.0.1/hook", "url"),
        ("http://169.254.169.254/", "url"),
        ("ftp://example.com/", "url"),
        ("https://user:pass@example.com/", "url"),
        ("https://example.com/?[redacted]", "url"),
    ] {
        let body = json!({"url": url, "secret": secret(7)});
        let answer = tenant.platform.ask(Method::PUT, HOOK, Some(&body)).await;
        answer.refused(400, "invalid_request");
        assert_eq!(answer.json()["error"]["field"], field, "{url}");
    }
    for bad in ["short", "whsec_", "whsec_AAAA", "whsec_not base64 at all, but long enough for it"] {
        let body = json!({"url": receiver.url, "secret": bad});
        let said = tenant.platform.ask(Method::PUT, HOOK, Some(&body)).await.refused(400, "invalid_request");
        assert!(!said.contains("not base64 at all"), "{said}");
    }
    put(&tenant.platform, &receiver.url, 7).await;
    stage.gateway.kill();
    let strict = Gateway::start(&stage.database, &[("MCPPROXY__EGRESS__ALLOW", "127.0.0.1/32")]).await;
    let (agent, platform) = (strict.ask_as(&agent), strict.ask_as(&tenant.platform));
    asked(&agent, &json!({"n": 1})).await;
    let shown = eventually("a refusal", SOON, || async {
        let shown = platform.get(HOOK).await.expect(200);
        (shown["failing"] == true).then_some(shown)
    })
    .await;
    let error = shown["last_error"].as_str().unwrap();
    assert!(error.contains("127.0.0.2 is refused") && shown["waiting"] == 1, "{shown}");
    assert_eq!(receiver.delivered().len(), 0);
}

#[tokio::test]
async fn only_requests_whose_channels_have_it_are_told() {
    let rules = json!([{"id": "told", "effect": "ask", "ask": {"channels": "webhook"}}]);
    let (_stage, tenant, _upstream) = asking(&[], rules).await;
    let (agent, receiver) = (tenant.agent().await, Receiver::start().await);
    write(&agent, &json!({"n": 1})).await.refused("consent_undeliverable");
    let (admin, warning) = (tenant.admin().await, "Rule 'told' asks by webhook alone, and there is none");
    let doctor = async || cli(&admin, &["doctor"]).await.out;
    let said = doctor().await;
    assert!(said.contains(&format!("WARN  policy   {warning}")), "{said}");
    put(&tenant.platform, &receiver.url, 7).await;
    assert!(!doctor().await.contains(warning));
    let id = asked(&agent, &json!({"n": 1})).await;
    receiver.expect(1, SOON).await;
    decide(&tenant.approver().await, &id, "allow_once").await.expect(200);
    receiver.expect(2, SOON).await;
    write(&agent, &json!({"n": 1})).await.ok();
    set(&tenant, json!([{"id": "inbox", "effect": "ask", "ask": {"channels": "inbox"}}])).await;
    asked(&agent, &json!({"n": 2})).await;
    assert_eq!((receiver.delivered().len(), &told(&tenant.platform).await["waiting"]), (2, &json!(0)));
}

#[tokio::test]
async fn an_administrator_sets_it_on_the_command_line() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (admin, agent, receiver) = (tenant.admin().await, tenant.agent().await, Receiver::start().await);
    cli(&agent, &["consent", "webhook", "show"]).await.failed(5, "admin");
    let advice = "webhook set ADDRESS";
    cli(&admin, &["consent", "webhook", "test"]).await.failed(3, advice);
    cli(&admin, &["consent", "webhook", "remove", "--yes"]).await.failed(3, advice);
    let none = cli(&admin, &["consent", "webhook", "show"]).await.ok().out;
    assert_eq!(none, format!("no webhook is set; to set one: mcpproxy consent {advice}\n"));
    let none = cli(&admin, &["consent", "webhook", "show", "-o", "json"]).await.ok().json();
    assert_eq!(none["url"], Value::Null);
    let set = cli(&admin, &["consent", "webhook", "set", &receiver.url, "-o", "json"]).await.ok().json();
    assert!(set["secret"].as_str().unwrap().starts_with("whsec_"), "{set}");
    let given = ["consent", "webhook", "set", &receiver.url, "--secret", "-"];
    let said = cli_reading(&admin, &given, &format!("{}\n", secret(7))).await.ok().out;
    let until = tenant.platform.get(HOOK).await.expect(200)["previous_until"].as_str().unwrap().to_owned();
    let told = format!(
        "{} is told of permission requests\nto test it: mcpproxy consent webhook test\n\
         The secret before signs events too until {until}; to end that, set the new one again",
        receiver.url
    );
    assert_eq!(said.trim(), told);
    cli(&admin, &["consent", "webhook", "test"]).await.ok();
    let [event] = &receiver.expect(1, SOON).await[..] else { panic!("more than one") };
    let made = STANDARD.decode(set["secret"].as_str().unwrap().strip_prefix("whsec_").unwrap()).unwrap();
    verify_all(event, &[&[7; 32], &made]);
    assert_eq!((event.kind(), &event.json()["data"]), ("consent.test".to_owned(), &Value::Null));
    let good = cli(&admin, &["doctor"]).await.ok().out;
    assert!(good.contains("ok    webhook  http://127.0.0.1"), "{good}");
    receiver.then(Nod::Status(503));
    cli(&admin, &["consent", "webhook", "test"]).await.failed(1, "answered HTTP 503");
    let tests = tenant.records("type=consent&tool=consent.test_webhook&status=error", 1).await;
    assert_eq!(tests[0]["error_message"], "the receiver answered HTTP 503", "{tests:?}");
    // one about a tenant without a webhook was refused before
    tenant.records("type=consent&tool=consent.test_webhook", 3).await;
    let odd = cli(&admin, &["doctor"]).await.ok().out;
    assert!(odd.contains("WARN  webhook  ") && odd.contains("answered HTTP 503"), "{odd}");
    let shown = cli(&admin, &["consent", "webhook", "show"]).await.ok().out;
    assert!(shown.contains("HTTP 503") && !shown.contains("whsec_"), "{shown}");
    cli(&admin, &["consent", "webhook", "remove"]).await.failed(2, "--yes");
    cli(&admin, &["consent", "webhook", "remove", "--yes"]).await.ok();
    assert!(!cli(&admin, &["doctor"]).await.ok().out.contains("webhook"));
}

/// The receiver that the documentation shows, at this port and with this secret.
async fn documented(port: u16, secret: &str) -> (tempfile::TempDir, tokio::process::Child) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("receiver.py");
    std::fs::write(&file, documented_program("python", "8099", &port.to_string())).unwrap();
    let mut command = tokio::process::Command::new("python3");
    command.arg(&file).env("WEBHOOK_SECRET", secret).kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    (folder, command.spawn().unwrap())
}

#[tokio::test]
async fn the_receiver_of_the_documentation_works() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    put(&tenant.platform, &format!("http://127.0.0.1:{port}/"), 7).await;
    let test = async || {
        let tested = tenant.platform.post(&format!("{HOOK}/test"), &json!({})).await.expect(200);
        (tested["delivered"].as_bool().unwrap(), tested["error"].to_string())
    };
    let (_folder, stranger) = documented(port, &secret(8)).await;
    settle((false, r#""the receiver answered HTTP 401""#.to_owned()), SOON, test).await;
    drop(stranger);
    let (_folder, mut receiver) = documented(port, &secret(7)).await;
    settle((true, "null".to_owned()), SOON, test).await;
    let id = asked(&tenant.agent().await, &json!({"n": 1})).await;
    told(&tenant.platform).await;
    let mut lines = BufReader::new(receiver.stdout.take().unwrap()).lines();
    assert_eq!(lines.next_line().await.unwrap().unwrap(), "consent.test None");
    assert_eq!(lines.next_line().await.unwrap().unwrap(), format!("consent.pending {id}"));
}

/// A tenant with a webhook whose secret is looked for everywhere afterwards.
async fn traced() -> (Collector, Stage, Tenant, Upstream) {
    let collector = Collector::start().await;
    let mut settings = collector.settings();
    settings.push(("MCPPROXY__TELEMETRY__LOG_FILTER", "trace"));
    let (stage, tenant, upstream) = asking_of(&settings, json!([]), upstream::zoo()).await;
    (collector, stage, tenant, upstream)
}

#[tokio::test]
async fn the_secret_is_found_nowhere() {
    let (collector, stage, tenant, _upstream) = traced().await;
    let (agent, receiver) = (tenant.agent().await, Receiver::start().await);
    // receivers of chats have a secret in their path
    let url = format!("{}/planted-path", receiver.url);
    let mut answers = vec![put(&tenant.platform, &url, 7).await];
    assert_eq!(answers.remove(0)["url"], url, "an admin sees it");
    receiver.next([Nod::Status(500)]);
    asked(&agent, &json!({"password": "planted"})).await;
    let events = receiver.expect(2, SOON).await;
    for event in &events {
        assert!(!String::from_utf8_lossy(&event.body).contains("planted"));
    }
    let misplaced = json!({"url": url, "secret": secret(7), "secrets": secret(7)});
    let refused = tenant.platform.ask(Method::PUT, HOOK, Some(&misplaced)).await;
    refused.refused(400, "invalid_request");
    agent.ask(Method::PUT, HOOK, Some(&misplaced)).await.refused(403, "forbidden");
    assert_eq!(told(&tenant.platform).await["url"], url);
    answers.push(refused.json());
    answers.extend(tenant.records("type=consent&tool=consent.set_webhook", 3).await);
    answers.extend(tenant.records("type=consent&tool=consent.webhook", 1).await);
    let mut texts: Vec<String> = answers.iter().map(Value::to_string).collect();
    let mut connection = stage.database.connect().await;
    let tables: Vec<String> = sqlx::query_scalar(
        "select relname from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = 'public' and c.relkind = 'r'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    for table in tables {
        // the URL itself has its place in the webhook's row
        let select = format!("select (to_jsonb(t) - 'url')::text from {table} t");
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(select)).fetch_all(&mut connection).await.unwrap();
        texts.extend(rows);
    }
    texts.extend([stage.gateway.log(), collector.raw()]);
    assert!(texts.iter().any(|text| text.contains("[redacted]")));
    let encoded = STANDARD.encode([7; 32]);
    let hex = "07".repeat(32);
    for text in &texts {
        assert!(!text.contains(&encoded) && !text.contains(&hex), "{text}");
        assert!(!text.contains("planted-path"), "{text}");
    }
}
