//! A client's WebSocket: what goes in and out, its pings, and when it ends.
//!
//! Decisions are taken in tasks of their own, so that a client that leaves has still decided. Nothing else waits for a client.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep_until, timeout};
use uuid::Uuid;

use super::dialogue::{AcpAct, Dialogue, REQUESTS_MAX, Reaction};
use crate::faces::sse::{CHECK, OpenStream};
use crate::gateway::{Attempt, Client, ConsentNews, ConsentView, GatewayError};
use crate::store::ConsentFilter;

/// Largest message of a client, in bytes: an answer needs hundreds, a prompt that nobody reads may be longer.
pub(super) const MESSAGE_BYTES_MAX: usize = 256 * 1024;
/// Buffer in which messages are read, in bytes: there may be thousands of connections, and messages are small.
pub(super) const READ_BYTES: usize = 4 * 1024;
/// Most bytes that wait to be written. A message to a client has some 10 KiB.
pub(super) const WRITE_BYTES_MAX: usize = 512 * 1024;
/// Longest wait for a client to take a message.
const SEND_MAX: Duration = Duration::from_secs(10);
/// Silence of a client after which it is closed; pings are sent meanwhile, each of which a client answers.
const SILENT_MAX: Duration = Duration::from_secs(45);
/// Interval at which open requests are read again: news may be lost.
const LOOK: Duration = Duration::from_secs(5);
/// Shortest time between two ends of the own turn.
const STOP_PAUSE: Duration = Duration::from_secs(1);

/// Close code for a gateway that restarts (registered beside RFC 6455): connect again.
const SERVICE_RESTART: u16 = 1012;

/// Decision under way, with its request.
type Underway = Pin<Box<dyn Future<Output = (Uuid, Option<Result<ConsentView, GatewayError>>)> + Send>>;

/// End of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parting {
    /// The client is gone, or takes nothing more.
    Gone,
    /// The socket is closed for this reason.
    Close(u16, &'static str),
}

/// Connection of one client.
pub(super) struct AcpConnection {
    socket: WebSocket,
    open: OpenStream,
    news: ConsentNews,
    /// Attempt that each decision is a copy of.
    attempt: Attempt,
    dialogue: Dialogue,
    /// Decisions under way: at most one for each request that was asked about.
    deciding: FuturesUnordered<Underway>,
    /// Time of the client's last frame.
    heard_at: Instant,
    /// Time at which open requests are read next.
    look_at: Instant,
    /// Time from which on the own turn may be ended.
    stop_at: Instant,
}

impl AcpConnection {
    pub(super) fn new(
        socket: WebSocket,
        open: OpenStream,
        news: ConsentNews,
        attempt: Attempt,
    ) -> AcpConnection {
        let now = Instant::now();
        AcpConnection {
            socket,
            open,
            news,
            dialogue: Dialogue::new(attempt.language()),
            attempt,
            deciding: FuturesUnordered::new(),
            heard_at: now,
            look_at: now,
            stop_at: now,
        }
    }

    /// Serves the client until either side ends it.
    pub(super) async fn run(mut self) {
        let Err(Parting::Close(code, reason)) = self.serve().await else { return };
        let frame = CloseFrame { code, reason: reason.into() };
        // a client that takes nothing more is closed all the same
        drop(timeout(SEND_MAX, self.socket.send(Message::Close(Some(frame)))).await);
    }

    async fn serve(&mut self) -> Result<(), Parting> {
        loop {
            self.check().await?;
            if self.dialogue.is_open() && self.look_at <= Instant::now() {
                self.look_at = Instant::now() + LOOK;
                self.look().await?;
            }
            let until = self.open.sign_at().min(Instant::now() + CHECK);
            let until = if self.dialogue.is_open() { until.min(self.look_at) } else { until };
            tokio::select! {
                message = self.socket.recv() => self.heard(message).await?,
                news = self.news.next(), if self.dialogue.is_open() => self.moved(news).await?,
                Some((id, outcome)) = self.deciding.next() => self.decided(id, outcome).await?,
                () = sleep_until(until) => {}
            }
        }
    }

    /// Checks that the connection may go on, and sends a ping where one is due.
    async fn check(&mut self) -> Result<(), Parting> {
        if self.open.gateway().life.is_draining() {
            return Err(Parting::Close(SERVICE_RESTART, "this replica stops; connect again"));
        }
        if self.open.must_end() {
            return Err(Parting::Close(close_code::POLICY, "the API key is not valid any more"));
        }
        if self.heard_at.elapsed() >= SILENT_MAX {
            return Err(Parting::Close(close_code::POLICY, "pings were not answered"));
        }
        if self.open.is_sign_due() {
            self.send(Message::Ping(Bytes::new())).await?;
        }
        Ok(())
    }

