//! Reads that the followers of permission requests on this replica share: each request that has moved, and the list of those
//! that wait, are read once per tenant, however many follow.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, RwLock, broadcast, watch};
use tokio::time::Instant;
use uuid::Uuid;

use super::ConsentView;
use crate::domain::id::TenantId;
use crate::store::ConsentNotice;

/// Name of the channel of people who are attached, in rules of policies.
pub(super) const CHANNEL: &str = "acp";
/// Most requests of a tenant that wait to be read.
pub(super) const MOVED_MAX: usize = 1024;
/// Most requests read at once.
pub(super) const READ_MAX: usize = 64;
/// Most news of a tenant kept for a follower that is slow: some megabytes at worst.
pub(super) const NEWS_MAX: usize = 256;
/// Most requests on a board: some megabytes at worst, once per tenant.
pub(super) const BOARD_MAX: usize = 500;
/// Age from which a board is read again: notices may be lost.
pub(super) const BOARD_AGE: Duration = Duration::from_secs(30);
/// Shortest time between two reads of a tenant's board.
const BOARDS_APART: Duration = Duration::from_millis(250);
/// Pause after a read that failed.
const RETRY: Duration = Duration::from_secs(2);

/// Numbered news of one request; without a view, some news were lost.
#[derive(Clone, Debug)]
pub(super) struct NthNews {
    pub(super) nth: u64,
    pub(super) view: Option<Arc<ConsentView>>,
}

/// Requests that wait for people who are attached, as read at one moment.
#[derive(Debug, Default)]
pub struct ConsentBoard {
    /// The requests, the oldest first.
    pub views: Vec<Arc<ConsentView>>,
    /// True if there are no others.
    pub is_whole: bool,
    /// Number of the last news that were read before.
    pub(super) nth: u64,
}

/// Work of the one task that reads for a tenant.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Errand {
    /// Read these requests, the oldest first, and tell them.
    Read(Vec<Uuid>),
    /// Read the board, and put it up.
    Look,
    /// Wait until then, or until there is something else to read.
    Pause(Instant),
}

/// Right to do an errand, and the signal that there is more to read.
pub(super) struct ErrandTools {
    pub(super) order: Arc<RwLock<()>>,
    pub(super) stirred: Arc<Notify>,
}

/// Tenants whose requests are followed on this replica.
#[derive(Debug, Default)]
pub(super) struct Announcer(Mutex<HashMap<TenantId, Followed>>);

/// Requests of a tenant, with followers.
#[derive(Debug)]
struct Followed {
    tell: broadcast::Sender<NthNews>,
    /// Number of the last news.
    told: u64,
    board: watch::Sender<Arc<ConsentBoard>>,
    /// True if somebody waits for a board that is newer than now.
    is_wanted: bool,
    /// Time at which the last read of a board began.
    looked_at: Option<Instant>,
    order: Arc<RwLock<()>>,
    /// Requests that have moved and were not read since.
    moved: BTreeSet<Uuid>,
    /// Time before which nothing is read, after a failure.
    retry_at: Option<Instant>,
    stirred: Arc<Notify>,
    /// True while a task reads; until it ends, the entry stays.
    is_under_way: bool,
}

/// Receivers of one follower.
#[derive(Debug)]
pub(super) struct Ears {
    pub(super) news: broadcast::Receiver<NthNews>,
    pub(super) board: watch::Receiver<Arc<ConsentBoard>>,
    pub(super) order: Arc<RwLock<()>>,
}

impl Followed {
    fn new() -> Followed {
        Followed {
            tell: broadcast::channel(NEWS_MAX).0,
            told: 0,
            board: watch::channel(Arc::default()).0,
            is_wanted: false,
            looked_at: None,
            order: Arc::default(),
            moved: BTreeSet::new(),
            retry_at: None,
            stirred: Arc::default(),
            is_under_way: false,
        }
    }

    fn tell(&mut self, view: Option<Arc<ConsentView>>) {
        self.told += 1;
        // the last follower may have left
        drop(self.tell.send(NthNews { nth: self.told, view }));
    }

    /// Returns whether a task must be begun for what there is to read now.
    fn stir(&mut self) -> bool {
        self.stirred.notify_one();
        !std::mem::replace(&mut self.is_under_way, true)
    }

    fn next(&mut self, now: Instant) -> Option<Errand> {
        if self.moved.is_empty() && !self.is_wanted {
            return None;
        }
        if let Some(at) = self.retry_at.filter(|at| *at > now) {
            return Some(Errand::Pause(at));
        }
        if !self.moved.is_empty() {
            return Some(Errand::Read(
                std::iter::from_fn(|| self.moved.pop_first()).take(READ_MAX).collect(),
            ));
        }
        if let Some(at) = self.looked_at.map(|at| at + BOARDS_APART).filter(|at| *at > now) {
            return Some(Errand::Pause(at));
        }
        (self.is_wanted, self.looked_at) = (false, Some(now));
        Some(Errand::Look)
    }
}

