//! `tools/call`: from raw params to the pipeline and back, with progress on the way.

use std::sync::Arc;

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use tokio::sync::mpsc;

use super::envelope::{MEMBERS_MAX, TOO_MANY_MEMBERS, is_id};
use super::jsonrpc::{RpcError, message};
use super::management::Managing;
use super::operation::{Operation, OperationSubject};
use super::recipient::{Render, To};
use super::refused::Called;
use super::result::Answered;
use super::told::{PROGRESS_TOKEN, Telling, respond_telling};
use super::{ClientEra, Endpoint, args, management, modern, result, tools};
use crate::domain::activity::RecordKind;
use crate::domain::end::End;
use crate::domain::json::{self, Member};
use crate::domain::operation::Variant;
use crate::domain::refusal::Refusal;
use crate::domain::relay::LogLevel;
use crate::domain::rounds::Capabilities;
use crate::faces::Faces;
use crate::faces::auth::NeededScope;
use crate::faces::body::hold_answer;
use crate::faces::wire;
use crate::faces::wire::error::json_response;
use crate::gateway::{
    Attempt, CallOutcome, CallRequest, Callee, Caller, CancelBy, ClientLine, Door, Gateway, Hears,
    MemoryHold, MemoryPurpose, MemoryShort, RefusedAttempt, RoundRequest, ToolRequest, overloaded,
};

/// Messages on their way to a client before the answer. Progress beyond that is dropped, as the protocol allows.
const EVENTS_QUEUE: usize = 64;

/// Call of a tool, or request about a prompt, resource or completion, with its context.
pub(super) struct McpCall<'a> {
    pub(super) faces: &'a Arc<Faces>,
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) endpoint: Endpoint,
    pub(super) era: ClientEra,
    pub(super) id: &'a str,
    pub(super) body: &'a Bytes,
    pub(super) params: &'a [Member<'a>],
    /// Members of `_meta`; none without it.
    pub(super) meta: &'a [Member<'a>],
    pub(super) attempt: Attempt,
    /// Whether the client reads event streams.
    pub(super) streams: bool,
    /// Handshake client that can be asked something during the call; `None` for any other client.
    pub(super) asked: Option<AskedClient>,
    /// Telemetry of the request.
    pub(super) operation: &'a Operation,
}

/// Handshake client that answers questions.
pub(super) struct AskedClient {
    /// Kinds of questions that it answers.
    pub(super) capabilities: Capabilities,
    /// Revision that it speaks.
    pub(super) version: String,
}

impl<'a> McpCall<'a> {
    /// Returns the writer of an answer that the gateway makes itself.
    fn own_answer(&self) -> OwnAnswer<'a> {
        OwnAnswer {
            gateway: self.gateway,
            caller: Arc::clone(&self.attempt.caller),
            era: self.era,
            id: self.id,
        }
    }
}

