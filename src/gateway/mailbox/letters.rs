//! Letters between replicas about a call that one of them holds open: the answer of its client, which reached another replica,
//! and the outcome, which goes back there. A letter is a row, sealed, and taken once. A long one has further rows for its text.

use std::sync::Arc;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::address::Respondent;
use super::waiters::ReplySlot;
use super::{KEEP_S, Mailbox, PASSING_MAX, REPLY_BYTES_MAX, ReplyEnd};
use crate::domain::id::{ReplicaId, TenantId};
use crate::domain::shares::TENANT_PART;
use crate::gateway::tenants::Caller;
use crate::store::{NewReply, StoreError};
use crate::upstream::QuestionReply;

/// Longest letter to another replica, in bytes: less than what a tenant may have on its way.
const LETTER_BYTES_MAX: usize = 4_000_000;
const _: () =
    assert!(LETTER_BYTES_MAX + REPLY_BYTES_MAX / 8 < PASSING_MAX.bytes / TENANT_PART, "it must fit");
/// Most rows of the text of one letter.
const PARTS_MAX: usize = LETTER_BYTES_MAX.div_ceil(REPLY_BYTES_MAX);

/// Address of whoever waits for a letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::gateway) struct LetterAddress {
    pub(in crate::gateway) replica: Uuid,
    pub(in crate::gateway) waiter: Uuid,
}

/// Letter to whoever waits at an address.
#[derive(Debug, Serialize, Deserialize)]
pub(in crate::gateway) struct Letter {
    /// Text, raw JSON; `None` in the notice that nobody waited for the letter before, and if the text is in rows of its own.
    text: Option<Box<RawValue>>,
    /// Address of the sender, who waits for a letter in return; `None` if it does not.
    back: Option<LetterAddress>,
    /// Number of rows with the text; zero if it is here.
    #[serde(default)]
    parts: usize,
}

/// Error: a letter did not reach anybody.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::gateway) enum LetterFault {
    /// The wait for it is over.
    Gone,
    /// Longer than [`LETTER_BYTES_MAX`], which is what goes to another replica.
    TooLong,
    /// Too many are under way, the database is out of reach, or a part is missing.
    Lost,
}

/// Wait for one letter. Dropping it ends the wait.
#[derive(Debug)]
pub(in crate::gateway) struct AwaitedLetter {
    pub(in crate::gateway) address: LetterAddress,
    waiting: ReplySlot,
}

impl AwaitedLetter {
    /// Waits for the letter; returns its text and the address of its sender. Cancel-safe; it returns once.
    ///
    /// # Errors
    /// [`LetterFault::Gone`]: nobody waited for the letter to which this would be the answer. [`LetterFault::Lost`]: it cannot
    /// be read.
    pub(in crate::gateway) async fn letter(
        &mut self,
    ) -> Result<(Box<RawValue>, Option<LetterAddress>), LetterFault> {
        let Ok(QuestionReply::Result(raw)) = (&mut self.waiting.reply).await else {
            return Err(LetterFault::Lost);
        };
        let Letter { text, back, parts } = serde_json::from_slice(&raw).map_err(|_| LetterFault::Lost)?;
        match text {
            Some(text) => Ok((text, back)),
            None if parts == 0 => Err(LetterFault::Gone),
            None => Err(LetterFault::Lost),
        }
    }
}

impl Letter {
    /// Notice to the sender of a letter that nobody waits for it.
    const GONE: Letter = Letter { text: None, back: None, parts: 0 };

    pub(in crate::gateway) fn new(text: Box<RawValue>, back: Option<LetterAddress>) -> Letter {
        Letter { text: Some(text), back, parts: 0 }
    }

    fn to_reply(&self) -> Option<QuestionReply> {
        Some(QuestionReply::Result(serde_json::to_vec(self).ok()?.into()))
    }
}

