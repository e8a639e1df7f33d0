//! Life of one program: start, handshake, use, end.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use bytes::Bytes;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::process::{Pipes, Process};
use super::reader::{LineReader, STALL_WAIT_MAX, log_errors};
use super::state::{Ended, ProgramSession, Shared, Start};
use super::wire::{self, PipeRequest, PipeWire};
use crate::domain::era::Era;
use crate::domain::measure::{Between, Transport};
use crate::domain::relay::Relay;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::hello::{HELLO_BYTES_MAX, VERSIONS, modern_offers, version_of};
use crate::upstream::protocol::jsonrpc::{self, Answer, MODERN, Meta};
use crate::upstream::protocol::measures::{Life, OwnRequest, end};
use crate::upstream::protocol::offers::DeclaredOffers;
use crate::upstream::protocol::sent::Sent;

/// Longest time to read what a program wrote before its end.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(1);

/// Starts a program, in a task that stays with it until it has ended.
pub(super) fn begin(shared: &Arc<Shared>, Start { place, end }: Start) {
    let shared = Arc::clone(shared);
    let tasks = shared.children.tasks.clone();
    tasks.spawn(async move {
        let began = Instant::now();
        let ended = run(&shared, &end).await;
        drop(place);
        shared.ended(ended, began.elapsed());
    });
}

/// Starts the program and stays with it until it has ended; returns how it ended.
async fn run(shared: &Shared, end: &CancellationToken) -> Ended {
    let (mut process, pipes) =
        match Process::spawn(&shared.command, shared.children.rules.confinement.as_ref()) {
            Ok(spawned) => spawned,
            Err(why) => return Ended::Failed(why),
        };
    let id = process.id().unwrap_or_default();
    shared.children.warden.watch(id);
    shared.log.started(id);
    let (wire, mut tasks) = connect(shared, pipes);
    let ended = tokio::select! {
        biased;
        () = end.cancelled() => Ended::Asked,
        how = process.ended() => Ended::Failed(format!("it ended with {how}")),
        () = tasks.any_pipe_closed() => match timeout(DRAIN_WAIT_MAX, process.ended()).await {
            Ok(how) => Ended::Failed(format!("it ended with {how}")),
            Err(_) => Ended::Failed("it closed its standard input or output".to_owned()),
        },
        ended = serve(shared, &wire) => ended,
    };
    if let Ended::Failed(_) = ended {
        shared.broke();
    }
    shared.is_ending(&ended);
    if process.has_ended() {
        // its last output counts; processes that it left behind could keep the pipes open
        process.kill_group().await;
        tasks.drained().await;
    }
    wire.close();
    tasks.close_input();
    process.end().await;
    tasks.drained().await;
    shared.children.warden.forget(id);
    match ended {
        Ended::Idle => shared.log.event("ended: nobody called it; the next call starts it again"),
        Ended::Asked => shared.log.event("ended by the gateway"),
        // logged together with the backoff
        Ended::Failed(_) => {}
    }
    ended
}

/// Opens the session, then waits until the program is no longer used.
async fn serve(shared: &Shared, wire: &Arc<PipeWire>) -> Ended {
    match timeout(shared.children.rules.start_timeout, open(shared, wire)).await {
        Ok(Ok(session)) => shared.is_up(session),
        Ok(Err(error)) => {
            let detail = if error.detail.is_empty() { error.kind.sentence().into() } else { error.detail };
            return Ended::Failed(detail.into_owned());
        }
        Err(_) => {
            let seconds = shared.children.rules.start_timeout.as_secs();
            return Ended::Failed(format!("it did not answer within {seconds} s of its start"));
        }
    }
    shared.idle().await;
    Ended::Idle
}

/// Tasks of a program's pipes.
struct Tasks {
    /// Tasks of standard input and standard output.
    messages: JoinSet<()>,
    writer: tokio::task::AbortHandle,
    errors: JoinSet<()>,
}

