//! One upstream server as the rest of the program sees it: calls, lists, health.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Uri};
use tokio::runtime::Handle;
use tokio::sync::{Mutex, Semaphore, mpsc};
use tokio::time::Instant;
use tokio::time::timeout;

use super::connect::Dialer;
use super::discover::Era;
use super::error::{Kind, UpstreamError};
use super::gate::Gate;
use super::health::Health;
use super::jsonrpc::{self, Answer, Meta};
use super::param_headers::encode;
use super::post::{Http, Post, Reply};
use super::session::{Session, Sessions};
use super::target::{Credential, Limits, Target, ToolCall, base_headers};
use super::wires::{Timeouts, Wires};
use crate::domain::origin::Origin;

/// Cancellations on their way to one upstream at once; more are not sent.
const CANCELS_MAX: usize = 8;
/// Longest wait for an upstream to take one.
const CANCEL_WAIT_MAX: Duration = Duration::from_secs(5);
/// The code of a modern server that does not speak the version asked for.
const UNSUPPORTED_VERSION: i64 = -32022;

/// One upstream server: its connections, its session and its bounds.
pub struct Connection {
    version: i64,
    url: String,
    credential: Credential,
    pub(super) limits: Limits,
    pub(super) gate: Gate,
    pub(super) health: Arc<Health>,
    /// Held by a question of the gateway's own.
    pub(super) asides: Mutex<()>,
    link: Result<Arc<Link>, UpstreamError>,
}

/// What a usable URL leads to.
pub(super) struct Link {
    http: Http,
    sessions: Sessions,
    /// Room for cancellations on their way.
    farewells: Arc<Semaphore>,
}

/// A request of ours.
pub(super) struct Ask<'a> {
    pub(super) method: &'static str,
    /// What `Mcp-Name` mirrors.
    pub(super) name: Option<&'a str>,
    /// Members of `params`, raw.
    pub(super) members: &'a [(&'a str, &'a [u8])],
    pub(super) meta: &'a [(String, Bytes)],
    pub(super) param_headers: &'a [(String, String)],
    pub(super) progress: Option<&'a mpsc::Sender<Bytes>>,
    pub(super) bytes_max: usize,
}

impl<'a> Ask<'a> {
    /// A request with nothing special about it.
    pub(super) fn plain(method: &'static str, members: &'a [(&'a str, &'a [u8])], bytes_max: usize) -> Self {
        Self { method, name: None, members, meta: &[], param_headers: &[], progress: None, bytes_max }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("version", &self.version)
            .field("era", &self.era())
            .finish_non_exhaustive()
    }
}

impl Connection {
    /// Opens nothing: the first request does. A URL that the guard refuses makes every request fail.
    pub(super) fn new(dialer: &Dialer, target: &Target) -> Self {
        let link = dialer.check_url(&target.url).and_then(|uri| Link::new(dialer, uri, target)).map(Arc::new);
        Self::with_link(target, link)
    }

    /// Leads nowhere: the server is at another origin meanwhile.
    pub(super) fn moved(target: &Target) -> Self {
        Self::with_link(target, Err(UpstreamError::unsent(Kind::Unreachable, "it has moved meanwhile")))
    }

    fn with_link(target: &Target, link: Result<Arc<Link>, UpstreamError>) -> Self {
        let limits = target.limits;
        // for answers to the upstream's own requests, and for the gateway's own questions
        let spare = match limits.connections {
            0 | 1 => 0,
            2 | 3 => 1,
            _ => 2,
        };
        let running_max = limits.concurrency.min(limits.connections.saturating_sub(spare));
        Self {
            version: target.version,
            url: target.url.clone(),
            credential: target.credential,
            limits,
            gate: Gate::new(running_max, limits.queue, limits.queue_wait),
            health: Arc::new(Health::new(limits.breaker)),
            asides: Mutex::new(()),
            link,
        }
    }

    /// Whether this is the connection of a server as `target` describes it.
    pub(super) fn is_for(&self, target: &Target) -> bool {
        self.version == target.version && self.url == target.url && self.credential == target.credential
    }

    /// Whether it is the connection of a later version of the server than `target`.
    pub(super) fn is_newer_than(&self, target: &Target) -> bool {
        self.version > target.version
    }

    /// Whether it leads to the origin that `target` names.
    pub(super) fn has_origin_of(&self, target: &Target) -> bool {
        self.url == target.url
            || Origin::of(&self.url).is_some_and(|own| Some(own) == Origin::of(&target.url))
    }

    /// The era of the upstream, once it is known.
    pub fn era(&self) -> Option<Era> {
        self.link.as_ref().ok().and_then(|link| link.sessions.era())
    }

    /// Whether the upstream says that it announces changes of its tools; `None` until it was asked, and in
    /// the modern era, where nobody asks.
    pub fn announces(&self) -> Option<bool> {
        self.link.as_ref().ok()?.sessions.current()?.announces
    }

