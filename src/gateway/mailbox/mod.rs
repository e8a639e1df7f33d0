//! Mailbox: a handshake client replies with a POST that may reach any replica, and the reply finds whoever waits for it.
//!
//! The id of a request to a client is the sealed address of its waiter. A reply for another replica goes through a row, which
//! that replica takes. The first reply counts; others change nothing. Letters between replicas about calls that are held open
//! go the same way.

mod address;
mod letters;
mod waiters;

pub(in crate::gateway) use self::letters::{AwaitedLetter, Letter, LetterAddress, LetterFault};

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use uuid::Uuid;

use self::address::{Address, Respondent};
use self::waiters::{ReplySlot, Waiters};
use super::tenants::Caller;
use super::{Ground, Lifecycle, Options, clock};
use crate::domain::id::TenantId;
use crate::domain::measure::{Count, Counts, SeriesKey};
use crate::domain::shares::{Amount, Shares, TENANT_PART};
use crate::domain::text_enum::text_enum;
use crate::store::{NewReply, ReplyNews, ReplyNotice, Store, StoreError};
use crate::upstream::QuestionReply;

/// Longest reply of a client, in bytes.
pub const REPLY_BYTES_MAX: usize = 1024 * 1024;
/// Most replies and ends of sessions that are passed on to other replicas at the same time.
const PASSING_MAX: Amount = Amount { items: 64, bytes: 16 * REPLY_BYTES_MAX };
/// Most of them that use the database at the same time: others need its few connections as well.
const WRITING_MAX: usize = 2;
/// Most replies that are taken out of the database at the same time; the rest waits for the next poll.
const TAKING_MAX: usize = 3;
/// Most replies of which one poll learns.
const POLLED_MAX: i64 = 200;
/// Life of a stored reply, in seconds: its replica takes it at once, or by the next poll.
const KEEP_S: f64 = 60.0;

text_enum! {
    /// Outcome of a client's reply.
    pub enum ReplyEnd {
        /// Handed over to whoever waited for it.
        Delivered = "delivered",
        /// Stored for another replica.
        PassedOn = "passed_on",
        /// Too late: nobody waits any more, or there was a reply already.
        Late = "late",
        /// Not a reply to a request to this session.
        Unknown = "unknown",
        /// Without a result and an error, or with both.
        Malformed = "malformed",
        /// Not stored: too many at once, or no database.
        Lost = "lost",
    }
}

impl SeriesKey for ReplyEnd {
    fn rest(self) -> ReplyEnd {
        self
    }
}

/// Way of clients' replies to those who wait for them.
pub struct Mailbox {
    store: Store,
    options: Arc<Options>,
    life: Arc<Lifecycle>,
    waiters: Arc<Waiters>,
    passing: Mutex<Shares<TenantId>>,
    taking: Arc<Semaphore>,
    writing: Semaphore,
    /// Replies by their outcome.
    pub ends: Counts<ReplyEnd>,
}

/// Wait for the reply to one request to a client. Dropping it ends the wait.
#[derive(Debug)]
pub(in crate::gateway) struct AwaitedReply {
    /// Id of the request, a raw JSON string.
    pub(in crate::gateway) id: String,
    waiting: ReplySlot,
}

impl AwaitedReply {
    /// Waits for the reply; `None` if the client has ended its session. Cancel-safe.
    pub(in crate::gateway) async fn reply(&mut self) -> Option<QuestionReply> {
        (&mut self.waiting.reply).await.ok()
    }
}

impl Mailbox {
    pub(super) fn new(ground: &Ground) -> Mailbox {
        let Ground { store, options, life, .. } = ground.clone();
        let ends = Counts::new(Count::default);
        ReplyEnd::ALL.into_iter().for_each(|end| ends.note(end, |_| ()));
        Mailbox {
            store,
            options,
            life,
            waiters: Arc::default(),
            passing: Mutex::default(),
            taking: Arc::new(Semaphore::new(TAKING_MAX)),
            writing: Semaphore::new(WRITING_MAX),
            ends,
        }
    }

