//! Prompts, resources and templates in the management tools: seen with their state, and never approved.

use serde_json::{Value, json};

use super::{QUARANTINE, ask, offered, scene_offering};
use crate::support::upstream::Offers;
use crate::support::{Mcp, Outcome, Stage, Tenant};

/// Prompt, resource and template of each list, with this description.
fn offers(description: &str) -> Offers {
    let definition = |member: &str, name: &str| {
        let mut offer = json!({"name": "n", "description": description});
        offer[member] = json!(name);
        offer.to_string()
    };
    Offers {
        prompts: Some(vec![definition("name", "p")]),
        resources: Some(vec![definition("uri", "x://user:pass@r")]),
        templates: vec![definition("uriTemplate", "y://{id}")],
        ..Offers::default()
    }
}

const DIFFS: [(&str, &str); 3] = [
    ("prompts.diff", r#"{"name":"up","prompt":"p"}"#),
    ("resources.diff", r#"{"name":"up","uri":"x://user:pass@r"}"#),
    ("resources.diff", r#"{"name":"up","uri":"y://{id}","kind":"template","tool":null}"#),
];

fn arguments(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

async fn done(client: &Mcp, operation: &str, more: Value) -> Value {
    ask(client, QUARANTINE, operation, more).await.ok()["structuredContent"].clone()
}

/// Returns the items of a list of `up`.
async fn inspected(client: &Mcp, list: &str) -> Vec<Value> {
    let found = done(client, "inspect_tools", json!({"name": "up", "list": list})).await;
    found["items"].as_array().unwrap().clone()
}

fn refusal(outcome: &Outcome) -> (Value, Value) {
    let said = &outcome.result()["structuredContent"];
    (said["code"].clone(), said["field"].clone())
}

/// Returns a tenant whose server `up` has changed the definitions of all its offers.
async fn changed() -> (Stage, Tenant) {
    let (stage, tenant, upstream) = scene_offering(offers("before")).await;
    upstream.set_offers(offers("after"));
    tenant.platform.post("/api/v1/servers/up/refresh", &json!({})).await.expect(200);
    (stage, tenant)
}

#[tokio::test]
async fn what_waits_is_listed_and_compared() {
    let (_stage, tenant) = changed().await;
    let clients = super::clients(&tenant.operator().await);
    for client in &clients {
        for (list, count) in [("tools", 1), ("prompts", 1), ("resources", 2)] {
            let items = inspected(client, list).await;
            let state = if list == "tools" { "approved" } else { "changed" };
            assert_eq!(items.len(), count, "{list}: {items:?}");
            assert!(items.iter().all(|item| item["state"] == state), "{list}: {items:?}");
            assert_eq!(items, tenant.platform.items(&format!("/api/v1/servers/up/{list}")).await, "{list}");
        }
        for (act, about) in DIFFS {
            let diff = done(client, "diff", arguments(about)).await;
            let change = &diff["changes"][0];
            let said = (&diff["state"], &change["before"], &change["after"]);
            assert_eq!(said, (&json!("changed"), &json!("before"), &json!("after")), "{act}: {diff}");
        }
    }
    let page = json!({"name": "up", "list": "resources", "limit": 1});
    let first = done(&clients[0], "inspect_tools", page.clone()).await;
    let mut page = page;
    page["cursor"] = first["next_cursor"].clone();
    let next = done(&clients[0], "inspect_tools", page).await;
    assert_eq!(
        (&first["items"][0]["kind"], &next["items"][0]["kind"]),
        (&json!("resource"), &json!("template"))
    );
    // as many of each as clients asked, and two pages
    for (act, count) in
        [("prompts.list", 4), ("resources.list", 6), ("prompts.diff", 4), ("resources.diff", 8)]
    {
        let records = tenant.records(&format!("type=admin&tool={act}"), count).await;
        assert!(
            records.iter().all(|record| record["server"] == "up" && record["status"] == "success"),
            "{act}: {records:?}"
        );
    }
    let records = tenant.records("type=admin&tool=resources.diff", 8).await;
    let told = |what: &str| {
        records.iter().filter(|record| record["arguments"].as_str().unwrap().contains(what)).count()
    };
    assert_eq!((told("@r"), told("y://{id}"), told("user:pass")), (4, 4, 0), "{records:?}");
}

#[tokio::test]
async fn an_offer_is_named_one_way_and_decided_by_nobody() {
    let (_stage, tenant) = changed().await;
    let admin = Mcp::modern(&tenant.admin().await);
    let before = [inspected(&admin, "prompts").await, inspected(&admin, "resources").await];
    let pin = &before[0][0]["pin"];
    for (operation, more, field) in [
        ("inspect_tools", json!({"name": "up", "list": "offers"}), "list"),
        ("inspect_tools", json!({"name": "up", "list": 7}), "list"),
        ("inspect_tools", json!({"name": "up", "list": "prompts", "limit": 0}), "limit"),
        ("diff", json!({"name": "up"}), "tool"),
        ("diff", json!({"name": "up", "prompt": "p", "tool": "t"}), "tool"),
        ("diff", json!({"name": "up", "prompt": "p", "uri": "y://{id}"}), "uri"),
        ("diff", json!({"name": "up", "prompt": "p", "kind": "resource"}), "kind"),
        ("diff", json!({"name": "up", "uri": "y://{id}", "kind": "prompt"}), "kind"),
        ("diff", json!({"name": "up", "prompt": "p", "pin": pin}), "pin"),
        ("approve", json!({"name": "up", "prompt": "p", "pin": pin}), "operation"),
        ("block", json!({"name": "up", "prompt": "p"}), "operation"),
    ] {
        let outcome = ask(&admin, QUARANTINE, operation, more.clone()).await;
        assert_eq!(refusal(&outcome), (json!("invalid_request"), json!(field)), "{operation} {more}");
    }
    for more in [
        json!({"name": "up", "prompt": "none"}),
        json!({"name": "up", "uri": "y://{id}"}),
        json!({"name": "none", "uri": "y://{id}"}),
    ] {
        assert_eq!(ask(&admin, QUARANTINE, "diff", more.clone()).await.code(), "not_found", "{more}");
    }
    let after = [inspected(&admin, "prompts").await, inspected(&admin, "resources").await];
    assert_eq!(after, before);
    let tools = offered(&admin).await;
    let tool = tools.iter().find(|tool| tool["name"] == QUARANTINE).unwrap();
    let properties = &tool["inputSchema"]["properties"];
    assert_eq!(properties["list"]["enum"], json!(["tools", "prompts", "resources"]));
    assert_eq!(properties["kind"]["enum"], json!(["resource", "template"]));
}

/// Agents have neither tool: what is said of offers is said to nobody else.
#[tokio::test]
async fn agents_learn_nothing_of_offers() {
    let (_stage, tenant) = changed().await;
    for client in super::clients(&tenant.agent().await) {
        for (_, about) in DIFFS {
            assert_eq!(ask(&client, QUARANTINE, "diff", arguments(about)).await.code(), "-32602");
        }
        let more = json!({"name": "up", "list": "prompts"});
        assert_eq!(ask(&client, QUARANTINE, "inspect_tools", more).await.code(), "-32602");
    }
}
