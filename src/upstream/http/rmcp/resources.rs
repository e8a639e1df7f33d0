//! Watches single resources of one upstream for updates: `resources/subscribe` in a session of its own, or
//! `subscriptions/listen` with `resourceSubscriptions` in the modern era.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use rmcp::ServiceError;
use rmcp::model::{
    ClientRequest, Request, ServerNotification, SubscribeRequestParams, SubscriptionFilter,
    UnsubscribeRequestParams,
};
use rmcp::service::Subscription;
use tokio::time::timeout;

use super::client::Service;
use super::heard::Announcement;
use super::shared::SessionStream;
use super::transport::RmcpTransport;
use super::watcher::{AnnouncementStream, Unwatched, WatchEnd, lost, not_opened, session_stream};
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::http::connect::Dialer;
use crate::upstream::target::{HttpServer, Target};

/// Most resources of one upstream that are watched from one replica.
pub const WATCHED_MAX: usize = 500;
/// Longest time to connect, to shake hands and to subscribe to all resources.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest wait for the answer to one subscription.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(10);
/// Most subscriptions under way: of the client's connections one is the stream's.
const ASKED_AT_ONCE: usize = 2;
/// Time for which a stream is still read after another has taken its place: an update may be on its way on the first alone.
const DRAIN: Duration = Duration::from_millis(200);

/// Open stream on which a server announces updates of single resources. Dropping it closes it.
pub struct ResourceWatcher {
    service: Service,
    transport: RmcpTransport,
    stream: AnnouncementStream,
    heard: Arc<Announcement>,
    watched: HashSet<String>,
    /// Updates that were read while the stream was replaced.
    pending: VecDeque<String>,
}

/// Change of a session's subscriptions.
#[derive(Clone, Copy)]
enum Wish {
    Subscribe,
    Unsubscribe,
}

impl ResourceWatcher {
    /// Opens the stream; when this returns, no later update is missed of a resource that the server lets us watch.
    ///
    /// # Errors
    /// [`WatchEnd`], within a bounded time.
    pub(in crate::upstream) async fn open(
        dialer: &Dialer,
        server: &HttpServer,
        target: &Target,
        uris: &[String],
    ) -> Result<Self, WatchEnd> {
        let opened = timeout(OPEN_WAIT_MAX, Self::try_open(dialer, server, target, bounded(uris)));
        opened.await.unwrap_or_else(|_| Err(late()))
    }

    async fn try_open(
        dialer: &Dialer,
        server: &HttpServer,
        target: &Target,
        uris: &[String],
    ) -> Result<Self, WatchEnd> {
        let Unwatched { service, transport, heard, declared, is_modern } =
            Unwatched::connect(dialer, server, target).await?;
        if declared.resources.and_then(|resources| resources.subscribe) != Some(true) {
            return Err(WatchEnd::Unsupported("it announces no updates of resources"));
        }
        heard.watch(uris);
        transport.watch(uris);
        let stream = if is_modern {
            AnnouncementStream::Subscription(Box::new(listen(&service, &transport, uris).await?))
        } else {
            let (state, number) = session_stream(&transport).await?;
            AnnouncementStream::Session(state, number)
        };
        let watched = uris.iter().cloned().collect();
        let watcher = Self { service, transport, stream, heard, watched, pending: VecDeque::new() };
        if matches!(watcher.stream, AnnouncementStream::Session(..)) {
            watcher.wish(Wish::Subscribe, uris).await?;
        }
        Ok(watcher)
    }

    /// Watches these resources from now on, instead of those before. No update is missed of those that stay.
    ///
    /// # Errors
    /// [`WatchEnd`], within a bounded time. The watcher must not be used then.
    pub async fn watch(&mut self, uris: &[String]) -> Result<(), WatchEnd> {
        let changed = timeout(OPEN_WAIT_MAX, self.try_watch(bounded(uris)));
        changed.await.unwrap_or_else(|_| Err(late()))
    }

