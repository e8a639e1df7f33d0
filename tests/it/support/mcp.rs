//! MCP as one caller: JSON-RPC by hand, so that a test sees and chooses every byte.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use reqwest::{Method, RequestBuilder};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::answer::Answer;
use super::api::Api;
use super::unread::Unread;

/// The modern revision.
pub const MODERN: &str = "2026-07-28";

/// How this client speaks.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Era {
    /// The handshake revisions, without having shaken hands.
    Bare,
    /// In a session.
    Session { id: String, version: String },
    /// Revision 2026-07-28.
    Modern,
}

/// Where every tool is listed.
pub const DIRECT: &str = "/mcp/direct";

/// A client of `/mcp`, or of `/mcp/direct`.
pub struct Mcp {
    pub api: Api,
    path: String,
    era: Era,
    /// `clientCapabilities`, raw, where it speaks the modern way.
    capabilities: String,
    next_id: AtomicU64,
}

impl Mcp {
    /// Speaks the old way without a session.
    pub fn bare(api: &Api) -> Mcp {
        Mcp {
            api: api.clone(),
            path: "/mcp".to_owned(),
            era: Era::Bare,
            capabilities: "{}".to_owned(),
            next_id: AtomicU64::new(1),
        }
    }

    /// Another handle on the same session.
    pub fn again(&self) -> Mcp {
        Mcp { era: self.era.clone(), path: self.path.clone(), ..Mcp::bare(&self.api) }
    }

    /// The same at another path.
    pub fn at(self, path: &str) -> Mcp {
        Mcp { path: path.to_owned(), ..self }
    }

    /// Client that declares these raw capabilities with each modern request, or at its handshake.
    pub fn declaring(self, capabilities: &str) -> Mcp {
        Mcp { capabilities: capabilities.to_owned(), ..self }
    }

    /// Speaks the old way to `/mcp/direct`, without a session.
    pub fn direct(api: &Api) -> Mcp {
        Mcp::bare(api).at(DIRECT)
    }

    /// Speaks the modern way.
    pub fn modern(api: &Api) -> Mcp {
        Mcp { era: Era::Modern, ..Mcp::bare(api) }
    }

    /// Shakes hands.
    pub async fn session(api: &Api) -> Mcp {
        Mcp::session_of(api, "2025-11-25").await
    }

    /// Shakes hands, offering this version.
    pub async fn session_of(api: &Api, version: &str) -> Mcp {
        Mcp::bare(api).shake_hands(version).await
    }

    /// Shakes hands where this one speaks.
    pub async fn shake_hands(self, version: &str) -> Mcp {
        let capabilities: Value = serde_json::from_str(&self.capabilities).unwrap();
        let hello = json!({"protocolVersion": version, "capabilities": capabilities,
            "clientInfo": {"name": "it-client", "version": "1.2.3"}});
        let answer = self.request("initialize", &hello.to_string()).await;
        let version = answer.expect(200)["result"]["protocolVersion"].as_str().unwrap().to_owned();
        let id = answer.header("mcp-session-id").to_owned();
        assert_ne!(id, "", "{answer:?}");
        Mcp { era: Era::Session { id, version }, ..self }
    }

    /// Continues a session.
    pub fn in_session(api: &Api, id: &str) -> Mcp {
        let era = Era::Session { id: id.to_owned(), version: "2025-11-25".to_owned() };
        Mcp { era, ..Mcp::bare(api) }
    }

    /// The session's id.
    pub fn session_id(&self) -> &str {
        match &self.era {
            Era::Session { id, .. } => id,
            _ => "",
        }
    }

    /// A request with the headers of this era.
    pub fn http(&self, method: Method) -> RequestBuilder {
        let request =
            self.api.request(method, &self.path).header("Accept", "application/json, text/event-stream");
        match &self.era {
            Era::Bare => request,
            Era::Session { id, version } => {
                request.header("Mcp-Session-Id", id).header("MCP-Protocol-Version", version)
            }
            Era::Modern => request.header("MCP-Protocol-Version", MODERN),
        }
    }

    /// Whether it speaks the modern way.
    pub fn is_modern(&self) -> bool {
        self.era == Era::Modern
    }

    /// Posts a body as it is.
    pub async fn post(&self, body: impl Into<Vec<u8>>) -> Answer {
        let request = self.http(Method::POST).header("Content-Type", "application/json").body(body.into());
        message(self.api.send(request).await)
    }

