//! Lists that this replica served lately, and the keys that got outdated ones.
//!
//! A client learns of a change from the replica that holds its stream, and fetches the list from another. That one may not
//! have reloaded yet, and the client would keep the old list for ever. So a replica that finds on reloading that it served
//! an outdated list sends a notice with the key and time. Replicas with streams of that key then notify those once more that
//! were not notified since.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::timeout;

use super::{Fanout, Prints, Signal};
use crate::domain::backoff::{Backoff, chance};
use crate::domain::id::KeyId;
use crate::domain::operation::OperationType;
use crate::domain::settings::Effective;
use crate::gateway::catalog::{Catalog, DirectView};
use crate::gateway::tenants::Tenants;
use crate::gateway::tenants::live::LiveTenant;
use crate::gateway::tenants::live::access::Caller;
use crate::store::{MISLED_KEYS_MAX, Misled, MisledKey, RevisionKind, Store};

/// Keys of a tenant whose lists are remembered; beyond that, all keys are notified.
const SERVED_MAX: usize = 4096;
/// Shortest pause between two such notices of one tenant: a notice is a commit, and Postgres serialises commits with
/// notices.
const NOTICE_PAUSE: Duration = Duration::from_millis(200);
/// First backoff between attempts to send a notice; doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(5);
const TRIES_MAX: usize = 60;
/// Time for which outdated lists are remembered: a client may open its stream a moment after it has listed.
const REMEMBERED: Duration = Duration::from_secs(5);

/// Longest wait of a notice for the revisions that it is about.
const CATCH_UP_MAX: Duration = Duration::from_secs(2);
/// Time for which a list that was current when it was served is still compared. The replica with the client's stream may know
/// changes late, at worst by its poll, and sees nothing to notify of a list that has changed and changed back by then.
const KEPT: Duration = Duration::from_secs(12);

/// Lists served lately: in the last 12 s, or since the database last confirmed their revisions.
#[derive(Debug, Default)]
pub(in crate::gateway::tenants) struct Served(Mutex<Lists>);

#[derive(Debug, Default)]
struct Lists {
    /// List that each key was served last.
    by_key: HashMap<Option<KeyId>, List>,
    /// Time of the last list served to a key beyond [`SERVED_MAX`]; `None` if there was none.
    overflowed: Option<Instant>,
    /// Keys that were misled, here or elsewhere.
    misled: Vec<WasMisled>,
    /// True after a change that no check has covered yet.
    is_changed: bool,
    /// True while a check runs.
    is_under_way: bool,
}

#[derive(Clone, Debug)]
struct List {
    /// Settings of the caller. The caller itself is not kept: it holds the tenant, which holds this.
    settings: Effective,
    /// Highest operation of the management tools in the list, `None` without them; see [`Caller::manages`].
    manages: Option<OperationType>,
    prints: Prints,
    /// Revisions of the catalogue and of the keys.
    revs: (i64, i64),
    at: Instant,
    /// Kinds of which the same key was served a different list before, not checked yet: one of the two is out
    /// of date.
    mixed: Kinds,
}

/// Flags for the lists of tools, prompts and resources, in this order.
pub type Kinds = [bool; 3];

/// A key that was served a list that was out of date.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway::tenants) struct WasMisled {
    /// Id of the key, `Some(None)` for the bootstrap key; `None` means any key.
    key: Option<Option<KeyId>>,
    /// Time at which the key was served the list.
    at: Instant,
    /// Kinds of lists that were out of date.
    kinds: Kinds,
}

impl WasMisled {
    /// Returns the entries of a notice that was received just now.
    fn told_by(keys: Option<&[MisledKey]>) -> Arc<[WasMisled]> {
        let now = Instant::now();
        let at = |age_ms: u32| now.checked_sub(Duration::from_millis(age_ms.into())).unwrap_or(now);
        match keys {
            Some(keys) => keys
                .iter()
                .map(|said| WasMisled { key: Some(said.key), at: at(said.age_ms), kinds: said.kinds })
                .collect(),
            None => Arc::from([WasMisled { key: None, at: now, kinds: [true; 3] }]),
        }
    }

    /// Returns whether the entry concerns a key.
    pub(in crate::gateway::tenants) fn is(&self, key: Option<KeyId>) -> bool {
        self.key.is_none_or(|misled| misled == key)
    }
}

