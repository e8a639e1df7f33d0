//! Announcement stream of one server: opened, followed, and opened again.

use std::convert::Infallible;
use std::future::pending;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::watched::Watched;
use crate::domain::backoff::Backoff;
use crate::domain::server::ConnectionState;
use crate::gateway::servers::{ListingError, What};
use crate::gateway::upkeep::Upkeep;
use crate::gateway::upkeep::damping::ListingDamping;
use crate::store::{Applied, DueServer, Right, Server, StoreError};
use crate::upstream::{Announced, DeclaredOffers, Era, ListKind, Target, WatchEnd, Watcher};

/// Longest backoff between attempts to open a stream.
const BACKOFF_MAX: Duration = Duration::from_secs(60);
/// Backoff between attempts to open a stream, before the first failure.
pub(super) const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), BACKOFF_MAX);
/// Duration after which a stream counts as good: the next failure is the first again.
const GOOD_LIFE: Duration = Duration::from_secs(30);
/// Pause before a server without announcements is tried again.
const UNSUPPORTED_PAUSE: Duration = Duration::from_secs(600);
/// Time for opening a stream after which the next server may open its own as well.
const TURN_MAX: Duration = Duration::from_millis(500);
/// Longest pause of a server that keeps its slot; beyond it the slot goes to others.
const PAUSE_IN_PLACE_MAX: Duration = Duration::from_secs(5);
/// Spread of the first attempts, in milliseconds; pauses are spread by up to a quarter.
const JITTER_MS_MAX: u64 = 250;

/// Kinds of announcements that are awaited.
const ANNOUNCED: [Announced; 3] = [Announced::Tools, Announced::Prompts, Announced::Resources];

/// Announced changes that are not listed yet, by kind.
#[derive(Default)]
struct Told {
    tools: Notify,
    prompts: Notify,
    resources: Notify,
}

impl Told {
    fn of(&self, what: Announced) -> &Notify {
        match what {
            Announced::Tools => &self.tools,
            Announced::Prompts => &self.prompts,
            Announced::Resources => &self.resources,
        }
    }
}

/// Reason why a server is not followed now.
enum Ended {
    /// The server is not connected or has changed; the task that compares with the database ends this one.
    Away,
    /// The stream ended.
    Stream(WatchEnd),
}

fn pause_after(ended: &Ended, lived: Duration, backoff: &mut Backoff) -> Duration {
    backoff.worked_for(lived, GOOD_LIFE);
    match ended {
        Ended::Stream(WatchEnd::Unsupported(_)) => UNSUPPORTED_PAUSE,
        Ended::Away => BACKOFF_MAX,
        Ended::Stream(WatchEnd::Lost(_)) => backoff.delay(),
    }
}