fn connect(shared: &Shared, pipes: Pipes) -> (Arc<PipeWire>, Tasks) {
    let (wire, outgoing) = PipeWire::new();
    let wire = Arc::new(wire);
    let reader = LineReader {
        wire: Arc::clone(&wire),
        log: Arc::clone(&shared.log),
        share: shared.share.clone(),
        stall_max: STALL_WAIT_MAX,
    };
    let (mut messages, mut errors) = (JoinSet::new(), JoinSet::new());
    let writer = messages.spawn(wire::write(pipes.stdin, outgoing));
    messages.spawn(reader.read(pipes.stdout));
    errors.spawn(log_errors(pipes.stderr, Arc::clone(&shared.log)));
    (wire, Tasks { messages, writer, errors })
}

impl Tasks {
    /// Waits until the program has closed its input or output.
    async fn any_pipe_closed(&mut self) {
        drop(self.messages.join_next().await);
    }

    /// Closes the program's standard input.
    fn close_input(&self) {
        self.writer.abort();
    }

    /// Waits until everything that the program wrote is read, for at most [`DRAIN_WAIT_MAX`].
    async fn drained(&mut self) {
        self.close_input();
        let all = async {
            while self.messages.join_next().await.is_some() {}
            while self.errors.join_next().await.is_some() {}
        };
        drop(timeout(DRAIN_WAIT_MAX, all).await);
    }
}

/// Detects the era and opens the session. The handshake is tried first, since nearly all such programs speak it.
async fn open(shared: &Shared, wire: &Arc<PipeWire>) -> Result<ProgramSession, UpstreamError> {
    let measures = &shared.children.measures;
    let modern = |offers| ProgramSession {
        era: Era::Modern,
        offers,
        wire: Arc::clone(wire),
        version: MODERN,
        life: None,
    };
    if shared.era() == Some(Era::Modern)
        && let Some(offers) = discover(wire).await?
    {
        return Ok(modern(offers));
    }
    let id = wire.id();
    let [offered, ..] = VERSIONS;
    let sent = Sent::default();
    let asked = OwnRequest::begin(measures, "initialize", Transport::Pipe, &sent);
    let relay = Relay { roots: false, ..shared.relay };
    let answer = ask(wire, id, jsonrpc::initialize(id, offered, &relay.capabilities())).await;
    asked.ended(end(&answer));
    let result = match answer? {
        Answer::Result(result) => result,
        Answer::Error { code, .. } => {
            if let Some(offers) = discover(wire).await? {
                return Ok(modern(offers));
            }
            return Err(UpstreamError::unsent(
                FailureKind::Invalid,
                format!("initialize was refused with code {code}"),
            ));
        }
    };
    let version = version_of(&result)?;
    wire.tell(&jsonrpc::notification("notifications/initialized"));
    let between = Between { transport: Transport::Pipe, version: Some(version) };
    let offers = DeclaredOffers::of(&result);
    if shared.relay.logging && offers.logging {
        wire.tell(&jsonrpc::log_everything(wire.id()));
    }
    let (offers, life) = (offers, Some(Life::begin(measures, between)));
    Ok(ProgramSession { era: Era::Handshake, offers, wire: Arc::clone(wire), version, life })
}

/// Returns what the program declares; `None` if it does not speak the modern era.
async fn discover(wire: &PipeWire) -> Result<Option<DeclaredOffers>, UpstreamError> {
    let id = wire.id();
    let meta = Meta { modern: true, ..Meta::default() };
    let answer = ask(wire, id, jsonrpc::request(id, "server/discover", &[], meta)).await?;
    Ok(modern_offers(&answer))
}

async fn ask(wire: &PipeWire, id: u64, body: Bytes) -> Result<Answer, UpstreamError> {
    let request = PipeRequest {
        id,
        body,
        bytes_max: HELLO_BYTES_MAX,
        caller: None,
        ear: None,
        may_ask: false,
        dispatched: &AtomicBool::new(false),
        farewell: None,
    };
    wire.ask(request).await
}