    /// Returns how many wait for a reply on this replica.
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Begins to wait for the client of a session, for at most this long. `None` if too many of the key or tenant wait.
    pub(in crate::gateway) fn await_reply(
        &self,
        caller: &Caller,
        session: &str,
        hold: Duration,
    ) -> Option<AwaitedReply> {
        let respondent = Respondent::new(caller, session);
        let waiting = self.waiters.begin(&respondent)?;
        let address = Address {
            replica: self.options.replica,
            waiter: waiting.id,
            expires_at: clock::now() + TimeDelta::from_std(hold).unwrap_or_default(),
        };
        Some(AwaitedReply { id: respondent.id_of(&self.options.reply_keys, address)?, waiting })
    }

    /// Counts a reply that cannot be read.
    pub fn malformed(&self) {
        self.count(ReplyEnd::Malformed);
    }

    fn count(&self, end: ReplyEnd) {
        self.ends.note(end, Count::one);
    }

    /// Takes the reply of a client in a session to the request with this raw id. Returns nothing: whoever replies is told
    /// neither whether somebody waits nor where.
    pub fn deliver(self: &Arc<Self>, caller: &Caller, session: &str, id: &str, reply: QuestionReply) {
        let respondent = Respondent::new(caller, session);
        let Some(address) = respondent.address_of(&self.options.reply_keys, id) else {
            return self.count(ReplyEnd::Unknown);
        };
        if address.replica == self.options.replica {
            return self.hand_over(address.waiter, reply);
        }
        if address.expires_at <= clock::now() {
            return self.count(ReplyEnd::Late);
        }
        let Some(sealed) = respondent.seal_reply(&self.options.reply_keys, address.waiter, &reply) else {
            return self.count(ReplyEnd::Malformed);
        };
        let new = NewReply { id: address.waiter, replica: address.replica, sealed, keep_s: KEEP_S };
        let (mailbox, tenant) = (Arc::clone(self), respondent.tenant);
        let passed = self.pass(tenant, new.sealed.len(), async move {
            let end = match mailbox.store.keep_reply(tenant, &new).await {
                Ok(true) => ReplyEnd::PassedOn,
                Ok(false) => ReplyEnd::Late,
                Err(error) => {
                    tracing::warn!(%tenant, %error, "a client's reply could not be passed on");
                    ReplyEnd::Lost
                }
            };
            mailbox.count(end);
        });
        if !passed {
            self.count(ReplyEnd::Lost);
        }
    }

    /// Ends all waits for the client of a session, on every replica.
    pub fn end_session(self: &Arc<Self>, caller: &Caller, session: &str) {
        let respondent = Respondent::new(caller, session);
        self.waiters.end(&respondent);
        let Respondent { tenant, key, session } = respondent;
        let mailbox = Arc::clone(self);
        self.pass(tenant, 0, async move {
            let notice = ReplyNotice { tenant, news: ReplyNews::SessionEnded { key, session } };
            if let Err(error) = mailbox.store.notify_session_end(&notice).await {
                tracing::debug!(%error, "the end of a session could not be passed on");
            }
        });
    }

