//! Sealing of credentials that administrators give for servers.

use super::Servers;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::origin::Origin;
use crate::domain::seal::{self, Place};
use crate::domain::server_url::without_query;
use crate::gateway::GatewayError;
use crate::gateway::credentials::{FieldSecrets, Headers, Opener, data_key, random, unsealable};
use crate::store::{HeadersPatch, SealedHeaders, Server};

impl Servers {
    /// Seals the headers of a server at `url`. An empty set clears the stored ones.
    pub(super) async fn seal_headers(
        &self,
        tenant: TenantId,
        server: ServerId,
        url: &str,
        headers: &Headers,
    ) -> Result<HeadersPatch, GatewayError> {
        if headers.is_empty() {
            return Ok(HeadersPatch::Clear);
        }
        let text = headers.to_sealable().ok_or(GatewayError::Unavailable)?;
        self.seal_text(tenant, server, url, headers.names(), &text).await
    }

    /// Seals secrets for the fields of pages, the first of which is at `url`. An empty set clears the stored ones.
    pub(super) async fn seal_fields(
        &self,
        tenant: TenantId,
        server: ServerId,
        url: &str,
        secrets: &FieldSecrets,
    ) -> Result<HeadersPatch, GatewayError> {
        if secrets.is_empty() {
            return Ok(HeadersPatch::Clear);
        }
        let text = secrets.to_sealable().ok_or(GatewayError::Unavailable)?;
        self.seal_text(tenant, server, url, secrets.names(), &text).await
    }

    /// Seals the present headers of `server` for the new address `url`.
    ///
    /// # Errors
    /// [`GatewayError::Conflict`] if they cannot be opened.
    pub(super) async fn seal_again(
        &self,
        tenant: TenantId,
        server: &Server,
        url: &str,
    ) -> Result<HeadersPatch, GatewayError> {
        if server.header_names.is_empty() {
            return Ok(HeadersPatch::Clear);
        }
        let rows = self.store.server_secrets(tenant, server.id()).await;
        let rows = rows.map_err(|error| GatewayError::from_store(error, "server"))?;
        let text = Opener::new(&self.options.keyring, tenant, &rows).open_text(server);
        let text = text.ok_or_else(|| {
            let name = &server.name;
            GatewayError::Conflict(format!(
                "The credentials of server '{name}' cannot be opened, so they cannot be kept. Give its headers again."
            ))
        })?;
        self.seal_text(tenant, server.id(), url, server.header_names.clone(), &text).await
    }

    async fn seal_text(
        &self,
        tenant: TenantId,
        server: ServerId,
        url: &str,
        names: Vec<String>,
        text: &[u8],
    ) -> Result<HeadersPatch, GatewayError> {
        let origin = Origin::of(url)
            .ok_or_else(|| GatewayError::invalid("headers", "headers need a url that they are sent to"))?;
        let (key_id, key) = data_key(&self.store, &self.options.keyring, tenant).await?;
        let bound = Place::ServerSecret { tenant, server, origin: &origin };
        let sealed = seal::seal(&key, random()?, bound, text).map_err(unsealable)?;
        let place = without_query(url).to_owned();
        Ok(HeadersPatch::Set(SealedHeaders { names, key_id, place, sealed }))
    }
}
