//! HTTP POST of a message and its answer, in either of the two forms MCP allows: a JSON body or an event stream.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode, Uri};
use http_body::Body;
use http_body_util::Full;
use hyper::body::Incoming;
use serde_json::value::RawValue;
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::upstream::admission::shares::{MemoryHold, MemoryShort};
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::login::{BoundLogin, SentToken};
use crate::upstream::http::sse::Events;
use crate::upstream::http::wires::{Lease, WireOrigin, Wires};
use crate::upstream::protocol::events::ExchangeFor;
use crate::upstream::protocol::events::QuestionReply;
use crate::upstream::protocol::jsonrpc::{self, Answer, RpcMessage};
use crate::upstream::protocol::questions::{Ear, Talk, UPSTREAM_REQUESTS_MAX};

/// Largest body of an answer that carries no result: an HTTP error, the receipt of a notification.
pub(in crate::upstream) const MINOR_BODY_BYTES_MAX: usize = 64 * 1024;
/// Longest wait for a body without a result, and for the end of a stream whose answer has come.
pub(in crate::upstream) const DRAIN_WAIT_MAX: Duration = Duration::from_secs(1);
/// Largest buffer that the announced size of a body alone may reserve, in bytes.
const BODY_RESERVE_BYTES_MAX: usize = 256 * 1024;
/// Address space reserved for a larger body, in bytes; only what is written to becomes memory. Growing step by step
/// would copy the body each time, megabytes while others wait for the thread.
const LARGE_BODY_BYTES: usize = 16 * 1024 * 1024;
/// Bytes that a stream may carry besides its answer without being slowed down, plus [`CHATTER_BYTES_PER_S`]. Reading
/// a flood as fast as it comes would take processor time from others.
const CHATTER_FREE_BYTES: usize = 256 * 1024;
const CHATTER_BYTES_PER_S: usize = 256 * 1024;
/// Longest wait for an upstream to take the answer to its own request.
const REPLY_WAIT_MAX: Duration = Duration::from_secs(5);

/// HTTP POST of one request.
pub(in crate::upstream) struct Post<'a> {
    pub(in crate::upstream) id: u64,
    pub(in crate::upstream) headers: HeaderMap,
    pub(in crate::upstream) body: Bytes,
    /// Largest result, in bytes.
    pub(in crate::upstream) bytes_max: usize,
    /// API key whose share of memory the answer takes; `None` if there is none.
    pub(in crate::upstream) key: Option<Uuid>,
    /// Caller as the upstream may talk to it; `None` if nobody listens.
    pub(in crate::upstream) ear: Option<Ear<'a>>,
    /// Headers of the answers to requests of the upstream; `None` leaves those requests unanswered.
    pub(in crate::upstream) reply_headers: Option<&'a HeaderMap>,
    /// Set while the upstream may have seen this request.
    pub(in crate::upstream) dispatched: &'a AtomicBool,
}

/// Reply to a POST.
pub(in crate::upstream) struct Reply {
    pub(in crate::upstream) status: StatusCode,
    /// Value of `Mcp-Session-Id`, if the reply names one.
    pub(in crate::upstream) session_id: Option<HeaderValue>,
    /// Answer in the reply. `None` if the status was an error whose body was no JSON-RPC error to this request.
    pub(in crate::upstream) answer: Option<Answer>,
}

/// HTTP client of one URL.
#[derive(Clone)]
pub(in crate::upstream) struct Http {
    pub(in crate::upstream) wires: Arc<Wires>,
    /// Path and query.
    pub(in crate::upstream) target: Uri,
    /// Login whose token each request carries; `None` for none.
    pub(in crate::upstream) login: Option<BoundLogin>,
}

