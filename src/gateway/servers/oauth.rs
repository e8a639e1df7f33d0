//! Logins at servers, as administrators configure them: the gateway's own, or that of each person.

mod check;
mod found;

use std::fmt;

use zeroize::Zeroizing;

use super::Servers;
use super::administer::ServerView;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::seal::Place;
use crate::domain::server_kind::ServerKind;
use crate::domain::server_login::{ClientAuthWay, ExchangeGrant, LoginKind};
use crate::domain::server_url::without_query;
use crate::domain::tenant::Action;
use crate::gateway::GatewayError;
use crate::gateway::server_logins::{refused_pause, vault};
use crate::gateway::tenants::Caller;
use crate::store::{LoginOf, NewServerOauth, RevisionKind, SealedText, Server};
use crate::upstream::{FailureKind, UpstreamError};

/// Request to configure the login at a server. `Debug` shows no secret.
pub struct OauthRequest {
    /// Way of logging in, a word of [`crate::domain::server_login::LoginKind`].
    pub kind: String,
    /// Client id of the gateway; `None` to register it, for logins of people.
    pub client_id: Option<String>,
    /// Client secret of the gateway; `None` for a public client, for logins of people.
    pub client_secret: Option<Zeroizing<String>>,
    /// Issuer whose metadata names the endpoints; `None` to ask the server for it.
    pub issuer: Option<String>,
    /// URL of the token endpoint; `None` to read it from the issuer's metadata.
    pub token_endpoint: Option<String>,
    /// URL that browsers are sent to; `None` to read it from the issuer's metadata.
    pub authorization_endpoint: Option<String>,
    /// Value of `resource` in requests: empty for none, `None` for the server's URL.
    pub resource: Option<String>,
    /// Value of `audience` in requests: empty for none, `None` for that of before.
    pub audience: Option<String>,
    /// Request for exchanges; `None` for that of before, or of RFC 8693.
    pub exchange_grant: Option<ExchangeGrant>,
    /// Scopes to ask for; `None` for those that the server asks for.
    pub scopes: Option<Vec<String>>,
    /// Way of authentication at the token endpoint; `None` for what the metadata says.
    pub client_auth: Option<ClientAuthWay>,
    /// Expected version of the server; `None` skips the check.
    pub version: Option<i64>,
}

impl fmt::Debug for OauthRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OauthRequest").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl OauthRequest {
    /// Returns whether the request leaves it to the server, or to the login of before, where tokens come from.
    fn names_nothing(&self) -> bool {
        self.issuer.is_none() && self.token_endpoint.is_none() && self.authorization_endpoint.is_none()
    }
}