impl McpCall<'_> {
    pub(super) async fn run(self) -> Result<Response, RpcError> {
        let value = |name: &str| self.params.iter().find(|member| member.name == name).map(|m| m.value);
        let raw_name = value("name").unwrap_or("null");
        let Ok(name) = serde_json::from_str::<String>(raw_name) else {
            return Err(self.refuse("Invalid params: name must be a string").await);
        };
        // to a role without management tools, they do not exist
        let managing = Managing::named(&name).filter(|_| self.attempt.caller.manages().is_some());
        if let Some(own) = managing.map(Managing::name).or_else(|| self.own(&name)) {
            self.operation.own_tool(own);
        }
        if self.endpoint == Endpoint::Direct && name != tools::READ_CACHE && managing.is_none() {
            return self.call_directly(raw_name, value("arguments")).await;
        }
        let arguments = match value("arguments") {
            None | Some("null") => "{}",
            Some(raw) if raw.starts_with('{') => raw,
            Some(_) => return Err(self.refuse("Invalid params: arguments must be an object").await),
        };
        if let Some(tool) = managing {
            let answer = self.own_answer();
            let done = management::run(self.faces, self.attempt, tool, arguments).await;
            if let Err(not_done) = &done {
                self.operation.ended(End::Failed(not_done.code));
            }
            let result = result::managed(self.era, &done);
            let needed = done.err().and_then(|not_done| not_done.scope_for).map(NeededScope);
            let response = answer.send(None, &result).await;
            return Ok(match needed {
                Some(needed) => needed.refuse(response),
                None => response,
            });
        }
        match Variant::parse(&name) {
            Some(variant) => self.call_tool(variant, arguments).await,
            None if name == tools::RETRIEVE_TOOLS => Ok(self.search(arguments).await),
            None if name == tools::READ_CACHE => Ok(self.read_cache(arguments).await),
            None => {
                let shown: String = name.chars().take(300).collect();
                let message = format!(
                    "Unknown tool: {shown}. Tools of servers are found with retrieve_tools and run with call_tool_read, \
                     call_tool_write or call_tool_destructive"
                );
                Err(self.refuse(&message).await)
            }
        }
    }

    /// Returns the name of a built-in tool of this endpoint, management tools aside; `None` for any other name.
    fn own(&self, name: &str) -> Option<&'static str> {
        match name {
            tools::READ_CACHE => Some(tools::READ_CACHE),
            _ if self.endpoint == Endpoint::Direct => None,
            tools::RETRIEVE_TOOLS => Some(tools::RETRIEVE_TOOLS),
            _ => Variant::parse(name).map(Variant::as_str),
        }
    }

    /// Refuses a call with invalid parameters, which is recorded as an attempt.
    async fn refuse(&self, message: &str) -> RpcError {
        let name = self.params.iter().find(|member| member.name == "name").map(|member| member.value);
        let name = name.and_then(|raw| serde_json::from_str::<String>(raw).ok());
        let arguments = self.params.iter().find(|member| member.name == "arguments").map(|m| m.value);
        let called = Called { endpoint: self.endpoint, name: name.as_deref(), arguments, whole: arguments };
        // boxed: rare, it must not be part of every call's future
        Box::pin(called.record(self.gateway, &self.attempt, "invalid_params", message)).await;
        RpcError::invalid_params(message)
    }

    async fn search(self, arguments: &str) -> Response {
        let mut memory = None;
        let result = match args::search(arguments) {
            Err(refusal) => {
                let refused = RefusedAttempt {
                    kind: RecordKind::Search,
                    tool: Some(tools::RETRIEVE_TOOLS),
                    body: Some(arguments),
                    code: refusal.code.as_str(),
                    message: &refusal.message,
                };
                self.gateway.log.record_refused(&self.attempt, &refused);
                self.refused(&refusal)
            }
            Ok(request) => match self.gateway.search.retrieve_tools(&self.attempt, &request).await {
                Ok(mut found) => {
                    memory = found.memory.take();
                    result::found(self.era, &found)
                }
                Err(refusal) => self.refused(&refusal),
            },
        };
        self.own_answer().send(memory, &result).await
    }

    async fn read_cache(self, arguments: &str) -> Response {
        let result = match args::read(arguments) {
            Err(refusal) => {
                let refused = RefusedAttempt {
                    kind: RecordKind::CacheRead,
                    tool: None,
                    // the key of a kept text must not be in the log
                    body: None,
                    code: refusal.code.as_str(),
                    message: &refusal.message,
                };
                self.gateway.log.record_refused(&self.attempt, &refused);
                self.refused(&refusal)
            }
            Ok(request) => match self.gateway.calls.read_cache(self.attempt.clone(), request).await {
                Ok(page) => result::page(self.era, &page),
                Err(refusal) => self.refused(&refusal),
            },
        };
        self.own_answer().send(None, &result).await
    }

    /// Returns the result for a refused call of a built-in tool.
    fn refused(&self, refusal: &Refusal) -> String {
        self.operation.ended(End::Failed(refusal.code.as_str()));
        result::plain_refusal(self.era, refusal)
    }

    async fn call_tool(self, variant: Variant, arguments: &str) -> Result<Response, RpcError> {
        let invalid = |fault| RpcError::invalid_params(format!("Invalid params: arguments: {fault}"));
        // an empty object is not part of the body when arguments are absent
        let empty = Bytes::from_static(b"{}");
        let find = || json::top_level_members(arguments);
        let members =
            self.gateway.tenants.parse(&self.attempt.caller, arguments.len(), find).await.map_err(invalid)?;
        if members.len() > MEMBERS_MAX {
            return Err(self.refuse(TOO_MANY_MEMBERS).await);
        }
        let body = if members.is_empty() { &empty } else { self.body };
        let mut request = wire::call::read(body, &members);
        request.unknown =
            members.iter().find(|m| !wire::call::ARGUMENTS.contains(&&*m.name)).map(|m| m.name.to_string());
        self.forward(Door::Variant(variant), request).await
    }

    /// Calls an upstream's tool under its own name.
    async fn call_directly(self, name: &str, arguments: Option<&str>) -> Result<Response, RpcError> {
        let raw = |raw: &str| self.body.slice_ref(raw.as_bytes());
        let request =
            ToolRequest { name: Some(raw(name)), args: arguments.map(raw), ..ToolRequest::default() };
        self.forward(Door::Direct, request).await
    }

    async fn forward(self, door: Door, tool: ToolRequest) -> Result<Response, RpcError> {
        let name = if door == Door::Direct { tool.name.clone() } else { None };
        let mut request = CallRequest::new(Callee::Tool(door, tool));
        request.meta = match self.forwarded_meta() {
            Ok(meta) => meta,
            Err(message) => return Err(self.refuse(message).await),
        };
        request.round = match self.round() {
            Ok(round) => round,
            Err(message) => return Err(self.refuse(message).await),
        };
        let to = self.to(call_outcome, OperationSubject::Tool(name));
        Ok(self.pass_on(request, to).await)
    }

    /// Runs a request and responds with its outcome. Progress is sent before it, if the client wants that.
    pub(super) async fn pass_on(self, mut request: CallRequest, to: To) -> Response {
        let cancel_by = match self.era {
            ClientEra::Modern => CancelBy::Disconnect,
            ClientEra::Handshake => CancelBy::Notification(self.id),
        };
        let (token, log) = (self.progress_token(), self.log_level(&request.what).await);
        let telling = match (&self.asked, token) {
            (None, None) if log.is_none() => {
                let outcome = self.gateway.calls.run(self.attempt, request, cancel_by).await;
                return to.respond(&outcome);
            }
            (None, token) => {
                let (events, said) = mpsc::channel(EVENTS_QUEUE);
                request.hears = Some(Hears { events, progress: token.is_some(), log, questions: None });
                Telling::upstream(said, token)
            }
            (Some(asked), token) => {
                let (events, line) = mpsc::channel(EVENTS_QUEUE);
                request.line = Some(ClientLine { events, progress: token.is_some(), log });
                Telling::questions(line, token, asked.version.clone())
            }
        };
        let outcome = self.gateway.calls.run(self.attempt, request, cancel_by);
        respond_telling(to, telling, outcome).await
    }

    /// Returns the lowest level of a server's log messages that the client wants; `None` for none, and for a server that may
    /// send none. Clients of the modern era say so in each request, others once per session.
    async fn log_level(&self, callee: &Callee) -> Option<LogLevel> {
        if !self.streams || !callee.has_logs(&self.attempt.caller) {
            return None;
        }
        match self.era {
            ClientEra::Modern => modern::log_level(self.meta),
            ClientEra::Handshake => {
                let session = self.attempt.session_id.as_ref()?;
                // boxed: rare, it must not be part of every call's future
                Box::pin(self.gateway.sessions.log_level(&self.attempt.caller, session)).await
            }
        }
    }

    /// Returns the recipient of the outcome.
    pub(super) fn to(&self, render: Render, about: OperationSubject) -> To {
        let (endpoint, era, id) = (self.endpoint, self.era, self.id.to_owned());
        let opens_pages = match self.era {
            ClientEra::Modern => modern::opens_pages(self.meta),
            ClientEra::Handshake => self.asked.as_ref().is_some_and(|asked| asked.capabilities.has_pages()),
        };
        let (streams, operation) = (self.streams, self.operation.clone());
        To { endpoint, era, id, streams, opens_pages, render, about, operation }
    }

    /// Returns the members of the caller's `_meta` that are forwarded: all but the progress token and those of the protocol.
    pub(super) fn forwarded_meta(&self) -> Result<Vec<(String, Bytes)>, &'static str> {
        let token = json::value_of(self.meta, PROGRESS_TOKEN);
        if token.is_some_and(|raw| raw != "null" && !is_id(raw)) {
            return Err("Invalid params: progressToken must be a string or an integer of at most 512 bytes");
        }
        let forwarded = self
            .meta
            .iter()
            .filter(|m| m.name != PROGRESS_TOKEN && !m.name.starts_with("io.modelcontextprotocol/"))
            .map(|m| (m.name.to_string(), self.body.slice_ref(m.value.as_bytes())));
        Ok(forwarded.collect())
    }

    /// Reads the answers to a server's questions, and the state of the round before. Handshake clients are asked while their
    /// call is held, so they send neither.
    pub(super) fn round(&self) -> Result<RoundRequest, &'static str> {
        if self.era == ClientEra::Handshake {
            let capabilities = self.asked.as_ref().map(|asked| asked.capabilities.clone());
            return Ok(RoundRequest { capabilities, ..RoundRequest::default() });
        }
        let member = |name: &str| self.params.iter().find(|member| member.name == name).map(|m| m.value);
        let given = |name: &str| member(name).filter(|raw| *raw != "null");
        let raw = |raw: &str| self.body.slice_ref(raw.as_bytes());
        let responses = given("inputResponses");
        if responses.is_some_and(|raw| !raw.starts_with('{')) {
            return Err("Invalid params: inputResponses must be an object");
        }
        Ok(RoundRequest {
            capabilities: modern::capabilities(self.meta).ok(),
            responses: responses.map(raw),
            state: given("requestState").map(raw),
        })
    }

    pub(super) fn progress_token(&self) -> Option<String> {
        let token = json::value_of(self.meta, PROGRESS_TOKEN);
        token.filter(|raw| self.streams && *raw != "null").map(str::to_owned)
    }
}

/// Answer that the gateway makes itself.
struct OwnAnswer<'a> {
    gateway: &'a Gateway,
    caller: Arc<Caller>,
    era: ClientEra,
    id: &'a str,
}

impl OwnAnswer<'_> {
    /// Responds with this result, or with a refusal if there is no memory for it.
    async fn send(self, memory: Option<MemoryHold>, result: &str) -> Response {
        let text = Bytes::from(message(self.id, "result", result));
        match hold_answer(self.gateway, &self.caller, memory, text).await {
            Ok(text) => json_response(StatusCode::OK, text),
            Err(MemoryShort) => {
                let refused = result::plain_refusal(self.era, &overloaded(MemoryPurpose::Answer));
                json_response(StatusCode::OK, message(self.id, "result", &refused))
            }
        }
    }
}

fn call_outcome(to: &To, outcome: &CallOutcome) -> (Answered, End) {
    result::outcome(to.endpoint, to.era, &to.id, outcome)
}