/// Returns the kinds that are in `one` or in `other`.
fn either(one: Kinds, other: Kinds) -> Kinds {
    let mut other = other.into_iter();
    one.map(|is| other.next() == Some(true) || is)
}

/// Returns the time of the latest entry, and the kinds of all entries; `None` without entries.
pub(in crate::gateway::tenants) fn latest<'a>(
    misled: impl Iterator<Item = &'a WasMisled>,
) -> Option<(Instant, Kinds)> {
    let all = misled.map(|misled| (misled.at, misled.kinds));
    all.reduce(|one, other| (one.0.max(other.0), either(one.1, other.1)))
}

impl List {
    /// Returns which lists differ under these settings, management tools and prints.
    fn other_than(&self, settings: &Effective, manages: Option<OperationType>, prints: Prints) -> Kinds {
        let is_spelled = self.settings.tool_names != settings.tool_names;
        [
            self.prints.tools != prints.tools || is_spelled || self.manages != manages,
            self.prints.prompts != prints.prompts || is_spelled,
            self.prints.resources != prints.resources,
        ]
    }
}

impl Served {
    fn note(&self, key: Option<KeyId>, mut list: List) {
        let mut lists = self.0.lock();
        if let Some(known) = lists.by_key.get_mut(&key) {
            list.mixed = either(known.mixed, known.other_than(&list.settings, list.manages, list.prints));
            *known = list;
        } else if lists.by_key.len() < SERVED_MAX {
            lists.by_key.insert(key, list);
        } else {
            lists.overflowed = Some(list.at);
        }
    }

    /// Notes a change. Returns `true` if a check must start: there are served lists, and none runs.
    fn begin(&self) -> bool {
        let mut lists = self.0.lock();
        lists.is_changed = true;
        let is_something = !lists.by_key.is_empty() || lists.overflowed.is_some();
        is_something && !std::mem::replace(&mut lists.is_under_way, true)
    }

    /// Returns `true` if there was another change since the last call; otherwise the check ends.
    fn goes_on(&self) -> bool {
        let mut lists = self.0.lock();
        lists.is_under_way = std::mem::take(&mut lists.is_changed);
        lists.is_under_way
    }

    /// Returns when the key was served outdated lists, and which kinds; `None` if that was not in the last seconds.
    pub(in crate::gateway::tenants) fn misled(&self, key: Option<KeyId>) -> Option<(Instant, Kinds)> {
        let mut lists = self.0.lock();
        lists.misled.retain(|misled| misled.at.elapsed() < REMEMBERED);
        latest(lists.misled.iter().filter(|misled| misled.is(key)))
    }
}

impl Fanout {
    /// Drops the lists of these revisions that were served 12 s before `at` or earlier: the database confirmed the revisions at
    /// `at` or later, so these lists were current, and whoever reads them has been notified of what they say.
    pub(in crate::gateway) fn confirm(&self, at: Instant, revs: (i64, i64)) {
        let Some(at) = at.checked_sub(KEPT) else { return };
        let mut lists = self.served.0.lock();
        lists.by_key.retain(|_, list| list.at >= at || list.revs != revs || list.mixed.contains(&true));
        if lists.by_key.is_empty() {
            lists.overflowed = lists.overflowed.filter(|last| *last >= at);
        }
    }

    /// Notifies the streams of these keys that their lists were outdated.
    fn tell_misled(&self, misled: Arc<[WasMisled]>) {
        let mut lists = self.served.0.lock();
        lists.misled.retain(|misled| misled.at.elapsed() < REMEMBERED);
        if lists.misled.len() < SERVED_MAX {
            lists.misled.extend(misled.iter().copied());
        }
        drop(lists);
        // fails only without open streams
        drop(self.signals.send(Signal::Misled(misled)));
    }
}

impl Tenants {
    /// Notes the lists that a caller is about to be served. Returns `false` if they are outdated already, and should be made
    /// again.
    pub fn note_served(&self, caller: &Caller, catalogue: &Catalog, view: &DirectView) -> bool {
        let Some(live) = &caller.tenant else { return true };
        let list = List {
            settings: caller.settings.clone(),
            manages: caller.manages(),
            prints: Prints::of(view),
            revs: (catalogue.rev, live.access_now().as_ref().as_ref().map_or(0, |access| access.rev)),
            at: Instant::now(),
            mixed: [false; 3],
        };
        live.fanout.served.note(caller.key, list);
        // checked after noting: later swaps find the note
        if !is_current(live, caller) {
            self.find_misled(live);
        }
        live.catalogue_now().rev == catalogue.rev
    }

