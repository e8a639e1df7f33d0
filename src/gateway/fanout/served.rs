//! Lists that this replica served of late, and whom they misled.
//!
//! A client hears of a change from the replica that holds its stream and fetches the list from another, which may not
//! have heard of it yet: it would keep the old list for ever. So a replica that finds out, on reloading, that it served
//! a list which was out of date has the client told once more, wherever its stream is.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Fanout, Prints, Signal};
use crate::domain::id::KeyId;
use crate::domain::settings::Effective;
use crate::gateway::Gateway;
use crate::gateway::access::Caller;
use crate::gateway::catalog::Catalog;
use crate::gateway::direct::DirectView;
use crate::gateway::tenancy::LiveTenant;
use crate::store::{ListKinds, Store, TELL_AGAIN_KEYS_MAX, TellAgain};

/// Keys of a tenant whose lists are remembered; with more, all of its keys are told.
const SERVED_MAX: usize = 4096;
/// The least time between two such notices of one tenant: a notice is a commit, and those take turns in Postgres.
const TELL_AGAIN_PAUSE: Duration = Duration::from_millis(200);

/// What was served since the database was last known to say the same.
#[derive(Debug, Default)]
pub(super) struct Served(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    /// What each key was served last.
    by_key: HashMap<Option<KeyId>, List>,
    /// More keys than are remembered were served something, last at this moment.
    overflowed: Option<Instant>,
    /// There was a change after which nobody has looked yet.
    is_changed: bool,
    /// Somebody looks.
    is_under_way: bool,
}

#[derive(Clone, Debug)]
struct List {
    /// Not the caller, who holds the tenant, which holds this.
    settings: Effective,
    prints: Prints,
    at: Instant,
}

impl Served {
    fn lock(&self) -> MutexGuard<'_, Lists> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, caller: &Caller, prints: Prints) {
        let mut lists = self.lock();
        let at = Instant::now();
        let list = || List { settings: caller.settings.clone(), prints, at };
        if let Some(known) = lists.by_key.get_mut(&caller.key) {
            *known = list();
        } else if lists.by_key.len() < SERVED_MAX {
            lists.by_key.insert(caller.key, list());
        } else {
            lists.overflowed = Some(at);
        }
    }

    /// `true` for whoever is to look: there is something to look at, and nobody does yet.
    fn begin(&self) -> bool {
        let mut lists = self.lock();
        lists.is_changed = true;
        let is_something = !lists.by_key.is_empty() || lists.overflowed.is_some();
        is_something && !std::mem::replace(&mut lists.is_under_way, true)
    }

    /// `true` when there was another change meanwhile.
    fn goes_on(&self) -> bool {
        let mut lists = self.lock();
        lists.is_under_way = std::mem::take(&mut lists.is_changed);
        lists.is_under_way
    }
}

impl Fanout {
    /// The database said at this moment, or after it, what is known here: nobody was misled before.
    pub(in crate::gateway) fn confirm(&self, at: Instant) {
        let mut lists = self.served.lock();
        lists.by_key.retain(|_, list| list.at >= at);
        lists.overflowed = lists.overflowed.filter(|last| *last >= at);
    }

    /// Tells the streams of these keys, or all, that what they were served may have been out of date.
    pub(in crate::gateway) fn tell_again(&self, notice: TellAgain) {
        // nobody listens: nobody is told
        drop(self.signals.send(Signal::Again(notice.keys.map(Arc::from), notice.lists)));
    }
}

impl Gateway {
    /// Notes what a caller is about to be served. `false` when it is out of date already: make it anew.
    pub fn note_served(&self, caller: &Arc<Caller>, catalogue: &Catalog, view: &DirectView) -> bool {
        let Some(live) = &caller.tenant else { return true };
        live.fanout.served.note(caller, Prints::of(view));
        // after the note: whoever swaps from here on finds it
        if !is_current(live, caller) {
            self.find_misled(live);
        }
        live.catalogue_now().rev == catalogue.rev
    }