impl Mailbox {
    /// Begins to wait for a letter about a call of this caller. `None` if too many of the key or tenant wait.
    pub(in crate::gateway) fn await_letter(&self, caller: &Caller) -> Option<AwaitedLetter> {
        let waiting = self.waiters.begin(&Respondent::letters_for(caller))?;
        let address = LetterAddress { replica: self.options.replica.0, waiter: waiting.id };
        Some(AwaitedLetter { address, waiting })
    }

    /// Sends a letter. Returns once it is handed over, or stored for its replica.
    ///
    /// # Errors
    /// [`LetterFault`] if it reached nobody. From another replica, [`LetterFault::Gone`] may come as the letter in return.
    pub(in crate::gateway) async fn send_letter(
        self: &Arc<Self>,
        tenant: TenantId,
        to: LetterAddress,
        letter: Letter,
    ) -> Result<(), LetterFault> {
        let is_answer = letter.back.is_some();
        let (end, sent) = if to.replica == self.options.replica.0 {
            let reply = letter.to_reply().ok_or(LetterFault::Lost)?;
            match self.waiters.hand_over(to.waiter, reply) {
                true => (ReplyEnd::Delivered, Ok(())),
                false => (ReplyEnd::Late, Err(LetterFault::Gone)),
            }
        } else {
            let rows = self.rows(tenant, to, letter)?;
            match self.store_letter(tenant, rows).await {
                Some(Ok(true)) => (ReplyEnd::PassedOn, Ok(())),
                // there is one already
                Some(Ok(false)) => (ReplyEnd::Late, Err(LetterFault::Gone)),
                Some(Err(error)) => {
                    tracing::warn!(%tenant, %error, "a letter to another replica could not be stored");
                    (ReplyEnd::Lost, Err(LetterFault::Lost))
                }
                None => (ReplyEnd::Lost, Err(LetterFault::Lost)),
            }
        };
        if is_answer {
            self.count(end);
        }
        sent
    }

    /// Returns the rows of a letter. Those with parts of its text come first, and belong to no replica.
    fn rows(
        &self,
        tenant: TenantId,
        to: LetterAddress,
        mut letter: Letter,
    ) -> Result<Vec<NewReply>, LetterFault> {
        let (post, keys) = (Respondent::replicas(tenant), &self.options.reply_keys);
        let row = |id, replica, sealed: Option<Vec<u8>>| {
            let sealed = sealed.ok_or(LetterFault::Lost)?;
            Ok(NewReply { id, replica: ReplicaId(replica), sealed, keep_s: KEEP_S })
        };
        let mut rows = Vec::new();
        let bytes = letter.text.as_ref().map_or(0, |text| text.get().len());
        if bytes > LETTER_BYTES_MAX {
            return Err(LetterFault::TooLong);
        }
        if let Some(text) = letter.text.take_if(|text| text.get().len() > REPLY_BYTES_MAX / 2) {
            for part in text.get().as_bytes().chunks(REPLY_BYTES_MAX) {
                letter.parts += 1;
                let id = part_id(to.waiter, letter.parts);
                rows.push(row(id, Uuid::nil(), post.seal(keys, Some(id), part))?);
            }
        }
        let head = letter.to_reply().ok_or(LetterFault::Lost)?;
        rows.push(row(to.waiter, to.replica, post.seal_reply(keys, to.waiter, &head))?);
        Ok(rows)
    }

    /// Stores the rows of a letter. Returns `false` if there is one for the same waiter, `None` if too much is under way.
    async fn store_letter(
        self: &Arc<Self>,
        tenant: TenantId,
        rows: Vec<NewReply>,
    ) -> Option<Result<bool, StoreError>> {
        let (told, stored) = oneshot::channel();
        let mailbox = Arc::clone(self);
        let bytes = rows.iter().map(|row| row.sealed.len()).sum();
        let passed = self.pass(tenant, bytes, async move {
            let mut kept = Ok(true);
            for row in &rows {
                kept = mailbox.store.keep_reply(tenant, row).await;
                if !matches!(kept, Ok(true)) {
                    break;
                }
            }
            drop(told.send(kept));
        });
        if passed { stored.await.ok() } else { None }
    }

