//! Groups of streams that see the same lists. After each catalogue, the fingerprints of each group are computed once, off
//! the threads that serve requests. The new catalogue is in force before any stream is notified.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

use super::Prints;
use crate::domain::settings::Effective;
use crate::gateway::catalog::ViewKey;
use crate::gateway::tenants::live::LiveTenant;

/// Groups of a tenant's streams.
#[derive(Debug, Default)]
pub(in crate::gateway::tenants) struct Groups {
    state: Mutex<State>,
    /// True while groups are compared, or are about to be.
    is_looking: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// Groups by view, at most one per open stream.
    by_view: HashMap<ViewKey, Group>,
    /// True if a new catalogue has not been compared for all groups yet.
    is_stirred: bool,
    /// True while the comparing task runs.
    is_under_way: bool,
}

/// Streams that see the same lists.
#[derive(Debug)]
struct Group {
    /// Settings of one caller; all others of the group have the same view.
    settings: Effective,
    prints: watch::Sender<Prints>,
    /// Revision of the catalogue that the prints are of.
    rev: i64,
}

impl Groups {
    /// Joins the group for these settings. Returns its fingerprints, now and after each change.
    pub(in crate::gateway::tenants) async fn join(
        &self,
        live: &Arc<LiveTenant>,
        settings: &Effective,
    ) -> watch::Receiver<Prints> {
        let catalogue = live.catalogue();
        let prints = Prints::of(&*catalogue.direct_view_soon(settings).await);
        let joined = {
            let mut state = self.state.lock();
            // cleaned up here, since the catalogue may not change for long
            state.by_view.retain(|_, group| group.prints.receiver_count() > 0);
            let group = state.by_view.entry(ViewKey::of(settings)).or_insert_with(|| Group {
                settings: settings.clone(),
                prints: watch::Sender::new(prints),
                rev: catalogue.rev,
            });
            group.prints.subscribe()
        };
        // a swap before the group was added did not include it
        if live.catalogue_now().rev != catalogue.rev {
            self.stir(live);
        }
        joined
    }

    /// Starts computing each group's fingerprints after a swap of the catalogue, unless that runs already.
    pub(super) fn stir(&self, live: &Arc<LiveTenant>) {
        let begins = {
            let mut state = self.state.lock();
            state.by_view.retain(|_, group| group.prints.receiver_count() > 0);
            state.is_stirred = !state.by_view.is_empty();
            let begins = state.is_stirred && !std::mem::replace(&mut state.is_under_way, true);
            if begins {
                self.is_looking.send_replace(true);
            }
            begins
        };
        if begins {
            let live = Arc::clone(live);
            tokio::spawn(async move { look(&live).await });
        }
    }

    /// Returns the groups to compare; `None` if there was no swap since the last call.
    fn next(&self) -> Option<Vec<(ViewKey, Effective)>> {
        let mut state = self.state.lock();
        state.is_under_way = std::mem::take(&mut state.is_stirred);
        let groups = state.by_view.iter().map(|(key, group)| (key.clone(), group.settings.clone()));
        let next = state.is_under_way.then(|| groups.collect());
        if next.is_none() {
            self.is_looking.send_replace(false);
        }
        next
    }

    /// Waits until every group has the fingerprints of the newest catalogue.
    pub(super) async fn settled(&self) {
        // fails only without the sender, which is here
        drop(self.is_looking.subscribe().wait_for(|is_looking| !is_looking).await);
    }

    /// Sets a group's fingerprints, which wakes its streams if they differ.
    fn tell(&self, key: &ViewKey, rev: i64, prints: Prints) {
        let mut state = self.state.lock();
        let Some(group) = state.by_view.get_mut(key).filter(|group| group.rev <= rev) else { return };
        group.rev = rev;
        group.prints.send_if_modified(|told| std::mem::replace(told, prints) != prints);
    }
}

async fn look(live: &Arc<LiveTenant>) {
    let groups = &live.fanout.groups;
    while let Some(all) = groups.next() {
        for (key, settings) in all {
            let catalogue = live.catalogue();
            let prints = Prints::of(&*catalogue.direct_view_soon(&settings).await);
            groups.tell(&key, catalogue.rev, prints);
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::id::TenantId;
    use crate::domain::settings::{Defaults, Settings};

    #[tokio::test]
    async fn whose_streams_have_gone_is_no_group_any_more() {
        let live = LiveTenant::new(TenantId(Uuid::from_u128(1)), "acme".to_owned());
        let groups = &live.fanout.groups;
        let join = async |pattern: &str| {
            let own = Settings { allowed_tools: Some(vec![pattern.to_owned()]), ..Settings::default() };
            let settings = Effective::resolve(&own, &Settings::default(), &Defaults::example());
            groups.join(&live, &settings).await
        };
        let count = || groups.state.lock().by_view.len();
        let (_stays, also) = (join("stays:*").await, join("stays:*").await);
        assert_eq!(count(), 1);
        drop(also);
        // streams with different settings that come and go while the catalogue does not change
        for n in 0..10 {
            drop(join(&format!("goes-{n}:*")).await);
            assert_eq!(count(), 2, "after {n}");
        }
        let _stays_too = join("stays-too:*").await;
        assert_eq!(count(), 2);
    }
}
