//! Updates of the resources that one stream is about: which are watched for it, and which it is told of.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::watches::WatchHold;
use super::{ClientSessions, SessionKey, StreamLine, readable};
use crate::domain::id::KeyId;
use crate::gateway::catalog::ServerEntry;
use crate::gateway::tenants::Caller;
use crate::store::{SESSION_URIS_MAX, SessionOf, StoreError};

/// Debounce time after a notification. Updates within it are told together at its end.
const MERGE: Duration = Duration::from_millis(200);
/// Pause before wishes that could not be read are read again, and resources without a free watch are tried again.
const RETRY: Duration = Duration::from_secs(5);
/// Longest wait of a stream for what its session wishes.
const READ_WAIT_MAX: Duration = Duration::from_secs(1);

/// Time of the next notifications of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UpdatesDue {
    /// None is due.
    Nothing,
    /// Something may be due then.
    At(Instant),
    /// Notifications about these URIs are due now.
    Now(Vec<String>),
}

/// Follower of the resources that a stream is about.
pub struct ResourceNews {
    sessions: Arc<ClientSessions>,
    line: Arc<StreamLine>,
    /// Session whose subscriptions are followed, with its key; `None` for a stream that named its resources itself.
    session: Option<(SessionKey, Option<KeyId>)>,
    uris: Vec<String>,
    /// Revision of the catalogue, and settings, by which the watches were chosen.
    chosen: Option<(i64, Arc<Caller>)>,
    watched: HashMap<String, WatchedUri>,
    read_at: Option<Instant>,
    choose_at: Option<Instant>,
    last: Option<Instant>,
}

struct WatchedUri {
    hold: WatchHold,
    /// Number of the update that the client was told of last; 0 for none.
    told: u64,
}

impl ClientSessions {
    /// Follows the subscriptions of a session for one of its streams.
    pub fn follow(self: &Arc<Self>, caller: &Caller, session: &str) -> ResourceNews {
        let key = (caller.tenant_id(), session.to_owned());
        let line = Arc::new(StreamLine::default());
        // registered before the first read, so that no change falls in between
        line.is_behind.store(true, Ordering::SeqCst);
        self.follow_session(&key, &line);
        self.news(line, Some((key, caller.key)), Vec::new())
    }

    /// Follows resources that a stream names itself, at most [`SESSION_URIS_MAX`].
    pub fn follow_uris(self: &Arc<Self>, mut uris: Vec<String>) -> ResourceNews {
        uris.truncate(SESSION_URIS_MAX);
        self.news(Arc::default(), None, uris)
    }

    fn news(
        self: &Arc<Self>,
        line: Arc<StreamLine>,
        session: Option<(SessionKey, Option<KeyId>)>,
        uris: Vec<String>,
    ) -> ResourceNews {
        ResourceNews {
            sessions: Arc::clone(self),
            line,
            session,
            uris,
            chosen: None,
            watched: HashMap::new(),
            read_at: None,
            choose_at: None,
            last: None,
        }
    }
}

impl ResourceNews {
    /// Waits until there may be news. Cancel-safe.
    pub async fn changed(&self) {
        self.line.told.notified().await;
    }

    /// Reads the session's wishes if they have changed, and watches what the caller may read now.
    pub async fn catch_up(&mut self, caller: &Arc<Caller>) {
        self.read_wishes().await;
        if self.uris.is_empty() && self.watched.is_empty() {
            // nothing is left that could wait for a place
            self.choose_at = None;
            return;
        }
        let Some(catalogue) = caller.catalogue() else { return };
        let is_due = self.choose_at.is_some_and(|at| at <= Instant::now());
        if self.is_chosen(catalogue.rev, caller) && !is_due {
            return;
        }
        let uris = &self.uris;
        // a URI may be matched against many templates
        let routes = || {
            let server = |uri: &String| Some((uri.clone(), readable(caller, &catalogue, uri)?));
            uris.iter().filter_map(server).collect::<HashMap<_, _>>()
        };
        let routes = self.sessions.upstreams.in_turn(caller.tenant_id().0, routes).await;
        self.choose(&routes);
        self.chosen = Some((catalogue.rev, Arc::clone(caller)));
    }

    fn is_chosen(&self, rev: i64, caller: &Arc<Caller>) -> bool {
        self.chosen.as_ref().is_some_and(|(known, by)| *known == rev && Arc::ptr_eq(by, caller))
    }

    async fn read_wishes(&mut self) {
        let Some(((tenant, session), key)) = &self.session else { return };
        if self.read_at.is_some_and(|at| at > Instant::now())
            || !self.line.is_behind.swap(false, Ordering::SeqCst)
        {
            return;
        }
        let of = SessionOf { tenant: *tenant, key: *key, id: session };
        let read = async {
            let _turn = self.sessions.reads.acquire().await;
            self.sessions.store.session_wishes(of).await
        };
        // the stream tells and checks nothing meanwhile
        let read = timeout(READ_WAIT_MAX, read).await;
        match read.unwrap_or_else(|_| Err(StoreError::Down("it was slow".to_owned()))) {
            Ok(wishes) => {
                self.read_at = None;
                self.uris = wishes.uris;
                self.chosen = None;
            }
            Err(error) => {
                tracing::debug!(%tenant, %error, "a session's subscriptions could not be read");
                self.line.is_behind.store(true, Ordering::SeqCst);
                self.read_at = Some(Instant::now() + RETRY);
            }
        }
    }

