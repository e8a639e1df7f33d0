//! Watches one upstream for changes of its tools, prompts and resources.

use std::sync::Arc;
use std::time::Duration;

use rmcp::ServiceError;
use rmcp::model::{ServerCapabilities, SubscriptionFilter};
use rmcp::service::{Subscription, SubscriptionEnd};
use tokio::sync::watch;
use tokio::time::timeout;

use super::client::{RmcpListener, Service, connect, own_error};
use super::heard::{Announcement, announced};
use super::shared::SessionStream;
use super::transport::RmcpTransport;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::protocol::hello::HELLO_BYTES_MAX;
use crate::upstream::protocol::offers::Announced;
use crate::upstream::target::{HttpServer, Target};

/// Longest time to connect, to detect the era, to shake hands and to open the stream.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(20);

/// Reason why changes of a server are not watched, or not any more.
#[derive(Clone, Debug)]
pub enum WatchEnd {
    /// The server announces nothing, for this reason. A retry soon is of no use.
    Unsupported(&'static str),
    /// The stream could not be opened, or has ended. Changes since then are unknown.
    Lost(UpstreamError),
}

/// Open stream on which a server announces changes. Dropping it closes it.
pub struct Watcher {
    /// Tasks of rmcp, which end when this is dropped.
    _service: Service,
    transport: RmcpTransport,
    stream: AnnouncementStream,
    heard: Arc<Announcement>,
    hears: Vec<Announced>,
}

/// Source of announcements.
pub(super) enum AnnouncementStream {
    /// Subscription of the modern era, by `subscriptions/listen`.
    Subscription(Box<Subscription>),
    /// Stream of a handshake session, and the number of its opening.
    Session(watch::Receiver<SessionStream>, u64),
}

/// Connection to a server that is to be watched, before its stream is open.
pub(super) struct Unwatched {
    pub(super) service: Service,
    pub(super) transport: RmcpTransport,
    pub(super) heard: Arc<Announcement>,
    /// Capabilities that the server declares.
    pub(super) declared: ServerCapabilities,
    /// True if the server speaks in the modern era.
    pub(super) is_modern: bool,
}

impl Unwatched {
    /// Connects to a server, and reads what it declares.
    pub(super) async fn connect(
        dialer: &Dialer,
        server: &HttpServer,
        target: &Target,
    ) -> Result<Unwatched, WatchEnd> {
        let heard = Arc::new(Announcement::default());
        let listener = RmcpListener { heard: Arc::clone(&heard) };
        let (service, transport) =
            connect(dialer, server, target, HELLO_BYTES_MAX, listener).await.map_err(WatchEnd::Lost)?;
        let info = service.peer().peer_info();
        let is_modern = info.as_ref().is_some_and(|info| !info.protocol_version.has_initialize());
        let declared = info.map(|info| info.capabilities.clone()).unwrap_or_default();
        Ok(Unwatched { service, transport, heard, declared, is_modern })
    }
}

impl Watcher {
    /// Opens the stream; when this returns, no later change is missed.
    ///
    /// # Errors
    /// [`WatchEnd`], within a bounded time.
    pub(in crate::upstream) async fn open(
        dialer: &Dialer,
        server: &HttpServer,
        target: &Target,
        wanted: &[Announced],
    ) -> Result<Self, WatchEnd> {
        let late = || UpstreamError::sent(FailureKind::Timeout, "opening the stream took too long");
        timeout(OPEN_WAIT_MAX, Self::try_open(dialer, server, target, wanted))
            .await
            .unwrap_or_else(|_| Err(WatchEnd::Lost(late())))
    }

    async fn try_open(
        dialer: &Dialer,
        server: &HttpServer,
        target: &Target,
        wanted: &[Announced],
    ) -> Result<Self, WatchEnd> {
        let Unwatched { service, transport, heard, declared, is_modern } =
            Unwatched::connect(dialer, server, target).await?;
        let mut hears: Vec<_> = wanted.iter().copied().filter(|what| announces(&declared, *what)).collect();
        if hears.is_empty() {
            return Err(WatchEnd::Unsupported("it announces no changes"));
        }
        transport.listen_for(&hears);
        let stream = if is_modern {
            let subscription = subscribe(&service, &transport, &hears).await?;
            hears.retain(|what| is_in(subscription.acknowledged(), *what));
            AnnouncementStream::Subscription(Box::new(subscription))
        } else {
            let (state, number) = session_stream(&transport).await?;
            AnnouncementStream::Session(state, number)
        };
        Ok(Self { _service: service, transport, stream, heard, hears })
    }

    /// Returns the kinds of changes heard on this stream: those that were wanted, as far as the server announces
    /// them.
    pub fn hears(&self) -> &[Announced] {
        &self.hears
    }

