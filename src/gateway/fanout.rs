//! Who is told that its lists are other ones: streams that clients hold open on `/mcp/direct`.
//!
//! Streams that see the same are one group, which is woken when what it sees has changed, and by nothing else. What is
//! seen is compared by fingerprints, on this replica's own snapshots: a notice of the database only makes it reload.

mod served;
mod servers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{broadcast, watch};

use super::access::Caller;
use super::catalog::Catalog;
use super::direct::DirectView;
use super::tenancy::LiveTenant;
use super::views::ViewKey;
use super::{Gateway, clock};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::id::KeyId;
use crate::domain::settings::Effective;
use crate::store::ListKinds;

use self::served::Served;
pub use self::servers::ServerState;

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

/// What groups see of one catalogue.
pub(super) type Known = HashMap<ViewKey, Prints>;

/// What streams of a tenant are told besides other lists.
#[derive(Clone, Debug)]
enum Signal {
    /// Keys or settings are other ones, or whose they are must be asked again.
    Access,
    /// Whoever has one of these keys (or any) was served lists of these kinds that were out of date.
    Again(Option<Arc<[Option<KeyId>]>>, ListKinds),
}

/// The open streams of a tenant on this replica, and the lists it was served of late.
#[derive(Debug)]
pub(super) struct Fanout {
    groups: Mutex<HashMap<ViewKey, Group>>,
    signals: broadcast::Sender<Signal>,
    /// Beats with every catalogue.
    moved: watch::Sender<()>,
    served: Served,
}

/// Streams that see the same.
#[derive(Debug)]
struct Group {
    /// One caller's settings; all others of the group see the same with theirs.
    settings: Effective,
    prints: watch::Sender<Prints>,
}

impl Default for Fanout {
    fn default() -> Fanout {
        Fanout {
            groups: Mutex::default(),
            signals: broadcast::Sender::new(SIGNALS_MAX),
            moved: watch::Sender::default(),
            served: Served::default(),
        }
    }
}

impl Fanout {
    fn lock(&self) -> MutexGuard<'_, HashMap<ViewKey, Group>> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Groups of which it is not known yet what they see of a catalogue.
    fn unknown(&self, known: &Known) -> Vec<(ViewKey, Effective)> {
        let groups = self.lock();
        let unknown = groups.iter().filter(|(key, _)| !known.contains_key(*key));
        unknown.map(|(key, group)| (key.clone(), group.settings.clone())).collect()
    }

    /// Finds out what each group sees of a catalogue: for threads that may take their time.
    pub(super) fn look(&self, catalogue: &Catalog) -> Known {
        let seen =
            |(key, settings): (ViewKey, Effective)| (key, Prints::of(&catalogue.direct_view(&settings)));
        self.unknown(&Known::new()).into_iter().map(seen).collect()
    }

    /// The same of groups that were made meanwhile.
    pub(super) async fn look_again(&self, catalogue: &Arc<Catalog>, known: &mut Known) {
        for (key, settings) in self.unknown(known) {
            known.insert(key, Prints::of(&*catalogue.direct_view_soon(&settings).await));
        }
    }

    /// Wakes the groups that see something else from now on. Right after the swap, and at once: whoever waits for the
    /// load may give it up.
    pub(super) fn tell(&self, catalogue: &Catalog, known: &Known) {
        let mut groups = self.lock();
        groups.retain(|_, group| group.prints.receiver_count() > 0);
        for (key, group) in groups.iter() {
            // one that is not known was made between a look and the swap
            let prints = known.get(key).copied();
            let prints = prints.unwrap_or_else(|| Prints::of(&catalogue.direct_view(&group.settings)));
            group.prints.send_if_modified(|told| std::mem::replace(told, prints) != prints);
        }
        drop(groups);
        self.moved.send_replace(());
    }

    /// Keys or settings have changed, or nothing is as sure as it was: every stream looks whether it may go on.
    pub(super) fn check(&self) {
        // nobody listens: nobody is told
        drop(self.signals.send(Signal::Access));
    }

    async fn join(&self, live: &LiveTenant, settings: &Effective) -> watch::Receiver<Prints> {
        // made beforehand, where it holds up nobody
        live.catalogue().direct_view_soon(settings).await;
        let mut groups = self.lock();
        let group = groups.entry(ViewKey::of(settings)).or_insert_with(|| {
            // under the lock, from the catalogue as of now: a swap that comes later finds the group
            let prints = Prints::of(&live.catalogue().direct_view(settings));
            Group { settings: settings.clone(), prints: watch::Sender::new(prints) }
        });
        group.prints.subscribe()
    }
}

/// What a stream hears.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// What it sees may be something else now, or the stream may have to end.
    Change,
    /// What it fetched of these kinds of late, from whichever replica, may have been out of date.
    Again(ListKinds),
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
            Some(Signal::Again(Some(keys), _)) if !keys.contains(&self.caller.key) => Heard::Change,
            Some(Signal::Again(_, lists)) => Heard::Again(lists),
            Some(Signal::Access) => {
                self.is_behind = true;
                Heard::Change
            }
            // signals were missed: either may have been among them
            None => {
                self.is_behind = true;
                Heard::Again(ListKinds::ALL)
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
                self.lists = Some(live.fanout.join(live, &current.settings).await);
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
            (Some(live), Topic::Direct) => Some(live.fanout.join(live, &caller.settings).await),
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