    /// A request with raw params, an object; the modern era's own parts are added.
    pub async fn request(&self, method: &str, params: &str) -> Answer {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed).to_string();
        self.request_as(&id, method, params).await
    }

    /// The same under this raw id.
    pub async fn request_as(&self, id: &str, method: &str, params: &str) -> Answer {
        message(self.api.send(self.unsent(id, method, params)).await)
    }

    /// A request that has got the first bytes of its answer, and no more.
    pub async fn begin(&self, id: &str, method: &str, params: &str) -> reqwest::Response {
        let mut response = self.unsent(id, method, params).send().await.unwrap();
        assert!(response.chunk().await.unwrap().is_some(), "{response:?}");
        response
    }

    /// A request whose answer is left where it is.
    pub async fn leave_unread(&self, id: &str, method: &str, params: &str) -> Unread {
        Unread::send(&self.unsent(id, method, params).build().unwrap()).await
    }

    /// The same, not sent yet.
    pub fn unsent(&self, id: &str, method: &str, params: &str) -> RequestBuilder {
        let mut http = self.http(Method::POST).header("Content-Type", "application/json");
        let mut params = params.to_owned();
        if self.era == Era::Modern {
            http = http.header("Mcp-Method", method);
            let named = match method {
                "tools/call" | "prompts/get" => "name",
                "resources/read" => "uri",
                _ => "",
            };
            if let Some(name) = name_of(&params, named) {
                http = http.header("Mcp-Name", name);
            }
            params = with_meta(&params, &self.capabilities);
        }
        http.body(format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#))
    }

    /// `tools/call` with raw arguments.
    pub async fn call_raw(&self, tool: &str, arguments: &str) -> Outcome {
        let params = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
        Outcome { answer: self.request("tools/call", &params).await }
    }

    /// `tools/call`.
    pub async fn call(&self, tool: &str, arguments: &Value) -> Outcome {
        self.call_raw(tool, &arguments.to_string()).await
    }

    /// A `call_tool_*` of an upstream's tool.
    pub async fn run(&self, variant: &str, name: &str, args: &Value) -> Outcome {
        self.call(&format!("call_tool_{variant}"), &json!({"name": name, "args": args})).await
    }

    /// What is listed, on one page.
    pub async fn tools(&self) -> Vec<Value> {
        let answer = self.request("tools/list", "{}").await;
        answer.expect(200)["result"]["tools"].as_array().unwrap().clone()
    }

    /// A search, as structured content.
    pub async fn search(&self, arguments: &Value) -> Value {
        let outcome = self.call("retrieve_tools", arguments).await;
        let result = outcome.result();
        assert_ne!(result["isError"], true, "{result}");
        result["structuredContent"].clone()
    }
}

/// The modern `_meta` members, before whatever else is in params.
fn with_meta(params: &str, capabilities: &str) -> String {
    let meta = format!(
        r#""io.modelcontextprotocol/protocolVersion":"{MODERN}","io.modelcontextprotocol/clientCapabilities":{capabilities},"io.modelcontextprotocol/clientInfo":{{"name":"it-client","version":"1.2.3"}}"#
    );
    if params.contains(r#""_meta":{"#) {
        return params.replacen(r#""_meta":{"#, &format!(r#""_meta":{{{meta},"#), 1);
    }
    let rest = params.strip_prefix('{').unwrap();
    let comma = if rest.starts_with('}') { "" } else { "," };
    format!(r#"{{"_meta":{{{meta}}}{comma}{rest}"#)
}

fn name_of(params: &str, member: &str) -> Option<String> {
    // raw: arguments may have numbers that no type holds
    let params: HashMap<String, &RawValue> = serde_json::from_str(params).ok()?;
    serde_json::from_str(params.get(member)?.get()).ok()
}

/// An answer that came as a stream, as if it had come plain: the last event.
fn message(mut answer: Answer) -> Answer {
    if answer.header("content-type").starts_with("text/event-stream") {
        let data = answer.text.lines().filter_map(|line| line.strip_prefix("data:"));
        answer.events = data.map(|data| data.trim_start().to_owned()).collect();
        answer.text = answer.events.pop().unwrap_or_default();
    }
    answer
}

/// How a `tools/call` ended.
#[derive(Debug)]
pub struct Outcome {
    pub answer: Answer,
}

impl Outcome {
    /// The result, byte for byte.
    #[track_caller]
    pub fn raw(&self) -> &str {
        #[derive(Deserialize)]
        struct Response<'a> {
            #[serde(borrow)]
            result: Option<&'a RawValue>,
        }
        let response: Option<Response<'_>> = serde_json::from_str(&self.answer.text).ok();
        let result = response.and_then(|response| response.result);
        result.unwrap_or_else(|| panic!("no result: {:?}", self.answer)).get()
    }

    /// The messages that came before it.
    pub fn events(&self) -> Vec<Value> {
        self.answer.events.iter().map(|event| serde_json::from_str(event).unwrap()).collect()
    }

    /// The result.
    #[track_caller]
    pub fn result(&self) -> Value {
        serde_json::from_str(self.raw()).unwrap()
    }

    /// The result of a call that worked.
    #[track_caller]
    pub fn ok(&self) -> Value {
        let result = self.result();
        assert_ne!(result["isError"], true, "{result}");
        result
    }

    /// The JSON-RPC error.
    #[track_caller]
    pub fn error(&self) -> Value {
        let error = self.answer.json()["error"].clone();
        assert!(error.is_object(), "no error: {:?}", self.answer);
        error
    }

    /// What a refusal says; checks that it is one, with this code, and says its text in both places.
    #[track_caller]
    pub fn refused(&self, code: &str) -> Value {
        let result = self.result();
        let said = &result["structuredContent"];
        assert_eq!((&result["isError"], &said["code"]), (&json!(true), &json!(code)), "{result}");
        for name in ["code", "message", "tool", "variant", "declared", "expected", "recommended"] {
            assert!(said.get(name).is_some(), "{name} is missing: {result}");
        }
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains(said["message"].as_str().unwrap()), "{result}");
        said.clone()
    }

    /// The code of a refusal, or `ok`, or how else it ended: for tables.
    pub fn code(&self) -> String {
        let body = self.answer.json();
        match (&body["result"]["structuredContent"]["code"], &body["error"]["code"]) {
            (Value::String(code), _) if body["result"]["isError"] == true => code.clone(),
            (_, Value::Number(code)) => code.to_string(),
            _ if body["result"].is_object() && body["result"]["isError"] != true => "ok".to_owned(),
            _ => format!("{:?}", self.answer),
        }
    }
}
