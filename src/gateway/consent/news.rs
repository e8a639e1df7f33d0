//! News of permission requests on this replica, for those who watch them. A request that has moved is read once per tenant,
//! however many watch; each of them then takes what it may see.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{OwnedRwLockReadGuard, RwLock, broadcast};
use uuid::Uuid;

use super::{Consent, ConsentView};
use crate::domain::id::TenantId;
use crate::domain::tenant::Action;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{ConsentFilter, ConsentNotice};

/// Most requests of a tenant that wait to be read.
const MOVED_MAX: usize = 1024;
/// Most requests read at once.
const READ_MAX: usize = 64;
/// Most news of a tenant kept for a follower that is slow: some megabytes at worst.
const NEWS_MAX: usize = 256;

/// Request as it was read; `None` if some news were lost.
type News = Option<Arc<ConsentView>>;

/// Tenants whose requests are followed on this replica.
#[derive(Debug, Default)]
pub(super) struct Announcer(Mutex<HashMap<TenantId, Followed>>);

/// Requests of a tenant, with followers.
#[derive(Debug)]
struct Followed {
    tell: broadcast::Sender<News>,
    order: Arc<RwLock<()>>,
    /// Requests that have moved and were not read since.
    moved: BTreeSet<Uuid>,
    /// True while a task reads them; until it ends, the entry stays.
    is_under_way: bool,
}

impl Followed {
    fn lose(&self) {
        // the last follower may have left
        drop(self.tell.send(None));
    }
}

/// Follower of one tenant's permission requests.
#[derive(Debug)]
pub struct ConsentNews {
    announcer: Arc<Announcer>,
    tenant: TenantId,
    /// Receiver of the news; `None` only while the follower is dropped.
    news: Option<broadcast::Receiver<News>>,
    order: Arc<RwLock<()>>,
}

impl ConsentNews {
    /// Waits until a request moves, and returns it as it is then; `None` if some news were lost. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arc<ConsentView>> {
        let Some(news) = &mut self.news else { return std::future::pending().await };
        match news.recv().await {
            Ok(news) => news,
            Err(RecvError::Lagged(_)) => None,
            // the sender's entry stays while there are followers
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }

    /// Lets nothing be read for news until the guard is dropped. All news from before are in `rest` by then, and what the
    /// follower reads meanwhile is newer than those and older than all others.
    pub async fn hold(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.order).read_owned().await
    }

    /// Returns the next of the news that are there already, whether or not some were lost; `None` at their end.
    pub fn rest(&mut self) -> Option<Arc<ConsentView>> {
        let news = self.news.as_mut()?;
        loop {
            match news.try_recv() {
                Ok(Some(view)) => return Some(view),
                Ok(None) | Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }
}

impl Drop for ConsentNews {
    fn drop(&mut self) {
        let mut tenants = self.announcer.0.lock();
        // dropped under the lock: of two followers that leave at once, the second sees that it is the last
        self.news = None;
        let is_left = |followed: &Followed| !followed.is_under_way && followed.tell.receiver_count() == 0;
        if tenants.get(&self.tenant).is_some_and(is_left) {
            tenants.remove(&self.tenant);
        }
    }
}

impl Announcer {
    fn follow(self: &Arc<Self>, tenant: TenantId) -> ConsentNews {
        let mut tenants = self.0.lock();
        let followed = tenants.entry(tenant).or_insert_with(|| Followed {
            tell: broadcast::channel(NEWS_MAX).0,
            order: Arc::default(),
            moved: BTreeSet::new(),
            is_under_way: false,
        });
        let (news, order) = (Some(followed.tell.subscribe()), Arc::clone(&followed.order));
        ConsentNews { announcer: Arc::clone(self), tenant, news, order }
    }

    /// Notes a request to be read. Returns whether the caller must begin to read: there are followers, and no task does.
    fn note(&self, notice: ConsentNotice) -> bool {
        let mut tenants = self.0.lock();
        let Some(followed) = tenants.get_mut(&notice.tenant) else { return false };
        if followed.moved.len() >= MOVED_MAX {
            followed.moved.clear();
            followed.lose();
        }
        followed.moved.insert(notice.id);
        !std::mem::replace(&mut followed.is_under_way, true)
    }

    /// Returns the requests to read next, the oldest first, and the right to read; `None` if there are none, which ends the
    /// task.
    fn next(&self, tenant: TenantId) -> Option<(Vec<Uuid>, Arc<RwLock<()>>)> {
        let mut tenants = self.0.lock();
        let followed = tenants.get_mut(&tenant)?;
        if followed.tell.receiver_count() == 0 {
            tenants.remove(&tenant);
            return None;
        }
        let ids: Vec<Uuid> = std::iter::from_fn(|| followed.moved.pop_first()).take(READ_MAX).collect();
        followed.is_under_way = !ids.is_empty();
        followed.is_under_way.then(|| (ids, Arc::clone(&followed.order)))
    }

    fn tell(&self, tenant: TenantId, views: Vec<ConsentView>) {
        if let Some(followed) = self.0.lock().get(&tenant) {
            // the last follower may have left
            views.into_iter().for_each(|view| drop(followed.tell.send(Some(Arc::new(view)))));
        }
    }
}

impl Consent {
    /// Returns the news of the caller's tenant from now on. They are of all keys: [`ConsentView::is_visible_to`] says which
    /// the caller may see.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant.
    pub fn follow(&self, caller: &Caller) -> Result<ConsentNews, GatewayError> {
        caller.authorise(Action::SeeOwnConsent)?;
        Ok(self.announcer.follow(caller.tenant()?.id))
    }

    /// Tells the followers on this replica of a request that has moved.
    pub(in crate::gateway) fn heard(self: &Arc<Self>, notice: ConsentNotice) {
        let tenant = notice.tenant;
        if self.announcer.note(notice) {
            tokio::spawn(Arc::clone(self).tell_moved(tenant));
        }
    }

    /// Reads what has moved until nothing is left.
    async fn tell_moved(self: Arc<Self>, tenant: TenantId) {
        while let Some((ids, order)) = self.announcer.next(tenant) {
            let _turn = order.write().await;
            let filter = ConsentFilter { ids: Some(ids), ..ConsentFilter::default() };
            match self.store.list_consent(tenant, &filter, READ_MAX as i64).await {
                Ok(rows) => {
                    self.announcer.tell(tenant, rows.into_iter().rev().map(ConsentView::from).collect());
                }
                // each follower looks again before long
                Err(error) => {
                    tracing::debug!(%tenant, %error, "permission requests could not be read for news");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u128) -> Uuid {
        Uuid::from_u128(n)
    }

    fn notice(tenant: u128, n: u128) -> ConsentNotice {
        ConsentNotice { tenant: TenantId(id(tenant)), id: id(n) }
    }

    #[test]
    fn what_moves_is_read_once_however_many_follow() {
        let announcer = Arc::new(Announcer::default());
        let (ours, others) = (TenantId(id(1)), TenantId(id(2)));
        let followers: Vec<ConsentNews> = (0..3).map(|_| announcer.follow(ours)).collect();
        let begun: Vec<bool> = [9, 8, 9].into_iter().map(|n| announcer.note(notice(1, n))).collect();
        assert_eq!(begun, [true, false, false]);
        // nobody follows the other tenant
        assert!(!announcer.note(notice(2, 7)));
        assert!(announcer.next(others).is_none());
        assert_eq!(announcer.next(ours).unwrap().0, [id(8), id(9)]);
        assert!(!announcer.note(notice(1, 8)), "it is being read, and once more afterwards");
        assert_eq!(announcer.next(ours).unwrap().0, [id(8)]);
        assert!(announcer.next(ours).is_none());
        assert!(announcer.note(notice(1, 8)));
        drop(followers);
        assert_eq!(announcer.0.lock().len(), 1, "the reading task ends it");
        assert!(announcer.next(ours).is_none());
        assert_eq!(announcer.0.lock().len(), 0);
        drop(announcer.follow(ours));
        assert_eq!(announcer.0.lock().len(), 0);
    }

    #[tokio::test]
    async fn too_much_to_read_is_told_as_lost() {
        let announcer = Arc::new(Announcer::default());
        let mut follower = announcer.follow(TenantId(id(1)));
        let begun = (0..=MOVED_MAX as u128).filter(|n| announcer.note(notice(1, *n))).count();
        assert_eq!(begun, 1);
        assert!(follower.next().await.is_none());
        // those that are left when more came than are kept
        (0..=NEWS_MAX).for_each(|_| announcer.0.lock()[&TenantId(id(1))].lose());
        assert!(follower.rest().is_none());
        assert!(follower.news.as_ref().unwrap().is_empty(), "nothing is left for after a look");
        assert_eq!(announcer.next(TenantId(id(1))).unwrap().0, [id(MOVED_MAX as u128)]);
    }
}
