//! Check 10 against schemas made to hurt.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::{Mcp, Stage, Tool, Upstream};

/// Links of the chain: followed to the end, the last schema is tried 2^40 times.
const LINKS: usize = 40;
const BOUND: Duration = Duration::from_secs(2);

/// A schema of `LINKS` definitions, each of which tries the one before it twice; the first never holds.
fn doubling() -> String {
    let mut definitions = serde_json::Map::new();
    definitions.insert("d0".to_owned(), json!({"required": ["nobody-sends-this"]}));
    for n in 1..=LINKS {
        let before = json!({"$ref": format!("#/$defs/d{}", n - 1)});
        definitions.insert(format!("d{n}"), json!({"anyOf": [before, before]}));
    }
    json!({"type": "object", "$ref": format!("#/$defs/d{LINKS}"), "$defs": definitions}).to_string()
}

#[tokio::test]
async fn one_that_makes_exponential_work_is_not_used() {
    let stage = Stage::start().await;
    let tenant = stage.tenant("acme").await;
    let tool = |name: &str, schema: &str| {
        let definition =
            format!(r#"{{"name":"{name}","inputSchema":{schema},"annotations":{{"readOnlyHint":true}}}}"#);
        Tool::raw(name, &definition)
    };
    let honest = r#"{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}"#;
    let upstream = Upstream::handshake(vec![tool("bomb", &doubling()), tool("honest", honest)]).await;
    tenant.add("up", &upstream).await;
    let client = Mcp::bare(&tenant.agent().await);
    let began = Instant::now();
    let outcome = tokio::time::timeout(BOUND, client.run("read", "up:bomb", &json!({"n": "x"}))).await;
    let outcome = outcome.unwrap_or_else(|_| panic!("no answer after {:?}", began.elapsed()));
    let warning = outcome.ok()["_meta"]["mcpproxy/warning"].clone();
    assert!(warning.as_str().is_some_and(|text| text.contains("schema could not be used")), "{warning}");
    assert_eq!(upstream.calls()[0].arguments, r#"{"n":"x"}"#);
    let record = tenant.records("type=tool_call&tool=bomb", 1).await.remove(0);
    assert_eq!((&record["status"], &record["warning"]), (&json!("success"), &warning), "{record}");
    // the one beside it is used as ever
    client.run("read", "up:honest", &json!({"n": "x"})).await.refused("invalid_arguments");
    assert_eq!(client.run("read", "up:honest", &json!({"n": 1})).await.ok()["_meta"], json!(null));
    assert_eq!(upstream.counts().calls, 2);
}