impl Http {
    /// Returns the client that sends a request for this token of a person: a copy where tokens are exchanged.
    pub(in crate::upstream) fn of(&self, exchange_for: ExchangeFor) -> Cow<'_, Http> {
        match &self.login {
            Some(login) if login.login.exchanges => {
                Cow::Owned(Http { login: Some(login.of(exchange_for)), ..self.clone() })
            }
            Some(_) | None => Cow::Borrowed(self),
        }
    }

    /// Sends a request and reads its answer. The caller bounds the time.
    pub(in crate::upstream) async fn post(&self, mut post: Post<'_>) -> Result<Reply, UpstreamError> {
        let (headers, body) = (std::mem::take(&mut post.headers), std::mem::take(&mut post.body));
        let (mut lease, response) = self.send(headers, body, post.dispatched).await?;
        let status = response.status();
        let session_id = response.headers().get("mcp-session-id").cloned();
        let form = AnswerForm::of(&response);
        let mut body = response.into_body();
        if status != StatusCode::OK {
            let answer = refusal(lease, body, status, form, post.id).await?;
            return Ok(Reply { status, session_id, answer });
        }
        let answer = match form {
            AnswerForm::Json => {
                let bytes = read_all(&mut lease, &mut body, post.bytes_max, post.key).await?;
                let answer = lease.parse(bytes.len(), || jsonrpc::read_answer(&bytes, post.id)).await;
                lease.give_back();
                answer?
            }
            AnswerForm::Events => self.read_stream(lease, body, &post).await?,
            AnswerForm::Other => {
                return Err(UpstreamError::invalid("the answer has an unexpected content type"));
            }
        };
        Ok(Reply { status, session_id, answer: Some(answer) })
    }

    /// Posts a notification or an answer, which the upstream only acknowledges.
    pub(in crate::upstream) async fn tell(
        &self,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<StatusCode, UpstreamError> {
        let (mut lease, response) = self.send(headers, body, &AtomicBool::new(false)).await?;
        let status = response.status();
        let mut body = response.into_body();
        let drained =
            timeout(DRAIN_WAIT_MAX, read_all(&mut lease, &mut body, MINOR_BODY_BYTES_MAX, None)).await;
        if matches!(drained, Ok(Ok(_))) {
            lease.give_back();
        }
        Ok(status)
    }

    /// Posts a body.
    async fn send(
        &self,
        headers: HeaderMap,
        body: Bytes,
        dispatched: &AtomicBool,
    ) -> Result<(Lease, Response<Incoming>), UpstreamError> {
        self.exchange(Method::POST, headers, body, dispatched).await
    }

    /// Sends a request on a connection and reads the head of the answer. A request is sent again only if no byte of
    /// it was written, or if the server refused the token that it carried, which is then renewed once: an answer 401 says that
    /// the request was not applied (RFC 9110, section 15.5.2).
    pub(in crate::upstream) async fn exchange(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        dispatched: &AtomicBool,
    ) -> Result<(Lease, Response<Incoming>), UpstreamError> {
        match &self.login {
            None => self.exchange_once(method, headers, body, dispatched).await,
            // boxed: most servers have none, and pay for no larger future
            Some(login) => Box::pin(self.exchange_as(login, method, headers, body, dispatched)).await,
        }
    }

    async fn exchange_as(
        &self,
        login: &BoundLogin,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        dispatched: &AtomicBool,
    ) -> Result<(Lease, Response<Incoming>), UpstreamError> {
        let with = |token: &SentToken| {
            let mut headers = headers.clone();
            headers.insert(AUTHORIZATION, token.header());
            headers
        };
        let token = login.token().await?;
        let answered = self.exchange_once(method.clone(), with(&token), body.clone(), dispatched).await?;
        if answered.1.status() != StatusCode::UNAUTHORIZED {
            return self.unless_it_wants_more(login, &token, answered, dispatched).await;
        }
        drop(answered);
        dispatched.store(false, Ordering::Relaxed);
        let newer = login.token_after(&token).await?;
        let answered = self.exchange_once(method, with(&newer), body, dispatched).await?;
        if answered.1.status() != StatusCode::UNAUTHORIZED {
            return self.unless_it_wants_more(login, &newer, answered, dispatched).await;
        }
        dispatched.store(false, Ordering::Relaxed);
        Err(login.refused(&newer))
    }

    /// Returns an answer, unless it says that a person's token has too few scopes: such a request was not applied (RFC 6750,
    /// section 3.1).
    async fn unless_it_wants_more(
        &self,
        login: &BoundLogin,
        token: &SentToken,
        answered: (Lease, Response<Incoming>),
        dispatched: &AtomicBool,
    ) -> Result<(Lease, Response<Incoming>), UpstreamError> {
        if answered.1.status() != StatusCode::FORBIDDEN {
            return Ok(answered);
        }
        match login.wants_more(token, answered.1.headers()).await {
            None => Ok(answered),
            Some(error) => {
                dispatched.store(false, Ordering::Relaxed);
                Err(error)
            }
        }
    }

    async fn exchange_once(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
        dispatched: &AtomicBool,
    ) -> Result<(Lease, Response<Incoming>), UpstreamError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.target.clone();
        *request.headers_mut() = headers;
        loop {
            let mut lease = self.wires.take().await?;
            dispatched.store(true, Ordering::Relaxed);
            let failed = match lease.wire.exchange(request).await {
                Ok(response) => return Ok((lease, response)),
                Err(failed) => failed,
            };
            let Some(unsent) = failed.unsent else { return Err(failed.error) };
            dispatched.store(false, Ordering::Relaxed);
            // A new connection that closes at once is a failure of the upstream, not a stale connection.
            if lease.origin == WireOrigin::New {
                return Err(UpstreamError::unsent(
                    FailureKind::Unreachable,
                    "the connection was closed at once",
                ));
            }
            request = unsent;
        }
    }

    async fn read_stream(
        &self,
        mut lease: Lease,
        mut body: Incoming,
        post: &Post<'_>,
    ) -> Result<Answer, UpstreamError> {
        let mut events = Events::new(post.bytes_max);
        let mut memory = lease.memory(post.key);
        let mut talk = Talk::new(post.ear);
        let began = Instant::now();
        let mut requests = 0;
        loop {
            while let Some(event) = events.next()? {
                let message = lease.parse(event.len(), || RpcMessage::read(&event)).await?;
                let Some(method) = message.method.as_deref() else {
                    let answer = message.answer(&event, post.id)?;
                    finish(lease, body);
                    return Ok(answer.held_by(memory));
                };
                let Some(id) = message.id else {
                    let memory = lease.memory(post.key).waiting(Duration::ZERO);
                    pass_on(&mut talk, (method, message.params), &event, post, memory).await;
                    continue;
                };
                requests += 1;
                if requests > UPSTREAM_REQUESTS_MAX {
                    return Err(UpstreamError::invalid("too many requests from the upstream"));
                }
                // modern upstreams ask in their answers
                let Some(headers) = post.reply_headers else { continue };
                let kind = match talk.admit(method, id, message.params) {
                    Ok(kind) => kind,
                    Err(reply) => {
                        self.reply(headers.clone(), reply).await;
                        continue;
                    }
                };
                let params = message.params.map_or_else(|| "{}".into(), |raw| jsonrpc::slice(&event, raw));
                let mut memory = lease.memory(post.key);
                if memory.grow(params.len()).await.is_err() {
                    self.reply(
                        headers.clone(),
                        jsonrpc::reply(
                            id.get(),
                            &QuestionReply::unasked("Too many large messages are under way"),
                        ),
                    )
                    .await;
                    continue;
                }
                // the answer goes out also if the call ends meanwhile
                let deliver = move |body| async move {
                    let (http, headers) = (self.clone(), headers.clone());
                    drop(tokio::spawn(async move { http.reply(headers, body).await }));
                };
                talk.ask(kind, id.get(), memory.keep(params), deliver);
            }
            let early = too_early(events.chatter(), began.elapsed());
            if !early.is_zero() {
                sleep(early).await;
            }
            let piece = tokio::select! {
                biased;
                piece = lease.next(&mut body) => piece,
                never = talk.go_on() => match never {},
            };
            match piece {
                Some(piece) => {
                    let piece = piece?;
                    memory.grow(events.held() + piece.len()).await.map_err(crowded)?;
                    events.push(&piece)?;
                }
                None => {
                    return Err(UpstreamError::sent(FailureKind::Lost, "the stream ended without an answer"));
                }
            }
        }
    }

    /// Answers a request of the upstream, best effort.
    async fn reply(&self, headers: HeaderMap, body: Bytes) {
        if !matches!(timeout(REPLY_WAIT_MAX, self.tell(headers, body)).await, Ok(Ok(_))) {
            tracing::debug!("an upstream did not take the answer to its request");
        }
    }
}

