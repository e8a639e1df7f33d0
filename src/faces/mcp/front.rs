//! HTTP entry of `/mcp` and `/mcp/direct`: from POST, GET and DELETE to a method.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::call::{AskedClient, McpCall};
use super::entry::McpEntry;
use super::envelope::{self, MEMBERS_MAX, Message, TOO_MANY_MEMBERS};
use super::jsonrpc::{RpcError, message, refused, too_large};
use super::listen::Opening;
use super::media::{self, reads_streams};
use super::operation::{Operation, OperationQuestion};
use super::session::Session;
use super::text::Text;
use super::{
    ClientEra, Endpoint, HANDSHAKE, MODERN, direct, listen, methods, modern, offers, result, wishes,
};
use crate::domain::end::End;
use crate::domain::json::{self, Member};
use crate::domain::measure::{Between, Transport, known_version};
use crate::domain::offer::OfferKind;
use crate::domain::tenant::Action;
use crate::faces::Faces;
use crate::faces::listener::Peer;
use crate::faces::request::{AdmittedRequest, RequestId};
use crate::faces::sse::TooManyStreams;
use crate::faces::wire::error::{json_response, not_found, render};
use crate::gateway::{Client, QuestionReply, REPLY_BYTES_MAX, within_span};

/// Handles a request to `/mcp` or `/mcp/direct`. A caller without the second gets 404.
pub async fn handle(
    faces: &Arc<Faces>,
    endpoint: Endpoint,
    request: Request,
    AdmittedRequest { caller, id, address }: AdmittedRequest,
) -> Response {
    let address = address.map(|address| address.0);
    let entry = McpEntry { faces, caller: &caller, endpoint, names: None, address };
    if endpoint == Endpoint::Search {
        return enter(entry, &id, request).await;
    }
    if !faces.has_direct(&caller) {
        return not_found(Some(&id.0));
    }
    match direct::names(request.uri().query()) {
        Ok(names) => enter(McpEntry { names, ..entry }, &id, request).await,
        Err(error) => {
            Box::pin(entry.record_unread(request, error.name(), error.message())).await;
            error.response(None)
        }
    }
}

async fn enter(entry: McpEntry<'_>, request_id: &RequestId, request: Request) -> Response {
    let McpEntry { caller, .. } = entry;
    if let Err(error) = caller.authorise(Action::UseTools) {
        let message = error.to_string();
        Box::pin(entry.record_unread(request, "forbidden", &message)).await;
        return render(StatusCode::FORBIDDEN, "forbidden", &message, None, Some(&request_id.0));
    }
    // all but calls is boxed, here and below: it must not be part of every call's future
    match *request.method() {
        Method::POST => post(entry, request).await,
        Method::GET => Box::pin(get(entry, request.headers())).await,
        Method::DELETE => Box::pin(delete(entry, request.headers())).await,
        _ => {
            let mut response = json_response(
                StatusCode::METHOD_NOT_ALLOWED,
                RpcError::invalid_request("Invalid request: use POST, GET or DELETE").text(None),
            );
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST, GET, DELETE"));
            response
        }
    }
}

