//! Searches with the help of an embeddings service.

mod failing;
mod keeping;
mod ranking;
mod turns;

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Api, Embedder, Mcp, Stage, Tenant, Tool, Upstream, eventually};

/// Within this, vectors are made and known on every replica.
const SOON: Duration = Duration::from_secs(10);

/// A gateway with the service, and a tenant with two tools that words alone cannot tell apart.
async fn stage() -> (Embedder, Stage, Tenant, Upstream) {
    stage_with(&[]).await
}

/// The same with further settings.
async fn stage_with(more: &[(&str, &str)]) -> (Embedder, Stage, Tenant, Upstream) {
    let embedder = Embedder::start(&[("two", "qqxy")]).await;
    let stage = Stage::with(&[&embedder.settings()[..], more].concat()).await;
    let tenant = stage.tenant("acme").await;
    let upstream = Upstream::handshake(vec![Tool::new("widget_one"), Tool::new("widget_two")]).await;
    tenant.add("up", &upstream).await;
    (embedder, stage, tenant, upstream)
}

async fn search(agent: &Api, query: &str) -> Value {
    Mcp::bare(agent).search(&json!({ "query": query })).await
}

fn names(answer: &Value) -> Vec<&str> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}

/// Waits until the vectors take part.
async fn helped(agent: &Api, query: &str) -> Value {
    eventually("the vectors to take part", SOON, || async {
        let answer = search(agent, query).await;
        (answer["ranking"] == "bm25+embeddings").then_some(answer)
    })
    .await
}
