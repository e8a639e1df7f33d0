//! News of permission requests on this replica, for those who watch them. What the database says is read once per tenant
//! ([`Announcer`]); each follower then takes what it may see.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{OwnedRwLockReadGuard, broadcast};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use uuid::Uuid;

use super::announcer::{
    Announcer, BOARD_AGE, BOARD_MAX, CHANNEL, ConsentBoard, Ears, Errand, NthNews, READ_MAX,
};
use super::{Consent, ConsentView};
use crate::domain::backoff::{chance, jittered};
use crate::domain::consent::ConsentState;
use crate::domain::id::TenantId;
use crate::domain::tenant::Action;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::{ConsentFilter, ConsentNotice, ConsentOrder, StoreError};

/// Most time that a follower's poll comes after the age at which something is read again: followers drift apart.
const JITTER: Duration = Duration::from_secs(10);
/// Longest pause of a follower after lost news: many may read again.
const LOST_PAUSE: Duration = Duration::from_secs(1);

/// Step of what a follower hears.
#[derive(Debug)]
pub enum ConsentHeard {
    /// A request has moved, and this is how it is.
    Moved(Arc<ConsentView>),
    /// The board of requests that wait for people who are attached. News from before are older, later ones newer.
    Board(Arc<ConsentBoard>),
    /// Some news were lost.
    Lost,
}

impl From<NthNews> for ConsentHeard {
    fn from(news: NthNews) -> ConsentHeard {
        news.view.map_or(ConsentHeard::Lost, ConsentHeard::Moved)
    }
}

/// Follower of one tenant's permission requests.
#[derive(Debug)]
pub struct ConsentNews {
    announcer: Arc<Announcer>,
    tenant: TenantId,
    /// Ears of the follower; `None` only while it is dropped.
    ears: Option<Ears>,
    /// Board that is to be handed out after the news from before it.
    due: Option<Arc<ConsentBoard>>,
    /// News from after the board that was handed out last.
    later: Option<NthNews>,
}

/// Returns when a follower polls for what was read now.
pub fn next_consent_poll(now: Instant) -> Instant {
    now + BOARD_AGE + jittered(JITTER, chance())
}

impl ConsentNews {
    fn new(announcer: &Arc<Announcer>, tenant: TenantId) -> ConsentNews {
        let ears = Some(announcer.follow(tenant));
        ConsentNews { announcer: Arc::clone(announcer), tenant, ears, due: None, later: None }
    }

    /// Waits until a request moves, and returns it as it is then; `None` if some news were lost. Cancel-safe.
    pub async fn next(&mut self) -> Option<Arc<ConsentView>> {
        let Some(ears) = &mut self.ears else { return std::future::pending().await };
        received(&mut ears.news).await.view
    }

    /// Waits for the next of all that is told, boards included. Cancel-safe.
    pub async fn heard(&mut self) -> ConsentHeard {
        let Some(ears) = &mut self.ears else { return std::future::pending().await };
        if let Some(later) = self.later.take() {
            return later.into();
        }
        loop {
            if ears.board.has_changed().unwrap_or_default() {
                self.due = Some(Arc::clone(&ears.board.borrow_and_update()));
            }
            let Some(board) = self.due.take() else {
                tokio::select! {
                    biased;
                    Ok(()) = ears.board.changed() => {
                        self.due = Some(Arc::clone(&ears.board.borrow_and_update()));
                    }
                    news = received(&mut ears.news) => return news.into(),
                }
                continue;
            };
            // what was told before the board was put up is in the queue by now
            return match ears.news.try_recv() {
                Ok(news) if news.nth <= board.nth => {
                    self.due = Some(board);
                    news.into()
                }
                Ok(news) => {
                    self.later = Some(news);
                    ConsentHeard::Board(board)
                }
                Err(TryRecvError::Lagged(_)) => {
                    self.due = Some(board);
                    ConsentHeard::Lost
                }
                Err(TryRecvError::Empty | TryRecvError::Closed) => ConsentHeard::Board(board),
            };
        }
    }

    /// Drops all that was told so far and not heard.
    pub fn restart(&mut self) {
        (self.due, self.later) = (None, None);
        if let Some(ears) = &mut self.ears {
            ears.news = ears.news.resubscribe();
            ears.board.mark_unchanged();
        }
    }

