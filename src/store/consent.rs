//! Permission requests, each one row whose state moves by conditional updates: whoever comes first wins, on any replica.

mod ask;
mod decide;
mod decision;
mod grants;
mod pending;
mod read;
mod run;
mod sweep;

pub use ask::{AskLimits, AskOutcome, ConsentAsked, NewConsent};
pub use decide::DecideOutcome;
pub use decision::{NewDecision, NewGrant};
pub(super) use grants::in_force as grants_in_force;
pub use grants::{ConsentGrant, GrantInForce};
pub use read::{ConsentFilter, ConsentRow};
pub use run::{ConsentClaim, ConsumeOutcome};
pub use sweep::{ConsentSwept, OLD_CONSENT_TABLES};

use uuid::Uuid;

use crate::domain::id::KeyId;

/// Returns the principal of a key, as rows hold it: nil for the bootstrap key.
fn principal(key: Option<KeyId>) -> Uuid {
    key.map_or(Uuid::nil(), |key| key.0)
}

/// SQL for the state of a request now: one whose time is over has ended, whether or not upkeep noticed.
macro_rules! state_now {
    () => {
        "case when state = 'pending' and expires_at <= now() then 'timed_out'
              when state = 'granted' and expires_at <= now() then 'lapsed'
              else state end"
    };
}
use state_now;

/// SQL for whether a fence holds for a call of `$2` with session `$3`, which began at `$4`. A session that is not known
/// to have begun before the fence is fenced: nothing that a client sends lifts it.
macro_rules! fenced {
    () => {
        "exists (select from consent_fences f
             where f.tenant_id = $1 and f.principal = $2 and f.ends_at > now()
               and (f.session_id is null or $3::text is null or f.session_id = $3
                    or $4::timestamptz is null or $4 >= f.begins_at))"
    };
}
use fenced;
