//! Reports of web pages: what the last listing found on them.

use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::{ServerId, TenantId};

impl Store {
    /// Stores the report of a listing, a JSON text, unless the server has changed since `version` was read.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn put_page_report(
        &self,
        tenant: TenantId,
        server: ServerId,
        version: i64,
        report: &str,
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        sqlx::query(
            "update servers set page_report = $4::jsonb
             where tenant_id = $1 and server_id = $2 and version = $3 and removed_at is null",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(version)
        .bind(report)
        .execute(&mut *tx)
        .await?;
        Ok(tx.commit().await?)
    }

    /// Returns the report of a server's last listing, a JSON text; `None` before the first.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server is removed. Other errors come from the database.
    pub async fn page_report(
        &self,
        tenant: TenantId,
        server: ServerId,
    ) -> Result<Option<String>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let found: Option<Option<String>> = sqlx::query_scalar(
            "select page_report::text from servers
             where tenant_id = $1 and server_id = $2 and removed_at is null",
        )
        .bind(tenant.0)
        .bind(server.0)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        found.ok_or(StoreError::NotFound)
    }
}