    /// Calls `on_change` for every announcement until the stream ends; returns the reason for the end. `on_change`
    /// must be quick: callers merge many announcements into little work themselves.
    pub async fn follow(mut self, on_change: impl Fn(Announced)) -> WatchEnd {
        match &mut self.stream {
            AnnouncementStream::Subscription(subscription) => {
                let error = follow_subscription(subscription, on_change).await;
                WatchEnd::Lost(self.transport.take_fault().unwrap_or(error))
            }
            AnnouncementStream::Session(state, number) => {
                let live = SessionStream::Live(*number);
                loop {
                    tokio::select! {
                        // an announcement before the end counts
                        biased;
                        what = self.heard.next() => on_change(what),
                        _ = state.wait_for(|state| *state != live) => break,
                    }
                }
                WatchEnd::Lost(self.transport.take_fault().unwrap_or_else(|| lost("the stream ended")))
            }
        }
    }
}

/// Returns whether a server declares that it announces changes of `what`.
fn announces(declared: &ServerCapabilities, what: Announced) -> bool {
    let changed = match what {
        Announced::Tools => declared.tools.as_ref().and_then(|tools| tools.list_changed),
        Announced::Prompts => declared.prompts.as_ref().and_then(|prompts| prompts.list_changed),
        Announced::Resources => declared.resources.as_ref().and_then(|resources| resources.list_changed),
    };
    changed == Some(true)
}

fn is_in(filter: &SubscriptionFilter, what: Announced) -> bool {
    let wanted = match what {
        Announced::Tools => filter.tools_list_changed,
        Announced::Prompts => filter.prompts_list_changed,
        Announced::Resources => filter.resources_list_changed,
    };
    wanted == Some(true)
}

async fn subscribe(
    service: &Service,
    transport: &RmcpTransport,
    wanted: &[Announced],
) -> Result<Subscription, WatchEnd> {
    let filter = wanted.iter().fold(SubscriptionFilter::builder(), |filter, what| match what {
        Announced::Tools => filter.tools_list_changed(),
        Announced::Prompts => filter.prompts_list_changed(),
        Announced::Resources => filter.resources_list_changed(),
    });
    match service.peer().listen(filter.build()).await {
        Ok(subscription) if wanted.iter().any(|what| is_in(subscription.acknowledged(), *what)) => {
            Ok(subscription)
        }
        Ok(_) => Err(WatchEnd::Unsupported("it acknowledged nothing to listen to")),
        Err(ServiceError::McpError(_)) => Err(WatchEnd::Unsupported("it refused to be listened to")),
        Err(error) => Err(not_opened(transport, &error)),
    }
}

/// Returns the reason why a stream could not be opened: our own error if there is one, never a text of the upstream.
pub(super) fn not_opened(transport: &RmcpTransport, error: &ServiceError) -> WatchEnd {
    let own = match error {
        ServiceError::TransportSend(error) => own_error(error),
        _ => transport.take_fault(),
    };
    WatchEnd::Lost(own.unwrap_or_else(|| lost("the stream could not be opened")))
}

/// Opens the stream of a handshake session.
pub(super) async fn session_stream(
    transport: &RmcpTransport,
) -> Result<(watch::Receiver<SessionStream>, u64), WatchEnd> {
    if !transport.has_session() {
        return Err(WatchEnd::Unsupported("it keeps no sessions"));
    }
    let mut state = transport.stream();
    transport.allow_stream();
    let opened = state.wait_for(|state| *state != SessionStream::None).await.map(|state| state.clone());
    match opened {
        Ok(SessionStream::Live(number)) => Ok((state, number)),
        Ok(SessionStream::Unsupported) => Err(WatchEnd::Unsupported("it offers no stream")),
        Ok(SessionStream::None | SessionStream::Ended) | Err(_) => {
            let error = transport.take_fault().unwrap_or_else(|| lost("the stream could not be opened"));
            Err(WatchEnd::Lost(error))
        }
    }
}

async fn follow_subscription(
    subscription: &mut Subscription,
    on_change: impl Fn(Announced),
) -> UpstreamError {
    loop {
        match subscription.next().await {
            Ok(Some(notification)) => announced(&notification).into_iter().for_each(&on_change),
            Ok(None) if matches!(subscription.end(), Some(SubscriptionEnd::Graceful(_))) => {
                return lost("the server ended the stream");
            }
            Ok(None) => return lost("the stream ended"),
            // The error's text may quote the upstream.
            Err(_) => return UpstreamError::invalid("the stream broke the protocol"),
        }
    }
}

/// Returns the error of a stream that has ended.
pub(super) fn lost(detail: &'static str) -> UpstreamError {
    UpstreamError::sent(FailureKind::Lost, detail)
}