    /// Holds a watch of each of these resources, and of no others. One that has moved to another server counts as new.
    fn choose(&mut self, routes: &HashMap<String, Arc<ServerEntry>>) {
        self.watched.retain(|uri, watched| routes.get(uri).is_some_and(|server| watched.hold.is_of(server)));
        let mut is_short = false;
        for (uri, server) in routes {
            match self.watched.get(uri) {
                Some(watched) => watched.hold.keep(server),
                None => match self.sessions.watches.hold(server, uri, &self.line) {
                    Some(hold) => {
                        self.watched.insert(uri.clone(), WatchedUri { hold, told: 0 });
                    }
                    None => is_short = true,
                },
            }
        }
        self.choose_at = is_short.then(|| Instant::now() + RETRY);
    }

    /// Returns the notifications that are due. Those due now count as sent; the caller may read these resources at this
    /// moment.
    pub fn due(&mut self, caller: &Arc<Caller>, now: Instant) -> UpdatesDue {
        let later = [self.read_at, self.choose_at].into_iter().flatten().min();
        let is_behind = self.line.is_behind.load(Ordering::SeqCst) && self.read_at.is_none();
        if is_behind {
            return UpdatesDue::At(now);
        }
        let later = later.map_or(UpdatesDue::Nothing, UpdatesDue::At);
        if !self.watched.values().any(WatchedUri::is_news) {
            return later;
        }
        if !caller.catalogue().is_some_and(|catalogue| self.is_chosen(catalogue.rev, caller)) {
            return UpdatesDue::At(now);
        }
        if let Some(end) = self.last.map(|last| last + MERGE).filter(|end| *end > now) {
            return UpdatesDue::At(end);
        }
        self.last = Some(now);
        let mut news = Vec::new();
        for uri in &self.uris {
            if let Some(watched) = self.watched.get_mut(uri).filter(|watched| watched.is_news()) {
                watched.told = watched.hold.version();
                news.push(uri.clone());
            }
        }
        UpdatesDue::Now(news)
    }
}

impl WatchedUri {
    fn is_news(&self) -> bool {
        self.hold.version() != self.told
    }
}

impl Drop for ResourceNews {
    fn drop(&mut self) {
        if let Some((key, _)) = &self.session {
            self.sessions.unfollow_session(key, &self.line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::Ground;
    use crate::gateway::sessions::watches::tests::server;
    use crate::gateway::tenants::example_caller;

    /// Wishes of sessions without a database, where each tenant has one watch.
    fn sessions() -> Arc<ClientSessions> {
        Arc::new(ClientSessions::new(&Ground::example()))
    }

    #[tokio::test]
    async fn a_stream_whose_last_subscription_is_gone_waits_for_nothing() {
        let caller = example_caller();
        let mut news = sessions().follow_uris(Vec::new());
        let now = Instant::now();
        // a resource was short of a watch, and is not wanted any more
        news.choose_at = Some(now);
        assert_eq!(news.due(&caller, now), UpdatesDue::At(now));
        news.catch_up(&caller).await;
        assert_eq!(news.due(&caller, Instant::now()), UpdatesDue::Nothing);
    }

    #[tokio::test]
    async fn a_resource_without_a_free_watch_is_tried_again() {
        let uris = ["a://1", "a://2"].map(str::to_owned);
        let route = |at: usize| (uris[at].clone(), Arc::new(server(1, at as u128, 1)));
        let mut news = sessions().follow_uris(uris.to_vec());
        news.choose(&HashMap::from([route(0), route(1)]));
        assert!(news.watched.len() == 1 && news.choose_at.is_some_and(|at| at > Instant::now()));
        // the other one is wanted no more, and gives its watch back
        let held = usize::from(news.watched.contains_key(&uris[1]));
        news.choose(&HashMap::from([route(1 - held)]));
        news.choose(&HashMap::from([route(1 - held)]));
        assert_eq!(news.choose_at, None);
        assert!(news.watched.contains_key(&uris[1 - held]));
    }

    #[tokio::test]
    async fn watches_are_chosen_again_when_their_time_has_come() {
        let caller = example_caller();
        let mut news = sessions().follow_uris(vec!["a://1".to_owned()]);
        news.catch_up(&caller).await;
        assert!(news.chosen.is_some());
        let at = Instant::now() + RETRY;
        news.choose_at = Some(at);
        news.catch_up(&caller).await;
        assert_eq!(news.choose_at, Some(at), "not yet");
        news.choose_at = Some(Instant::now());
        news.catch_up(&caller).await;
        assert_eq!(news.choose_at, None);
    }
}
