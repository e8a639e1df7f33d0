//! Connections of a server, and their end: the tokens are forgotten here, and revoked where that is offered (RFC 7009).

use uuid::Uuid;

use super::Connect;
use crate::domain::id::TenantId;
use crate::domain::tenant::Action;
use crate::gateway::GatewayError;
use crate::gateway::server_logins::vault;
use crate::gateway::tenants::Caller;
use crate::store::{ConnectionRow, RemovedConnection, RevisionKind, Server};
use crate::upstream::TokenRequest;

impl Connect {
    /// Returns the connections of a server: the logins for which there are tokens, or were.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn list(&self, caller: &Caller, name: &str) -> Result<Vec<ConnectionRow>, GatewayError> {
        caller.authorise(Action::SeeServers)?;
        let server = self.server(caller, name).await?;
        let rows = self.store.list_connections(caller.tenant()?.id, server.id()).await;
        rows.map_err(|error| GatewayError::from_store(error, "server"))
    }

    /// Forgets a connection with its tokens, and has them revoked, in one try, beside the answer. The gateway's own login is made anew
    /// by the next call; a person has to log in again.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn disconnect(
        &self,
        caller: &Caller,
        name: &str,
        connection: Uuid,
    ) -> Result<(), GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let tenant = caller.tenant()?.id;
        let server = self.server(caller, name).await?;
        let removed = self.store.remove_connection(tenant, server.id(), connection).await;
        let removed = removed.map_err(|error| GatewayError::from_store(error, "connection"))?;
        self.tenants.refresh(tenant, RevisionKind::Catalogue).await;
        self.revoke_aside(tenant, removed);
        Ok(())
    }

    async fn server(&self, caller: &Caller, name: &str) -> Result<Server, GatewayError> {
        let found = self.store.get_server(caller.tenant()?.id, name).await;
        found.map_err(|error| GatewayError::from_store(error, "server"))
    }

    fn revoke_aside(&self, tenant: TenantId, removed: RemovedConnection) {
        let Some(url) = removed.revocation_endpoint.clone() else { return };
        let (upstreams, options) = (self.upstreams.clone(), self.options.clone());
        self.life.tasks.spawn(async move {
            let keyring = &options.keyring;
            let client = vault::OpenClient::open(
                keyring,
                (tenant, removed.login.server.0, &removed.token_endpoint),
                (&removed.client_id, &removed.client_auth),
                (removed.client_secret.as_ref(), &removed.keys),
            );
            let Ok(client) = client else { return };
            // with the token that renews a login, servers revoke the others of the same grant
            let tokens = [(vault::REFRESH, "refresh_token", removed.refresh), (vault::ACCESS, "access_token", removed.access)];
            for (part, hint, sealed) in tokens {
                let Some(sealed) = sealed else { continue };
                let place = vault::token_place(removed.login, part, &removed.place);
                let Some(token) = vault::open(keyring, tenant, (&sealed, &removed.keys), place) else { continue };
                let fields = [("token", token.as_str()), ("token_type_hint", hint)];
                let timeout = options.server_logins.timeout;
                let request =
                    TokenRequest { tenant: Some(tenant.0), url: &url, client: client.auth(), fields: &fields, timeout };
                if let Err(error) = upstreams.revoke(request).await {
                    tracing::warn!(%tenant, server = %removed.login.server, %error, "a token was not revoked");
                }
            }
        });
    }
}
