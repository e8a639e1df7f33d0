//! Rounds of a call that a replica holds open: the answer of its client goes there, and the outcome comes back. Nothing is sent
//! to the server from here.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::time::{Instant, interval_at, sleep};

use super::Ready;
use super::ending::{note_outcome, withdrawn};
use super::letters::{AnswerLetter, OutcomeLetter};
use super::outcome::CallOutcome;
use super::record::KnownSecrets;
use super::round::{HeldRound, note_invalid};
use crate::domain::id::ReplicaId;
use crate::domain::refusal::{Code, Refusal};
use crate::domain::rounds::Capabilities;
use crate::gateway::calls::Calls;
use crate::gateway::calls::cancel::CallName;
use crate::gateway::calls::under_way::CallStop;
use crate::gateway::clock;
use crate::gateway::log::Attempt;
use crate::gateway::mailbox::{AwaitedLetter, Letter, LetterAddress, LetterFault};
use crate::store::REPLICA_GONE_AFTER_S;
use crate::upstream::MemoryPurpose;

/// Longest wait for an outcome beyond the time that the server has for its call.
const OUTCOME_SLACK: Duration = Duration::from_secs(15);
/// Interval at which another replica is looked at while its outcome is awaited.
const LIVENESS_POLL: Duration = Duration::from_secs(5);

/// Reason why an answer has no outcome.
enum NoOutcome {
    /// The wait for this answer is over, or the answer was given before.
    Gone,
    Refused(Refusal),
}

impl From<Refusal> for NoOutcome {
    fn from(refusal: Refusal) -> NoOutcome {
        NoOutcome::Refused(refusal)
    }
}

impl Calls {
    /// Brings the answer of a client to its call, and waits for what becomes of that. Closes the record of the round.
    pub(super) async fn resume(
        self: &Arc<Self>,
        Ready { mut pending, facts, checked, opened, .. }: Ready,
        round: HeldRound,
        attempt: &Attempt,
        stopped: impl Future<Output = CallStop> + Send,
    ) -> CallOutcome {
        let mut stopped = pin!(stopped);
        let timeout = checked.server().target.limits.call_timeout;
        let ended = tokio::select! {
            biased;
            stop = &mut stopped => Err(NoOutcome::Refused(withdrawn(&stop, true))),
            ended = self.outcome_of(attempt, round, opened.capabilities.as_ref(), timeout) => ended,
        };
        let record = &mut pending.record;
        record.duration_ms = Some(clock::milliseconds(attempt.started.elapsed()));
        let outcome = match ended {
            Ok(outcome) => outcome,
            Err(NoOutcome::Gone) => {
                note_invalid(record);
                pending.close();
                return CallOutcome::InvalidState;
            }
            Err(NoOutcome::Refused(refusal)) => CallOutcome::Refused(facts.refused(refusal)),
        };
        let known = KnownSecrets::of(checked.server(), &attempt.caller, &self.upstreams);
        note_outcome(record, &known, &outcome);
        pending.close();
        outcome
    }

    /// Sends an answer to the replica that holds the call, and waits for the outcome.
    async fn outcome_of(
        self: &Arc<Self>,
        attempt: &Attempt,
        HeldRound { question, answer }: HeldRound,
        capabilities: Option<&Capabilities>,
        timeout: Duration,
    ) -> Result<CallOutcome, NoOutcome> {
        let caller = &attempt.caller;
        let is_here = question.replica == self.options.replica;
        if !is_here && self.is_gone(question.replica).await {
            return Err(gone().into());
        }
        let Some(mut awaited) = self.mailbox.await_letter(caller) else {
            return Err(undelivered("Too many calls of this key or tenant wait for clients").into());
        };
        let answer = answer.and_then(|raw| serde_json::from_slice::<Box<RawValue>>(&raw).ok());
        let capabilities = capabilities.map_or("{}", Capabilities::as_str).to_owned();
        let text = serde_json::value::to_raw_value(&AnswerLetter { answer, capabilities });
        let text = text.map_err(|_| NoOutcome::Gone)?;
        let to = LetterAddress { replica: question.replica.0, waiter: question.waiter };
        let letter = Letter::new(text, Some(awaited.address));
        match self.mailbox.send_letter(caller.tenant_id(), to, letter).await {
            Ok(()) => {}
            Err(LetterFault::Gone) => return Err(NoOutcome::Gone),
            Err(LetterFault::TooLong) => {
                let message = "The answer is too long to be passed on; nothing was done with it";
                return Err(Refusal::new(Code::InvalidArguments, message).into());
            }
            Err(LetterFault::Lost) => {
                return Err(undelivered("The answer cannot be passed on now").into());
            }
        }
        let mut guard = CancelGuard { calls: self, attempt, address: Some(awaited.address) };
        let outcome = self.await_outcome(attempt, &mut awaited, (question.replica, is_here), timeout).await;
        guard.address = None;
        outcome
    }