    /// Waits until a request does not wait for a person any more. Whether it has moved already is read at the beginning; later
    /// on in long intervals, in case that no notice comes.
    pub(in crate::gateway) async fn decided(&mut self, consent: &Arc<Consent>, id: Uuid) {
        loop {
            consent.reread(self.tenant, [id]);
            let poll_at = next_consent_poll(Instant::now());
            loop {
                match timeout_at(poll_at, self.next()).await {
                    Ok(Some(moved)) if moved.row.id != id => {}
                    Ok(Some(moved)) if moved.row.state != ConsentState::Pending => return,
                    Ok(Some(_)) => {}
                    Ok(None) => {
                        sleep(jittered(LOST_PAUSE, chance())).await;
                        break;
                    }
                    Err(_) => break,
                }
            }
        }
    }

    /// Lets nothing be read for news until the guard is dropped. All news from before are in `rest` by then, and what the
    /// follower reads meanwhile is newer than those and older than all others.
    pub async fn hold(&self) -> Option<OwnedRwLockReadGuard<()>> {
        let order = Arc::clone(&self.ears.as_ref()?.order);
        Some(order.read_owned().await)
    }

    /// Returns the next of the news that are there already, whether or not some were lost; `None` at their end.
    pub fn rest(&mut self) -> Option<Arc<ConsentView>> {
        let news = &mut self.ears.as_mut()?.news;
        loop {
            match news.try_recv() {
                Ok(NthNews { view: Some(view), .. }) => return Some(view),
                Ok(NthNews { view: None, .. }) | Err(TryRecvError::Lagged(_)) => {}
                Err(TryRecvError::Empty | TryRecvError::Closed) => return None,
            }
        }
    }
}

async fn received(news: &mut broadcast::Receiver<NthNews>) -> NthNews {
    match news.recv().await {
        Ok(news) => news,
        Err(RecvError::Lagged(_)) => NthNews { nth: 0, view: None },
        // the sender's entry stays while there are followers
        Err(RecvError::Closed) => std::future::pending().await,
    }
}

impl Drop for ConsentNews {
    fn drop(&mut self) {
        self.announcer.unfollow(self.tenant, self.ears.take());
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
        Ok(ConsentNews::new(&self.announcer, caller.tenant()?.id))
    }

    /// Tells the followers on this replica of a request that has moved, and lets webhooks be told.
    pub(in crate::gateway) fn heard(self: &Arc<Self>, notice: ConsentNotice) {
        self.deliveries.wake();
        let tenant = notice.tenant;
        self.begin_if(self.announcer.note(notice), tenant);
    }

    /// Tells all followers that notices may have been lost.
    pub(in crate::gateway) fn deaf(&self) {
        self.announcer.lose_all();
    }

    /// Has requests read again, and told to all followers of the tenant.
    pub fn reread(self: &Arc<Self>, tenant: TenantId, ids: impl IntoIterator<Item = Uuid>) {
        self.begin_if(self.announcer.reread(tenant, ids), tenant);
    }

    /// Has the board of a tenant read, and told to all followers. `is_poll`: only if it was not read for [`BOARD_AGE`].
    pub fn want_board(self: &Arc<Self>, tenant: TenantId, is_poll: bool) {
        let max_age = is_poll.then_some(BOARD_AGE);
        self.begin_if(self.announcer.want(tenant, max_age, Instant::now()), tenant);
    }

    fn begin_if(self: &Arc<Self>, is_due: bool, tenant: TenantId) {
        if is_due {
            tokio::spawn(Arc::clone(self).read_for_followers(tenant));
        }
    }

    /// Reads for the followers of a tenant until nothing is left.
    async fn read_for_followers(self: Arc<Self>, tenant: TenantId) {
        while let Some((errand, tools)) = self.announcer.next(tenant, Instant::now()) {
            if let Errand::Pause(until) = errand {
                tokio::select! {
                    () = sleep_until(until) => {}
                    () = tools.stirred.notified() => {}
                }
                continue;
            }
            let _turn = tools.order.write().await;
            if let Err(error) = self.run_errand(tenant, &errand).await {
                tracing::debug!(%tenant, %error, "permission requests could not be read for news");
                self.announcer.failed(tenant, errand, Instant::now());
            }
        }
    }

