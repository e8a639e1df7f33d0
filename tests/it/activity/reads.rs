//! Reads over REST that leave a record: sensitive ones, and every one that was refused.

use mcpproxy::faces::rest::ROUTES;
use serde_json::{Value, json};

use crate::support::{Api, Gateway, Stage, Tenant};

/// Forbidden attempts of a key and minute that are recorded whole.
const EVIDENCE: usize = 10;

fn of(api: &Api) -> String {
    format!("type=admin&key={}", api.id)
}

/// Checks one record of a read: its name, status and code, and the path or query that it says was asked for.
#[track_caller]
fn check(record: &Value, expected: [&str; 3], asked: &str) {
    let found = ["tool", "status", "error_code"].map(|name| record[name].as_str().unwrap_or("-"));
    assert_eq!(found, expected, "{record}");
    assert_eq!((&record["type"], &record["tier"]), (&json!("admin"), &json!("read")), "{record}");
    assert!(record["arguments"].as_str().is_some_and(|text| text.contains(asked)), "{asked}: {record}");
    assert!(record["duration_ms"].is_number() && record["owner"].is_string(), "{record}");
}

#[tokio::test]
async fn sensitive_ones_are_recorded_however_they_end() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let admin = tenant.admin().await;
    let own = format!("/keys/{}", admin.id);
    let unknown = "/keys/00000000-0000-4000-8000-000000000000";
    let cases = [
        ("/keys?limit=7".to_owned(), 200, ["keys.list", "success", "-"], "limit=7"),
        (own.clone(), 200, ["keys.get", "success", "-"], own.as_str()),
        (format!("{own}/settings"), 200, ["keys.get_settings", "success", "-"], "/settings"),
        ("/settings".to_owned(), 200, ["settings.get", "success", "-"], "/settings"),
        (
            "/activity/export?format=csv&tool=sent-1".to_owned(),
            200,
            ["activity.export", "success", "-"],
            "tool=sent-1",
        ),
        (unknown.to_owned(), 404, ["keys.get", "blocked", "not_found"], unknown),
        ("/keys?limit=0".to_owned(), 400, ["keys.list", "blocked", "invalid_request"], "limit=0"),
        ("/tenants".to_owned(), 403, ["tenants.list", "blocked", "forbidden"], "/tenants"),
    ];
    // what everybody looks at all day leaves nothing when it is let in
    for path in ["/status", "/servers", "/activity", "/activity/summary?period=1h", "/openapi.json"] {
        admin.get(&format!("/api/v1{path}")).await.expect(200);
    }
    for (at, (path, status, expected, asked)) in cases.iter().enumerate() {
        let answer = admin.get(&format!("/api/v1{path}")).await;
        assert_eq!(answer.status, *status, "{path}: {answer:?}");
        let records = tenant.records(&of(&admin), at + 1).await;
        check(&records[0], *expected, asked);
        assert_eq!(records[0]["source"], "rest");
    }
    // the platform's own, where it names no tenant
    let platform = stage.platform();
    let before = platform.items("/api/v1/activity?tool=tenants.list").await.len();
    platform.get("/api/v1/tenants").await.expect(200);
    Tenant::of(&platform, &platform).records("tool=tenants.list", before + 1).await;
}