    /// Starts a check because an outdated list is being served.
    pub fn serve_outdated(&self, caller: &Caller) {
        if let Some(live) = &caller.tenant {
            self.find_misled(live);
        }
    }

    /// Notifies the streams of the keys in a notice, once this replica has the revisions with which the lists were compared. A
    /// stream that is told of those changes anyway is not told twice.
    pub(in crate::gateway) async fn heard_misled(&self, notice: Misled) {
        let Some(live) = self.live.get(notice.tenant) else { return };
        let misled = WasMisled::told_by(notice.keys.as_deref());
        let (catalogue, access) = notice.revs;
        let caught_up = async {
            for (kind, rev) in [(RevisionKind::Access, access), (RevisionKind::Catalogue, catalogue)] {
                if let Err(error) = self.reload(&live, kind, rev).await {
                    tracing::warn!(%error, tenant = %live.id, ?kind, "a snapshot could not be reloaded");
                }
            }
            live.fanout.groups.settled().await;
        };
        // later the client is rather told twice
        drop(timeout(CATCH_UP_MAX, caught_up).await);
        live.fanout.tell_misled(misled);
    }

    /// Starts a check after a swap: finds keys that were served outdated lists, and notifies their streams.
    pub(in crate::gateway) fn find_misled(&self, live: &Arc<LiveTenant>) {
        if live.fanout.served.begin() {
            tokio::spawn(tell_misled(self.store.clone(), Arc::clone(live)));
        }
    }
}

/// Returns whether a key's settings are still those of the request. The platform's own are resolved for each request.
fn is_current(live: &LiveTenant, caller: &Caller) -> bool {
    let Some(key) = caller.key else { return true };
    let access = live.access_now();
    if let Some(login) = &caller.login {
        return access.as_ref().as_ref().is_some_and(|access| access.rev == login.access_rev);
    }
    let known = access.as_ref().as_ref().and_then(|access| access.by_id.get(&key));
    known.is_some_and(|known| std::ptr::eq(Arc::as_ptr(known), caller))
}

/// Checks and sends notices until there was no further change.
async fn tell_misled(store: Store, live: Arc<LiveTenant>) {
    while live.fanout.served.goes_on() {
        let at = Arc::clone(&live);
        match tokio::task::spawn_blocking(move || look_for_misled(&at)).await {
            Ok(None) => {}
            Ok(Some(notice)) => {
                send(&store, &live, notice).await;
                tokio::time::sleep(NOTICE_PAUSE).await;
            }
            Err(error) => {
                tracing::error!(%error, tenant = %live.id, "comparing lists that were served failed");
            }
        }
    }
}

/// Sends a notice, with retries: keys that got outdated lists while the database was away are notified later. After the last
/// retry, only streams on this replica are notified.
async fn send(store: &Store, live: &LiveTenant, mut notice: Misled) {
    let (began, mut backoff) = (Instant::now(), Backoff::new(RETRY_MIN, RETRY_MAX));
    for _ in 0..TRIES_MAX {
        let Err(error) = store.notify_misled(&notice).await else { return };
        tracing::warn!(%error, tenant = %live.id, "who was served an old list is not told yet");
        tokio::time::sleep(backoff.jittered(chance())).await;
        let passed = u32::try_from(began.elapsed().as_millis()).unwrap_or(u32::MAX);
        for misled in notice.keys.iter_mut().flatten() {
            misled.age_ms = misled.age_ms.saturating_add(passed);
        }
    }
    live.fanout.tell_misled(WasMisled::told_by(notice.keys.as_deref()));
}

