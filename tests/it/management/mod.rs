//! The management tools: what REST forbids a key they do too, and over MCP nothing is approved or released.

mod offers;
mod servers;

use serde_json::{Value, json};

use crate::support::upstream::Offers;
use crate::support::{Api, Mcp, Outcome, Stage, Tenant, Tool, Upstream};

const SERVERS: &str = "upstream_servers";
const QUARANTINE: &str = "quarantine_security";

/// Every operation: its tool, its name, what it is about, and the record it leaves.
const OPS: [(&str, &str, &str, &str); 14] = [
    (SERVERS, "list", "", "servers.list"),
    (SERVERS, "logs", "name", "servers.logs"),
    (SERVERS, "refresh", "name", "servers.refresh"),
    (SERVERS, "restart", "name", "servers.restart"),
    (SERVERS, "disable", "name", "servers.disable"),
    (SERVERS, "enable", "name", "servers.enable"),
    (SERVERS, "update", "name version", "servers.update"),
    (QUARANTINE, "list_quarantined", "", "servers.list_quarantined"),
    (QUARANTINE, "inspect", "name", "servers.inspect"),
    (QUARANTINE, "inspect_tools", "name", "tools.list"),
    (QUARANTINE, "diff", "name tool", "tools.diff"),
    (QUARANTINE, "quarantine", "name", "servers.quarantine"),
    (SERVERS, "remove", "name", "servers.remove"),
    (SERVERS, "add", "name url", "servers.create"),
];
const READS: [&str; 6] = ["list", "logs", "list_quarantined", "inspect", "inspect_tools", "diff"];

async fn scene() -> (Stage, Tenant, Upstream) {
    scene_offering(Offers::default()).await
}

/// A scene whose server has these offers from the beginning.
async fn scene_offering(offers: Offers) -> (Stage, Tenant, Upstream) {
    let stage = Stage::with(&[("MCPPROXY__DIRECT__ENABLED", "true")]).await;
    let tenant = stage.tenant("acme").await;
    tenant.platform.patch("/api/v1/settings", &json!({"direct_endpoint": true})).await.expect(200);
    let upstream = Upstream::handshake(vec![Tool::reads("t")]).await;
    upstream.set_offers(offers);
    tenant.add("up", &upstream).await;
    (stage, tenant, upstream)
}

/// A client of each endpoint, in each era.
fn clients(api: &Api) -> [Mcp; 4] {
    let direct = crate::support::DIRECT;
    [Mcp::bare(api), Mcp::modern(api), Mcp::direct(api), Mcp::modern(api).at(direct)]
}

/// The definitions of the management tools that are listed.
async fn offered(client: &Mcp) -> Vec<Value> {
    let tools = client.tools().await;
    tools.into_iter().filter(|tool| tool["name"] == SERVERS || tool["name"] == QUARANTINE).collect()
}

/// The operations that a definition offers.
fn operations(tool: &Value) -> Vec<&str> {
    let names = tool["inputSchema"]["properties"]["operation"]["enum"].as_array().unwrap();
    names.iter().map(|name| name.as_str().unwrap()).collect()
}

/// Asks for an operation with these arguments beside it.
async fn ask(client: &Mcp, tool: &str, operation: &str, more: Value) -> Outcome {
    let mut arguments = json!({"operation": operation});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.call(tool, &arguments).await
}

/// What an operation needs to be about `up`.
async fn about(tenant: &Tenant, upstream: &Upstream, what: &str) -> Value {
    let mut more = serde_json::Map::new();
    for name in what.split_whitespace() {
        let value = match name {
            "version" => tenant.platform.get("/api/v1/servers/up").await.expect(200)["version"].clone(),
            "url" => json!(upstream.url),
            "tool" => json!("t"),
            _ => json!("up"),
        };
        if name == "url" {
            more.insert("kind".to_owned(), json!("http"));
        }
        more.insert(name.to_owned(), value);
    }
    Value::Object(more)
}

