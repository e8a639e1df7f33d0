//! Decisions to be stored, with what is remembered of them.

use chrono::TimeDelta;
use uuid::Uuid;

use super::steps::StepAuthor;
use crate::domain::consent::{ConsentDecision, DecidedVia, GrantEffect};
use crate::domain::id::KeyId;
use crate::domain::policy::Assurance;

/// Decision to be stored.
#[derive(Clone, Debug)]
pub struct NewDecision {
    /// Id of the request.
    pub id: Uuid,
    /// Decision, one that the request offers.
    pub decision: ConsentDecision,
    /// Key that decides; `None` for the bootstrap key.
    pub by: Option<KeyId>,
    /// Owner of that key.
    pub owner: String,
    /// Way by which it was decided.
    pub via: DecidedVia,
    /// Comment; `None` without one.
    pub comment: Option<String>,
    /// Grant, if the decision is remembered; `None` for one about one call.
    pub grant: Option<NewGrant>,
    /// Author of the records about what the decision changes.
    pub author: StepAuthor,
    /// True if the decision itself has a record already, as an act has before it is run.
    pub is_recorded: bool,
}

/// Grant to be stored with a decision.
#[derive(Clone, Copy, Debug)]
pub struct NewGrant {
    /// Id of the grant: ordered by time.
    pub id: Uuid,
    /// Effect on later calls.
    pub effect: GrantEffect,
    /// Assurance of the answer.
    pub assurance: Assurance,
    /// Time for which the grant holds.
    pub life: TimeDelta,
}