/// Whatever may be read, nobody is refused it unseen.
#[tokio::test]
async fn every_refused_one_is_recorded() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (mut refused, mut of_servers) = (0, 0);
    let mut approver = tenant.approver().await;
    for (_, path) in ROUTES.iter().filter(|(method, _)| *method == "GET") {
        let at = path.replace("{name}", "none").replace("{id}", "none").replace("{tool}", "none");
        let at = at.replace("{prompt}", "none");
        // streams that are let in never end: a parameter of no route is refused after the role is
        let answer = approver.get(&format!("/api/v1{at}?no-such-parameter=1")).await;
        match answer.status {
            403 => {
                refused += 1;
                of_servers += usize::from(path.starts_with("/servers/{name}"));
            }
            400 => continue,
            _ => panic!("{path}: {answer:?}"),
        }
        let of_key = (refused - 1) % EVIDENCE + 1;
        let records = tenant.records(&format!("key={}", approver.id), of_key).await;
        let record = &records[0];
        assert_eq!((&record["status"], &record["error_code"]), (&json!("blocked"), &json!("forbidden")));
        let said = record["arguments"].as_str().unwrap();
        assert!(said.contains("no-such-parameter") && record["tool"] != "", "{path}: {record}");
        if of_key == EVIDENCE {
            approver = tenant.approver().await;
        }
    }
    assert!(refused >= 20, "the test has lost sight of the routes: {refused}");
    // the name of a server is in its column, where it can be one
    let server = tenant.records("server=none", of_servers).await;
    assert!(server.iter().all(|record| record["tool"].as_str().unwrap().contains('.')), "{server:?}");
}

/// Programs ask again and again: the first of a minute is recorded, the others are one number.
#[tokio::test]
async fn repeated_ones_are_counted() {
    let mut stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, agent) = (tenant.admin().await, tenant.agent().await);
    for _ in 0..40 {
        admin.get("/api/v1/keys").await.expect(200);
        agent.get("/api/v1/keys").await.refused(403, "forbidden");
    }
    for id in 0..40 {
        agent.get(&format!("/api/v1/servers/server-{id}")).await.refused(403, "forbidden");
    }
    // the first ones are there at once
    for (api, count) in [(&admin, 1), (&agent, EVIDENCE)] {
        tenant.records(&of(api), count).await;
    }
    // what is only counted is written when the gateway stops
    stage.gateway.terminate();
    stage.gateway.ended().await;
    let next = Gateway::start(&stage.database, &[]).await;
    let tenant = Tenant::of(&next.platform().as_tenant("acme"), &next.anonymous());
    for (api, count, status) in [(&admin, 1, "success"), (&agent, EVIDENCE, "blocked")] {
        let records = tenant.records(&of(api), count + 1).await;
        let counted: Vec<&Value> =
            records.iter().filter(|record| record["arguments"] == r#"{"count":39}"#).collect();
        assert_eq!(counted.len(), 1, "{records:?}");
        let found = (&counted[0]["tool"], &counted[0]["status"]);
        assert_eq!(found, (&json!("keys.list"), &json!(status)), "{counted:?}");
        let first = records.iter().find(|record| record["id"] == counted[0]["parent_id"]);
        assert!(first.unwrap()["arguments"].as_str().unwrap().contains("/keys"), "{records:?}");
    }
    // those of the agent that are all different are bounded, too
    let more = tenant.records(&format!("type=system&key={}", agent.id), 1).await;
    assert_eq!(more[0]["arguments"], r#"{"count":31}"#, "{more:?}");
}

/// Only what asks for the same repeats: another filter, or another key that is looked at, is evidence of its own.
#[tokio::test]
async fn others_of_the_same_route_are_recorded_whole() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let (admin, agent) = (tenant.admin().await, tenant.agent().await);
    let paths = [
        "/activity/export?server=payroll".to_owned(),
        "/activity/export?server=wiki".to_owned(),
        "/activity/export".to_owned(),
        format!("/keys/{}", admin.id),
        format!("/keys/{}", agent.id),
    ];
    for path in paths.iter().chain(&paths) {
        assert_eq!(admin.get(&format!("/api/v1{path}")).await.status, 200, "{path}");
    }
    let records = tenant.records(&of(&admin), paths.len()).await;
    for path in &paths {
        let whole = |record: &&Value| {
            let asked: Value = serde_json::from_str(record["arguments"].as_str().unwrap()).unwrap();
            let query = asked["query"].as_str().map(|query| format!("?{query}")).unwrap_or_default();
            format!("/api/v1{path}").ends_with(&format!("{}{query}", asked["path"].as_str().unwrap()))
        };
        assert_eq!(records.iter().filter(whole).count(), 1, "{path}: {records:?}");
    }
}