impl Servers {
    /// Configures the login at a server, in the place of what was configured before, and lists the server. Without an issuer or
    /// endpoint, the authorization server of before stays, with what else the request does not name. At first, a request with a
    /// client's secret has to name it, and the error says what the server itself names: a secret goes where an administrator sends
    /// it. A client that is registered anew has no such secret, and follows what the server names.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] for a field or without a
    /// tenant, [`GatewayError::Conflict`] for a changed version or without a public URL, or [`GatewayError::Unavailable`].
    pub async fn set_oauth(
        &self,
        caller: &Caller,
        name: &str,
        request: OauthRequest,
    ) -> Result<ServerView, GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let tenant = caller.tenant()?.id;
        let server = self.get_server(caller, name).await?;
        let url = server.url.clone().filter(|_| server.kind == ServerKind::Http);
        let url = url.ok_or_else(|| {
            GatewayError::invalid("kind", format!("a server of kind {} has no login", server.kind.as_str()))
        })?;
        let kind = check::check(&request)?;
        if server.header_names.iter().any(|name| name.eq_ignore_ascii_case("authorization")) {
            let message = "The server has a header Authorization, in which the token of a login is sent. Remove that header first \
                           (headers without it).";
            return Err(GatewayError::Conflict(message.to_owned()));
        }
        if kind == LoginKind::TokenExchange {
            self.check_exchange(tenant, &request).await?;
        }
        let before = server.oauth.as_ref().filter(|before| before.kind == kind.as_str());
        let found = self.found(tenant, (kind, &url), &request, before.map(|before| &before.0)).await?;
        for (field, endpoint) in [
            ("token_endpoint", Some(&found.token_endpoint)),
            ("authorization_endpoint", found.authorization_endpoint.as_ref()),
        ] {
            let checked = endpoint.map_or(Ok(()), |endpoint| self.upstreams.check_issuer_url(endpoint));
            checked.map_err(|error| GatewayError::invalid(field, error.whole()))?;
        }
        let place = without_query(&url).to_owned();
        let client = self.client((tenant, server.id()), kind, &request, &found).await?;
        let resource = request.resource.or(found.resource).unwrap_or_else(|| place.clone());
        let client_secret = match &client.secret {
            None => None,
            Some(secret) => Some(self.seal_client(tenant, server.id(), &found.token_endpoint, secret).await?),
        };
        let new = NewServerOauth {
            // the place was read in this version
            version: request.version.unwrap_or(server.version),
            place,
            kind,
            issuer: found.issuer,
            authorization_endpoint: found.authorization_endpoint,
            revocation_endpoint: found.revocation_endpoint,
            require_iss: found.require_iss,
            is_named: found.is_named,
            registration: client.registration,
            token_endpoint: found.token_endpoint,
            resource: (!resource.is_empty()).then_some(resource),
            audience: request.audience.or(found.audience).filter(|audience| !audience.is_empty()),
            exchange_grant: (kind == LoginKind::TokenExchange).then(|| {
                request.exchange_grant.or(found.exchange_grant).unwrap_or(ExchangeGrant::TokenExchange)
            }),
            scopes: request.scopes.unwrap_or(found.scopes),
            client_id: client.id,
            client_auth: client.way,
            client_secret,
        };
        let updated = self.store.put_server_oauth(tenant, server.id(), &new).await;
        let updated = updated.map_err(|error| GatewayError::from_store(error, "server"))?;
        self.tenants.refresh(tenant, RevisionKind::Catalogue).await;
        self.upstreams.reset_breaker(tenant.0, server.server_id);
        self.list_if_enabled(tenant, &updated).await;
        self.get_server(caller, name).await
    }

    /// Checks what a login by exchange names: an issuer whose people log in at the gateway, and nothing for which tokens open the gateway
    /// itself.
    async fn check_exchange(&self, tenant: TenantId, request: &OauthRequest) -> Result<(), GatewayError> {
        let Some(issuer) = &request.issuer else { return Ok(()) };
        let audiences = self.tenants.audiences_of(tenant, issuer).await.ok_or_else(|| {
            let message = "nobody of this tenant logs in at this gateway with that issuer, byte by byte: its people's tokens are what is exchanged";
            GatewayError::invalid("issuer", message)
        })?;
        for (field, name) in [("resource", &request.resource), ("audience", &request.audience)] {
            if name.as_ref().is_some_and(|name| audiences.accepted().any(|own| own == name)) {
                let message = format!(
                    "{field} is one of this gateway's own: a server would get tokens that open the gateway"
                );
                return Err(GatewayError::invalid(field, message));
            }
        }
        Ok(())
    }

    /// Removes the login at a server, with all of its tokens.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant,
    /// [`GatewayError::Conflict`] if the server changes meanwhile, or [`GatewayError::Unavailable`].
    pub async fn remove_oauth(&self, caller: &Caller, name: &str) -> Result<(), GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let tenant = caller.tenant()?.id;
        let server = self.get_server(caller, name).await?;
        if server.oauth.is_none() {
            return Err(GatewayError::NotFound("login"));
        }
        let removed = self.store.remove_server_oauth(tenant, server.id(), server.version).await;
        let updated = removed.map_err(|error| GatewayError::from_store(error, "server"))?;
        self.tenants.refresh(tenant, RevisionKind::Catalogue).await;
        // it may be a server that wants no token
        self.list_if_enabled(tenant, &updated).await;
        Ok(())
    }

    /// Lists a server with the login that somebody has just made for that.
    pub async fn list_after_login(&self, caller: &Caller, name: &str) {
        let Some(tenant) = caller.tenant().ok().map(|tenant| tenant.id) else { return };
        match self.store.get_server(tenant, name).await {
            Ok(server) => self.list_if_enabled(tenant, &server).await,
            Err(error) => tracing::warn!(%tenant, %error, "a server was not listed after a login"),
        }
    }

    /// Ends the pause after failed logins at a server: somebody asked for a try.
    pub(super) async fn try_login_again(&self, tenant: TenantId, server: &Server) {
        if server.oauth.is_none() {
            return;
        }
        if let Err(error) = self.store.end_login_pause(tenant, server.id()).await {
            tracing::warn!(%tenant, server = server.name, %error, "the pause of a login goes on");
        }
    }

    /// Notes that a server refuses the gateway's token at a listing. A refusal of a call is not noted: callers could cause it.
    pub(super) async fn note_refused_token(&self, tenant: TenantId, server: &Server, error: &UpstreamError) {
        let FailureKind::LoginRefused { generation: Some(generation) } = error.kind else { return };
        let Some(oauth) = &server.oauth else { return };
        let login = LoginOf { tenant, server: server.id(), principal: None, client: oauth.client_generation };
        if let Err(error) = self.store.token_refused((login, generation), &error.detail, refused_pause).await
        {
            tracing::warn!(%tenant, server = server.name, %error, "a refused token was not noted");
        }
    }

    async fn seal_client(
        &self,
        tenant: TenantId,
        server: ServerId,
        endpoint: &str,
        secret: &str,
    ) -> Result<SealedText, GatewayError> {
        let bound = Place::ServerOauth { tenant, server, endpoint };
        vault::seal_text(&self.store, &self.options.keyring, tenant, bound, secret).await
    }
}
