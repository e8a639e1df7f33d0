//! Who is told that its lists are other ones: streams that clients hold open on `/mcp/direct`.
//!
//! Streams that see the same are one group, which is woken when what it sees has changed, and by nothing else. What is
//! seen is compared by fingerprints, on this replica's own snapshots: a notice of the database only makes it reload.

mod groups;
mod served;
mod servers;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{broadcast, watch};

use super::access::Caller;
use super::direct::DirectView;
use super::tenancy::LiveTenant;
use super::views::ViewKey;
use super::{Gateway, clock};
use crate::domain::fingerprint::Fingerprint;

use self::groups::Groups;
use self::served::{Kinds, Served, WasMisled};
pub use self::servers::{ServerState, ServerStates};

/// Signals that a stream may be behind; one that is further behind looks at everything anew.
const SIGNALS_MAX: usize = 64;

/// What somebody sees, as fingerprints: equal ones are equal lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prints {
    /// Of the tools.
    pub tools: Fingerprint,
    /// Of the prompts.
    pub prompts: Fingerprint,
    /// Of the resources and their templates, of which changes are told together.
    pub resources: Fingerprint,
}

impl Prints {
    fn of(view: &DirectView) -> Prints {
        Prints { tools: view.print, prompts: view.prompts_print, resources: view.resources_print }
    }
}

/// What streams of a tenant are told besides other lists.
#[derive(Clone, Debug)]
enum Signal {
    /// Keys or settings are other ones, or whose they are must be asked again.
    Access,
    /// Keys were served lists that were out of date.
    Misled(Arc<[WasMisled]>),
    /// Such signals were lost since then.
    Deaf(Instant),
}

/// The open streams of a tenant on this replica, and the lists it was served of late.
#[derive(Debug)]
pub(super) struct Fanout {
    groups: Groups,
    signals: broadcast::Sender<Signal>,
    /// Beats with every catalogue.
    moved: watch::Sender<()>,
    served: Served,
}

impl Default for Fanout {
    fn default() -> Fanout {
        Fanout {
            groups: Groups::default(),
            signals: broadcast::Sender::new(SIGNALS_MAX),
            moved: watch::Sender::default(),
            served: Served::default(),
        }
    }
}

impl Fanout {
    /// Whether anybody follows the state of the servers.
    pub(super) fn is_followed(&self) -> bool {
        self.moved.receiver_count() > 0
    }

    /// There is another catalogue. After the swap.
    pub(super) fn moved(&self, live: &Arc<LiveTenant>) {
        self.moved.send_replace(());
        self.groups.stir(live);
    }

    /// Keys or settings have changed, or nothing is as sure as it was: every stream looks whether it may go on.
    pub(super) fn check(&self) {
        // nobody listens: nobody is told
        drop(self.signals.send(Signal::Access));
    }

    /// A replica's listener was deaf since this moment: what other replicas say besides changes was lost.
    pub(super) fn gap(&self, since: Instant) {
        drop(self.signals.send(Signal::Deaf(since)));
    }
}

/// What a stream hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// What it sees may be something else now, or the stream may have to end.
    Change,
    /// What it fetched at this moment of these kinds, from whichever replica, was out of date.
    Misled(Instant, Kinds),
    /// Whether it was is not known for what it fetched since this moment.
    Deaf(Instant),
}

/// A stream's place among those that are told.
#[derive(Debug)]
pub struct Listening {
    caller: Arc<Caller>,
    /// None for a platform key that named no tenant, and where no lists are told of.
    lists: Option<watch::Receiver<Prints>>,
    moved: Option<watch::Receiver<()>>,
    signals: Option<broadcast::Receiver<Signal>>,
    pulse: watch::Receiver<()>,
    is_behind: bool,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Lists of `/mcp/direct`.
    Direct,
    /// The state of the servers.
    Servers,
    /// Nothing: the stream is only kept open.
    Nothing,
}

impl Listening {
    /// Whose stream it is, with the settings of now.
    pub fn caller(&self) -> &Arc<Caller> {
        &self.caller
    }

    /// What it sees now. `None` where nothing is told.
    pub fn prints(&self) -> Option<Prints> {
        self.lists.as_ref().map(|lists| *lists.borrow())
    }

