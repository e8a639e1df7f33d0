//! Lifecycle of one server's program: started when it is needed, ended when no calls come, left alone for a backoff
//! when it fails.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

use super::children::{Children, Full, RunningProgram};
use super::life;
use super::open::Open;
use super::state::{Now, ProgramSession, Shared};
use super::wire::PipeRequest;
use crate::domain::era::Era;
use crate::domain::measure::{Measures, Transport};
use crate::upstream::admission::shares::Share;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::ask::Ask;
use crate::upstream::protocol::exchange::{Exchanged, UpstreamExchange, UpstreamWork};
use crate::upstream::protocol::jsonrpc::{self, Answer, Meta};
use crate::upstream::protocol::offers::DeclaredOffers;
use crate::upstream::protocol::sent::Sent;
use crate::upstream::target::{Program, Target};

/// Longest wait for a program to end during a restart.
const RESTART_WAIT_MAX: Duration = Duration::from_secs(10);

/// Longest wait, after the pipe to a program broke, for the program to end.
const END_WAIT_MAX: Duration = Duration::from_secs(1);

/// Handle of one server's program on this replica. Dropping it ends the program.
pub(in crate::upstream) struct Keeper {
    shared: Arc<Shared>,
}

impl Keeper {
    /// Creates the handle; the first request starts the program.
    ///
    ///
    /// # Errors
    /// [`FailureKind::NotRunning`] if the deployment has no such program for this tenant.
    pub(in crate::upstream) fn new(
        children: &Arc<Children>,
        target: &Target,
        program: &Program,
        share: Share,
    ) -> Result<Self, UpstreamError> {
        let not_running = FailureKind::NotRunning { retry_s: None };
        let command = program.command.clone();
        let command = command.map_err(|error| UpstreamError::unsent(not_running, error.sentence()))?;
        let shared = Shared::new(children, target, command, share);
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Sends a request and waits for its answer; starts the program first if need be.
    async fn pass(&self, ask: &Ask<'_>, sent: &Sent) -> Result<Answer, UpstreamError> {
        let _open = Open::new(&self.shared, ask.method);
        let session = self.session().await?;
        let start = self.shared.start();
        let id = session.wire.id();
        let meta = Meta {
            modern: session.era == Era::Modern,
            progress_token: ask.progress_token(id),
            log: ask.ear.and_then(|ear| ear.log_level()),
            round: ask.round,
            extra: ask.meta,
        };
        meta.check_rounds()?;
        sent.goes_out(id, session.version);
        let request = PipeRequest {
            id,
            body: jsonrpc::request(id, ask.method, ask.members, meta),
            bytes_max: ask.bytes_max,
            // the gateway's own requests have no rounds
            caller: ask.round.map(|_| ask.caller),
            ear: ask.ear,
            may_ask: session.era == Era::Handshake,
            dispatched: &sent.dispatched,
            farewell: Some(jsonrpc::cancelled(id)),
        };
        match session.wire.ask(request).await {
            // a caller hears at once that the program is gone; whoever lists it hears why
            Err(error) if ask.round.is_none() && error.kind == FailureKind::Lost => {
                Err(self.with_end(error, start).await)
            }
            answered => answered,
        }
    }

    /// Adds to an error, for the operator, how the program of this start ended, as soon as that is known.
    async fn with_end(&self, error: UpstreamError, start: u64) -> UpstreamError {
        drop(timeout(END_WAIT_MAX, self.until_ended(start)).await);
        match self.shared.last_end() {
            Some(end) => error.with_aside(end),
            None => error,
        }
    }

    /// Waits until the program of this start, or of an earlier one, has ended.
    async fn until_ended(&self, start: u64) {
        loop {
            let moved = self.shared.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if self.shared.has_ended(start) {
                return;
            }
            moved.await;
        }
    }

    /// Returns the session with the running program. The first caller starts it, later ones wait for the same start.
    async fn session(&self) -> Result<Arc<ProgramSession>, UpstreamError> {
        let patience = Instant::now() + self.shared.children.rules.start_timeout;
        loop {
            let moved = self.shared.moved.notified();
            tokio::pin!(moved);
            // from here on no change is missed
            moved.as_mut().enable();
            let children = &self.shared.children;
            let freed = children.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            match self.shared.session_now()? {
                Now::Up(session) => return Ok(session),
                Now::Coming => moved.await,
                Now::Due(start) => life::begin(&self.shared, start),
                Now::Full(Full::Before) if Instant::now() < patience => tokio::select! {
                    () = moved => {}
                    () = freed => {}
                    () = sleep_until(patience) => {}
                },
                Now::Full(full) if full != Full::Before && children.make_room(self.shared.tenant, full) => {
                    tokio::select! {
                        () = moved => {}
                        () = freed => {}
                    }
                }
                Now::Full(full) => return Err(UpstreamError::unsent(FailureKind::NoPlace, full.sentence())),
            }
        }
    }

    /// Ends the program and the requests that it is answering; the next request starts it again.
    async fn end_now(&self) {
        let found = self.shared.end_now();
        self.shared.children.end_before(&self.shared);
        drop(timeout(RESTART_WAIT_MAX, self.until_ended(found)).await);
        self.shared.end_rest();
    }
}

impl UpstreamExchange for Keeper {
    fn exchange<'a>(
        &'a self,
        ask: &'a Ask<'_>,
        sent: &'a Sent,
    ) -> UpstreamWork<'a, Result<Exchanged, UpstreamError>> {
        Box::pin(async move { self.pass(ask, sent).await.map(Exchanged::Answer) })
    }

    fn measures(&self) -> &Measures {
        &self.shared.children.measures
    }

    fn transport(&self) -> Transport {
        Transport::Pipe
    }

    fn era(&self) -> Option<Era> {
        self.shared.era()
    }

    fn found_era(&self) -> UpstreamWork<'_, Result<Era, UpstreamError>> {
        Box::pin(async move { Ok(self.session().await?.era) })
    }

    fn last_offers(&self) -> Option<DeclaredOffers> {
        self.shared.offers()
    }

    fn known_offers(&self) -> Option<DeclaredOffers> {
        self.shared.offers()
    }

    fn known_offers_since(&self, _: Instant) -> Option<DeclaredOffers> {
        self.shared.offers()
    }

    /// Returns what the program declares. Its declaration holds for as long as it runs.
    fn offers_since(&self, _: Instant) -> UpstreamWork<'_, Result<DeclaredOffers, UpstreamError>> {
        self.offers()
    }

    fn offers(&self) -> UpstreamWork<'_, Result<DeclaredOffers, UpstreamError>> {
        Box::pin(async move { Ok(self.session().await?.offers) })
    }

    fn is_run_here(&self) -> bool {
        true
    }

    fn is_asleep(&self) -> bool {
        self.shared.is_asleep()
    }

    fn end_rest(&self) {
        self.shared.end_rest();
    }

    fn restart(&self) -> Option<UpstreamWork<'_, ()>> {
        Some(Box::pin(self.end_now()))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}