/// Passes a notification on to the caller, in its share of memory until the client has it. A caller that does not keep up
/// misses some.
async fn pass_on(
    talk: &mut Talk<'_>,
    (method, params): (&str, Option<&RawValue>),
    event: &Bytes,
    post: &Post<'_>,
    mut memory: MemoryHold,
) {
    let Some(params) = params else { return };
    if method == "notifications/cancelled" {
        return jsonrpc::cancelled_id(params).into_iter().for_each(|id| talk.withdraw(id));
    }
    let Some(to_event) = talk.event(method, params, post.id) else { return };
    let params = jsonrpc::slice(event, params);
    if memory.grow(params.len()).await.is_ok() {
        talk.tell(to_event(memory.keep(params)));
    }
}

/// Returns the pause that is due `after` this time on a stream that has carried `chatter` bytes besides its answer.
fn too_early(chatter: usize, after: Duration) -> Duration {
    let paid = chatter.saturating_sub(CHATTER_FREE_BYTES) as f64 / CHATTER_BYTES_PER_S as f64;
    Duration::from_secs_f64(paid).saturating_sub(after)
}

/// Form of an answer, by its content type.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum AnswerForm {
    Json,
    Events,
    Other,
}

impl AnswerForm {
    pub(in crate::upstream) fn of(response: &Response<Incoming>) -> Self {
        let value = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let essence = value.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        if essence.eq_ignore_ascii_case("application/json") {
            return Self::Json;
        }
        if essence.eq_ignore_ascii_case("text/event-stream") { Self::Events } else { Self::Other }
    }
}

