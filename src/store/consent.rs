//! Permission requests, each one row whose state moves by conditional updates: whoever comes first wins, on any replica.

mod ask;
mod cooldown;
mod decide;
mod decision;
mod events;
mod fence;
mod grants;
mod lost_events;
mod pending;
mod read;
mod run;
mod steps;
mod sweep;
mod webhooks;

pub use ask::{AskLimits, AskOutcome, ConsentAsked, NewConsent};
pub use decide::DecideOutcome;
pub use decision::{NewDecision, NewGrant};
pub use events::{WebhookClaim, WebhookEvent, WebhookRoom, WebhookTry};
pub use fence::{CallTurn, HeldFence};
pub use grants::{ConsentGrant, GrantInForce, GrantOrigin};
pub(super) use grants::{
    copy as copy_grants, count_to_others as count_grants_to_others, in_force as grants_in_force,
};
pub use lost_events::{LostEvent, WEBHOOK_EVENTS_MAX};
pub use pending::{OpenRequests, PendingOf, TurnEnder};
pub use read::{ConsentDecider, ConsentFilter, ConsentOrder, ConsentRow};
pub use run::{ConsentClaim, ConsumeOutcome, GrantedCall, OwnDecision};
pub use steps::StepAuthor;
pub use sweep::{ConsentSwept, OLD_CONSENT_TABLES};
pub use webhooks::{NewWebhook, WebhookParts, WebhookRow};

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
