//! Row locks that several kinds of changes take, in one order.

use super::StoreError;
use super::unit::Unit;
use crate::domain::id::{ServerId, TenantId};

/// Locks the row of a server until the transaction ends. Every change of a server locks it before the row of the revision.
pub(super) async fn lock_server(tx: &mut Unit, tenant: TenantId, server: ServerId) -> Result<(), StoreError> {
    sqlx::query("select from servers where tenant_id = $1 and server_id = $2 for update")
        .bind(tenant.0)
        .bind(server.0)
        .execute(&mut **tx)
        .await?;
    Ok(())
}