/// Returns the empty response 202.
fn accepted() -> Response {
    let mut response = Response::default();
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

async fn post(entry: McpEntry<'_>, request: Request) -> Response {
    let (faces, began) = (entry.faces, Instant::now());
    let unread = |error: RpcError| {
        Operation::unreadable(faces, began, &error);
        error.response(None)
    };
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    if let Err(error) = media::check(headers) {
        return unread(error);
    }
    let body = match entry.read(body).await {
        Ok(body) => body,
        Err(error) => return unread(RpcError::no_body(error, faces.options.request_bytes_max)),
    };
    let (id, method, params) = match entry.parse(&body, || envelope::read(&body)).await {
        Err((error, id)) => {
            Box::pin(entry.record_unreadable(headers, &body, &error)).await;
            Operation::unreadable(faces, began, &error);
            return error.response(id.as_deref());
        }
        // responses and notifications are never refused: a client would take that for the end of the session
        Ok(Message::Response { id, result, error }) => {
            replied(entry, headers, &body, (id, result, error));
            return accepted();
        }
        Ok(Message::Notification { method, params }) => {
            let operation = notified(entry, &parts, began, &method, params.unwrap_or("{}"));
            if method == "notifications/cancelled" {
                cancel(entry, headers, params.unwrap_or("{}"));
            }
            operation.ended(End::Well);
            return accepted();
        }
        Ok(Message::Request { id, method, params }) => (id, method, params.unwrap_or("{}")),
    };
    // the whole body was checked: this only finds the members
    let members = entry.parse(&body, || json::top_level_members(params)).await.unwrap_or_default();
    let meta = match json::value_of(&members, "_meta") {
        Some(raw) => entry.parse(&body, || json::top_level_members(raw)).await.unwrap_or_default(),
        None => Vec::new(),
    };
    let meta = &*meta;
    let is_modern = modern::is_modern(headers, &method, meta);
    let asked = OperationQuestion { id: Some(id), meta, ..question(entry, &parts, began, &method) };
    let (operation, body) = (&Operation::begin(&asked), &body);
    let (method, members) = (&*method, &*members);
    let incoming = Incoming { entry, headers, id, method, members, meta, body, operation };
    let answered = within_span(operation.here(), async {
        match is_modern {
            _ if members.len().max(meta.len()) > MEMBERS_MAX => {
                Err(RpcError::invalid_params(TOO_MANY_MEMBERS))
            }
            true => incoming.modern().await,
            false => incoming.handshake().await,
        }
    });
    match answered.await {
        Ok(response) => {
            operation.answered();
            response
        }
        Err(error) => {
            if method == "tools/call" && !error.recorded {
                let attempt = operation.part(entry.attempt(headers, id, meta));
                Box::pin(entry.record(&attempt, Some(params), error.name(), error.message())).await;
            }
            operation.ended(error.end());
            error.response(Some(id))
        }
    }
}

/// Returns the description of a request for telemetry, without the parts that stand in its message.
fn question<'a>(
    entry: McpEntry<'a>,
    parts: &'a Parts,
    began: Instant,
    method: &'a str,
) -> OperationQuestion<'a> {
    OperationQuestion {
        faces: entry.faces,
        caller: entry.caller,
        endpoint: entry.endpoint,
        headers: &parts.headers,
        version: parts.version,
        peer: parts.extensions.get::<Peer>().map(|peer| peer.address),
        began,
        method,
        id: None,
        meta: &[],
    }
}

/// Begins the telemetry of a notification. Notifications are never refused, so only a known revision is recorded.
fn notified(entry: McpEntry<'_>, parts: &Parts, began: Instant, method: &str, params: &str) -> Operation {
    let headers = &parts.headers;
    let [meta] = json::find_members(params, ["_meta"]).unwrap_or_default();
    let meta = &*meta.and_then(|meta| json::top_level_members(meta).ok()).unwrap_or_default();
    let operation = Operation::begin(&OperationQuestion { meta, ..question(entry, parts, began, method) });
    match session(entry, headers) {
        _ if modern::is_modern(headers, method, meta) => {
            operation.speaks(&modern::said(meta).unwrap_or_default());
        }
        Ok(session) => spoken(&operation, session.as_ref(), headers),
        Err(_) => {}
    }
    operation
}

/// Records the session and the revision of a handshake request in its telemetry.
fn spoken(operation: &Operation, session: Option<&Session>, headers: &HeaderMap) {
    if let Some(session) = session {
        operation.session(session);
    }
    if let Some(version) = version_of(session, headers) {
        operation.speaks(version);
    }
}

/// Cancels a call of a handshake client. Modern clients close the connection instead, and have no session.
fn cancel(entry: McpEntry<'_>, headers: &HeaderMap, params: &str) {
    let Ok([Some(id)]) = json::find_members(params, ["requestId"]) else { return };
    let Ok(session) = session(entry, headers) else { return };
    entry.faces.gateway.calls.cancel_call(
        entry.caller,
        session.as_ref().map(|session| session.id.as_str()),
        id,
    );
}

/// Takes the reply of a handshake client to a question. A reply that nobody waits for changes nothing.
fn replied(
    entry: McpEntry<'_>,
    headers: &HeaderMap,
    body: &Bytes,
    (id, result, error): (&str, Option<&str>, Option<&str>),
) {
    let mailbox = &entry.faces.gateway.mailbox;
    let reply = match (result, error) {
        (Some(raw), None) if raw.starts_with('{') && raw.len() <= REPLY_BYTES_MAX => {
            QuestionReply::Result(body.slice_ref(raw.as_bytes()))
        }
        (Some(raw), None) if raw.starts_with('{') => too_large(raw.len()),
        (None, Some(raw)) => refused(raw),
        _ => return mailbox.malformed(),
    };
    match session(entry, headers) {
        Ok(Some(session)) => mailbox.deliver(entry.caller, &session.id, id, reply),
        _ => mailbox.malformed(),
    }
}

/// Request on its way to its method, with its parts.
struct Incoming<'a> {
    entry: McpEntry<'a>,
    headers: &'a HeaderMap,
    id: &'a str,
    method: &'a str,
    members: &'a [Member<'a>],
    meta: &'a [Member<'a>],
    body: &'a Bytes,
    operation: &'a Operation,
}