impl Upkeep {
    /// Awaits a server's announcements and lists it after each, until `stop`, or until a long pause gives its slot to
    /// others.
    pub(super) async fn watch_server(
        self: Arc<Self>,
        due: DueServer,
        watched: Arc<Watched>,
        mut backoff: Backoff,
        stop: CancellationToken,
    ) {
        let jitter = u64::try_from(due.server.0.as_u128() % u128::from(JITTER_MS_MAX)).unwrap_or_default();
        let mut pause = Duration::from_millis(jitter);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = sleep(pause) => {}
            }
            let ended = tokio::select! {
                () = stop.cancelled() => return,
                ended = self.follow_server(&due, &watched) => ended,
            };
            let lived = watched.went_down(Instant::now());
            pause = pause_after(&ended, lived, &mut backoff);
            pause += pause.mul_f64(jitter as f64 / JITTER_MS_MAX as f64 / 4.0);
            if let Ended::Stream(end) = ended {
                let (tenant, server) = (due.tenant, &due.name);
                tracing::debug!(%tenant, server, ?end, ?pause, "a server's announcements are not awaited");
            }
            if pause > PAUSE_IN_PLACE_MAX {
                return self.streams.rest(&due, &watched, backoff, Instant::now() + pause);
            }
        }
    }

    /// Opens a server's stream and follows it to its end.
    async fn follow_server(&self, due: &DueServer, watched: &Watched) -> Ended {
        let (stream, hears_all) = match self.open_in_turn(due).await {
            Ok(stream) => stream,
            Err(ended) => return ended,
        };
        watched.went_live(Instant::now());
        if !hears_all {
            watched.hears_a_part();
        }
        let told = Told::default();
        // changes from before the stream were not announced here, so each kind is listed once
        match stream.hears() {
            // the first listing covers all kinds
            hears if hears.contains(&Announced::Tools) => told.tools.notify_one(),
            hears => hears.iter().for_each(|what| told.of(*what).notify_one()),
        }
        let on_change = |what| {
            watched.announced(what, Instant::now());
            told.of(what).notify_one();
        };
        tokio::select! {
            end = stream.follow(on_change) => Ended::Stream(end),
            never = self.list_when_told(due, watched, &told.tools) => match never {},
            never = self.list_offers_when_told(due, Announced::Prompts, &told.prompts) => match never {},
            never = self.list_offers_when_told(due, Announced::Resources, &told.resources) => match never {},
        }
    }

    /// Opens a server's stream with one of a few permits, so that a replica that takes over does not open all at once. A
    /// slow server loses its permit, so that it delays no other.
    async fn open_in_turn(&self, due: &DueServer) -> Result<(Watcher, bool), Ended> {
        let turn = self.streams.opening.acquire().await;
        let mut opening = pin!(self.open_stream(due));
        tokio::select! {
            opened = &mut opening => return opened,
            () = sleep(TURN_MAX) => drop(turn),
        }
        opening.await
    }

    /// Opens the stream, and returns whether all kinds that the server has are announced on it.
    async fn open_stream(&self, due: &DueServer) -> Result<(Watcher, bool), Ended> {
        let Ok(Some(server)) = self.server_as_due(due).await else { return Err(Ended::Away) };
        let Ok(target) = self.servers.listing_target(due.tenant, &server).await else {
            return Err(Ended::Away);
        };
        if !self.may_announce(&target).await {
            return Err(Ended::Stream(WatchEnd::Unsupported("it announces no changes")));
        }
        let watcher = self.upstreams.watch(&target, &ANNOUNCED).await.map_err(Ended::Stream)?;
        let offers = self.upstreams.connection(&target).offers().await;
        let hears_all = hears_all(watcher.hears(), offers.ok());
        Ok((watcher, hears_all))
    }

    /// Returns whether a server may announce changes, by the capabilities in its handshake. Servers without announcements
    /// are spared a useless session.
    async fn may_announce(&self, target: &Target) -> bool {
        if target.era != Some(Era::Handshake) {
            return true;
        }
        let connection = self.upstreams.connection(target);
        let may = |what| connection.announces(what) != Some(false);
        if connection.announces(Announced::Tools).is_none()
            && let Err(error) = connection.ping().await
        {
            tracing::debug!(%error, "a server did not answer before its stream was opened");
        }
        ANNOUNCED.into_iter().any(may)
    }

    async fn list_when_told(&self, due: &DueServer, watched: &Watched, told: &Notify) -> Infallible {
        let mut damping = ListingDamping::default();
        let (mut let_in, mut whole) = (None, true);
        loop {
            tokio::select! {
                () = told.notified() => {}
                () = sleep_until_some(let_in) => {}
            }
            let listed = Box::pin(self.list_as_announced(due, whole)).await;
            whole &= listed.is_none();
            let now = Instant::now();
            let held = listed.as_ref().and_then(|listed| listed.held);
            let_in = held.map(|left| now + left);
            match (&listed, held) {
                (Some(_), None) => watched.listed(now),
                (Some(_), Some(_)) => watched.holds_back(),
                // the listing failed, so the announcement still stands
                (None, _) => told.notify_one(),
            }
            let changes = listed.map_or(0, |listed| listed.written + listed.removed);
            sleep(damping.pause(now, changes)).await;
        }
    }

    /// Lists the prompts, or resources and templates, of a server after each announcement.
    async fn list_offers_when_told(&self, due: &DueServer, what: Announced, told: &Notify) -> Infallible {
        let mut damping = ListingDamping::default();
        loop {
            told.notified().await;
            let listed = self.list_offers_as_announced(due, what).await;
            if listed.is_none() {
                // the listing failed, so the announcement still stands
                told.notify_one();
            }
            sleep(damping.pause(Instant::now(), listed.unwrap_or_default())).await;
        }
    }

    async fn list_offers_as_announced(&self, due: &DueServer, what: Announced) -> Option<usize> {
        let lease = self.streams.lease()?;
        let server = self.server_as_due(due).await.ok()??;
        match self.servers.list_offers(due.tenant, &server, what, Right::Lease(lease)).await {
            Ok(changes) => Some(changes),
            Err(error) => {
                tracing::debug!(tenant = %due.tenant, server = due.name, %error, "a server could not be listed");
                if matches!(error, ListingError::Store(StoreError::LostLease)) {
                    self.streams.lost(lease);
                }
                None
            }
        }
    }

    /// Lists a server, or only its tools, while this replica holds the lease. Returns `None` on failure.
    async fn list_as_announced(&self, due: &DueServer, whole: bool) -> Option<Applied> {
        let lease = self.streams.lease()?;
        let server = self.server_as_due(due).await.ok()??;
        let what = if whole { What::All } else { What::Tools };
        match self.servers.list_of_server(due.tenant, &server, what, Right::Lease(lease)).await {
            Ok(applied) => Some(applied),
            Err(error) => {
                tracing::debug!(tenant = %due.tenant, server = due.name, %error, "a server could not be listed");
                if matches!(error, ListingError::Store(StoreError::LostLease)) {
                    self.streams.lost(lease);
                }
                None
            }
        }
    }

    /// Returns the server's row; `None` if it has changed or is not enabled and connected.
    pub(super) async fn server_as_due(&self, due: &DueServer) -> Result<Option<Server>, StoreError> {
        let server = match self.store.served_server(due.tenant, due.server).await {
            Err(StoreError::NotFound) => return Ok(None),
            other => other?,
        };
        let is_connected = server.connection == ConnectionState::Connected;
        let is_it = server.version == due.version && server.enabled && is_connected;
        Ok(Some(server).filter(|_| is_it))
    }
}

