//! Results that are too long: what is shown, what is kept, and who can read it.

mod keeping;
mod owners;
mod pages;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::support::{Api, Mcp, Outcome, Stage, Tenant, Tool, Upstream};

/// A tenant with one server `up` whose tool `get` gives this raw result, cut after `limit` characters.
struct Scene {
    stage: Stage,
    tenant: Tenant,
    agent: Api,
    upstream: Upstream,
}

impl Scene {
    async fn with(settings: &[(&str, &str)], limit: usize, result: &str) -> Scene {
        let stage = Stage::with(settings).await;
        let tenant = stage.tenant("acme").await;
        tenant.platform.patch("/api/v1/settings", &json!({ "response_limit": limit })).await.expect(200);
        let upstream = Upstream::handshake(vec![Tool::reads("get").returns(result)]).await;
        tenant.add("up", &upstream).await;
        let agent = tenant.agent().await;
        Scene { stage, tenant, agent, upstream }
    }

    async fn get(&self) -> Outcome {
        Mcp::bare(&self.agent).run("read", "up:get", &json!({})).await
    }

    /// Calls, and gives the key that the result names.
    async fn key(&self) -> String {
        key_of(&self.get().await.ok())
    }
}

pub fn key_of(result: &Value) -> String {
    let key = result["_meta"]["mcpproxy/truncated"]["key"].as_str();
    key.unwrap_or_else(|| panic!("nothing was cut: {result}")).to_owned()
}

async fn read(api: &Api, arguments: &Value) -> Outcome {
    Mcp::bare(api).call("read_cache", arguments).await
}

/// A result of one text, whose literal has this body.
fn result_of(body: &str) -> String {
    format!(r#"{{"content":[{{"type":"text","text":"{body}"}}]}}"#)
}

/// A page with its parts as they are spelled.
#[derive(Deserialize)]
struct RawPage<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    records: Vec<&'a RawValue>,
    next_offset: Option<usize>,
    total: usize,
}

/// The structured content of a page.
fn page(outcome: &Outcome) -> RawPage<'_> {
    #[derive(Deserialize)]
    struct Result<'a> {
        #[serde(borrow, rename = "structuredContent")]
        structured: RawPage<'a>,
    }
    serde_json::from_str::<Result<'_>>(outcome.raw()).unwrap_or_else(|_| panic!("{outcome:?}")).structured
}

/// The body of a raw string.
fn body(raw: &RawValue) -> &str {
    raw.get().strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap()
}
