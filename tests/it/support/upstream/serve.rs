//! The HTTP side, on hyper itself: a fault is to end a connection where the test wants it to end.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::tool::{Say, Tool};
use super::{Call, Era, Form, State};

/// What is said to a state that it did not give.
const UNKNOWN_STATE: &str = r#"{"code":-32602,"message":"the server does not know this state"}"#;

/// Ends the connection without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection ends here")]
struct Cut;

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;
type Answer = Result<Response<Body>, Cut>;

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: Option<String>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: String,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, rename = "requestState")]
    state: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<Meta<'a>>,
}

impl Params<'_> {
    fn progress_token(&self) -> Option<&str> {
        self.meta.as_ref()?.progress_token.map(RawValue::get)
    }
}

#[derive(Deserialize)]
struct Meta<'a> {
    #[serde(borrow, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
}

pub(super) async fn run(listener: TcpListener, state: Arc<State>) {
    // connections end with this task
    let mut connections = JoinSet::new();
    while let Ok((tcp, _)) = listener.accept().await {
        state.accepts.fetch_add(1, Ordering::SeqCst);
        drop(tcp.set_nodelay(true));
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let _open = Open::new(Arc::clone(&state));
            let service = service_fn(move |request| answer(Arc::clone(&state), request));
            drop(
                hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(tcp), service).await,
            );
        });
    }
}

/// A connection that is open.
struct Open(Arc<State>);