    async fn await_outcome(
        &self,
        attempt: &Attempt,
        awaited: &mut AwaitedLetter,
        (replica, is_here): (ReplicaId, bool),
        timeout: Duration,
    ) -> Result<CallOutcome, NoOutcome> {
        let mut over = pin!(sleep(timeout + OUTCOME_SLACK));
        let mut poll = interval_at(Instant::now() + LIVENESS_POLL, LIVENESS_POLL);
        loop {
            tokio::select! {
                biased;
                letter = awaited.letter() => {
                    return match letter {
                        Ok((text, _)) => Ok(self.read_outcome(attempt, &text).await?),
                        Err(LetterFault::Gone) => Err(NoOutcome::Gone),
                        Err(_) => {
                            let what = "its outcome was lost between replicas of the gateway";
                            Err(Refusal::after_dispatch(Code::UpstreamLost, what).into())
                        }
                    };
                }
                () = &mut over => {
                    let what = "no outcome came from the replica of the gateway that holds it";
                    return Err(Refusal::after_dispatch(Code::UpstreamTimeout, what).into());
                }
                _ = poll.tick(), if !is_here => {
                    if self.is_gone(replica).await {
                        return Err(gone().into());
                    }
                }
            }
        }
    }

    /// Returns whether a replica is gone. One of which the database says nothing now may be there.
    async fn is_gone(&self, replica: ReplicaId) -> bool {
        self.store.is_replica_gone(replica, REPLICA_GONE_AFTER_S).await.unwrap_or(false)
    }

    async fn read_outcome(&self, attempt: &Attempt, text: &RawValue) -> Result<CallOutcome, Refusal> {
        let caller = &attempt.caller;
        let unreadable = || Refusal::after_dispatch(Code::UpstreamInvalid, "its outcome could not be read");
        let letter = serde_json::from_str(text.get()).map_err(|_| unreadable())?;
        let hold = async |raw: Box<RawValue>| {
            let raw = Bytes::from(String::from(Box::<str>::from(raw)));
            let mut memory = self.tenants.memory(caller, MemoryPurpose::Answer);
            let crowded = "there was no memory for its answer while other large answers are under way";
            let held = memory.grow(raw.len()).await;
            held.map_err(|_| Refusal::after_dispatch(Code::UpstreamTooLarge, crowded))?;
            Ok(memory.keep(raw))
        };
        Ok(match letter {
            OutcomeLetter::Result { raw, warning, truncated } => {
                let raw = hold(raw).await?;
                let head = self.head_of(caller.tenant_id().0, &raw).await.ok_or_else(unreadable)?;
                CallOutcome::Result { raw, head, warning, truncated }
            }
            OutcomeLetter::Question { raw } => {
                CallOutcome::InputRequired { raw: hold(raw).await?, state: None, unanswered: None }
            }
            OutcomeLetter::UpstreamError { raw, code } => {
                CallOutcome::UpstreamError { raw: hold(raw).await?, code }
            }
            OutcomeLetter::Refused { code, message, retry_after_s } => {
                let refusal = Refusal::new(code, message);
                return Err(retry_after_s.into_iter().fold(refusal, Refusal::retry_after));
            }
            OutcomeLetter::Invalid => return Err(unreadable()),
        })
    }
}

/// Cancels the call when the round is dropped before its outcome: its client has gone, or its turn has ended.
struct CancelGuard<'a> {
    calls: &'a Arc<Calls>,
    attempt: &'a Attempt,
    /// Address of the round that waits; `None` once it does not any more.
    address: Option<LetterAddress>,
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        let Some(address) = self.address else { return };
        self.calls.cancel_named(CallName::of_round(&self.attempt.caller, address.waiter));
    }
}

fn gone() -> Refusal {
    Refusal::after_dispatch(Code::UpstreamLost, "the replica of the gateway that held it is gone")
}

fn undelivered(why: &str) -> Refusal {
    let message = format!("{why}; the server has not got the answer, try again in a few seconds");
    Refusal::new(Code::Overloaded, message)
}