/// Compares the served lists with the current ones. Returns the notice to send; `None` if all are current.
fn look_for_misled(live: &LiveTenant) -> Option<Misled> {
    let (catalogue, access) = (live.catalogue(), live.access());
    let revs = (catalogue.rev, access.as_ref().as_ref().map_or(0, |access| access.rev));
    // the lock is not held while views are made
    let served: Vec<(Option<KeyId>, List)> = {
        let mut lists = live.fanout.served.0.lock();
        if lists.overflowed.take().is_some() {
            lists.by_key.clear();
            return Some(Misled { tenant: live.id, keys: None, revs });
        }
        lists.by_key.iter().map(|(key, list)| (*key, list.clone())).collect()
    };
    let other = |key: Option<KeyId>, list: &List| {
        let current = key.and_then(|key| access.as_ref().as_ref()?.by_id.get(&key));
        let settings = current.map_or(&list.settings, |caller| &caller.settings);
        let manages = current.map_or(list.manages, |caller| caller.manages());
        let prints = Prints::of(&catalogue.direct_view(settings));
        either(list.mixed, list.other_than(settings, manages, prints))
    };
    let misled: Vec<(Option<KeyId>, &List, Kinds)> = served
        .iter()
        .map(|(key, list)| (*key, list, other(*key, list)))
        .filter(|(_, _, kinds)| kinds.contains(&true))
        .collect();
    if misled.is_empty() {
        return None;
    }
    let mut lists = live.fanout.served.0.lock();
    for (key, list, _) in &misled {
        // unless the key was served another list meanwhile
        if lists.by_key.get(key).is_some_and(|last| last.at == list.at) {
            lists.by_key.remove(key);
        }
    }
    let age_ms = |at: Instant| u32::try_from(at.elapsed().as_millis()).unwrap_or(u32::MAX);
    let named = |&(key, list, kinds): &(Option<KeyId>, &List, Kinds)| MisledKey {
        key,
        age_ms: age_ms(list.at),
        kinds,
    };
    let keys = (misled.len() <= MISLED_KEYS_MAX).then(|| misled.iter().map(named).collect());
    Some(Misled { tenant: live.id, keys, revs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::fingerprint::Fingerprinting;
    use crate::domain::settings::{Defaults, Settings};

    fn list(text: &str, rev: i64) -> List {
        let mut making = Fingerprinting::default();
        making.field(text);
        let print = making.finish();
        List {
            settings: Effective::resolve(&Settings::default(), &Settings::default(), &Defaults::example()),
            manages: None,
            prints: Prints { tools: print, prompts: print, resources: print },
            revs: (rev, 1),
            at: Instant::now(),
            mixed: [false; 3],
        }
    }

    /// Two clients with one key: the lists of the second say nothing about those of the first.
    #[test]
    fn a_newer_list_does_not_hide_an_older_one() {
        let served = Served::default();
        served.note(None, list("old", 1));
        served.note(None, list("new", 2));
        served.note(None, list("new", 2));
        assert_eq!(served.0.lock().by_key[&None].mixed, [true; 3]);
    }

    #[test]
    fn only_what_the_database_names_is_confirmed() {
        let fanout = Fanout::default();
        fanout.served.note(None, list("old", 1));
        let later = Instant::now() + KEPT + Duration::from_secs(1);
        fanout.confirm(later, (2, 1));
        assert_eq!(fanout.served.0.lock().by_key.len(), 1, "another catalogue");
        fanout.confirm(Instant::now().checked_sub(Duration::from_secs(9)).unwrap(), (1, 1));
        assert_eq!(fanout.served.0.lock().by_key.len(), 1, "served after that");
        fanout.confirm(later, (1, 1));
        assert!(fanout.served.0.lock().by_key.is_empty());
    }

    /// The replica with the stream has told of the list before, is told of two changes at once, and sees none.
    #[test]
    fn a_current_list_is_compared_until_every_replica_knows_what_came_next() {
        let fanout = Fanout::default();
        let served = Instant::now();
        fanout.served.note(None, list("enabled", 2));
        for soon in [Duration::from_millis(50), KEPT] {
            fanout.confirm(served + soon, (2, 1));
            assert_eq!(fanout.served.0.lock().by_key.len(), 1, "{soon:?} later");
        }
    }

    #[test]
    fn whoever_was_misled_is_known_for_a_while() {
        let fanout = Fanout::default();
        let (key, kinds) = (Some(KeyId(uuid::Uuid::from_u128(1))), [true, false, false]);
        assert_eq!(fanout.served.misled(key), None);
        let long_ago = MisledKey { key: None, age_ms: 9_000, kinds };
        fanout.tell_misled(WasMisled::told_by(Some(&[MisledKey { key, age_ms: 200, kinds }, long_ago])));
        let (at, which) = fanout.served.misled(key).unwrap();
        assert!(at.elapsed() >= Duration::from_millis(200) && which == kinds);
        assert_eq!(fanout.served.misled(None), None, "too long ago");
    }
}