impl Open {
    fn new(state: Arc<State>) -> Open {
        state.open.fetch_add(1, Ordering::SeqCst);
        Open(state)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn answer(state: Arc<State>, request: Request<Incoming>) -> Answer {
    state.requests.fetch_add(1, Ordering::SeqCst);
    let (head, body) = request.into_parts();
    let mut seen = texts(&head.headers);
    // as it was asked for, query included
    seen.insert(":path".to_owned(), head.uri.to_string());
    state.heads.lock().unwrap().push(seen);
    if let Some(document) = state.guard.document(head.uri.path()) {
        return Ok(plain(200, "application/json", &document));
    }
    if let Some(challenge) = state.guard.challenge(&head.headers) {
        let mut refused = plain(401, "text/plain", "no");
        refused.headers_mut().insert("www-authenticate", challenge.parse().unwrap());
        return Ok(refused);
    }
    if let Some(challenge) = state.guard.wants(&head.headers) {
        let mut refused = plain(403, "text/plain", "no");
        refused.headers_mut().insert("www-authenticate", challenge.parse().unwrap());
        return Ok(refused);
    }
    if head.method != Method::POST {
        let is_stream = head.method == Method::GET && state.era == Era::Handshake && state.announcer.is_on();
        return Ok(if is_stream { state.announcer.session_stream() } else { plain(405, "", "") });
    }
    let Ok(body) = body.collect().await else { return Err(Cut) };
    let body = body.to_bytes();
    let Ok(message) = serde_json::from_slice::<Message<'_>>(&body) else {
        return Ok(plain(400, "text/plain", "not JSON"));
    };
    if matches!(message.method.as_deref(), Some("server/discover" | "subscriptions/listen")) {
        state.listens.fetch_add(1, Ordering::SeqCst);
    }
    let Some(id) = message.id.map(RawValue::get) else {
        state.notifications.lock().unwrap().push(String::from_utf8_lossy(&body).into_owned());
        return Ok(plain(202, "", ""));
    };
    if state.era == Era::Handshake && message.method.as_deref() != Some("initialize") {
        let session = head.headers.get("mcp-session-id").and_then(|id| id.to_str().ok());
        let number = session.and_then(|id| id.strip_prefix("session-")).and_then(|n| n.parse::<usize>().ok());
        match number {
            Some(number) if number >= state.oldest_session.load(Ordering::SeqCst) => {}
            Some(_) => return Ok(plain(404, "application/json", &error(id, -32001, "Session not found"))),
            None => return Ok(plain(400, "application/json", &error("null", -32000, "No session"))),
        }
    }
    match (message.method.as_deref(), state.era) {
        (Some("server/discover"), Era::Modern) => {
            let capabilities = state.announcer.capabilities(&state.offers.lock().unwrap());
            let result = format!(
                r#"{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{capabilities},"ttlMs":0,"cacheScope":"private"}}"#
            );
            Ok(state.result(id, &result))
        }
        (Some("subscriptions/listen"), Era::Modern) if state.announcer.is_on() => {
            let params = message.params.map(RawValue::get).unwrap_or("{}");
            Ok(state.announcer.subscription(id, params, &state.offers.lock().unwrap()))
        }
        (Some("initialize"), Era::Handshake) => {
            let session = state.initializes.fetch_add(1, Ordering::SeqCst);
            let capabilities = state.announcer.capabilities(&state.offers.lock().unwrap());
            let result = format!(
                r#"{{"protocolVersion":"2025-06-18","capabilities":{capabilities},"serverInfo":{{"name":"fake","version":"1"}}}}"#
            );
            let mut response = state.result(id, &result);
            response.headers_mut().insert("mcp-session-id", format!("session-{session}").parse().unwrap());
            Ok(response)
        }
        (None, Era::Handshake) => {
            let reply = String::from_utf8_lossy(&body).into_owned();
            state.replies.send_modify(|replies| replies.push(reply));
            Ok(plain(202, "", ""))
        }
        (Some("ping"), Era::Handshake) => Ok(state.result(id, "{}")),
        (Some("tools/list"), _) => {
            let (list, offers) = (state.list(), state.offers.lock().unwrap().clone());
            let mut waits = state.lists_wait.subscribe();
            state.lists.fetch_add(1, Ordering::SeqCst);
            drop(waits.wait_for(|waits| !waits).await);
            offers.wait_at_gates("tools/list").await;
            Ok(state.result(id, &list))
        }
        (Some("tools/call"), _) => {
            match message.params.map(|raw| serde_json::from_str::<Params<'_>>(raw.get())) {
                Some(Ok(params)) => {
                    let raw = message.params.map(RawValue::get).unwrap_or_default();
                    call(&state, id, (raw, &params), &head.headers).await
                }
                _ => Ok(state.message(&error(id, -32602, "bad params"))),
            }
        }
        (Some(method), _) => {
            let offers = state.offers.lock().unwrap().clone();
            let params = message.params.map(RawValue::get).unwrap_or("{}");
            state.asked.lock().unwrap().push((method.to_owned(), params.to_owned()));
            if matches!(method, "resources/subscribe" | "resources/unsubscribe") && offers.subscribable {
                state.announcer.note(method, params);
                return Ok(state.result(id, "{}"));
            }
            if let Some(question) = offers.question(method, params) {
                return Ok(state.result(id, question));
            }
            let mut unanswered = Unanswered { state: Arc::clone(&state), is_answered: false };
            let answer = offers.answer(method, params).await;
            unanswered.is_answered = true;
            match answer {
                Some(Ok(members)) => Ok(state.result(id, &format!("{}{members}}}", state.opening()))),
                Some(Err(raw)) => {
                    Ok(state.message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{raw}}}"#)))
                }
                None => Ok(plain(404, "application/json", &error(id, -32601, "Method not found"))),
            }
        }
        _ => Ok(plain(404, "application/json", &error(id, -32601, "Method not found"))),
    }
}