impl Incoming<'_> {
    async fn modern(self) -> Result<Response, RpcError> {
        let client = modern::check(self.headers, self.method, self.members, self.meta)?;
        self.operation.speaks(MODERN);
        match self.method {
            "server/discover" => Ok(self.result(&methods::discover(self.entry.endpoint))),
            "subscriptions/listen" => self.listen().await,
            _ => self.common(ClientEra::Modern, client, None).await,
        }
    }

    async fn handshake(self) -> Result<Response, RpcError> {
        if self.method == "initialize" {
            return self.initialize();
        }
        if let Some(version) = self.headers.get("mcp-protocol-version") {
            let known = version.to_str().is_ok_and(|version| HANDSHAKE.contains(&version));
            if !known {
                return Err(RpcError::invalid_request(format!(
                    "Invalid request: MCP-Protocol-Version must be one of {}",
                    HANDSHAKE.join(", ")
                )));
            }
        }
        let session = session(self.entry, self.headers)?;
        spoken(self.operation, session.as_ref(), self.headers);
        match self.method {
            "ping" => Ok(self.result("{}")),
            method if wishes::is_wish(self.entry.endpoint, method) => {
                Box::pin(wishes::store(self.entry, session.as_ref(), method, self.members)).await?;
                Ok(self.result("{}"))
            }
            _ => {
                let client = session.as_ref().map(Session::client).unwrap_or_default();
                self.common(ClientEra::Handshake, client, session).await
            }
        }
    }

    /// Runs a method that both eras have.
    async fn common(
        self,
        era: ClientEra,
        client: Client,
        session: Option<Session>,
    ) -> Result<Response, RpcError> {
        let list = |member: &str| {
            methods::no_cursor(self.members)?;
            Ok(self.result(&result::list_result(era, member, "[]")))
        };
        if self.entry.endpoint == Endpoint::Direct {
            if let Some(kind) = offers::listed_by(self.method) {
                let body = self.offers_list(era, kind).await?;
                return Ok(json_response(StatusCode::OK, Text::whole(self.id, "result", &body)));
            }
            if offers::is_asked_by(self.method) {
                return Box::pin(self.call(era, client, session).ask(self.method)).await;
            }
        }
        match self.method {
            // the call records what it refuses
            "tools/call" => self.call(era, client, session).run().await.map_err(RpcError::on_record),
            "tools/list" => {
                let body = self.tools_list(era).await?;
                Ok(json_response(StatusCode::OK, Text::whole(self.id, "result", &body)))
            }
            "prompts/list" => list("prompts"),
            "resources/list" => list("resources"),
            "resources/templates/list" => list("resourceTemplates"),
            "prompts/get" => Err(RpcError::invalid_params("Unknown prompt")),
            "resources/read" => {
                let uri = self.members.iter().find(|member| member.name == "uri");
                let uri = uri.and_then(|uri| serde_json::from_str::<String>(uri.value).ok());
                Err(RpcError::no_resource(era, uri.as_deref()))
            }
            other => Err(RpcError::unknown_method(era, other)),
        }
    }

    fn call(&self, era: ClientEra, client: Client, session: Option<Session>) -> McpCall<'_> {
        let mut attempt = self.operation.part(self.entry.attempt(self.headers, self.id, self.meta));
        attempt.client = client;
        attempt.session_began = session.as_ref().and_then(Session::began);
        let streams = reads_streams(self.headers);
        // questions come on the answer, so its reader must read streams
        let asked = session.as_ref().filter(|_| streams && era == ClientEra::Handshake).and_then(asked);
        attempt.session_id = session.map(|session| session.id);
        McpCall {
            faces: self.entry.faces,
            gateway: &self.entry.faces.gateway,
            endpoint: self.entry.endpoint,
            era,
            id: self.id,
            body: self.body,
            params: self.members,
            meta: self.meta,
            attempt,
            streams,
            asked,
            operation: self.operation,
        }
    }

    async fn offers_list(&self, era: ClientEra, kind: OfferKind) -> Result<Bytes, RpcError> {
        let McpEntry { faces, caller, .. } = self.entry;
        let from = offers::cursor(self.members)?;
        let admitted = faces.gateway.tenants.admit_list(caller);
        admitted.map_err(|refusal| RpcError::rate_limited(era, &refusal))?;
        offers::list(&faces.gateway, caller, era, (kind, self.entry.names()), from.as_deref()).await
    }

    async fn tools_list(&self, era: ClientEra) -> Result<Bytes, RpcError> {
        let McpEntry { faces, caller, endpoint, .. } = self.entry;
        let from = match endpoint {
            Endpoint::Search => {
                methods::no_cursor(self.members)?;
                None
            }
            Endpoint::Direct => direct::cursor(self.members)?,
        };
        let admitted = faces.gateway.tenants.admit_list(caller);
        admitted.map_err(|refusal| RpcError::rate_limited(era, &refusal))?;
        match endpoint {
            Endpoint::Search => methods::tools_list(era, caller).await,
            Endpoint::Direct => {
                direct::tools_list(&faces.gateway, caller, era, self.entry.names(), from.as_deref()).await
            }
        }
    }

    fn result(&self, raw: &str) -> Response {
        json_response(StatusCode::OK, message(self.id, "result", raw))
    }

    fn initialize(&self) -> Result<Response, RpcError> {
        let McpEntry { faces, caller, endpoint, .. } = self.entry;
        let (result, token, version) = methods::initialize(faces, caller, endpoint, self.members)?;
        self.operation.speaks(version);
        let mut response = self.result(&result);
        if let Some(token) = token.and_then(|token| HeaderValue::from_str(&token).ok()) {
            response.headers_mut().insert("mcp-session-id", token);
        }
        Ok(response)
    }

    async fn listen(&self) -> Result<Response, RpcError> {
        let notifications = self.members.iter().find(|member| member.name == "notifications");
        let (wants, uris) = listen::wants(notifications.map(|member| member.value))?;
        let opened = listen::open(self.entry.listener(), Opening::Listen { id: self.id, wants, uris }).await;
        opened.map_err(too_many_streams)
    }
}

