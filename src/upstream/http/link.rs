//! Requests to an upstream over HTTP: sessions, eras, cancellations.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Uri};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::domain::era::Era;
use crate::domain::measure::{Measures, Transport};
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::http::post::{Http, Post, Reply};
use crate::upstream::http::refused::says;
use crate::upstream::http::session::{UpstreamSession, UpstreamSessions};
use crate::upstream::http::wires::{Timeouts, Wires};
use crate::upstream::protocol::ask::Ask;
use crate::upstream::protocol::events::ExchangeFor;
use crate::upstream::protocol::exchange::{Exchanged, LoginGate, NoAnswer, UpstreamExchange, UpstreamWork};
use crate::upstream::protocol::hello::{HELLO_BYTES_MAX, modern_offers};
use crate::upstream::protocol::jsonrpc::{self, Answer, Meta};
use crate::upstream::protocol::offers::DeclaredOffers;
use crate::upstream::protocol::param_headers::encode;
use crate::upstream::protocol::sent::Sent;
use crate::upstream::target::{HttpServer, Target};

/// Most cancellations under way to one upstream; further ones are not sent.
const CANCELS_MAX: usize = 8;
/// Longest wait for an upstream to take a cancellation.
const CANCEL_WAIT_MAX: Duration = Duration::from_secs(5);
/// JSON-RPC error code of a modern server that does not speak the requested version.
const UNSUPPORTED_VERSION: i64 = -32022;

/// Link to an upstream over HTTP: its connections and its session.
pub(in crate::upstream) struct HttpLink {
    pub(in crate::upstream) http: Http,
    pub(in crate::upstream) sessions: UpstreamSessions,
    /// Permits for cancellations under way.
    farewells: Arc<Semaphore>,
}

impl HttpLink {
    pub(in crate::upstream) fn new(
        dialer: &Dialer,
        uri: Uri,
        server: &HttpServer,
        target: &Target,
    ) -> Result<Self, UpstreamError> {
        let limits = &target.limits;
        let base = server.base_headers(&uri)?;
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        let path = path
            .parse()
            .map_err(|_| UpstreamError::unsent(FailureKind::EgressRefused, "the path is refused"))?;
        let timeouts = Timeouts { connect: limits.connect_timeout, idle: limits.idle_timeout };
        let wires =
            Arc::new(Wires::new(dialer.for_upstream_of(target.tenant), uri, limits.connections, timeouts));
        let http = Http { wires, target: path, login: dialer.login(server, target)? };
        let sessions = UpstreamSessions::new(
            http.clone(),
            base,
            (target.era, target.relay),
            limits.call_timeout,
            &dialer.measures,
        );
        Ok(Self { http, sessions, farewells: Arc::new(Semaphore::new(CANCELS_MAX)) })
    }

    /// Sends a request in the upstream's era and reads its answer. A session that has ended is opened again
    /// once.
    async fn post(&self, ask: &Ask<'_>, sent: &Sent) -> Result<Reply, UpstreamError> {
        let (session, reply) = self.send(ask, sent).await?;
        if !self.may_send_again(&session, &reply).await? {
            return Ok(reply);
        }
        // The upstream refused the request unread: this is its first real sending.
        sent.dispatched.store(false, Ordering::Relaxed);
        Ok(self.send(ask, sent).await?.1)
    }

    /// Returns what the upstream declares. Asks if the declaration is unknown or stale; without a usable answer, the
    /// last declaration holds.
    async fn declared(&self) -> Result<DeclaredOffers, UpstreamError> {
        let session = self.sessions.get(ExchangeFor::Newest).await?;
        if let Some(offers) = session.offers() {
            return Ok(offers);
        }
        // boxed: the future is large and rarely needed
        let said = Box::pin(self.asked_anew(&session)).await?;
        said.or_else(|| session.declared.last()).ok_or_else(silent)
    }