async fn call(
    state: &Arc<State>,
    id: &str,
    (raw, params): (&str, &Params<'_>),
    headers: &HeaderMap,
) -> Answer {
    let arguments = params.arguments.map(RawValue::get).unwrap_or_default();
    let headers = texts(headers);
    state.calls.lock().unwrap().push(Call {
        tool: params.name.clone(),
        arguments: arguments.to_owned(),
        params: raw.to_owned(),
        id: id.to_owned(),
        headers: headers.clone(),
    });
    let tool = state.tools.lock().unwrap().iter().find(|tool| tool.name == params.name).cloned();
    let Some(Tool { mut say, .. }) = tool else {
        return Ok(state.message(&error(id, -32602, "Unknown tool")));
    };
    let mut unanswered = Unanswered { state: Arc::clone(state), is_answered: false };
    let answer = loop {
        say = match say {
            Say::Delay(pause, then) => {
                tokio::time::sleep(pause).await;
                *then
            }
            Say::Gate(mut gate, then) => {
                drop(gate.wait_for(|is_open| *is_open).await);
                *then
            }
            Say::Progress(count) => break Ok(state.with_progress(id, params.progress_token(), count)),
            Say::Chatter(notes, bytes, result) => {
                let token = params.progress_token().unwrap_or("null");
                return Ok(unanswered.chatters(id, token, &"x".repeat(bytes), notes, result));
            }
            Say::ProgressThen(gate) => {
                return Ok(unanswered.begins(id.to_owned(), params.progress_token().unwrap_or("null"), gate));
            }
            Say::Retracts(params, gate) => return Ok(unanswered.retracts(id, params, gate)),
            Say::Talks(talk) => return Ok(unanswered.talks(id.to_owned(), talk)),
            Say::Asks(method, asked) => return Ok(unanswered.asks(id.to_owned(), (method, asked), &[])),
            Say::Opens(page, done) => {
                return Ok(unanswered.asks(id.to_owned(), ("elicitation/create", page), &done));
            }
            Say::Logs(messages) => return Ok(unanswered.logs(id, &messages)),
            Say::Rounds(rounds) => {
                let state = params.state.map_or("", RawValue::get);
                let round = rounds.into_iter().find(|(known, _)| known == state);
                round.map_or(Say::RpcError(UNKNOWN_STATE.to_owned()), |(_, say)| say)
            }
            Say::Headers => break Ok(state.result(id, &state.text(&format!("{headers:?}")))),
            say => break last(state, id, say, arguments).await,
        }
    };
    unanswered.is_answered = true;
    answer
}

/// A notification as an event.
fn notice(method: &str, params: &str) -> String {
    format!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"{method}\",\"params\":{params}}}\n\n")
}

/// Counts a call that is dropped, since its connection is gone.
pub(super) struct Unanswered {
    pub(super) state: Arc<State>,
    pub(super) is_answered: bool,
}

impl Unanswered {
    /// One event of progress, and the result when the gate opens.
    fn begins(mut self, id: String, token: &str, mut gate: watch::Receiver<bool>) -> Response<Body> {
        let first = progress(token, 1, 2);
        let rest = async move {
            drop(gate.wait_for(|is_open| *is_open).await);
            self.is_answered = true;
            let result = format!(r#"{}"content":[]}}"#, self.state.opening());
            format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n\n")
        };
        let events = stream::once(std::future::ready(first)).chain(stream::once(rest));
        let frames = events.map(|event| Ok(Frame::data(Bytes::from(event))));
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(StreamBody::new(frames).boxed_unsync()).unwrap()
    }
}

impl Unanswered {
    /// A question, and a result with the reply to it. Between the two, pages are done.
    fn asks(mut self, id: String, (method, params): (&str, &str), done: &[&str]) -> Response<Body> {
        let done: String =
            done.iter().map(|params| notice("notifications/elicitation/complete", params)).collect();
        let own = format!("\"ask-{}\"", id.trim_matches('"'));
        let first = format!(
            "data: {{\"jsonrpc\":\"2.0\",\"id\":{own},\"method\":\"{method}\",\"params\":{params}}}\n\n"
        );
        let mut replies = self.state.replies.subscribe();
        let rest = async move {
            let is_own = |reply: &&String| reply.contains(&own);
            let all = replies.wait_for(|replies| replies.iter().any(|reply| is_own(&reply))).await;
            let reply = all.ok().and_then(|all| all.iter().find(is_own).cloned()).unwrap_or_default();
            self.is_answered = true;
            let result = self.state.text(&reply);
            format!("{done}data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n\n")
        };
        let events = stream::once(std::future::ready(first)).chain(stream::once(rest));
        let frames = events.map(|event| Ok(Frame::data(Bytes::from(event))));
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(StreamBody::new(frames).boxed_unsync()).unwrap()
    }

    /// Log messages, and an empty result.
    fn logs(mut self, id: &str, messages: &[&str]) -> Response<Body> {
        self.is_answered = true;
        let mut events: String =
            messages.iter().map(|params| notice("notifications/message", params)).collect();
        let result = format!(r#"{}"content":[]}}"#, self.state.opening());
        events.push_str(&format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}\n\n"));
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(Full::from(events).boxed_unsync()).unwrap()
    }

    fn chatters(
        self,
        id: &str,
        token: &str,
        message: &str,
        notes: usize,
        result: Option<String>,
    ) -> Response<Body> {
        let note = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1,"message":"{message}"}}}}"#
        );
        let notes = stream::iter(vec![Bytes::from(format!("data: {note}\n\n")); notes]);
        let result = result.map(|raw| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{raw}}}"#));
        let mut unanswered = self;
        let rest = async move {
            // the whole of it: it counts when it is dropped
            let answered = &mut unanswered;
            let Some(message) = result else { std::future::pending().await };
            answered.is_answered = true;
            Bytes::from(format!("data: {}\n\n", message.replace('\n', "\ndata: ")))
        };
        let frames = notes.chain(stream::once(rest)).map(|event| Ok(Frame::data(event)));
        let response = Response::builder().header("content-type", "text/event-stream");
        response.body(StreamBody::new(frames).boxed_unsync()).unwrap()
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if !self.is_answered {
            self.state.abandoned.fetch_add(1, Ordering::SeqCst);
        }
    }
}