    /// Hands a letter over that came from another replica. Its sender learns if nobody waits for it any more.
    pub(super) async fn letter_came(
        self: &Arc<Self>,
        tenant: TenantId,
        id: Uuid,
        sealed: &[u8],
    ) -> Result<(), StoreError> {
        let keys = &self.options.reply_keys;
        let opened = Respondent::replicas(tenant).open_reply(keys, id, sealed);
        let Some(QuestionReply::Result(raw)) = opened else {
            // the reply of a client for which nobody waits any more
            self.count(ReplyEnd::Late);
            return Ok(());
        };
        let Ok(mut letter) = serde_json::from_slice::<Letter>(&raw) else { return Ok(()) };
        letter.text = match letter.parts {
            0 => letter.text,
            // one that lacks a part is handed over without its text
            parts => self.take_text(tenant, id, parts).await?,
        };
        let Some(reply) = letter.to_reply() else { return Ok(()) };
        let is_first = self.waiters.hand_over(id, reply);
        let Some(back) = letter.back else { return Ok(()) };
        self.count(if is_first { ReplyEnd::Delivered } else { ReplyEnd::Late });
        if !is_first {
            let mailbox = Arc::clone(self);
            self.life.tasks.spawn(async move { drop(mailbox.send_letter(tenant, back, Letter::GONE).await) });
        }
        Ok(())
    }

    /// Takes the rows with the text of a letter; `None` if one is missing.
    async fn take_text(
        &self,
        tenant: TenantId,
        waiter: Uuid,
        parts: usize,
    ) -> Result<Option<Box<RawValue>>, StoreError> {
        let (post, mut text) = (Respondent::replicas(tenant), Vec::new());
        for n in 1..=parts.min(PARTS_MAX) {
            let id = part_id(waiter, n);
            let Some(sealed) = self.store.take_reply(tenant, id).await? else { return Ok(None) };
            let Some(part) = post.open(&self.options.reply_keys, Some(id), &sealed) else { return Ok(None) };
            text.extend(part);
        }
        Ok(serde_json::from_slice(&Bytes::from(text)).ok())
    }
}

/// Returns the id of the row with a part of the text, counted from one, of the letter to this waiter.
fn part_id(waiter: Uuid, part: usize) -> Uuid {
    Uuid::from_u128(waiter.as_u128().wrapping_add(part as u128))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_letter_with_a_sender_is_answered() {
        let back = LetterAddress { replica: Uuid::from_u128(1), waiter: Uuid::from_u128(2) };
        let read = |letter: &Letter| {
            let Some(QuestionReply::Result(raw)) = letter.to_reply() else { panic!("{letter:?}") };
            let Letter { text, back, parts } = serde_json::from_slice(&raw).unwrap();
            (text.map(|text| text.get().to_owned()), back, parts)
        };
        let text = || RawValue::from_string(r#"{ "n":1e400 }"#.to_owned()).unwrap();
        let raw = Some(r#"{ "n":1e400 }"#.to_owned());
        assert_eq!(read(&Letter::new(text(), Some(back))), (raw.clone(), Some(back), 0));
        assert_eq!(read(&Letter::new(text(), None)), (raw, None, 0));
        assert_eq!(read(&Letter::GONE), (None, None, 0));
    }

    #[test]
    fn parts_have_rows_of_their_own() {
        let waiter = Uuid::max();
        let mut ids: Vec<Uuid> = (1..=PARTS_MAX).map(|part| part_id(waiter, part)).collect();
        ids.push(waiter);
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), PARTS_MAX + 1);
        assert_eq!(PARTS_MAX, 4);
    }
}