    /// When it was served lists that were out of date, and which, if that was a short while ago: before it began to
    /// listen.
    pub fn misled(&self) -> Option<(Instant, Kinds)> {
        self.caller.tenant.as_ref()?.fanout.served.misled(self.caller.key)
    }

    /// How long its key lasts by itself; zero when it has ended.
    pub fn expires_in(&self) -> Option<Duration> {
        let left = self.caller.expires_at? - clock::now();
        Some(left.to_std().unwrap_or_default())
    }

    /// Waits for something to hear. Forgetting about the answer loses a [`Heard::Change`] at most, after which looking
    /// at [`Listening::prints`] again is enough.
    pub async fn heard(&mut self, gateway: &Gateway) -> Heard {
        if self.is_behind {
            self.catch_up(gateway).await;
            return Heard::Change;
        }
        let signal = tokio::select! {
            () = changed(self.lists.as_mut()) => return Heard::Change,
            () = changed(self.moved.as_mut()) => return Heard::Change,
            () = changed(Some(&mut self.pulse)) => return Heard::Change,
            signal = next(self.signals.as_mut()) => signal,
        };
        match signal {
            Some(Signal::Misled(keys)) => {
                let own = served::latest(keys.iter().filter(|misled| misled.is(self.caller.key)));
                own.map_or(Heard::Change, |(at, kinds)| Heard::Misled(at, kinds))
            }
            Some(Signal::Deaf(since)) => Heard::Deaf(since),
            Some(Signal::Access) => {
                self.is_behind = true;
                self.catch_up(gateway).await;
                Heard::Change
            }
            // signals were missed: either may have been among them
            None => {
                self.is_behind = true;
                Heard::Misled(Instant::now(), [true; 3])
            }
        }
    }

    /// Whether settings of the key have to be looked at before [`Listening::prints`] says what it sees.
    pub fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Takes over the settings that the key has now.
    async fn catch_up(&mut self, gateway: &Gateway) {
        if let Some(current) = gateway.current(&self.caller) {
            if let (Some(_), Some(live)) = (&self.lists, &current.tenant)
                && ViewKey::of(&current.settings) != ViewKey::of(&self.caller.settings)
            {
                self.lists = Some(live.fanout.groups.join(live, &current.settings).await);
            }
            self.caller = current;
        }
        self.is_behind = false;
    }
}

async fn changed<T>(receiver: Option<&mut watch::Receiver<T>>) {
    let is_change = match receiver {
        Some(receiver) => receiver.changed().await.is_ok(),
        None => false,
    };
    if !is_change {
        std::future::pending::<()>().await;
    }
}

/// `None` when signals were missed.
async fn next(receiver: Option<&mut broadcast::Receiver<Signal>>) -> Option<Signal> {
    match receiver {
        Some(receiver) => match receiver.recv().await {
            Ok(signal) => Some(signal),
            Err(broadcast::error::RecvError::Lagged(_)) => None,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

impl Gateway {
    /// Begins to listen for a caller. Its view is made beforehand, away from the threads that serve calls.
    pub async fn listen(&self, caller: &Arc<Caller>, topic: Topic) -> Listening {
        // before what it is compared with, so that nothing falls in between
        let pulse = self.pulse.subscribe();
        let signals = caller.tenant.as_ref().map(|live| live.fanout.signals.subscribe());
        let lists = match (&caller.tenant, topic) {
            (Some(live), Topic::Direct) => Some(live.fanout.groups.join(live, &caller.settings).await),
            _ => None,
        };
        let moved = caller.tenant.as_ref().filter(|_| topic == Topic::Servers);
        let moved = moved.map(|live| live.fanout.moved.subscribe());
        // the key may have been given other settings since the request came in
        let mut listening =
            Listening { caller: Arc::clone(caller), lists, moved, signals, pulse, is_behind: true };
        listening.catch_up(self).await;
        listening
    }

    /// The caller that this caller's key makes now; `None` when the key has ended.
    fn current(&self, caller: &Arc<Caller>) -> Option<Arc<Caller>> {
        let Some(live) = &caller.tenant else { return Some(Arc::clone(caller)) };
        let access = live.access();
        let access = access.as_ref().as_ref()?;
        match caller.key {
            Some(key) => access.by_id.get(&key).cloned(),
            None => Some(Arc::new(self.platform_in(Some(live), Some(&access.tenant_settings)))),
        }
    }
}
