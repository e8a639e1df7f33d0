//! Names of keys and people, for pages that show what they did.

use std::collections::HashMap;

use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Key or person, as named now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrincipalName {
    /// Owner of the key, or the person.
    pub owner: String,
    /// Name of the key; `None` for a person.
    pub key_name: Option<String>,
}

impl Store {
    /// Returns the names of these keys and people of a tenant, by their ids. Unknown ones are left out.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn principal_names(
        &self,
        tenant: TenantId,
        ids: &[Uuid],
    ) -> Result<HashMap<Uuid, PrincipalName>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rows: Vec<(Uuid, String, Option<String>)> = sqlx::query_as(
            "select key_id, owner, name from api_keys where tenant_id = $1 and key_id = any($2)
             union all
             select identity_id, owner, null from identities where tenant_id = $1 and identity_id = any($2)",
        )
        .bind(tenant.0)
        .bind(ids)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows.into_iter().map(|(id, owner, key_name)| (id, PrincipalName { owner, key_name })).collect())
    }
}