    async fn run_errand(&self, tenant: TenantId, errand: &Errand) -> Result<(), StoreError> {
        match errand {
            Errand::Read(ids) => {
                let filter = ConsentFilter { ids: Some(ids.clone()), ..ConsentFilter::default() };
                let rows = self.store.list_consent(tenant, &filter, READ_MAX as i64).await?;
                self.announcer.tell(tenant, rows.into_iter().rev().map(ConsentView::from));
            }
            Errand::Look => {
                let filter = ConsentFilter {
                    state: Some(ConsentState::Pending),
                    channel: Some(CHANNEL),
                    order: ConsentOrder::Oldest,
                    ..ConsentFilter::default()
                };
                let rows = self.store.list_consent(tenant, &filter, BOARD_MAX as i64).await?;
                self.announcer.put_up(tenant, rows.into_iter().map(ConsentView::from));
            }
            Errand::Pause(_) => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::gateway::consent::announcer::{MOVED_MAX, NEWS_MAX};
    use crate::store::ConsentRow;

    const TENANT: TenantId = TenantId(Uuid::from_u128(1));

    fn view(n: u128) -> ConsentView {
        ConsentView::from(ConsentRow { id: Uuid::from_u128(n), ..ConsentRow::example() })
    }

    /// Returns what is heard until nothing is left: ids of news, ids on a board, and nothing for a loss.
    fn heard(follower: &mut ConsentNews) -> Vec<(&'static str, Vec<u128>)> {
        let id = |view: &Arc<ConsentView>| view.row.id.as_u128();
        let next = || follower.heard().now_or_never();
        let shown = |heard| match heard {
            ConsentHeard::Moved(view) => ("moved", vec![id(&view)]),
            ConsentHeard::Board(board) => ("board", board.views.iter().map(id).collect()),
            ConsentHeard::Lost => ("lost", Vec::new()),
        };
        std::iter::from_fn(next).map(shown).collect()
    }

    #[test]
    fn too_much_to_read_is_told_as_lost() {
        let announcer = Arc::new(Announcer::default());
        let mut follower = ConsentNews::new(&announcer, TENANT);
        let notice = |n| ConsentNotice { tenant: TENANT, id: Uuid::from_u128(n) };
        let begun = (0..=MOVED_MAX as u128).filter(|n| announcer.note(notice(*n))).count();
        assert_eq!(begun, 1);
        assert!(follower.next().now_or_never().unwrap().is_none());
        // those that are left when more came than are kept
        (0..=NEWS_MAX).for_each(|_| announcer.lose_all());
        assert!(follower.rest().is_none());
        assert_eq!(heard(&mut follower), [], "nothing is left for after a look");
        let next = announcer.next(TENANT, Instant::now()).map(|(errand, _)| errand);
        assert_eq!(next, Some(Errand::Read(vec![Uuid::from_u128(MOVED_MAX as u128)])));
    }

    #[test]
    fn a_board_is_heard_between_what_is_older_and_what_is_newer() {
        let announcer = Arc::new(Announcer::default());
        let mut follower = ConsentNews::new(&announcer, TENANT);
        assert_eq!(heard(&mut follower), []);
        announcer.tell(TENANT, [view(1)]);
        announcer.put_up(TENANT, [view(2), view(3)]);
        announcer.tell(TENANT, [view(2), view(4)]);
        let told = [("moved", vec![1]), ("board", vec![2, 3]), ("moved", vec![2]), ("moved", vec![4])];
        assert_eq!(heard(&mut follower), told);
        // of two boards the newer one is enough
        announcer.put_up(TENANT, [view(3)]);
        announcer.tell(TENANT, [view(5)]);
        announcer.put_up(TENANT, [view(6)]);
        assert_eq!(heard(&mut follower), [("moved", vec![5]), ("board", vec![6])]);
        announcer.tell(TENANT, [view(1)]);
        announcer.put_up(TENANT, [view(2)]);
        follower.restart();
        assert_eq!(heard(&mut follower), []);
        // a loss is heard, and the board all the same
        announcer.put_up(TENANT, [view(7)]);
        announcer.tell(TENANT, (0..NEWS_MAX as u128 + 9).map(view));
        let after = heard(&mut follower);
        assert_eq!(after[..2], [("lost", vec![]), ("board", vec![7])]);
        assert_eq!(after.len(), 2 + NEWS_MAX);
    }

    #[test]
    fn boards_that_are_full_may_not_be_whole() {
        let announcer = Arc::new(Announcer::default());
        let follower = ConsentNews::new(&announcer, TENANT);
        for (count, is_whole) in [(0, true), (BOARD_MAX - 1, true), (BOARD_MAX, false)] {
            announcer.put_up(TENANT, (0..count as u128).map(view));
            let board = Arc::clone(&follower.ears.as_ref().unwrap().board.borrow());
            assert_eq!((board.views.len(), board.is_whole), (count, is_whole));
        }
    }
}