/// Both tools are there for those who may use them, and nobody else has heard of them.
#[tokio::test]
async fn every_operation_for_every_role_on_both_endpoints() {
    let (_stage, tenant, upstream) = scene().await;
    let agent = tenant.agent().await;
    for client in clients(&agent) {
        assert!(offered(&client).await.is_empty());
        for (tool, operation, what, _) in OPS {
            let more = about(&tenant, &upstream, what).await;
            assert_eq!(ask(&client, tool, operation, more).await.code(), "-32602", "{operation}");
        }
    }
    assert_eq!(tenant.platform.get("/api/v1/servers/up").await.expect(200)["enabled"], true);
    let mut asked = 0;
    for api in [tenant.operator().await, tenant.admin().await, tenant.platform.clone()] {
        for client in clients(&api) {
            let tools = offered(&client).await;
            let listed: usize = tools.iter().map(|tool| operations(tool).len()).sum();
            assert_eq!((tools.len(), listed), (2, OPS.len()));
            for (tool, operation, what, _) in OPS {
                let more = about(&tenant, &upstream, what).await;
                let outcome = ask(&client, tool, operation, more).await;
                assert!(outcome.ok()["structuredContent"].is_object(), "{operation}: {outcome:?}");
            }
            asked += 1;
        }
    }
    for (_, _, _, act) in OPS {
        let records = tenant.records(&format!("type=admin&tool={act}&source=mcp"), asked / 2).await;
        assert!(records.iter().all(|record| record["status"] == "success"), "{act}: {records:?}");
        tenant.records(&format!("type=admin&tool={act}&source=direct"), asked / 2).await;
    }
    for role in ["auditor", "approver"] {
        let client = Mcp::bare(&tenant.key(&json!({"role": role})).await);
        assert_eq!(ask(&client, SERVERS, "list", json!({})).await.answer.status, 403, "{role}");
    }
}

/// A key's ceiling holds for them as for any tool: what is above it is not offered, and refused.
#[tokio::test]
async fn a_ceiling_bounds_what_is_offered() {
    let (_stage, tenant, upstream) = scene().await;
    for (ceiling, count, read_only, destructive) in
        [("read", 6, true, false), ("write", 13, false, false), ("destructive", 14, false, true)]
    {
        let key = json!({"role": "operator", "settings": {"max_operation": ceiling}});
        let api = tenant.key(&key).await;
        for client in clients(&api) {
            let tools = offered(&client).await;
            let names: Vec<&str> = tools.iter().flat_map(operations).collect();
            assert_eq!(names.len(), count, "{ceiling}: {names:?}");
            let servers = tools.iter().find(|tool| tool["name"] == SERVERS).unwrap();
            assert_eq!(servers["annotations"]["readOnlyHint"], read_only, "{servers}");
            assert_eq!(servers["annotations"]["destructiveHint"], destructive, "{servers}");
            for (tool, operation, what, _) in OPS {
                let is_above = !names.contains(&operation);
                assert!(!is_above || !READS.contains(&operation), "{operation}");
                if is_above {
                    let more = about(&tenant, &upstream, what).await;
                    let code = ask(&client, tool, operation, more).await.code();
                    assert_eq!(code, "operation_not_permitted", "{operation}");
                }
            }
        }
    }
    let refused = tenant.records("type=admin&tool=upstream_servers&status=blocked", 32).await;
    assert!(refused.iter().all(|record| record["error_code"] == "operation_not_permitted"), "{refused:?}");
}

/// However a call is refused before it is read, no credential of it is in a record.
#[tokio::test]
async fn headers_stand_in_no_record() {
    const SECRET: &str = "s3cret-of-a-header";
    let (stage, tenant, upstream) = scene().await;
    let (operator, agent) = (tenant.operator().await, tenant.agent().await);
    let arguments = format!(
        r#"{{"operation":"add","name":"more","kind":"http","url":"{}","headers":{{"X-Up-Key":"{SECRET}"}}}}"#,
        upstream.url
    );
    let params = |arguments: &str| format!(r#"{{"name":"{SERVERS}","arguments":{arguments}}}"#);
    let other = Mcp::direct(&operator).shake_hands("2025-11-25").await;
    let misplaced = Mcp::in_session(&operator, other.session_id());
    let as_text = serde_json::to_string(&arguments).unwrap();
    let twice = format!(r#"{{"name":"{SERVERS}","name":"{SERVERS}","arguments":{arguments}}}"#);
    let within = arguments.replacen("{", r#"{"name":"x","#, 1);
    let asked = [
        (misplaced, params(&arguments)),
        (Mcp::bare(&operator), params(&as_text)),
        (Mcp::bare(&operator), twice),
        (Mcp::bare(&operator), params(&within)),
        (Mcp::bare(&agent), params(&arguments)),
        (Mcp::modern(&operator), params(&arguments.replacen("add", "nothing", 1))),
        (Mcp::bare(&operator), params(&arguments)),
    ];
    let count = asked.len();
    for (client, params) in asked {
        client.request("tools/call", &params).await;
    }
    let database = &stage.database;
    let with_secret = format!(
        "select count(*) from activity where coalesce(arguments, '') || coalesce(response, '') || coalesce(error_message, '') like '%{SECRET}%'"
    );
    let all = "select count(*) from activity where source in ('mcp', 'direct') and started_at > now() - interval '1 hour'";
    crate::support::settle(true, std::time::Duration::from_secs(5), || async {
        database.count(all).await >= i64::try_from(count).unwrap()
    })
    .await;
    let found: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(with_secret))
        .fetch_one(&mut database.connect().await)
        .await
        .unwrap();
    assert_eq!(found, 0);
}
