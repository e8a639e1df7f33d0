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
use crate::domain::id::TenantId;
use crate::faces::sse::{CHECK, OpenStream};
use crate::gateway::{
    Attempt, Client, Consent, ConsentBoard, ConsentHeard, ConsentNews, ConsentView, GatewayError,
    next_consent_poll,
};

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
/// Pause before a request is put again after an answer that could not count.
const AGAIN: Duration = Duration::from_secs(5);
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
    /// Time at which open requests are read again, if no news come.
    poll_at: Instant,
    /// Time at which requests are put again whose answers could not count.
    again_at: Option<Instant>,
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
            poll_at: now,
            again_at: None,
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
            let mut until = self.open.sign_at().min(Instant::now() + CHECK);
            if self.dialogue.is_open() {
                until = until.min(self.ask_for_board());
            }
            tokio::select! {
                message = self.socket.recv() => self.heard(message).await?,
                heard = self.news.heard(), if self.dialogue.is_open() => self.told(heard).await?,
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
                AcpAct::Look => {
                    // what was told to no session may be over
                    self.news.restart();
                    self.consent().want_board(self.tenant(), false);
                }
                AcpAct::Decide(id, decision) => {
                    let deciding = self.consent().decide_attached(self.begun(), id, decision);
                    self.deciding.push(Box::pin(async move { (id, deciding.await) }));
                }
                AcpAct::EndTurn if self.stop_at <= Instant::now() => {
                    self.stop_at = Instant::now() + STOP_PAUSE;
                    self.consent().end_own_turn(self.begun());
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

    fn consent(&self) -> &Arc<Consent> {
        &self.open.gateway().consent
    }

    fn tenant(&self) -> TenantId {
        self.attempt.caller.tenant_id()
    }

    /// Asks for a board where one is due. Returns when the next one is.
    fn ask_for_board(&mut self) -> Instant {
        let now = Instant::now();
        let is_again = self.again_at.take_if(|at| *at <= now).is_some();
        if self.dialogue.wants_more() || is_again {
            self.consent().want_board(self.tenant(), false);
        }
        if self.poll_at <= now {
            self.consent().want_board(self.tenant(), true);
            self.poll_at = next_consent_poll(now);
        }
        self.again_at.map_or(self.poll_at, |at| at.min(self.poll_at))
    }

    async fn told(&mut self, heard: ConsentHeard) -> Result<(), Parting> {
        match heard {
            ConsentHeard::Moved(view) => self.see(&view).await,
            ConsentHeard::Board(board) => self.see_board(&board).await,
            ConsentHeard::Lost => {
                self.consent().want_board(self.tenant(), false);
                Ok(())
            }
        }
    }

    /// Puts what is open and not known yet. How those went on that are known and open no more is read for all at once.
    async fn see_board(&mut self, board: &ConsentBoard) -> Result<(), Parting> {
        self.poll_at = next_consent_poll(Instant::now());
        self.refresh();
        let last = board.views.last().map(|view| view.row.id);
        let is_beyond = |id: &Uuid| !board.is_whole && Some(*id) > last;
        let is_open = |id: &Uuid| board.views.binary_search_by_key(id, |view| view.row.id).is_ok();
        let known = self.dialogue.known();
        let gone: Vec<Uuid> = known.filter(|id| !is_open(id) && !is_beyond(id)).collect();
        self.consent().reread(self.tenant(), gone);
        for view in &board.views {
            self.see(view).await?;
        }
        if !board.is_whole && self.dialogue.has_room() {
            // others have more open than a board holds; without a database the next board is soon
            let caller = &self.attempt.caller;
            let more = self.consent().list_put_to(caller, last, REQUESTS_MAX as i64).await;
            for view in more.unwrap_or_default() {
                self.see(&Arc::new(view)).await?;
            }
        }
        Ok(())
    }

    /// Takes the caller's settings of now.
    fn refresh(&mut self) {
        if let Ok(present) = self.consent().present(&self.attempt.caller) {
            self.attempt.caller = present;
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
        let messages = match outcome {
            Some(Ok(view)) => return self.see(&Arc::new(view)).await,
            // somebody else was first, or its time is over
            Some(Err(GatewayError::Conflict(_))) => {
                self.consent().reread(self.tenant(), [id]);
                return Ok(());
            }
            Some(Err(GatewayError::Invalid { .. })) => self.dialogue.missed(id),
            Some(Err(GatewayError::Unavailable | GatewayError::Busy(_))) | None => {
                self.dialogue.forget(id);
                self.consent().want_board(self.tenant(), false);
                return Ok(());
            }
            // no fault of the answer: a right or a limit
            Some(Err(error)) => {
                self.refresh();
                self.again_at = Some(Instant::now() + AGAIN);
                self.dialogue.refused(id, &error.to_string())
            }
        };
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