    async fn heard(&mut self, message: Option<Result<Message, axum::Error>>) -> Result<(), Parting> {
        self.heard_at = Instant::now();
        match message {
            Some(Ok(Message::Text(text))) => {
                let reaction = self.dialogue.hear(&text);
                self.act(reaction).await
            }
            Some(Ok(Message::Binary(_))) => {
                Err(Parting::Close(close_code::UNSUPPORTED, "messages are texts"))
            }
            // answered by the socket itself
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => Ok(()),
            Some(Ok(Message::Close(_))) => {
                // the reply is written with the next read
                drop(timeout(SEND_MAX, self.socket.recv()).await);
                Err(Parting::Gone)
            }
            None => Err(Parting::Gone),
            // the limit, or no WebSocket; a lost connection takes no close frame
            Some(Err(_)) => Err(Parting::Close(close_code::SIZE, "a message is too long, or malformed")),
        }
    }

    async fn act(&mut self, reaction: Reaction) -> Result<(), Parting> {
        self.say(reaction.messages).await?;
        for act in reaction.acts {
            match act {
                AcpAct::Greeted(client) => {
                    let (name, version) = client.unzip();
                    self.attempt.client = Client { name, version: version.flatten() };
                }
                AcpAct::Look => self.look_at = Instant::now(),
                AcpAct::Decide(id, decision) => {
                    let consent = &self.open.gateway().consent;
                    let deciding = consent.decide_attached(self.begun(), id, decision);
                    self.deciding.push(Box::pin(async move { (id, deciding.await) }));
                }
                AcpAct::EndTurn if self.stop_at <= Instant::now() => {
                    self.stop_at = Instant::now() + STOP_PAUSE;
                    self.open.gateway().consent.end_own_turn(self.begun());
                }
                AcpAct::EndTurn => {}
            }
        }
        Ok(())
    }

    /// Returns the attempt of a decision, which begins now.
    fn begun(&self) -> Attempt {
        let now = Attempt::now(Arc::clone(&self.attempt.caller), self.attempt.source);
        Attempt { started_at: now.started_at, started: now.started, ..self.attempt.clone() }
    }

    /// Reads what is open, and how those went on that the client knows. Tells it once all is read: news of the tenant wait
    /// meanwhile.
    async fn look(&mut self) -> Result<(), Parting> {
        let mut views = Vec::new();
        let held = self.news.hold().await;
        views.extend(std::iter::from_fn(|| self.news.rest()));
        let consent = &self.open.gateway().consent;
        if let Ok(present) = consent.present(&self.attempt.caller) {
            self.attempt.caller = present;
        }
        let caller = &*self.attempt.caller;
        // without a database the next look is soon
        if let Ok(open) = consent.list_put_to(caller, REQUESTS_MAX as i64).await {
            let is_open = |id: &Uuid| open.iter().any(|view| view.row.id == *id);
            let gone: Vec<Uuid> = self.dialogue.known().filter(|id| !is_open(id)).collect();
            if !gone.is_empty() {
                let filter = ConsentFilter { ids: Some(gone), ..ConsentFilter::default() };
                let gone = consent.list(caller, filter, REQUESTS_MAX as i64).await.unwrap_or_default();
                views.extend(gone.into_iter().map(Arc::new));
            }
            views.extend(open.into_iter().map(Arc::new));
        }
        drop(held);
        for view in views {
            self.see(&view).await?;
        }
        Ok(())
    }

    async fn moved(&mut self, news: Option<Arc<ConsentView>>) -> Result<(), Parting> {
        match news {
            Some(view) => self.see(&view).await,
            // some news were lost
            None => {
                self.look_at = Instant::now();
                Ok(())
            }
        }
    }

    /// Tells the client of a request, if that is its business.
    async fn see(&mut self, view: &Arc<ConsentView>) -> Result<(), Parting> {
        let caller = &*self.attempt.caller;
        if !view.is_visible_to(caller) {
            return Ok(());
        }
        let messages = self.dialogue.see(view, view.is_put_to(caller));
        self.say(messages).await
    }

    async fn decided(
        &mut self,
        id: Uuid,
        outcome: Option<Result<ConsentView, GatewayError>>,
    ) -> Result<(), Parting> {
        let is_fault = match outcome {
            Some(Ok(view)) => return self.see(&Arc::new(view)).await,
            // somebody else was first, or its time is over: the client is told with the next look
            Some(Err(GatewayError::Conflict(_))) => {
                self.look_at = Instant::now();
                return Ok(());
            }
            Some(Err(GatewayError::Unavailable)) | None => false,
            Some(Err(_)) => true,
        };
        let messages = self.dialogue.not_decided(id, is_fault);
        self.say(messages).await
    }

    async fn say(&mut self, messages: Vec<String>) -> Result<(), Parting> {
        for message in messages {
            // a client that reads slowly must not outlive its key, nor the replica's drain
            self.check().await?;
            self.send(Message::text(message)).await?;
        }
        Ok(())
    }

    async fn send(&mut self, message: Message) -> Result<(), Parting> {
        match timeout(SEND_MAX, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Parting::Gone),
        }
    }
}
