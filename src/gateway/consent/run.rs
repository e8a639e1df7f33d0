//! Use of a permission by its call.

use std::time::Duration;

use chrono::{DateTime, Utc};
use ulid::Ulid;
use uuid::Uuid;

use super::call::ConsentCall;
use super::refusals::{self, ConsentTold};
use super::{Consent, failed};
use crate::domain::backoff::{Backoff, chance};
use crate::domain::consent::ConsentState;
use crate::domain::policy::Assurance;
use crate::domain::refusal::Refusal;
use crate::gateway::log::Attempt;
use crate::gateway::rounds::STATE_TTL;
use crate::store::{ConsentClaim, ConsentRow, ConsumeOutcome, GrantedCall, OwnDecision};

/// Tries to note the outcome of a call, and the pauses between them: in all some ten seconds of a failing database.
const FINISH_TRIES: u32 = 6;
const FINISH_PAUSE: Duration = Duration::from_millis(500);
const FINISH_PAUSE_MAX: Duration = Duration::from_secs(5);

/// Permission of a person for a call, not used yet.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct Permit {
    pub(in crate::gateway) id: Uuid,
    /// Time that the person took, in milliseconds; `None` in later rounds of a call.
    pub(in crate::gateway) wait_ms: Option<f64>,
    /// Kind of answer that the call needs.
    needed: Assurance,
    /// Record of the round before; `None` in the first round.
    after: Option<Ulid>,
    /// True if the call runs without it as well, since a remembered decision lets it through.
    is_spare: bool,
}

/// Permission that a call has used up.
#[derive(Clone, Copy, Debug)]
pub(in crate::gateway) struct UsedPermit {
    pub(in crate::gateway) id: Uuid,
}

impl Permit {
    pub(super) fn of(row: &ConsentRow, needed: Assurance) -> Permit {
        let decided: DateTime<Utc> = row.decided_at.unwrap_or(row.created_at);
        let took = decided - row.created_at;
        let wait_ms = Some(took.as_seconds_f64().max(0.0) * 1000.0);
        Permit { id: row.id, wait_ms, needed, after: None, is_spare: false }
    }

    /// Returns the permission that an earlier round of the call has used up. A rule may have come since then that needs
    /// another kind of answer.
    pub(in crate::gateway) fn of_earlier_round(id: Uuid, after: Ulid, needed: Assurance) -> Permit {
        Permit { id, wait_ms: None, needed, after: Some(after), is_spare: false }
    }
}

impl Consent {
    /// Uses a permission up, right before its call is sent. Whether it is for this call and definition, and whether the
    /// turn was ended, is checked once more. Returns `None` if an equal call was first, and a grant lets this one through.
    ///
    /// # Errors
    /// The refusal, if the permission cannot be used any more.
    pub(in crate::gateway) async fn consume(
        &self,
        attempt: &Attempt,
        permit: Permit,
        call: &ConsentCall<'_>,
    ) -> Result<Option<UsedPermit>, Refusal> {
        let caller = &attempt.caller;
        let tenant = caller.tenant_id();
        let claim = ConsentClaim {
            id: permit.id,
            after: permit.after.map(Uuid::from),
            turn: attempt.turn(),
            needed: permit.needed,
            author: self.author_of(attempt),
            pin: call.pin().to_owned(),
            digests: self.digests(attempt, call).await,
        };
        let consumed = self.store.consume_consent(tenant, &claim).await;
        let outcome = consumed.map_err(|error| {
            failed(tenant, &error);
            refusals::undeliverable(caller).about_consent(permit.id)
        })?;
        match outcome {
            ConsumeOutcome::Consumed => Ok(Some(UsedPermit { id: permit.id })),
            ConsumeOutcome::Fenced(fence) => {
                Err(refusals::turn_cancelled(fence.as_ref()).about_consent(permit.id))
            }
            ConsumeOutcome::Gone(_) if permit.is_spare => Ok(None),
            ConsumeOutcome::Gone(None) => Err(refusals::undeliverable(caller).about_consent(permit.id)),
            ConsumeOutcome::Gone(Some(row)) => {
                let told = if row.pin == claim.pin { ConsentTold::Used } else { ConsentTold::Changed };
                Err(refusals::of_row(told, &call.tool.canonical, &row))
            }
        }
    }

    /// Returns the unused permission for the very call that a remembered decision lets through; `None` without one. The call
    /// uses it up: else it would still be there after the grant, for a call that nobody asked about again. Requests about the call that
    /// wait end, for nobody's answer would change anything. `request` is the one whose answer was remembered.
    ///
    /// # Errors
    /// The refusal, if a person has ended the turn of the call or refused this very call, or that cannot be known.
    pub(in crate::gateway) async fn permit_under_grant(
        &self,
        attempt: &Attempt,
        call: &ConsentCall<'_>,
        request: Uuid,
    ) -> Result<Option<Permit>, Refusal> {
        let tenant = attempt.caller.tenant_id();
        let granted = GrantedCall {
            request,
            turn: attempt.turn(),
            pin: call.pin().to_owned(),
            digests: self.digests(attempt, call).await,
        };
        match self.store.find_own_decision(tenant, &granted).await {
            Ok(OwnDecision::None) => Ok(None),
            Ok(OwnDecision::Waits) => {
                match self.store.lapse_granted(tenant, &granted, &self.author_of(attempt)).await {
                    Ok(ended) => (0..ended).for_each(|_| self.measures.ended(ConsentState::Lapsed)),
                    Err(error) => failed(tenant, &error),
                }
                Ok(None)
            }
            Ok(OwnDecision::Fenced(fence)) => Err(refusals::turn_cancelled(Some(&fence))),
            Ok(OwnDecision::Unused(row)) => {
                Ok(Some(Permit { is_spare: true, ..Permit::of(&row, Assurance::Client) }))
            }
            Ok(OwnDecision::Denied(row)) => {
                Err(refusals::of_row(ConsentTold::Denied, &call.tool.canonical, &row))
            }
            Err(error) => {
                failed(tenant, &error);
                Err(refusals::undeliverable(&attempt.caller))
            }
        }
    }

    /// Keeps a used permission for the round after `record`, which a server asked for. One that cannot be kept asks again.
    pub(in crate::gateway) async fn keep(&self, attempt: &Attempt, used: UsedPermit, record: Ulid) {
        let tenant = attempt.caller.tenant_id();
        let kept =
            self.store.keep_consent(tenant, (used.id, record.into()), STATE_TTL.as_seconds_f64()).await;
        if let Err(error) = kept {
            failed(tenant, &error);
        }
    }

    /// Notes the outcome of a call that used a permission up, without waiting for it. What cannot be noted in some tries is
    /// swept later.
    pub(in crate::gateway) fn finish(&self, attempt: &Attempt, used: UsedPermit, state: ConsentState) {
        let (store, tenant) = (self.store.clone(), attempt.caller.tenant_id());
        let author = self.author_of(attempt);
        self.life.tasks.spawn(async move {
            let mut backoff = Backoff::new(FINISH_PAUSE, FINISH_PAUSE_MAX);
            for tries_left in (0..FINISH_TRIES).rev() {
                match store.finish_consent(tenant, used.id, state, &author).await {
                    Ok(()) => return,
                    Err(_) if tries_left > 0 => tokio::time::sleep(backoff.jittered(chance())).await,
                    Err(error) => failed(tenant, &error),
                }
            }
        });
    }
}
