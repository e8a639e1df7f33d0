//! Waiters of this replica for replies of clients.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::address::Respondent;
use crate::domain::id::{KeyId, TenantId};
use crate::domain::shares::{Amount, Shares, TENANT_PART};
use crate::upstream::QuestionReply;

/// Most that wait at the same time, of all tenants together.
const WAITERS_MAX: Amount = Amount::items(2048);
/// Most that wait for clients of one key.
const WAITERS_PER_KEY_MAX: usize = 32;

/// Waiters of this replica, bounded by key and tenant.
#[derive(Debug, Default)]
pub(super) struct Waiters(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    open: HashMap<Uuid, Waiter>,
    by_key: Shares<(TenantId, Option<KeyId>)>,
    by_tenant: Shares<TenantId>,
}

#[derive(Debug)]
struct Waiter {
    respondent: Respondent,
    reply: oneshot::Sender<QuestionReply>,
}

/// Slot of one who waits for a reply; given back when dropped.
#[derive(Debug)]
pub(super) struct ReplySlot {
    all: Arc<Waiters>,
    pub(super) id: Uuid,
    respondent: Respondent,
    pub(super) reply: oneshot::Receiver<QuestionReply>,
}

impl Drop for ReplySlot {
    fn drop(&mut self) {
        let mut table = self.all.0.lock();
        table.open.remove(&self.id);
        let Respondent { tenant, key, .. } = self.respondent;
        table.by_key.give_back(&(tenant, key), Amount::ONE);
        table.by_tenant.give_back(&tenant, Amount::ONE);
    }
}

impl Waiters {
    /// Registers one who waits; `None` if there are too many of the key or the tenant.
    pub(super) fn begin(self: &Arc<Self>, respondent: &Respondent) -> Option<ReplySlot> {
        let Respondent { tenant, key, .. } = *respondent;
        let mut table = self.0.lock();
        let fits = table.by_key.of(&(tenant, key)).items < WAITERS_PER_KEY_MAX
            && table.by_tenant.of(&tenant).has_room(Amount::ONE, WAITERS_MAX, TENANT_PART)
            && table.by_tenant.all().has_room(Amount::ONE, WAITERS_MAX, 1);
        if !fits {
            return None;
        }
        table.by_key.take((tenant, key), Amount::ONE);
        table.by_tenant.take(tenant, Amount::ONE);
        let (id, (sender, reply)) = (Uuid::new_v4(), oneshot::channel());
        table.open.insert(id, Waiter { respondent: respondent.clone(), reply: sender });
        drop(table);
        Some(ReplySlot { all: Arc::clone(self), id, respondent: respondent.clone(), reply })
    }

    /// Hands a reply over. Returns `false` if nobody waits for it any more: the first reply counts.
    pub(super) fn hand_over(&self, id: Uuid, reply: QuestionReply) -> bool {
        let waiter = self.0.lock().open.remove(&id);
        waiter.is_some_and(|waiter| waiter.reply.send(reply).is_ok())
    }

    /// Returns the session whose client is asked; `None` if nobody waits under this id.
    pub(super) fn respondent(&self, id: Uuid) -> Option<Respondent> {
        self.0.lock().open.get(&id).map(|waiter| waiter.respondent.clone())
    }

    /// Ends all waits for the client of a session.
    pub(super) fn end(&self, respondent: &Respondent) {
        self.0.lock().open.retain(|_, waiter| waiter.respondent != *respondent);
    }

    /// Returns how many wait.
    pub(super) fn len(&self) -> usize {
        self.0.lock().by_tenant.all().items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn respondent(tenant: u128, key: u128, session: &str) -> Respondent {
        let (tenant, key) = (TenantId(Uuid::from_u128(tenant)), Some(KeyId(Uuid::from_u128(key))));
        Respondent { tenant, key, session: session.to_owned() }
    }

    fn reply(text: &'static str) -> QuestionReply {
        QuestionReply::Result(bytes::Bytes::from_static(text.as_bytes()))
    }

    #[test]
    fn the_first_reply_counts() {
        let waiters = Arc::new(Waiters::default());
        let mut waiting = waiters.begin(&respondent(1, 1, "s")).unwrap();
        let id = waiting.id;
        assert!(!waiters.hand_over(Uuid::nil(), reply("{}")));
        assert!(waiters.hand_over(id, reply("1")));
        assert!(!waiters.hand_over(id, reply("2")));
        assert_eq!(waiting.reply.try_recv(), Ok(reply("1")));
        drop(waiting);
        assert_eq!((waiters.len(), waiters.respondent(id)), (0, None));
    }

    #[test]
    fn the_end_of_a_session_ends_its_waits_alone() {
        let waiters = Arc::new(Waiters::default());
        let mut one = waiters.begin(&respondent(1, 1, "s")).unwrap();
        let others = [respondent(1, 1, "t"), respondent(1, 2, "s"), respondent(2, 1, "s")];
        let mut others = others.map(|other| waiters.begin(&other).unwrap());
        waiters.end(&respondent(1, 1, "s"));
        assert_eq!(one.reply.try_recv(), Err(oneshot::error::TryRecvError::Closed));
        for other in &mut others {
            assert_eq!(other.reply.try_recv(), Err(oneshot::error::TryRecvError::Empty), "{other:?}");
        }
    }

    #[test]
    fn keys_and_tenants_have_their_share() {
        let waiters = Arc::new(Waiters::default());
        let fill = |tenant, keys: u128| -> Vec<ReplySlot> {
            (0..keys)
                .flat_map(|key| (0..=WAITERS_PER_KEY_MAX).map(move |_| key))
                .filter_map(|key| waiters.begin(&respondent(tenant, key, "s")))
                .collect()
        };
        let of_key = fill(1, 1);
        assert_eq!(of_key.len(), WAITERS_PER_KEY_MAX);
        drop(of_key);
        let of_tenant = fill(1, 100);
        assert_eq!(of_tenant.len(), WAITERS_MAX.items / TENANT_PART);
        assert!(waiters.begin(&respondent(2, 1, "s")).is_some());
        drop(of_tenant);
        assert_eq!(waiters.len(), 0);
    }
}