fn too_many_streams(too_many: TooManyStreams) -> RpcError {
    let text = match too_many {
        TooManyStreams::Key(max) => format!("This key has {max} streams open; close one first"),
        TooManyStreams::Tenant(max) => {
            format!("The keys of this tenant have {max} streams open, which is its quota; close one first")
        }
    };
    RpcError::refused(StatusCode::TOO_MANY_REQUESTS, text)
}

/// Returns the client of a session, if it answers questions.
fn asked(session: &Session) -> Option<AskedClient> {
    let capabilities = session.answers().capabilities()?;
    Some(AskedClient { capabilities, version: session.version.clone() })
}

/// Returns the session of a handshake request; `None` without a session header. The session of another caller is refused
/// with 404.
fn session(entry: McpEntry<'_>, headers: &HeaderMap) -> Result<Option<Session>, RpcError> {
    let Some(token) = headers.get("mcp-session-id") else { return Ok(None) };
    let known = token.to_str().ok();
    let known = known.and_then(|token| entry.faces.sessions.verify(token, entry.caller, entry.endpoint));
    let unknown = || RpcError::refused(StatusCode::NOT_FOUND, "Session not found; initialize again");
    known.map(Some).ok_or_else(unknown)
}

async fn get(entry: McpEntry<'_>, headers: &HeaderMap) -> Response {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    // a plain curl must not hang on a stream that it did not ask for
    if !text("accept").is_some_and(|accept| accept.contains("text/event-stream")) {
        let message =
            "Invalid request: GET opens a stream, so Accept must list text/event-stream; calls are POSTs";
        return RpcError::refused(StatusCode::NOT_ACCEPTABLE, message).response(None);
    }
    let session = match session(entry, headers) {
        Ok(session) => session,
        Err(error) => return error.response(None),
    };
    let version = session.as_ref().map(|session| session.version.as_str());
    let opening = Opening::Get {
        session: session.as_ref().map(|session| session.id.as_str()),
        version: version.or_else(|| text("mcp-protocol-version")),
        last_event_id: text("last-event-id"),
    };
    let opened = listen::open(entry.listener(), opening).await;
    opened.unwrap_or_else(|too_many| too_many_streams(too_many).response(None))
}

/// Handles DELETE. Of a session only its wishes are stored, which go; its duration is recorded, and nobody waits for its
/// client any more.
async fn delete(entry: McpEntry<'_>, headers: &HeaderMap) -> Response {
    match session(entry, headers) {
        Ok(session) => {
            if let Some(session) = session {
                entry.faces.gateway.mailbox.end_session(entry.caller, &session.id);
                note_end(entry.faces, &session);
                entry.faces.gateway.sessions.end(entry.caller, &session.id).await;
            }
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Err(error) => error.response(None),
    }
}

/// Records how long a session lasted that its client ends. Other sessions have no known end.
fn note_end(faces: &Faces, session: &Session) {
    let Some(lasted) = session.lasted() else { return };
    let between = Between { transport: Transport::Tcp, version: known_version(&session.version) };
    faces.measures.sessions.observe((between, None), lasted);
}

/// Returns the revision of a handshake request: that of its session, else that of its header.
fn version_of<'a>(session: Option<&'a Session>, headers: &'a HeaderMap) -> Option<&'a str> {
    let said = || headers.get("mcp-protocol-version").and_then(|version| version.to_str().ok());
    session.map(|session| session.version.as_str()).or_else(said)
}
