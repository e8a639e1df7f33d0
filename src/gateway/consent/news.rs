//! News of permission requests on this replica, for those who watch them.

use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;
use uuid::Uuid;

use super::Consent;
use crate::domain::consent::ConsentState;
use crate::domain::id::TenantId;
use crate::domain::tenant::Action;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;
use crate::store::ConsentNotice;

/// Most notices kept for a follower that is slow; those of all tenants count.
const NOTICES_MAX: usize = 1024;

/// Sender of notices to all followers on this replica.
#[derive(Debug)]
pub(super) struct Announcer(broadcast::Sender<ConsentNotice>);

impl Default for Announcer {
    fn default() -> Announcer {
        Announcer(broadcast::channel(NOTICES_MAX).0)
    }
}

/// Follower of one tenant's permission requests.
#[derive(Debug)]
pub struct ConsentNews {
    tenant: TenantId,
    notices: broadcast::Receiver<ConsentNotice>,
}

impl ConsentNews {
    /// Waits until a request moves, and returns its id; `None` if notices were lost. Cancel-safe.
    pub async fn next(&mut self) -> Option<Uuid> {
        loop {
            match self.notices.recv().await {
                Ok(notice) if notice.tenant == self.tenant => return Some(notice.id),
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => return None,
                // the announcer lives as long as the gateway
                Err(RecvError::Closed) => std::future::pending().await,
            }
        }
    }
}

impl Consent {
    /// Returns the news of the caller's tenant from now on. They are ids alone: what a follower may read is checked then.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::Invalid`] without a tenant.
    pub fn follow(&self, caller: &Caller) -> Result<ConsentNews, GatewayError> {
        caller.authorise(Action::SeeOwnConsent)?;
        Ok(ConsentNews { tenant: caller.tenant()?.id, notices: self.announcer.0.subscribe() })
    }

    /// Returns whether a request does not wait for a person any more. One that cannot be read counts as waiting.
    pub(in crate::gateway) async fn has_moved(&self, tenant: TenantId, id: Uuid) -> bool {
        let row = self.store.get_consent(tenant, id).await;
        row.is_ok_and(|row| row.state != ConsentState::Pending)
    }

    /// Tells the followers on this replica of a request that has moved.
    pub(in crate::gateway) fn heard(&self, notice: ConsentNotice) {
        // without followers there is nobody to tell
        drop(self.announcer.0.send(notice));
    }
}