async fn last(state: &State, id: &str, say: Say, arguments: &str) -> Answer {
    match say {
        Say::Result(raw) => Ok(state.result(id, &raw)),
        Say::Echo => Ok(state.result(id, &state.text(arguments))),
        Say::Large(bytes) => Ok(state.result(id, &state.text(&"x".repeat(bytes)))),
        Say::RpcError(raw) => Ok(state.message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{raw}}}"#))),
        Say::Http(status, body) => Ok(plain(status, "text/plain", &body)),
        Say::Redirect(location) => {
            let mut response = plain(307, "", "");
            response.headers_mut().insert("location", location.parse().unwrap());
            Ok(response)
        }
        Say::Hang => match std::future::pending::<Infallible>().await {},
        Say::Close
        | Say::Rounds(_)
        | Say::Headers
        | Say::Progress(_)
        | Say::ProgressThen(_)
        | Say::Asks(..)
        | Say::Talks(_)
        | Say::Retracts(..)
        | Say::Opens(..)
        | Say::Logs(_)
        | Say::Chatter(..)
        | Say::Delay(..)
        | Say::Gate(..) => Err(Cut),
    }
}

impl State {
    /// How a result begins in this era.
    fn opening(&self) -> &'static str {
        match self.era {
            Era::Modern => r#"{"resultType":"complete","#,
            Era::Handshake => "{",
        }
    }

    /// A result with one text.
    pub(super) fn text(&self, text: &str) -> String {
        let text = serde_json::to_string(text).unwrap();
        format!(r#"{}"content":[{{"type":"text","text":{text}}}]}}"#, self.opening())
    }

    fn list(&self) -> String {
        let tools = self.tools.lock().unwrap();
        let definitions: Vec<&str> = tools.iter().map(|tool| &*tool.definition).collect();
        let ttl = match self.era {
            Era::Modern => r#""ttlMs":0,"cacheScope":"private","#,
            Era::Handshake => "",
        };
        format!(r#"{}{ttl}"tools":[{}]}}"#, self.opening(), definitions.join(","))
    }

    fn result(&self, id: &str, raw: &str) -> Response<Body> {
        self.message(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{raw}}}"#))
    }

    /// A stream of progress, as far as it was asked for, and a result.
    fn with_progress(&self, id: &str, token: Option<&str>, count: usize) -> Response<Body> {
        let mut stream = String::new();
        for n in 1..=token.map_or(0, |_| count) {
            stream.push_str(&progress(token.unwrap_or_default(), n, count));
        }
        let result = format!(r#"{}"content":[]}}"#, self.opening());
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        plain(200, "text/event-stream", &format!("{stream}data: {message}\n\n"))
    }

    fn message(&self, message: &str) -> Response<Body> {
        match self.form {
            Form::Json => plain(200, "application/json", message),
            Form::Events => plain(200, "text/event-stream", &format!("event: message\ndata: {message}\n\n")),
        }
    }
}

/// One event of progress.
fn progress(token: &str, n: usize, total: usize) -> String {
    let params = format!(r#"{{"progressToken":{token},"progress":{n},"total":{total},"vendor":[1.0]}}"#);
    format!("data: {{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{params}}}\n\n")
}

fn texts(headers: &HeaderMap) -> HashMap<String, String> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect()
}

fn error(id: &str, code: i32, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

fn plain(status: u16, content_type: &str, body: &str) -> Response<Body> {
    let builder = Response::builder().status(status);
    let builder =
        if content_type.is_empty() { builder } else { builder.header("content-type", content_type) };
    builder.body(Full::from(body.to_owned()).boxed_unsync()).unwrap()
}
