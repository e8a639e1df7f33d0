//! Languages in which reasons are shown.

use reqwest::Method;
use reqwest::header::ACCEPT_LANGUAGE;
use serde_json::{Value, json};

use super::webhook_bounds::put;
use super::{asked, asking};
use crate::rounds::client;
use crate::support::{Api, Events, Receiver, Tenant, cli};

const ARGS: &str = r#"{"path":"/a"}"#;

async fn set(tenant: &Tenant, path: &str, locale: Value) {
    tenant.platform.patch(path, &json!({ "locale": locale })).await.expect(200);
}

/// The reason of a request, for a reader whose client asks for this language.
async fn reason(reader: &Api, id: &str, accepts: Option<&str>) -> String {
    let mut request = reader.request(Method::GET, &format!("/api/v1/consent/{id}"));
    if let Some(accepts) = accepts {
        request = request.header(ACCEPT_LANGUAGE, accepts);
    }
    reader.send(request).await.expect(200)["reason"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_readers_own_language_then_the_clients_then_the_tenants() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let (agent, approver) = (tenant.agent().await, tenant.approver().await);
    let id = asked(&agent, &json!({"path": "/a"})).await;
    let english = reason(&approver, &id, None).await;
    let german = reason(&approver, &id, Some("fr, de-AT;q=0.8, en;q=0.5")).await;
    assert!(english.starts_with("Run 'writer'") && german.starts_with("'writer' auf dem Server"), "{german}");
    set(&tenant, "/api/v1/settings", json!("de")).await;
    assert_eq!(reason(&approver, &id, None).await, german);
    assert_eq!(reason(&approver, &id, Some("en")).await, english);
    assert_eq!(reason(&approver, &id, Some("fr")).await, german);
    let own = format!("/api/v1/keys/{}/settings", approver.id);
    set(&tenant, &own, json!("en")).await;
    assert_eq!(reason(&approver, &id, Some("de")).await, english);
    set(&tenant, "/api/v1/settings", Value::Null).await;
    set(&tenant, &own, json!("de")).await;
    assert_eq!(reason(&approver, &id, Some("en")).await, german);
    let mut events = Events::open(&approver, "/api/v1/consent/stream", None).await;
    assert_eq!(events.next().await.unwrap()["reason"], german);
    let listed = approver.items("/api/v1/consent").await;
    assert_eq!(listed[0]["reason"], german);
    for command in [vec!["list"], vec!["show", &id], vec!["watch", "--limit", "1"]] {
        let shown = cli(&approver, &[&["consent"], command.as_slice()].concat()).await.ok().out;
        assert!(shown.contains("auf dem Server"), "{shown}");
    }
    // each reader has an own language
    assert_eq!(reason(&agent, &id, None).await, english);
}

#[tokio::test]
async fn a_webhook_is_told_in_the_language_of_its_tenant() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    set(&tenant, "/api/v1/settings", json!("de")).await;
    let receiver = Receiver::start().await;
    put(&tenant.platform, &receiver).await;
    asked(&tenant.agent().await, &json!({"path": "/a"})).await;
    let told = receiver.expect(1, std::time::Duration::from_secs(8)).await[0].json();
    assert!(told["data"]["reason"].as_str().unwrap().starts_with("'writer' auf dem Server"), "{told}");
}

#[tokio::test]
async fn the_question_to_a_client_is_in_its_language() {
    let (_stage, tenant, _upstream) = asking(&[], json!([])).await;
    let agent = tenant.agent().await;
    let question = async |accepts: &str| {
        let params =
            format!(r#"{{"name":"call_tool_write","arguments":{{"name":"zoo:writer","args":{ARGS}}}}}"#);
        let request = client(&agent).unsent("1", "tools/call", &params).header(ACCEPT_LANGUAGE, accepts);
        let answer = agent.undocumented().send(request).await.json();
        answer["result"]["inputRequests"]["mcpproxy.consent"]["params"].clone()
    };
    let english = question("fr").await;
    let says = |form: &Value| form["message"].as_str().unwrap().to_owned();
    assert!(says(&english).contains("Risk: ") && says(&english).contains("\nRequest "), "{english}");
    let german = question("de").await;
    assert!(says(&german).contains("Risiko: ") && says(&german).contains("\nAnfrage "), "{german}");
    let schema = &german["requestedSchema"]["properties"]["decision"];
    assert_eq!(
        (&schema["title"], &schema["oneOf"][0]["const"]),
        (&json!("Entscheidung"), &json!("allow_once"))
    );
    assert_eq!(schema["oneOf"][0]["title"], "Diesen einen Aufruf erlauben");
    set(&tenant, &format!("/api/v1/keys/{}/settings", agent.id), json!("en")).await;
    assert_eq!(says(&question("de").await), says(&english));
}
