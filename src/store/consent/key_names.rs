//! Names of the keys whose calls permission requests are about.

use std::collections::HashMap;

use uuid::Uuid;

use crate::domain::id::TenantId;
use crate::store::tx::{Lane, TxAccess};
use crate::store::{Store, StoreError};

impl Store {
    /// Returns the names of these keys of a tenant, by their ids. Ids of people and unknown ones have no name.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn names_of_keys(
        &self,
        tenant: TenantId,
        keys: &[Uuid],
    ) -> Result<HashMap<Uuid, String>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rows: Vec<(Uuid, String)> =
            sqlx::query_as("select key_id, name from api_keys where tenant_id = $1 and key_id = any($2)")
                .bind(tenant.0)
                .bind(keys)
                .fetch_all(&mut *tx)
                .await?;
        tx.commit().await?;
        Ok(rows.into_iter().collect())
    }
}
