//! Connection to one upstream server, as the rest of the program sees it: calls, lists, health.

mod admit;
pub(super) mod list;
pub(super) mod turns;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Semaphore};
use tokio::time::Instant;

use self::turns::Turns;
use super::admission::breaker::BreakerState;
use super::admission::gate::Gate;
use super::admission::health::Health;
use super::error::{FailureKind, UpstreamError};
use super::http::connect::Dialer;
use super::kinds;
use super::protocol::ask::{Ask, refused};
use super::protocol::exchange::{UpstreamExchange, verdict};
use super::protocol::jsonrpc::{self, Answer};
use super::protocol::offers::{Announced, DeclaredOffers};
use super::protocol::questions::Ear;
use super::protocol::sent::Sent;
use super::stdio::Children;
use super::target::{Limits, Request, Target, Upstream};
use crate::domain::era::Era;
use crate::domain::relay::Relay;

/// Locks that serialize the gateway's own requests to one upstream.
#[derive(Debug, Default)]
pub(super) struct Asides {
    /// Lock for pings, declarations and lists of tools.
    pub(super) first: Mutex<()>,
    /// Lock for the other lists, however slow the upstream is at them.
    pub(super) others: Mutex<()>,
}

/// Client of one upstream server: its connections, its session and its limits.
pub struct Connection {
    version: i64,
    upstream: Upstream,
    pub(super) limits: Limits,
    pub(super) gate: Gate,
    pub(super) health: Arc<Health>,
    pub(super) asides: Asides,
    pub(super) turns: Turns,
    relay: Relay,
    /// Places for questions to callers, which hold their place among the calls meanwhile.
    questions: Semaphore,
    pub(super) link: Result<Arc<dyn UpstreamExchange>, UpstreamError>,
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
    /// Creates the connection; the first request opens it. A URL that egress refuses, or a program that the
    /// deployment does not offer, makes every request fail. A program that `before` runs for the same server goes on,
    /// unless it may ask for something else now.
    pub(super) fn new(
        dialer: &Dialer,
        children: &Arc<Children>,
        target: &Target,
        before: Option<&Connection>,
    ) -> Self {
        let before = before
            .filter(|before| before.relay == target.relay)
            .and_then(|before| Some((&before.upstream, before.link.as_ref().ok()?)));
        Self::with_link(target, kinds::open(dialer, children, target, before))
    }

    /// Returns a connection whose requests all fail, for a server that has moved to another URL or program.
    pub(super) fn moved(target: &Target) -> Self {
        Self::with_link(
            target,
            Err(UpstreamError::unsent(FailureKind::Unreachable, "it has moved meanwhile")),
        )
    }

    fn with_link(target: &Target, link: Result<Arc<dyn UpstreamExchange>, UpstreamError>) -> Self {
        let limits = target.limits;
        // connections kept free for answers to the upstream's own requests and for two requests of the gateway's own
        let spare = match limits.connections {
            0 | 1 => 0,
            2 | 3 => 1,
            4..=7 => 2,
            _ => 3,
        };
        let running_max = limits.concurrency.min(limits.connections.saturating_sub(spare));
        Self {
            version: target.version,
            upstream: target.upstream.without_token(),
            limits,
            gate: Gate::new(running_max, limits.queue, limits.queue_wait),
            health: Arc::new(Health::new(limits.breaker)),
            asides: Asides::default(),
            turns: Turns::default(),
            relay: target.relay,
            // calls that wait for a person must not keep all others out
            questions: Semaphore::new((running_max / 2).max(1)),
            link,
        }
    }

    /// Returns whether this connection is of the server as `target` describes it.
    pub(super) fn is_for(&self, target: &Target) -> bool {
        self.version == target.version && self.upstream.is_same(&target.upstream)
    }

    /// Returns whether this connection is of this version of the server.
    pub(super) fn has_version(&self, version: i64) -> bool {
        self.version == version
    }

    /// Returns whether this connection is of a later version of the server than `target`, or of the same version with a
    /// later reading of the deployment's programs.
    pub(super) fn is_newer_than(&self, target: &Target) -> bool {
        (self.version, self.upstream.generation()) > (target.version, target.upstream.generation())
    }

    /// Returns whether this connection leads to the same program as `target`, or to the same origin and path.
    pub(super) fn has_place_of(&self, target: &Target) -> bool {
        self.upstream.has_place_of(&target.upstream)
    }

    /// Returns the era of the upstream; `None` until it is known.
    pub fn era(&self) -> Option<Era> {
        self.link.as_ref().ok().and_then(|link| link.era())
    }

    /// Returns whether the upstream declares that it announces changes of `what`. `None` while its declaration is
    /// unknown; this function never asks for it.
    pub fn announces(&self, what: Announced) -> Option<bool> {
        Some(self.link.as_ref().ok()?.last_offers()?.announces(what))
    }

    /// Returns what the last listing found on web pages, a JSON text; `None` before it, and for other servers.
    pub fn page_report(&self) -> Option<Arc<str>> {
        self.link.as_ref().ok()?.page_report()
    }