    /// Calls a tool. Sent at most once, except where the upstream said that it did not process it.
    /// Dropping the future gives the connection up; `call.dispatched` says whether the tool may have run then.
    ///
    /// # Errors
    /// Any [`Kind`]; `dispatched` says whether the tool may have run.
    pub async fn call(&self, call: ToolCall) -> Result<Answer, UpstreamError> {
        let name = jsonrpc::quoted(&call.name);
        let arguments: &[u8] = if call.arguments.is_empty() { b"{}" } else { &call.arguments };
        let ask = Ask {
            method: "tools/call",
            name: Some(&call.name),
            members: &[("name", &name), ("arguments", arguments)],
            meta: &call.meta,
            param_headers: &call.param_headers,
            progress: call.progress.as_ref(),
            bytes_max: self.limits.response_bytes_max,
        };
        let limit = call.timeout.min(self.limits.call_timeout);
        self.within(limit, &call.dispatched, |dispatched| async move {
            let began = Instant::now();
            let ended = self.link()?.exchange(&ask, &dispatched).await;
            self.health.called(began, &ended);
            settle(ended?)
        })
        .await
    }

    /// Asks the upstream for a sign of life: `ping`, or `server/discover` in the modern era.
    ///
    /// # Errors
    /// Any [`Kind`].
    pub async fn ping(&self) -> Result<(), UpstreamError> {
        self.aside(self.limits.listing_timeout, |dispatched| async move {
            let link = self.link()?;
            match settle(link.exchange(&link.ping().await?, &dispatched).await?)? {
                Answer::Result(_) => Ok(()),
                Answer::Error(error) => Err(refused("ping", &error)),
            }
        })
        .await
    }

    /// Sends a request in the upstream's era. A session that has ended is opened again once.
    pub(super) async fn request(
        &self,
        ask: Ask<'_>,
        dispatched: Arc<AtomicBool>,
    ) -> Result<Answer, UpstreamError> {
        settle(self.link()?.exchange(&ask, &dispatched).await?)
    }

    /// Forgets failures: the next call is sent.
    pub(super) fn reset_breaker(&self) {
        self.health.reset();
    }

    pub(super) fn link(&self) -> Result<&Arc<Link>, UpstreamError> {
        self.link.as_ref().map_err(Clone::clone)
    }

    /// Waits for the end of a rest.
    #[cfg(test)]
    pub(super) async fn rested(&self) {
        while self.health.is_resting() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[cfg(test)]
    pub(super) fn probe(&self) -> (&Gate, &Arc<Wires>) {
        (&self.gate, &self.link.as_ref().unwrap().http.wires)
    }
}

impl Link {
    fn new(dialer: &Dialer, uri: Uri, target: &Target) -> Result<Self, UpstreamError> {
        let limits = &target.limits;
        let base = base_headers(&uri, target)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path =
            path.parse().map_err(|_| UpstreamError::unsent(Kind::EgressRefused, "the path is refused"))?;
        let timeouts = Timeouts { connect: limits.connect_timeout, idle: limits.idle_timeout };
        let wires =
            Arc::new(Wires::new(dialer.for_upstream_of(target.tenant), uri, limits.connections, timeouts));
        let http = Http { wires, target: path };
        let sessions = Sessions::new(http.clone(), base, target.era, limits.call_timeout);
        Ok(Self { http, sessions, farewells: Arc::new(Semaphore::new(CANCELS_MAX)) })
    }

    /// Sends a request in the upstream's era and reads its answer. A session that has ended is opened again
    /// once.
    pub(super) async fn exchange(
        &self,
        ask: &Ask<'_>,
        dispatched: &AtomicBool,
    ) -> Result<Reply, UpstreamError> {
        let (session, reply) = self.send(ask, dispatched).await?;
        if !self.may_send_again(&session, &reply).await? {
            return Ok(reply);
        }
        // The upstream refused the request unread: this is its first real sending.
        dispatched.store(false, Ordering::Relaxed);
        Ok(self.send(ask, dispatched).await?.1)
    }

    /// The question that costs an upstream least in its era.
    async fn ping(&self) -> Result<Ask<'static>, UpstreamError> {
        let session = self.sessions.get().await?;
        let method = if session.era == Era::Modern { "server/discover" } else { "ping" };
        Ok(Ask::plain(method, &[], super::discover::HELLO_BYTES_MAX))
    }

    /// Whether the upstream answers: anything but an error of its server will do.
    pub(super) async fn is_alive(&self) -> Result<bool, UpstreamError> {
        let reply = self.exchange(&self.ping().await?, &AtomicBool::new(false)).await?;
        Ok(reply.answer.is_some()
            || (reply.status.is_client_error() && reply.status != StatusCode::TOO_MANY_REQUESTS))
    }