    /// Runs work towards other replicas in a task of its own. Returns `false` if too much of it is under way.
    fn pass(
        self: &Arc<Self>,
        tenant: TenantId,
        bytes: usize,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> bool {
        let amount = Amount::one(bytes);
        let mut passing = self.passing.lock();
        let fits = passing.of(&tenant).has_room(amount, PASSING_MAX, TENANT_PART)
            && passing.all().has_room(amount, PASSING_MAX, 1);
        if !fits {
            return false;
        }
        passing.take(tenant, amount);
        drop(passing);
        let mailbox = Arc::clone(self);
        self.life.tasks.spawn(async move {
            let turn = mailbox.writing.acquire().await;
            work.await;
            drop(turn);
            mailbox.passing.lock().give_back(&tenant, amount);
        });
        true
    }

    fn hand_over(&self, waiter: Uuid, reply: QuestionReply) {
        let is_first = self.waiters.hand_over(waiter, reply);
        self.count(if is_first { ReplyEnd::Delivered } else { ReplyEnd::Late });
    }

    /// Acts on a notice of another replica.
    pub(in crate::gateway) fn heard(self: &Arc<Self>, notice: ReplyNotice) {
        match notice.news {
            ReplyNews::SessionEnded { key, session } => {
                self.waiters.end(&Respondent { tenant: notice.tenant, key, session });
            }
            ReplyNews::Kept { replica, id } if replica == self.options.replica => {
                let Ok(permit) = Arc::clone(&self.taking).try_acquire_owned() else { return };
                let mailbox = Arc::clone(self);
                tokio::spawn(async move {
                    let _permit = permit;
                    if let Err(error) = mailbox.take(notice.tenant, id).await {
                        tracing::warn!(%error, "a client's reply could not be taken; it is tried again");
                    }
                });
            }
            ReplyNews::Kept { .. } => {}
        }
    }

    /// Takes the replies of which no notice came.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub(in crate::gateway) async fn poll(self: &Arc<Self>) -> Result<(), StoreError> {
        if self.waiters.len() == 0 {
            return Ok(());
        }
        for (tenant, id) in self.store.replies_for(self.options.replica, POLLED_MAX).await? {
            self.take(tenant, id).await?;
        }
        Ok(())
    }

    async fn take(self: &Arc<Self>, tenant: TenantId, id: Uuid) -> Result<(), StoreError> {
        let respondent = self.waiters.respondent(id);
        let Some(sealed) = self.store.take_reply(tenant, id).await? else { return Ok(()) };
        let Some(respondent) = respondent.filter(|respondent| !respondent.is_replica()) else {
            return self.letter_came(tenant, id, &sealed).await;
        };
        match respondent.open_reply(&self.options.reply_keys, id, &sealed) {
            Some(reply) => self.hand_over(id, reply),
            None => self.count(ReplyEnd::Unknown),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::ReplicaId;
    use crate::gateway::tenants::example_caller;

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox::new(&Ground::example()))
    }

    fn tenant(n: usize) -> TenantId {
        TenantId(Uuid::from_u128(n as u128))
    }

    #[tokio::test]
    async fn a_late_reply_for_a_waiter_of_another_replica_is_not_passed_on() {
        let (mailbox, caller) = (mailbox(), example_caller());
        let respondent = Respondent::new(&caller, "s");
        for (left, late, passed_on) in [(-1, 1, 0), (60, 1, 1)] {
            let address = Address {
                replica: ReplicaId(Uuid::max()),
                waiter: Uuid::from_u128(7),
                expires_at: clock::now() + TimeDelta::seconds(left),
            };
            let id = respondent.id_of(&mailbox.options.reply_keys, address).unwrap();
            mailbox.deliver(&caller, "s", &id, QuestionReply::Result("{}".into()));
            let ends = mailbox.ends.all();
            let count = ends.iter().find(|(end, _)| *end == ReplyEnd::Late).map(|(_, count)| count.get());
            assert_eq!((count, mailbox.life.under_way()), (Some(late), passed_on), "{left} s");
        }
    }

    #[tokio::test]
    async fn what_is_passed_on_is_bounded_and_no_tenant_takes_all() {
        let (mailbox, over) = (mailbox(), tokio_util::sync::CancellationToken::new());
        let pass = |n, bytes| mailbox.pass(tenant(n), bytes, over.clone().cancelled_owned());
        for n in 1..=TENANT_PART {
            let passed = (0..=PASSING_MAX.items / TENANT_PART).filter(|_| pass(n, 0)).count();
            assert_eq!(passed, PASSING_MAX.items / TENANT_PART, "tenant {n}");
        }
        assert!(!pass(TENANT_PART + 1, 0), "all of it is taken");
        over.cancel();
        mailbox.life.tasks.close();
        mailbox.life.tasks.wait().await;
        let bytes = PASSING_MAX.bytes / TENANT_PART;
        assert!(!pass(1, bytes + 1) && pass(1, bytes) && !pass(1, 1), "as many bytes as a tenant may have");
    }
}