    /// After a swap: finds out who was served something else, and has them told.
    pub(in crate::gateway) fn find_misled(&self, live: &Arc<LiveTenant>) {
        if live.fanout.served.begin() {
            tokio::spawn(tell_misled(self.store.clone(), Arc::clone(live)));
        }
    }
}

/// Whether a key's settings are still those that a request came in with. The platform's own are made anew for each
/// request, from what is loaded.
fn is_current(live: &LiveTenant, caller: &Arc<Caller>) -> bool {
    let Some(key) = caller.key else { return true };
    let access = live.access_now();
    let known = access.as_ref().as_ref().and_then(|access| access.by_id.get(&key));
    known.is_some_and(|known| Arc::ptr_eq(known, caller))
}

/// Looks and tells until there was no further change.
async fn tell_misled(store: Store, live: Arc<LiveTenant>) {
    while live.fanout.served.goes_on() {
        let at = Arc::clone(&live);
        match tokio::task::spawn_blocking(move || look_for_misled(&at)).await {
            Ok(None) => {}
            Ok(Some(notice)) => {
                if let Err(error) = store.notify_tell_again(&notice).await {
                    tracing::warn!(%error, tenant = %live.id, "streams of other replicas are not told again");
                    live.fanout.tell_again(notice);
                }
                tokio::time::sleep(TELL_AGAIN_PAUSE).await;
            }
            Err(error) => {
                tracing::error!(%error, tenant = %live.id, "comparing lists that were served failed");
            }
        }
    }
}

/// Who was served something else than what is seen now, if anybody.
fn look_for_misled(live: &LiveTenant) -> Option<TellAgain> {
    let (catalogue, access) = (live.catalogue(), live.access());
    // the lock is not held while views are made
    let served: Vec<(Option<KeyId>, List)> = {
        let mut lists = live.fanout.served.lock();
        if lists.overflowed.take().is_some() {
            return Some(TellAgain { tenant: live.id, keys: None, lists: ListKinds::ALL });
        }
        lists.by_key.iter().map(|(key, list)| (*key, list.clone())).collect()
    };
    let mut lists = ListKinds::default();
    let mut is_other = |key: Option<KeyId>, list: &List| {
        let current = key.and_then(|key| access.as_ref().as_ref()?.by_id.get(&key));
        let settings = current.map_or(&list.settings, |caller| &caller.settings);
        let other = other_lists(list, settings, Prints::of(&catalogue.direct_view(settings)));
        lists.tools |= other.tools;
        lists.prompts |= other.prompts;
        lists.resources |= other.resources;
        other != ListKinds::default()
    };
    let misled: HashSet<Option<KeyId>> =
        served.iter().filter(|(key, list)| is_other(*key, list)).map(|(key, _)| *key).collect();
    if misled.is_empty() {
        return None;
    }
    let mut remembered = live.fanout.served.lock();
    for (key, list) in served.iter().filter(|(key, _)| misled.contains(key)) {
        // unless it was served something meanwhile
        if remembered.by_key.get(key).is_some_and(|last| last.at == list.at) {
            remembered.by_key.remove(key);
        }
    }
    let keys = (misled.len() <= TELL_AGAIN_KEYS_MAX).then(|| misled.into_iter().collect());
    Some(TellAgain { tenant: live.id, keys, lists })
}

/// Which lists are other ones with these settings than what was served.
fn other_lists(list: &List, settings: &Effective, now: Prints) -> ListKinds {
    // the spelling, and what the gateway's own tools may do
    let is_respelled = settings.tool_names != list.settings.tool_names;
    let manages_otherwise = settings.max_operation != list.settings.max_operation;
    ListKinds {
        tools: is_respelled || manages_otherwise || now.tools != list.prints.tools,
        prompts: is_respelled || now.prompts != list.prints.prompts,
        resources: now.resources != list.prints.resources,
    }
}
