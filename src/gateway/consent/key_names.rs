//! Names of the keys that permission requests come from and grants are about, for their readers.

use std::collections::HashMap;

use uuid::Uuid;

use super::Consent;
use crate::gateway::error::GatewayError;
use crate::gateway::tenants::Caller;

impl Consent {
    /// Returns the present names of keys whose requests or grants the caller has been shown, by id. People and the bootstrap key have none.
    ///
    /// # Errors
    /// [`GatewayError::Invalid`] without a tenant, or [`GatewayError::Unavailable`].
    pub async fn names_of_keys(
        &self,
        caller: &Caller,
        mut keys: Vec<Uuid>,
    ) -> Result<HashMap<Uuid, String>, GatewayError> {
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(HashMap::new());
        }
        let names = self.store.principal_names(caller.tenant()?.id, &keys).await;
        let names = names.map_err(|error| GatewayError::from_store(error, "key"))?;
        Ok(names.into_iter().filter_map(|(id, principal)| Some((id, principal.key_name?))).collect())
    }
}