impl Announcer {
    pub(super) fn follow(&self, tenant: TenantId) -> Ears {
        let mut tenants = self.0.lock();
        let followed = tenants.entry(tenant).or_insert_with(Followed::new);
        Ears {
            news: followed.tell.subscribe(),
            board: followed.board.subscribe(),
            order: Arc::clone(&followed.order),
        }
    }

    /// Takes a follower's ears back. The entry of a tenant goes with the last ones.
    pub(super) fn unfollow(&self, tenant: TenantId, ears: Option<Ears>) {
        let mut tenants = self.0.lock();
        // dropped under the lock: of two followers that leave at once, the second sees that it is the last
        drop(ears);
        let is_left = |followed: &Followed| !followed.is_under_way && followed.tell.receiver_count() == 0;
        if tenants.get(&tenant).is_some_and(is_left) {
            tenants.remove(&tenant);
        }
    }

    /// Notes a request to be read. Returns whether the caller must begin to read: there are followers, and no task does.
    pub(super) fn note(&self, notice: ConsentNotice) -> bool {
        let mut tenants = self.0.lock();
        let Some(followed) = tenants.get_mut(&notice.tenant) else { return false };
        if followed.moved.len() >= MOVED_MAX {
            followed.moved.clear();
            followed.tell(None);
        }
        followed.moved.insert(notice.id);
        followed.stir()
    }

    /// Notes requests to be read though nothing is known to have moved; those for which there is no room are left out. Returns
    /// whether the caller must begin to read.
    pub(super) fn reread(&self, tenant: TenantId, ids: impl IntoIterator<Item = Uuid>) -> bool {
        let mut tenants = self.0.lock();
        let Some(followed) = tenants.get_mut(&tenant) else { return false };
        let room = MOVED_MAX.saturating_sub(followed.moved.len());
        followed.moved.extend(ids.into_iter().take(room));
        !followed.moved.is_empty() && followed.stir()
    }

    /// Notes that a board from now or later is wanted; with `max_age`, only if the last one is older. Returns whether the
    /// caller must begin to read.
    pub(super) fn want(&self, tenant: TenantId, max_age: Option<Duration>, now: Instant) -> bool {
        let mut tenants = self.0.lock();
        let Some(followed) = tenants.get_mut(&tenant) else { return false };
        let is_fresh = followed.looked_at.zip(max_age).is_some_and(|(at, age)| now < at + age);
        if is_fresh || std::mem::replace(&mut followed.is_wanted, true) {
            return false;
        }
        followed.stir()
    }

    /// Tells the followers of all tenants that notices may have been lost.
    pub(super) fn lose_all(&self) {
        self.0.lock().values_mut().for_each(|followed| followed.tell(None));
    }

    /// Returns what is to be read next; `None` if there is nothing, which ends the task.
    pub(super) fn next(&self, tenant: TenantId, now: Instant) -> Option<(Errand, ErrandTools)> {
        let mut tenants = self.0.lock();
        let followed = tenants.get_mut(&tenant)?;
        if followed.tell.receiver_count() == 0 {
            tenants.remove(&tenant);
            return None;
        }
        let errand = followed.next(now);
        followed.is_under_way = errand.is_some();
        let tools =
            ErrandTools { order: Arc::clone(&followed.order), stirred: Arc::clone(&followed.stirred) };
        errand.map(|errand| (errand, tools))
    }

    /// Tells the followers of requests that were read.
    pub(super) fn tell(&self, tenant: TenantId, views: impl IntoIterator<Item = ConsentView>) {
        if let Some(followed) = self.0.lock().get_mut(&tenant) {
            views.into_iter().for_each(|view| followed.tell(Some(Arc::new(view))));
        }
    }

    /// Puts up a board of requests that were read, the oldest first.
    pub(super) fn put_up(&self, tenant: TenantId, views: impl IntoIterator<Item = ConsentView>) {
        if let Some(followed) = self.0.lock().get_mut(&tenant) {
            let views: Vec<_> = views.into_iter().map(Arc::new).collect();
            let (is_whole, nth) = (views.len() < BOARD_MAX, followed.told);
            followed.board.send_replace(Arc::new(ConsentBoard { views, is_whole, nth }));
        }
    }

