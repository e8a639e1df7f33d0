//! Programs that announce changes of what they offer.

use std::time::Duration;

use serde_json::{Value, json};

use super::{add, commands, text};
use crate::support::{Mcp, Stage, Tenant, settle};

/// A change that is announced is listed within this.
const SOON: Duration = Duration::from_secs(5);

/// A program that announces changes, as `up`, of a gateway that lists nothing again by itself.
async fn announcing() -> (Stage, Tenant, Mcp) {
    let commands = commands(&[("prog", "announces", &["*"])]);
    let settings =
        [("MCPPROXY__STDIO__COMMANDS", commands.as_str()), ("MCPPROXY__LIMITS__RELIST_INTERVAL_S", "3600")];
    let stage = Stage::with(&settings).await;
    let tenant = stage.tenant("acme").await;
    let added = add(&tenant.platform, "up", "prog").await;
    assert_eq!((&added["connection"], &added["last_error"]), (&json!("connected"), &Value::Null), "{added}");
    tenant.platform.patch("/api/v1/servers/up", &json!({"auto_approve": true})).await.expect(200);
    let client = Mcp::session(&tenant.agent().await).await;
    // the listing that follows its start has ended
    let path = "/api/v1/servers/up";
    tenant.platform.post(&format!("{path}/refresh"), &json!({})).await.expect(200);
    (stage, tenant, client)
}

async fn names(tenant: &Tenant, what: &str) -> Vec<String> {
    let items = tenant.platform.items(&format!("/api/v1/servers/up/{what}")).await;
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

async fn lists(client: &Mcp) -> usize {
    text(client, "lists", json!({})).await.parse().unwrap()
}

#[tokio::test]
async fn a_change_that_a_program_announces_is_listed() {
    let (_stage, tenant, client) = announcing().await;
    text(&client, "announce", json!({"what": "tools", "tools": ["later"]})).await;
    settle(true, SOON, || async { names(&tenant, "tools").await.contains(&"later".to_owned()) }).await;
    text(&client, "announce", json!({"what": "prompts", "prompts": ["p"]})).await;
    settle(vec!["p".to_owned()], SOON, || names(&tenant, "prompts")).await;
    // what is no announcement lists nothing: the next one is the next listing
    let before = lists(&client).await;
    text(&client, "announce", json!({"what": "none"})).await;
    text(&client, "announce", json!({"what": "tools", "tools": ["last"]})).await;
    settle(true, SOON, || async { names(&tenant, "tools").await.contains(&"last".to_owned()) }).await;
    assert_eq!(lists(&client).await, before + 1);
}

#[tokio::test]
async fn a_flood_of_announcements_costs_few_listings_and_loses_no_change() {
    let (_stage, tenant, client) = announcing().await;
    let before = lists(&client).await;
    for n in 0..40 {
        text(&client, "announce", json!({"what": "tools", "times": 25, "tools": [format!("more{n}")]})).await;
    }
    settle(true, SOON, || async { names(&tenant, "tools").await.contains(&"more39".to_owned()) }).await;
    let after = lists(&client).await;
    assert!(after - before <= 8, "{} listings of 1000 announcements", after - before);
}