    async fn try_watch(&mut self, uris: &[String]) -> Result<(), WatchEnd> {
        let wanted: HashSet<String> = uris.iter().cloned().collect();
        let new: Vec<String> = wanted.difference(&self.watched).cloned().collect();
        let gone: Vec<String> = self.watched.difference(&wanted).cloned().collect();
        if new.is_empty() && gone.is_empty() {
            return Ok(());
        }
        if let AnnouncementStream::Session(..) = self.stream {
            self.heard.watch(uris);
            self.transport.watch(uris);
            self.wish(Wish::Subscribe, &new).await?;
            self.wish(Wish::Unsubscribe, &gone).await?;
        } else {
            // both streams are read for a while, so what either may announce passes
            let both: Vec<String> = wanted.union(&self.watched).cloned().collect();
            self.transport.watch(&both);
            let next = listen(&self.service, &self.transport, uris).await?;
            let before =
                std::mem::replace(&mut self.stream, AnnouncementStream::Subscription(Box::new(next)));
            if let AnnouncementStream::Subscription(mut before) = before {
                let drained = async {
                    while let Ok(Some(update)) = before.next().await {
                        self.pending.extend(updated(&update).filter(|uri| wanted.contains(uri)));
                    }
                };
                drop(timeout(DRAIN, drained).await);
                drop(before.cancel().await);
            }
            self.transport.watch(uris);
        }
        self.watched = wanted;
        Ok(())
    }

    /// Waits for the next update, and returns the URI of the resource. Cancel-safe.
    ///
    /// # Errors
    /// [`WatchEnd`] once the stream has ended: later updates are unknown.
    pub async fn next(&mut self) -> Result<String, WatchEnd> {
        if let Some(uri) = self.pending.pop_front() {
            return Ok(uri);
        }
        let error = match &mut self.stream {
            AnnouncementStream::Subscription(subscription) => loop {
                match subscription.next().await {
                    Ok(Some(notification)) => {
                        if let Some(uri) = updated(&notification) {
                            return Ok(uri);
                        }
                    }
                    Ok(None) => break lost("the stream ended"),
                    // the error's text may quote the upstream
                    Err(_) => break UpstreamError::invalid("the stream broke the protocol"),
                }
            },
            AnnouncementStream::Session(state, number) => {
                let live = SessionStream::Live(*number);
                tokio::select! {
                    // an update before the end counts
                    biased;
                    uri = self.heard.next_update() => return Ok(uri),
                    _ = state.wait_for(|state| *state != live) => lost("the stream ended"),
                }
            }
        };
        Err(WatchEnd::Lost(self.transport.take_fault().unwrap_or(error)))
    }

    /// Subscribes a session to resources, or ends its subscriptions. A resource that the server refuses is left out: it may
    /// be gone by now, and says nothing of the others.
    async fn wish(&self, wish: Wish, uris: &[String]) -> Result<(), WatchEnd> {
        // boxed: the compiler cannot see that the futures may move between threads
        let asked: Vec<BoxFuture<'_, _>> = uris.iter().map(|uri| self.wish_one(wish, uri).boxed()).collect();
        let mut asked = stream::iter(asked).buffer_unordered(ASKED_AT_ONCE);
        while let Some(answered) = asked.next().await {
            answered?;
        }
        Ok(())
    }

    async fn wish_one(&self, wish: Wish, uri: &str) -> Result<(), WatchEnd> {
        let request = match wish {
            Wish::Subscribe => {
                ClientRequest::SubscribeRequest(Request::new(SubscribeRequestParams::new(uri)))
            }
            Wish::Unsubscribe => {
                ClientRequest::UnsubscribeRequest(Request::new(UnsubscribeRequestParams::new(uri)))
            }
        };
        match timeout(ANSWER_WAIT_MAX, self.service.peer().send_request(request)).await {
            Ok(Ok(_) | Err(ServiceError::McpError(_) | ServiceError::UnexpectedResponse)) => Ok(()),
            Ok(Err(error)) => Err(not_opened(&self.transport, &error)),
            Err(_) => Err(late()),
        }
    }
}

fn bounded(uris: &[String]) -> &[String] {
    uris.get(..WATCHED_MAX).unwrap_or(uris)
}

fn late() -> WatchEnd {
    WatchEnd::Lost(UpstreamError::sent(FailureKind::Timeout, "opening the stream took too long"))
}

/// Returns the URI of the resource whose update a notification announces; `None` if it announces none.
fn updated(notification: &ServerNotification) -> Option<String> {
    match notification {
        ServerNotification::ResourceUpdatedNotification(update) => Some(update.params.uri.clone()),
        _ => None,
    }
}

async fn listen(
    service: &Service,
    transport: &RmcpTransport,
    uris: &[String],
) -> Result<Subscription, WatchEnd> {
    let filter = SubscriptionFilter::builder().resource_subscriptions(uris.iter().map(String::as_str));
    match service.peer().listen(filter.build()).await {
        Ok(subscription) => Ok(subscription),
        Err(ServiceError::McpError(_)) => Err(WatchEnd::Unsupported("it refused to be listened to")),
        Err(error) => Err(not_opened(transport, &error)),
    }
}
