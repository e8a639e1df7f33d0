//! Denials that refuse a tool to a key for a while, without asking.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::ConsentRow;
use crate::domain::consent::{COOLDOWN, COOLDOWN_DENIALS};
use crate::domain::id::TenantId;
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError};

/// Number of denials, and the time until which they refuse the tool.
pub(super) type Cooldown = (i64, DateTime<Utc>);

impl Store {
    /// Returns until when denials refuse the tool of a request to its key; `None` where they do not.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn consent_cooldown(
        &self,
        tenant: TenantId,
        row: &ConsentRow,
    ) -> Result<Option<DateTime<Utc>>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let found = cooling_down(&mut tx, tenant, row.principal, (row.server_id, &row.tool)).await?;
        tx.commit().await?;
        Ok(found.map(|(_, until)| until))
    }
}

/// Returns the denials that refuse a tool to a principal; `None` where they are too few, or too old.
pub(super) async fn cooling_down(
    tx: &mut Unit,
    tenant: TenantId,
    principal: Uuid,
    (server, tool): (Uuid, &str),
) -> Result<Option<Cooldown>, StoreError> {
    let (denials, until): (i64, Option<DateTime<Utc>>) = sqlx::query_as(
        "select count(*), max(decided_at) + make_interval(secs => $5)
         from consent_requests d, (
             select max(decided_at) as last from consent_requests
             where tenant_id = $1 and principal = $2 and server_id = $3 and tool = $4 and state = 'denied'
               and decided_at > now() - make_interval(secs => $5)) newest
         where tenant_id = $1 and principal = $2 and server_id = $3 and tool = $4 and state = 'denied'
           and decided_at >= newest.last - make_interval(secs => $5)",
    )
    .bind(tenant.0)
    .bind(principal)
    .bind(server)
    .bind(tool)
    .bind(COOLDOWN.as_seconds_f64())
    .fetch_one(&mut **tx)
    .await?;
    Ok(until.filter(|_| denials >= COOLDOWN_DENIALS).map(|until| (denials, until)))
}
