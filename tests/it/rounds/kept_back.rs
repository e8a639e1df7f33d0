//! Questions of handshake servers that their `relay` keeps back: refused, and recorded.

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::upstream::{Say, Talk};
use crate::support::{Api, Mcp, Stage, Tenant, Tool, Upstream};

/// Capabilities of a client that can be asked everything.
const ALL: &str = r#"{"elicitation":{},"sampling":{},"roots":{}}"#;
const SECRET: &str = "ghp_0123456789abcdefghijABCDEFGHIJ012345";
/// A form with a secret in its text.
const FORM: &str = r#"{"message":"Is ghp_0123456789abcdefghijABCDEFGHIJ012345 yours?","requestedSchema":{"type":"object","properties":{}}}"#;
/// Most requests of a server in one call.
const REQUESTS_MAX: usize = 64;

/// A tenant with this server, which may ask nothing.
async fn tenant_of(upstream: &Upstream) -> (Stage, Tenant) {
    let stage = Stage::with(&[]).await;
    let tenant = stage.tenant("acme").await;
    tenant.add("up", upstream).await;
    let relay = json!({"relay": {"elicitation": false}});
    tenant.platform.patch("/api/v1/servers/up", &relay).await.expect(200);
    (stage, tenant)
}

/// Calls a tool; gives its text, which is what the server got as an answer.
async fn said(client: &Mcp, tool: &str) -> String {
    let result = client.run("write", &format!("up:{tool}"), &json!({})).await.ok();
    result["content"][0]["text"].as_str().unwrap().to_owned()
}

async fn of_key(tenant: &Tenant, api: &Api, kind: &str, count: usize) -> Vec<Value> {
    tenant.records(&format!("type={kind}&key={}", api.id), count).await
}

#[tokio::test]
async fn a_question_that_relay_keeps_back_is_refused_and_recorded() {
    let questions = [
        ("form", "elicitation/create", FORM),
        ("model", "sampling/createMessage", "{}"),
        ("roots", "roots/list", "{}"),
    ];
    let tools = questions.map(|(tool, method, asked)| Tool::writes(tool).says(Say::Asks(method, asked)));
    let upstream = Upstream::handshake(tools.to_vec()).await;
    let (_stage, tenant) = tenant_of(&upstream).await;
    for era in ["handshake", "modern"] {
        let agent = tenant.agent().await;
        let client = match era {
            "handshake" => Mcp::bare(&agent).declaring(ALL).shake_hands("2025-11-25").await,
            _ => Mcp::modern(&agent).declaring(ALL),
        };
        for (tool, ..) in questions {
            let said = said(&client, tool).await;
            assert!(said.contains(r#""error":{"code":-32601,"message":"Method not found"}"#), "{said}");
        }
        let calls = of_key(&tenant, &agent, "tool_call", 3).await;
        let recorded = of_key(&tenant, &agent, "question", 3).await;
        for (tool, method, _) in questions {
            let record = recorded.iter().find(|record| record["tool"] == method).unwrap();
            let call = calls.iter().find(|call| call["tool"] == tool).unwrap();
            assert_eq!(
                [&record["status"], &record["error_code"], &record["server"], &record["parent_id"]],
                [&json!("blocked"), &json!("-32601"), &json!("up"), &call["id"]],
                "{era} {record}"
            );
            let says = record["error_message"].as_str().unwrap();
            assert!(says.contains("'relay'"), "{says}");
            assert_eq!((&call["status"], &record["wait_ms"]), (&json!("success"), &Value::Null), "{call}");
        }
        let form = recorded.iter().find(|record| record["tool"] == "elicitation/create").unwrap();
        let path = format!("/api/v1/activity/{}", form["id"].as_str().unwrap());
        let shown = tenant.platform.get(&path).await.expect(200)["arguments"].to_string();
        assert!(shown.contains("yours?") && !shown.contains(SECRET), "{shown}");
    }
    // it is not `relay` that keeps it from a client that cannot be asked
    let plain = tenant.agent().await;
    let client = Mcp::session(&plain).await;
    assert!(said(&client, "form").await.contains("-32601"));
    of_key(&tenant, &plain, "tool_call", 1).await;
    of_key(&tenant, &plain, "question", 0).await;
}

#[tokio::test]
async fn a_call_leaves_so_many_records_of_them_and_no_more() {
    let (_gate, opened) = watch::channel(true);
    let talk = |count| Talk {
        asks: vec![("sampling/createMessage", "{}"); count],
        gate: opened.clone(),
        bytes: 0,
        is_patient: true,
    };
    let tools = [("all", REQUESTS_MAX), ("more", REQUESTS_MAX + 1)];
    let tools = tools.map(|(tool, count)| Tool::writes(tool).says(Say::Talks(talk(count))));
    let upstream = Upstream::handshake(tools.to_vec()).await;
    let (_stage, tenant) = tenant_of(&upstream).await;
    for (tool, code) in [("all", "ok"), ("more", "upstream_invalid")] {
        let agent = tenant.agent().await;
        let client = Mcp::modern(&agent).declaring(ALL);
        assert_eq!(client.run("write", &format!("up:{tool}"), &json!({})).await.code(), code);
        let page = format!("/api/v1/activity?type=question&status=blocked&key={}", agent.id);
        let count = async || tenant.platform.items(&page).await.len();
        crate::support::settle(REQUESTS_MAX, std::time::Duration::from_secs(10), count).await;
    }
}