    /// Notes that an errand failed, which is done again after a pause.
    pub(super) fn failed(&self, tenant: TenantId, errand: Errand, now: Instant) {
        let mut tenants = self.0.lock();
        let Some(followed) = tenants.get_mut(&tenant) else { return };
        followed.retry_at = Some(now + RETRY);
        match errand {
            Errand::Read(ids) => {
                let room = MOVED_MAX.saturating_sub(followed.moved.len());
                if ids.len() > room {
                    followed.tell(None);
                }
                followed.moved.extend(ids.into_iter().take(room));
            }
            Errand::Look => followed.is_wanted = true,
            Errand::Pause(_) => {}
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

    fn next(announcer: &Announcer, tenant: TenantId, now: Instant) -> Option<Errand> {
        announcer.next(tenant, now).map(|(errand, _)| errand)
    }

    #[test]
    fn what_moves_is_read_once_however_many_follow() {
        let (announcer, now) = (Announcer::default(), Instant::now());
        let (ours, others) = (TenantId(id(1)), TenantId(id(2)));
        let followers: Vec<Ears> = (0..3).map(|_| announcer.follow(ours)).collect();
        let begun: Vec<bool> = [9, 8, 9].into_iter().map(|n| announcer.note(notice(1, n))).collect();
        assert_eq!(begun, [true, false, false]);
        // nobody follows the other tenant
        assert!(!announcer.note(notice(2, 7)) && !announcer.want(others, None, now));
        assert_eq!(next(&announcer, others, now), None);
        assert_eq!(next(&announcer, ours, now), Some(Errand::Read(vec![id(8), id(9)])));
        assert!(!announcer.note(notice(1, 8)), "it is being read, and once more afterwards");
        assert_eq!(next(&announcer, ours, now), Some(Errand::Read(vec![id(8)])));
        assert_eq!(next(&announcer, ours, now), None);
        assert!(announcer.note(notice(1, 8)));
        drop(followers);
        announcer.unfollow(ours, None);
        assert_eq!(announcer.0.lock().len(), 1, "the reading task ends it");
        assert_eq!(next(&announcer, ours, now), None);
        assert_eq!(announcer.0.lock().len(), 0);
        let ears = announcer.follow(ours);
        announcer.unfollow(ours, Some(ears));
        assert_eq!(announcer.0.lock().len(), 0);
    }

    #[test]
    fn a_board_is_read_once_however_many_want_it() {
        let (announcer, now, ours) = (Announcer::default(), Instant::now(), TenantId(id(1)));
        let _followers: Vec<Ears> = (0..100).map(|_| announcer.follow(ours)).collect();
        let begun = (0..100).filter(|_| announcer.want(ours, None, now)).count();
        assert_eq!(begun, 1);
        assert_eq!(next(&announcer, ours, now), Some(Errand::Look));
        assert_eq!(next(&announcer, ours, now), None);
        // the poll of each follower finds that it was read of late
        let poll = |after| announcer.want(ours, Some(BOARD_AGE), now + after);
        assert_eq!((0..100).filter(|_| poll(BOARD_AGE - Duration::from_millis(1))).count(), 0);
        assert_eq!((0..100).filter(|_| poll(BOARD_AGE)).count(), 1);
        let later = now + BOARD_AGE;
        assert_eq!(next(&announcer, ours, later), Some(Errand::Look));
        // one that is wanted right afterwards is read a moment later; what moves does not wait for it
        assert!(!announcer.want(ours, None, later), "the task is there");
        assert_eq!(next(&announcer, ours, later), Some(Errand::Pause(later + BOARDS_APART)));
        announcer.note(notice(1, 8));
        assert_eq!(next(&announcer, ours, later), Some(Errand::Read(vec![id(8)])));
        assert_eq!(next(&announcer, ours, later + BOARDS_APART), Some(Errand::Look));
    }

    #[test]
    fn what_could_not_be_read_is_read_again_after_a_pause() {
        let (announcer, now, ours) = (Announcer::default(), Instant::now(), TenantId(id(1)));
        let _follower = announcer.follow(ours);
        announcer.note(notice(1, 8));
        announcer.want(ours, None, now);
        let read = next(&announcer, ours, now).unwrap();
        announcer.failed(ours, read, now);
        assert_eq!(next(&announcer, ours, now), Some(Errand::Pause(now + RETRY)));
        let later = now + RETRY;
        assert_eq!(next(&announcer, ours, later), Some(Errand::Read(vec![id(8)])));
        let look = next(&announcer, ours, later).unwrap();
        announcer.failed(ours, look, later);
        assert_eq!(next(&announcer, ours, later), Some(Errand::Pause(later + RETRY)));
        assert_eq!(next(&announcer, ours, later + RETRY), Some(Errand::Look));
    }

    #[test]
    fn what_is_read_without_a_notice_is_bounded_and_loses_no_news() {
        let (announcer, now, ours) = (Announcer::default(), Instant::now(), TenantId(id(1)));
        let ears = announcer.follow(ours);
        assert!(!announcer.reread(ours, []), "nothing to read");
        assert!(announcer.reread(ours, (0..2 * MOVED_MAX as u128).map(id)));
        let mut read = 0;
        while let Some(Errand::Read(ids)) = next(&announcer, ours, now) {
            read += ids.len();
        }
        assert_eq!((read, ears.news.len()), (MOVED_MAX, 0));
    }
}
