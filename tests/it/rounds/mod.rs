//! Requests that take several rounds (MCP 2026-07-28): a server asks, the client asks again with the answer.

mod bound;
mod declared;
mod held;
mod held_alone;
mod held_dies;
mod kept_back;
mod offers;
mod passing;

use serde_json::{Value, json};

use crate::support::upstream::Say;
use crate::support::{Api, DIRECT, Mcp, Outcome, Stage, Tenant, Tool, Upstream};

/// Switches `/mcp/direct` on for the deployment.
const ON: (&str, &str) = ("MCPPROXY__DIRECT__ENABLED", "true");
/// Whom forms can be shown.
const FORMS: &str = r#"{"elicitation":{"form":{}}}"#;
/// What a person answered.
const ANSWERS: &str = r#"{ "who":{"action":"accept","content":{"name":"ana","n":1e400}} }"#;
/// What a state of another's is answered with.
const INVALID: &str = "Invalid requestState";

/// A question as the server wrote it, oddly.
fn question(state: &str) -> String {
    format!(
        r#"{{ "x":1e400,"requestState" : {state} ,"inputRequests":{{"who":{{"method":"elicitation/create","params":{{"message":"Who?","requestedSchema":{{"type":"object","properties":{{"name":{{"type":"string"}}}}}}}}}}}},"resultType":"input_required"}}"#
    )
}

/// The question as the client of the server `up` sees it.
fn shown(state: &str) -> String {
    named(&question(state))
}

/// A question with its server named.
fn named(question: &str) -> String {
    question.replace("\"Who?\"", "\"Server 'up' asks: Who?\"")
}

/// The same tool that asks twice before it does what it does.
pub fn asks_twice(tool: Tool) -> Tool {
    let round = |state: &str, result: &str| (state.to_owned(), Say::Result(result.to_owned()));
    let done = r#"{"resultType":"complete","content":[{"type":"text","text":"done"}]}"#;
    tool.says(Say::Rounds(vec![
        round("", &question(r#""U-\u0031""#)),
        round(r#""U-\u0031""#, &question(r#""U-2""#)),
        round(r#""U-2""#, done),
    ]))
}

/// A server with a tool of each tier that asks twice.
async fn asking() -> Upstream {
    Upstream::modern(vec![
        asks_twice(Tool::reads("reader")),
        asks_twice(Tool::reads("other")),
        asks_twice(Tool::destroys("wiper")),
    ])
    .await
}

/// A tenant whose keys have both endpoints.
async fn open(stage: &Stage, name: &str) -> Tenant {
    let tenant = stage.tenant(name).await;
    tenant.platform.patch("/api/v1/settings", &json!({"direct_endpoint": true})).await.expect(200);
    tenant
}

/// A modern client whose user can fill in forms.
pub fn client(api: &Api) -> Mcp {
    Mcp::modern(api).declaring(FORMS)
}

/// Which tool is called by which way.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// The variant on `/mcp`; without, `/mcp/direct`.
    pub variant: Option<&'static str>,
    pub tool: &'static str,
    /// Raw.
    pub arguments: &'static str,
}

impl Way {
    const DIRECT: Way = Way { variant: None, tool: "up:reader", arguments: r#"{"a":1,"b":[1.0]}"# };
    pub const SEARCH: Way = Way { variant: Some("read"), ..Way::DIRECT };

    /// One round, with further members of `params`.
    async fn go(self, client: Mcp, more: &str) -> Outcome {
        let Way { variant, tool, arguments } = self;
        let Some(variant) = variant else {
            let params = format!(r#"{{"name":"{tool}","arguments":{arguments}{more}}}"#);
            return Outcome { answer: client.at(DIRECT).request("tools/call", &params).await };
        };
        let inner = format!(r#"{{"name":"{tool}","args":{arguments}}}"#);
        let params = format!(r#"{{"name":"call_tool_{variant}","arguments":{inner}{more}}}"#);
        Outcome { answer: client.request("tools/call", &params).await }
    }

    /// The first round: the state that it gives.
    pub async fn begin(self, client: Mcp) -> String {
        state_of(&self.go(client, "").await)
    }

    /// A round with answers and this state.
    pub async fn again(self, client: Mcp, state: &str) -> Outcome {
        self.go(client, &format!(r#","inputResponses":{ANSWERS},"requestState":"{state}""#)).await
    }
}

/// The state that the client is to bring back.
#[track_caller]
pub fn state_of(outcome: &Outcome) -> String {
    let result = outcome.raw();
    let state = serde_json::from_str::<Value>(&result.replace("1e400", "1")).unwrap()["requestState"].clone();
    state.as_str().unwrap_or_else(|| panic!("no state: {result}")).to_owned()
}

/// Checks that a state was refused.
#[track_caller]
fn assert_invalid(outcome: &Outcome, what: &str) {
    assert_eq!(outcome.error(), json!({"code": -32602, "message": INVALID}), "{what}");
}