    /// Returns what the upstream declares, as of `then` or later. Fails if the upstream does not say: an earlier
    /// declaration may be another server's.
    async fn declared_since(&self, then: Instant) -> Result<DeclaredOffers, UpstreamError> {
        let session = self.sessions.get(ExchangeFor::Newest).await?;
        if let Some(offers) = session.declared.since(then) {
            return Ok(offers);
        }
        if !session.has_id {
            return self.asked_anew(&session).await?.ok_or_else(silent);
        }
        // a session with an id ends with its server, so any answer in it confirms the declaration, even "method not
        // found"
        let (ask, asked) = (Ask::plain("ping", &[], HELLO_BYTES_MAX), Instant::now());
        let reply = self.post(&ask, &Sent::default()).await?;
        let is_alive = match &reply.answer {
            Some(Answer::Result(_)) => true,
            Some(Answer::Error { code, .. }) => {
                reply.status.is_success() || *code == jsonrpc::METHOD_NOT_FOUND
            }
            None => false,
        };
        if is_alive {
            session.declared.held(asked);
        }
        self.sessions.get(ExchangeFor::Newest).await?.declared.since(then).ok_or_else(silent)
    }

    /// Asks the upstream for its declaration, whatever it declared before; `None` if it does not say.
    async fn asked_anew(
        &self,
        session: &Arc<UpstreamSession>,
    ) -> Result<Option<DeclaredOffers>, UpstreamError> {
        if session.era == Era::Handshake {
            // only a new handshake returns a declaration
            return Ok(self.sessions.renew(session).await?.declared.last());
        }
        let (ask, asked) = (Ask::plain("server/discover", &[], HELLO_BYTES_MAX), Instant::now());
        if let Some(offers) = self.post(&ask, &Sent::default()).await?.answer.as_ref().and_then(modern_offers)
        {
            session.declared.set(offers, asked);
            return Ok(Some(offers));
        }
        // the answer may have revealed the handshake era, and the new session has a declaration then
        let now = self.sessions.get(ExchangeFor::Newest).await?;
        Ok(now.declared.last().filter(|_| !Arc::ptr_eq(&now, session)))
    }

    async fn send(&self, ask: &Ask<'_>, sent: &Sent) -> Result<(Arc<UpstreamSession>, Reply), UpstreamError> {
        let session = self.sessions.get(ask.exchange_for).await?;
        let id = self.sessions.id();
        let is_modern = session.era == Era::Modern;
        let progress_token = ask.progress_token(id);
        let log = ask.ear.and_then(|ear| ear.log_level());
        let meta = Meta { modern: is_modern, progress_token, log, round: ask.round, extra: ask.meta };
        meta.check_rounds()?;
        let bytes = ask.members.iter().map(|(_, value)| value.len()).sum();
        let write = || jsonrpc::request(id, ask.method, ask.members, meta);
        let body = self.http.wires.aside(bytes, write).await;
        sent.goes_out(id, session.version);
        let mut headers = session.headers.clone();
        if is_modern {
            mirror(&mut headers, ask)?;
        }
        let post = Post {
            id,
            headers,
            body,
            bytes_max: ask.bytes_max,
            key: ask.caller.key,
            ear: ask.ear,
            reply_headers: (!is_modern).then_some(&session.headers),
            dispatched: &sent.dispatched,
        };
        let http = self.http.of(ask.exchange_for);
        let given_up = GivenUp { link: self, session: &session, id, sent, is_answered: false };
        let reply = given_up.unless_answered(http.post(post)).await?;
        Ok((session, reply))
    }