/// Returns whether all kinds that a server declared are announced; `false` if its declaration is unknown.
fn hears_all(heard: &[Announced], offers: Option<DeclaredOffers>) -> bool {
    let is_heard = |what| heard.contains(&what);
    offers.is_some_and(|offers| {
        is_heard(Announced::Tools)
            && (is_heard(Announced::Prompts) || !offers.has(ListKind::Prompts))
            && (is_heard(Announced::Resources) || !offers.has(ListKind::Resources))
    })
}

/// Sleeps until a time; for ever without one.
async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at.into()).await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::{DeclaredOffer, FailureKind, UpstreamError};

    #[test]
    fn all_is_heard_of_who_says_what_it_has() {
        let tools = DeclaredOffers { tools: DeclaredOffer::Announced, ..DeclaredOffers::default() };
        let both = DeclaredOffers { resources: DeclaredOffer::Listed, ..tools };
        let heard = [Announced::Tools, Announced::Resources];
        assert!(hears_all(&heard[..1], Some(tools)) && hears_all(&heard, Some(both)));
        assert!(!hears_all(&heard[..1], Some(both)) && !hears_all(&heard[1..], Some(both)));
        assert!(!hears_all(&heard, None), "who knows");
    }

    #[test]
    fn pauses_double_until_a_stream_has_lived() {
        let lost = || {
            let error = UpstreamError {
                kind: FailureKind::Lost,
                dispatched: true,
                detail: "".into(),
                is_shared: false,
                aside: None,
            };
            Ended::Stream(WatchEnd::Lost(error))
        };
        let mut backoff = BACKOFF;
        let pauses: Vec<_> =
            (0..8).map(|_| pause_after(&lost(), Duration::ZERO, &mut backoff).as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause_after(&lost(), GOOD_LIFE, &mut backoff).as_secs(), 1);
        let unsupported = Ended::Stream(WatchEnd::Unsupported("x"));
        assert_eq!(pause_after(&unsupported, Duration::ZERO, &mut backoff), UNSUPPORTED_PAUSE);
    }
}