/// Reads the body of an answer whose status is not 200. Returns a JSON-RPC error to the request `id`, `None` for any
/// other body. A redirect is an error.
pub(in crate::upstream) async fn refusal(
    mut lease: Lease,
    mut body: Incoming,
    status: StatusCode,
    form: AnswerForm,
    id: u64,
) -> Result<Option<Answer>, UpstreamError> {
    if status.is_redirection() {
        return Err(UpstreamError::invalid("a redirect, which is never followed"));
    }
    let read = timeout(DRAIN_WAIT_MAX, read_all(&mut lease, &mut body, MINOR_BODY_BYTES_MAX, None)).await;
    let Ok(Ok(bytes)) = read else { return Ok(None) };
    lease.give_back();
    if !status.is_client_error() || form != AnswerForm::Json {
        return Ok(None);
    }
    let answer = jsonrpc::read_answer(&bytes, id).ok();
    Ok(answer.filter(|answer| matches!(answer, Answer::Error { .. })))
}

/// Reads a body to its end, in the memory share of `key`, or of its tenant alone. A body that comes in one piece is
/// not copied.
pub(in crate::upstream) async fn read_all(
    lease: &mut Lease,
    body: &mut Incoming,
    bytes_max: usize,
    key: Option<Uuid>,
) -> Result<Bytes, UpstreamError> {
    let too_large = || UpstreamError::sent(FailureKind::TooLarge, "");
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if announced > bytes_max {
        return Err(too_large());
    }
    let mut memory = lease.memory(key);
    memory.grow(announced).await.map_err(crowded)?;
    let Some(first) = lease.next(body).await else { return Ok(Bytes::new()) };
    let first = first?;
    if first.len() > bytes_max {
        return Err(too_large());
    }
    memory.grow(first.len()).await.map_err(crowded)?;
    if body.is_end_stream() {
        return Ok(memory.keep(first));
    }
    let Some(second) = lease.next(body).await else { return Ok(memory.keep(first)) };
    let mut whole = BytesMut::with_capacity(announced.min(BODY_RESERVE_BYTES_MAX));
    whole.extend_from_slice(&first);
    let mut piece = Some(second);
    while let Some(bytes) = piece {
        let bytes = bytes?;
        if whole.len().saturating_add(bytes.len()) > bytes_max {
            return Err(too_large());
        }
        let needed = whole.len() + bytes.len();
        memory.grow(needed).await.map_err(crowded)?;
        if needed > whole.capacity() && needed > BODY_RESERVE_BYTES_MAX {
            whole.reserve(bytes_max.min(LARGE_BODY_BYTES).saturating_sub(whole.len()).max(bytes.len()));
        }
        whole.extend_from_slice(&bytes);
        piece = lease.next(body).await;
    }
    Ok(memory.keep(whole.freeze()))
}

fn crowded(MemoryShort: MemoryShort) -> UpstreamError {
    UpstreamError::sent(FailureKind::Crowded, "")
}

/// Returns a connection whose stream has carried the answer. Reads to the end of the stream first, in the background
/// if that has not come yet.
fn finish(mut lease: Lease, mut body: Incoming) {
    let mut left = MINOR_BODY_BYTES_MAX;
    loop {
        match lease.wire.next_now(&mut body) {
            Poll::Ready(None) => return lease.give_back(),
            Poll::Ready(Some(bytes)) if bytes.len() <= left => left -= bytes.len(),
            Poll::Ready(Some(_)) => return,
            Poll::Pending => break,
        }
    }
    tokio::spawn(async move {
        let rest = read_all(&mut lease, &mut body, MINOR_BODY_BYTES_MAX, None);
        if matches!(timeout(DRAIN_WAIT_MAX, rest).await, Ok(Ok(_))) {
            lease.give_back();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chatter_is_paid_for_in_time() {
        let second = CHATTER_BYTES_PER_S;
        for (chatter, after_ms, early_ms) in [
            (0, 0, 0),
            (CHATTER_FREE_BYTES, 0, 0),
            (CHATTER_FREE_BYTES + second, 0, 1000),
            (CHATTER_FREE_BYTES + second, 400, 600),
            (CHATTER_FREE_BYTES + second, 5000, 0),
            (CHATTER_FREE_BYTES + 16 * second, 1000, 15_000),
        ] {
            let early = too_early(chatter, Duration::from_millis(after_ms));
            assert_eq!(early, Duration::from_millis(early_ms), "{chatter} bytes after {after_ms} ms");
        }
    }
}
