//! A credential is found nowhere: not in the log, not in a record, not in an answer, not in the database.

use serde_json::{Value, json};

use crate::support::upstream::Say;
use crate::support::{Mcp, Stage, Tool, Upstream, run_to_end};

/// Of no known shape: only knowing it helps.
const VALUES: [&str; 4] =
    ["opaque-one-98431", "Sesame opaque-two-\"77\"-\\x", "opaque-three-1", "opaque-four-44"];
/// What would betray one of them.
const MARKS: [&str; 4] = ["one-98431", "two-", "three-1", "four-44"];
/// A member that is not called what it is.
const MISPLACED: &str = "opaque-misplaced-5";

#[track_caller]
fn clean(what: &str, text: &str) {
    for mark in MARKS.into_iter().chain(["misplaced-5"]) {
        assert!(!text.contains(&format!("opaque-{mark}")), "{mark} in {what}: {text}");
        let hex: String = mark.bytes().map(|byte| format!("{byte:02x}")).collect();
        assert!(!text.contains(&hex), "{mark} as bytes in {what}: {text}");
    }
}

#[tokio::test]
async fn a_credential_is_found_nowhere() {
    let stage = Stage::with(&[("MCPPROXY__TELEMETRY__LOG_FILTER", "trace")]).await;
    let tenant = stage.tenant("acme").await;
    let api = &tenant.platform;
    let rpc = json!({"code": -1, "message": format!("no {} here", VALUES[1]), "data": VALUES[1]});
    let tools = vec![
        Tool::writes("echo").says(Say::Headers),
        Tool::reads("look").says(Say::Headers),
        Tool::writes("rpc").says(Say::RpcError(rpc.to_string())),
        Tool::writes("http").says(Say::Http(401, format!("bad key {}", VALUES[0]))),
    ];
    let (upstream, modern) = (Upstream::handshake(tools.clone()).await, Upstream::modern(tools).await);
    let headers = json!({"X-Any": VALUES[0], "Authorization": VALUES[1]});
    let mut answers = vec![
        tenant.add_with("up", &upstream, json!({"headers": headers})).await,
        tenant.add_with("new", &modern, json!({"headers": headers})).await,
    ];
    // refused in every way
    let url = &upstream.url;
    for body in [
        json!({"name": "up", "kind": "http", "url": url, "headers": {"X-Any": VALUES[2]}}),
        json!({"name": "a", "kind": "http", "url": url, "headers": {"Host": VALUES[2]}}),
        json!({"name": "a", "kind": "http", "url": url, "headers": VALUES[2]}),
        json!({"name": "a", "kind": "http", "url": url, "headers": {"X-Any": [VALUES[2]]}}),
        json!({"name": "a", "kind": "http", "url": url, "headers": {"X-Any": format!("{}\n", VALUES[2])}}),
        json!({"name": "a", "kind": "http", "url": url, "header": {"X-Any": MISPLACED}}),
        json!({"name": "a", "kind": "pigeon", "url": url, "headers": {"X-Any": VALUES[2]}}),
        json!([VALUES[2]]),
    ] {
        let answer = api.post("/api/v1/servers", &body).await;
        assert!(answer.status >= 400, "{answer:?}");
        answers.push(answer.json());
    }
    let auditor = tenant.auditor().await;
    let change = json!({"headers": {"X-Any": VALUES[3], "Authorization": VALUES[1]}});
    auditor.patch("/api/v1/servers/up", &change).await.refused(403, "forbidden");
    answers.push(api.patch("/api/v1/servers/up", &change).await.expect(200));
    answers.push(api.post("/api/v1/servers/up/refresh", &json!({"headers": change})).await.expect(400));
    let agent = Mcp::bare(&tenant.agent().await);
    for server in ["up", "new"] {
        for (variant, tool) in [("write", "echo"), ("read", "look"), ("write", "rpc"), ("write", "http")] {
            agent.run(variant, &format!("{server}:{tool}"), &json!({})).await;
        }
    }
    // the upstream did get them, and what it answers comes back whole
    assert_eq!(upstream.calls()[0].headers["x-any"], VALUES[3]);
    assert_eq!(modern.calls()[0].headers["authorization"], VALUES[1]);
    let whole = agent.run("write", "new:echo", &json!({})).await;
    assert!(whole.answer.text.contains(VALUES[0]), "{whole:?}");

    let records = tenant.records("type=tool_call", 9).await;
    assert!(records.iter().any(|record| record["response"].to_string().contains("[redacted]")));
    answers.extend(records);
    answers.extend(tenant.records("type=admin&tool=servers.create", 10).await);
    answers.extend(tenant.records("type=admin&tool=servers.update", 2).await);
    answers.extend(tenant.records("type=admin&tool=servers.refresh", 1).await);
    for path in ["/api/v1/servers", "/api/v1/servers/up", "/api/v1/servers/up/tools", "/api/v1/status"] {
        answers.push(api.get(path).await.expect(200));
    }
    for answer in &answers {
        clean("an answer", &answer.to_string());
    }
    let shown: Vec<&Value> = answers.iter().filter(|answer| answer["arguments"].is_string()).collect();
    assert!(shown.iter().any(|record| record["arguments"].as_str().unwrap().contains("X-Any")));
    let rows = stage.database.rows().await;
    assert!(rows.iter().any(|(table, _)| table == "server_secrets"));
    for (table, row) in &rows {
        clean(table, row);
    }
    clean("the log", &stage.gateway.log());
}

#[tokio::test]
async fn a_deleted_tenants_credentials_are_gone() {
    let stage = Stage::start().await;
    let upstream = Upstream::handshake(vec![Tool::writes("t")]).await;
    for name in ["gone", "kept"] {
        let tenant = stage.tenant(name).await;
        tenant.add_with("up", &upstream, json!({"headers": {"X-Key": "value"}})).await;
    }
    stage.platform().delete("/api/v1/tenants/gone").await.expect(204);
    let mut connection = stage.database.connect().await;
    let left: (i64, i64) =
        sqlx::query_as("select (select count(*) from server_secrets), (select count(*) from data_keys)")
            .fetch_one(&mut connection)
            .await
            .unwrap();
    assert_eq!(left, (1, 1));
}

#[tokio::test]
async fn errors_of_the_start_show_no_key() {
    let database = crate::support::Database::create().await;
    let key = "9l6OX06VXkKGFsXyVLWTuGv8eWdQ4rK5Rr2mP1Yz3Qc=";
    let ended = run_to_end(&database, &["serve"], &[("MCPPROXY__SECRETS__MASTER_KEY", &format!("{key},x"))]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(!ended.status.success() && said.contains("master_key") && !said.contains(key), "{said}");
}