    /// Returns whether the upstream refused a request because of its session or era, and sending it again may
    /// succeed.
    async fn may_send_again(
        &self,
        session: &Arc<UpstreamSession>,
        reply: &Reply,
    ) -> Result<bool, UpstreamError> {
        if session.has_id && reply.status == StatusCode::NOT_FOUND {
            self.sessions.end(session);
            return Ok(true);
        }
        // Some servers answer 400 to an unknown session, but also to much else: only the next call opens a new
        // session.
        if session.has_id && reply.status == StatusCode::BAD_REQUEST && reply.answer.is_none() {
            self.sessions.end(session);
            return Ok(false);
        }
        if session.era == Era::Modern && is_of_another_era(reply) {
            // The upstream has seen the request, whatever the new detection of the era brings.
            let looked = self.sessions.leave_modern(session).await;
            return looked.map_err(|error| UpstreamError { dispatched: true, ..error });
        }
        Ok(false)
    }
}

impl UpstreamExchange for HttpLink {
    fn exchange<'a>(
        &'a self,
        ask: &'a Ask<'_>,
        sent: &'a Sent,
    ) -> UpstreamWork<'a, Result<Exchanged, UpstreamError>> {
        Box::pin(async move { self.post(ask, sent).await.map(exchanged) })
    }

    fn measures(&self) -> &Measures {
        &self.sessions.measures
    }

    fn transport(&self) -> Transport {
        Transport::Tcp
    }

    fn login(&self) -> Option<&dyn LoginGate> {
        self.http.login.as_ref().map(|login| login as &dyn LoginGate)
    }

    fn era(&self) -> Option<Era> {
        self.sessions.era()
    }

    fn found_era(&self) -> UpstreamWork<'_, Result<Era, UpstreamError>> {
        Box::pin(async move { Ok(self.sessions.get(ExchangeFor::Newest).await?.era) })
    }

    fn last_offers(&self) -> Option<DeclaredOffers> {
        self.sessions.current()?.declared.last()
    }

    fn known_offers(&self) -> Option<DeclaredOffers> {
        self.sessions.current()?.offers()
    }

    fn known_offers_since(&self, then: Instant) -> Option<DeclaredOffers> {
        self.sessions.current()?.offers_since(then)
    }

    fn offers_since(&self, then: Instant) -> UpstreamWork<'_, Result<DeclaredOffers, UpstreamError>> {
        Box::pin(self.declared_since(then))
    }

    fn offers(&self) -> UpstreamWork<'_, Result<DeclaredOffers, UpstreamError>> {
        Box::pin(self.declared())
    }
}

/// Guard of a request under way. Dropped before the answer, it sends a cancellation to a handshake upstream, for
/// which a closed connection is none (MCP 2025-11-25, cancellation). A modern upstream needs only the closed
/// connection.
struct GivenUp<'a> {
    link: &'a HttpLink,
    session: &'a Arc<UpstreamSession>,
    id: u64,
    sent: &'a Sent,
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
        let is_open = !self.is_answered && self.sent.is_dispatched();
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
            // best effort
            drop(timeout(CANCEL_WAIT_MAX, http.tell(headers, body)).await);
            drop(room);
        });
    }
}

/// Returns a reply without what only HTTP knows. An error of the client other than 429 shows that the upstream works.
fn exchanged(reply: Reply) -> Exchanged {
    let status = reply.status;
    match reply.answer {
        Some(answer) => Exchanged::Answer(answer),
        None => Exchanged::NoAnswer(NoAnswer {
            says: says("", status),
            is_alive: status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS,
            is_about_the_request: matches!(status.as_u16(), 400 | 409 | 411 | 413..=417 | 422 | 431),
        }),
    }
}

fn silent() -> UpstreamError {
    UpstreamError::invalid("it does not say what it offers")
}

fn is_of_another_era(reply: &Reply) -> bool {
    match &reply.answer {
        Some(Answer::Result(_)) => false,
        Some(Answer::Error { code, .. }) => *code == UNSUPPORTED_VERSION,
        None => matches!(reply.status.as_u16(), 400 | 404 | 405 | 406 | 415),
    }
}

/// Adds the headers that mirror the body of a modern request.
fn mirror(headers: &mut HeaderMap, ask: &Ask<'_>) -> Result<(), UpstreamError> {
    let unsendable = || UpstreamError::unsent(FailureKind::Unsendable, "");
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