    async fn send(
        &self,
        ask: &Ask<'_>,
        dispatched: &AtomicBool,
    ) -> Result<(Arc<Session>, Reply), UpstreamError> {
        let session = self.sessions.get().await?;
        let id = self.sessions.id();
        let is_modern = session.era == Era::Modern;
        let progress_token = ask.progress.is_some().then_some(id);
        let meta = Meta { modern: is_modern, progress_token, extra: ask.meta };
        let mut headers = session.headers.clone();
        if is_modern {
            mirror(&mut headers, ask)?;
        }
        let post = Post {
            id,
            headers,
            body: jsonrpc::request(id, ask.method, ask.members, meta),
            bytes_max: ask.bytes_max,
            progress: ask.progress,
            reply_headers: (!is_modern).then_some(&session.headers),
            dispatched,
        };
        let given_up = GivenUp { link: self, session: &session, id, dispatched, is_answered: false };
        let reply = given_up.unless_answered(self.http.post(post)).await?;
        Ok((session, reply))
    }

    /// Whether the upstream refused a request because of the session or the era it came in, and another
    /// sending has a chance.
    async fn may_send_again(&self, session: &Arc<Session>, reply: &Reply) -> Result<bool, UpstreamError> {
        if session.has_id && reply.status == StatusCode::NOT_FOUND {
            self.sessions.end(session);
            return Ok(true);
        }
        // Some servers say 400 to an unknown session, but also to much else: only the next call starts anew.
        if session.has_id && reply.status == StatusCode::BAD_REQUEST && reply.answer.is_none() {
            self.sessions.end(session);
            return Ok(false);
        }
        if session.era == Era::Modern && is_of_another_era(reply) {
            // The request has been seen, whatever comes of looking again.
            let looked = self.sessions.leave_modern(session).await;
            return looked.map_err(|error| UpstreamError { dispatched: true, ..error });
        }
        Ok(false)
    }
}

/// A request on its way. Dropped before its answer (a deadline, a caller that does not want it any more), it
/// tells a handshake upstream, which does not take a closed connection for a cancellation (MCP 2025-11-25,
/// cancellation); a modern one sees the connection close, which is all it needs.
struct GivenUp<'a> {
    link: &'a Link,
    session: &'a Arc<Session>,
    id: u64,
    dispatched: &'a AtomicBool,
    is_answered: bool,
}

impl GivenUp<'_> {
    async fn unless_answered<T>(mut self, answer: impl Future<Output = T>) -> T {
        let answer = answer.await;
        self.is_answered = true;
        answer
    }
}

impl Drop for GivenUp<'_> {
    fn drop(&mut self) {
        let is_open = !self.is_answered && self.dispatched.load(Ordering::Relaxed);
        if !is_open || self.session.era == Era::Modern {
            return;
        }
        let (Ok(room), Ok(runtime)) =
            (Arc::clone(&self.link.farewells).try_acquire_owned(), Handle::try_current())
        else {
            return;
        };
        let (http, headers, body) =
            (self.link.http.clone(), self.session.headers.clone(), jsonrpc::cancelled(self.id));
        runtime.spawn(async move {
            // best effort: what the upstream does without it is its affair
            drop(timeout(CANCEL_WAIT_MAX, http.tell(headers, body)).await);
            drop(room);
        });
    }
}

fn is_of_another_era(reply: &Reply) -> bool {
    match &reply.answer {
        Some(Answer::Result(_)) => false,
        Some(Answer::Error(error)) => jsonrpc::error_code(error) == Some(UNSUPPORTED_VERSION),
        None => matches!(reply.status.as_u16(), 400 | 404 | 405 | 406 | 415),
    }
}

fn settle(reply: Reply) -> Result<Answer, UpstreamError> {
    let status = reply.status.as_u16();
    reply.answer.ok_or_else(|| UpstreamError::invalid(format!("HTTP status {status}")))
}

/// A refusal by the upstream of one of our own questions; its text stays out.
pub(super) fn refused(method: &str, error: &[u8]) -> UpstreamError {
    let code = jsonrpc::error_code(error).unwrap_or_default();
    UpstreamError::invalid(format!("{method} was refused with code {code}"))
}

/// Adds the headers that mirror the body of a modern request.
fn mirror(headers: &mut HeaderMap, ask: &Ask<'_>) -> Result<(), UpstreamError> {
    let unsendable = || UpstreamError::unsent(Kind::Unsendable, "");
    headers.insert("mcp-method", HeaderValue::from_static(ask.method));
    if let Some(name) = ask.name {
        headers.insert("mcp-name", HeaderValue::from_str(&encode(name)).map_err(|_| unsendable())?);
    }
    for (name, value) in ask.param_headers {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unsendable())?;
        if !name.as_str().starts_with("mcp-param-") {
            return Err(unsendable());
        }
        headers.insert(name, HeaderValue::from_str(value).map_err(|_| unsendable())?);
    }
    Ok(())
}