    /// Returns what the upstream declares. Sends a request only if the declaration is unknown or stale.
    ///
    ///
    /// # Errors
    /// Any [`FailureKind`].
    pub async fn offers(&self) -> Result<DeclaredOffers, UpstreamError> {
        if let Some(offers) = self.link()?.known_offers() {
            return Ok(offers);
        }
        let (lane, limit) = (&self.asides.first, self.limits.listing_timeout);
        self.aside(lane, limit, |_| async move { self.link()?.offers().await }).await
    }

    /// Sends a caller's request and returns the answer. The request is sent at most once, unless the upstream stated
    /// that it did not process it. Dropping the future abandons the request; `request.sent` then tells whether the
    /// upstream may have processed it.
    ///
    ///
    /// # Errors
    /// Any [`FailureKind`]; `dispatched` says whether the request may have been processed.
    pub async fn ask(&self, request: Request) -> Result<Answer, UpstreamError> {
        let (method, subject) = request.subject.wire();
        let quoted = subject.map(|(key, name)| (key, jsonrpc::quoted(name)));
        let own = quoted.as_ref().map(|(key, name)| (*key, name.as_slice()));
        let rest = request.members.iter().map(|(member, value)| (*member, &value[..]));
        let ask = Ask {
            method,
            name: subject.map(|(_, name)| name),
            members: &own.into_iter().chain(rest).collect::<Vec<_>>(),
            meta: &request.meta,
            param_headers: &request.param_headers,
            ear: request.hears.as_ref().map(|hears| Ear {
                hears,
                relay: self.relay,
                sent: &request.sent,
                places: &self.questions,
            }),
            page: request.page.as_ref(),
            round: Some(&request.round),
            caller: request.caller,
            exchange_for: request.exchange_for,
            bytes_max: self.limits.response_bytes_max,
        };
        self.pass_on(&ask, request.timeout, &request.sent).await
    }

    /// Sends a caller's request once it is admitted.
    async fn pass_on(&self, ask: &Ask<'_>, limit: Duration, sent: &Sent) -> Result<Answer, UpstreamError> {
        let work = || async {
            let (link, began) = (self.link()?, Instant::now());
            sent.begins(link.transport());
            let ended = link.exchange(ask, sent).await;
            sent.settles();
            self.health.called(began, verdict(&ended));
            ended?.settle()
        };
        self.within(limit.min(self.limits.call_timeout), (sent, ask.exchange_for), work).await
    }

    /// Checks that the upstream answers: sends `ping`, or `server/discover` in the modern era.
    ///
    /// # Errors
    /// Any [`FailureKind`]; a JSON-RPC error as an answer is [`FailureKind::Invalid`].
    pub async fn ping(&self) -> Result<(), UpstreamError> {
        let ended = self
            .aside(&self.asides.first, self.limits.listing_timeout, |sent| async move {
                let link = self.link()?;
                match link.ask(&link.ping().await?, &sent).await? {
                    Answer::Result(_) => Ok(()),
                    Answer::Error { code, .. } => Err(refused("ping", code)),
                }
            })
            .await;
        self.health.listed(&ended);
        ended
    }

    /// Sends a request in the upstream's era. A session that has ended is opened again once.
    pub(super) async fn request(&self, ask: Ask<'_>, sent: &Sent) -> Result<Answer, UpstreamError> {
        self.link()?.ask(&ask, sent).await
    }

    /// Returns the state of the circuit breaker.
    pub(super) fn breaker(&self) -> BreakerState {
        self.health.state()
    }

    /// Closes the circuit breaker and ends the upstream's own backoff, if it has one: the next call is sent.
    pub(super) fn reset_breaker(&self) {
        self.health.reset();
        if let Ok(link) = &self.link {
            link.end_rest();
        }
    }

    /// Restarts the upstream if it runs here; returns whether it does.
    pub(super) async fn restart(&self) -> bool {
        let Some(ended) = self.link.as_ref().ok().and_then(|link| link.restart()) else { return false };
        ended.await;
        true
    }

    /// Returns whether the upstream runs on this replica.
    pub(super) fn is_run_here(&self) -> bool {
        self.link.as_ref().is_ok_and(|link| link.is_run_here())
    }

    /// Returns whether the upstream was ended here for lack of calls. The next call starts it again.
    pub(super) fn is_asleep(&self) -> bool {
        self.link.as_ref().is_ok_and(|link| link.is_asleep())
    }

    pub(super) fn link(&self) -> Result<&Arc<dyn UpstreamExchange>, UpstreamError> {
        self.link.as_ref().map_err(Clone::clone)
    }

    /// Waits for the end of the circuit breaker's backoff.
    #[cfg(test)]
    pub(super) async fn rested(&self) {
        while self.health.is_resting() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ages the upstream's declaration until it is stale.
    #[cfg(test)]
    pub(super) fn let_offers_grow_old(&self) {
        self.http().sessions.current().unwrap().declared.grow_old();
    }

    #[cfg(test)]
    pub(super) fn probe(&self) -> (&Gate, &Arc<super::http::wires::Wires>) {
        (&self.gate, &self.http().http.wires)
    }

    #[cfg(test)]
    fn http(&self) -> &super::http::link::HttpLink {
        let link: &dyn std::any::Any = &**self.link.as_ref().unwrap();
        link.downcast_ref().expect("a server over HTTP")
    }
}
