//! Logins of the gateway at servers, as administrators configure them.

use std::fmt;

use uuid::Uuid;
use zeroize::Zeroizing;

use super::Servers;
use super::administer::ServerView;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::seal::{self, Place};
use crate::domain::server_kind::ServerKind;
use crate::domain::server_login::{
    AuthorizationServer, ClientAuthWay, LoginKind, ProtectedResource, is_scope, metadata_urls, resource_urls,
};
use crate::domain::server_url::without_query;
use crate::domain::tenant::Action;
use crate::gateway::GatewayError;
use crate::gateway::credentials::{data_key, random, unsealable};
use crate::gateway::tenants::Caller;
use crate::store::{ConnectionRow, NewServerOauth, RevisionKind, Server, ServerOauth};

/// Largest metadata document, in bytes.
const METADATA_BYTES_MAX: usize = 256 * 1024;
/// Longest client id, in bytes.
const CLIENT_ID_BYTES_MAX: usize = 500;
/// Longest client secret, in bytes.
const CLIENT_SECRET_BYTES_MAX: usize = 4096;
/// Most scopes, and the longest one in bytes.
const SCOPES_MAX: (usize, usize) = (50, 200);
/// Longest URL, in bytes.
const URL_BYTES_MAX: usize = 2000;
/// Advice where the authorization server of a server cannot be found out.
const NAME_IT: &str = "give issuer or token_endpoint";

/// Request to configure the gateway's login at a server. `Debug` shows no secret.
pub struct OauthRequest {
    /// Way of logging in, a word of [`LoginKind`].
    pub kind: String,
    /// Client id of the gateway.
    pub client_id: String,
    /// Client secret of the gateway.
    pub client_secret: Zeroizing<String>,
    /// Issuer whose metadata names the token endpoint; `None` to ask the server for it.
    pub issuer: Option<String>,
    /// URL of the token endpoint; `None` to read it from the issuer's metadata.
    pub token_endpoint: Option<String>,
    /// Value of `resource` in token requests: empty for none, `None` for the server's URL.
    pub resource: Option<String>,
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

/// Authorization server of a server.
#[derive(Default)]
struct FoundServer {
    issuer: Option<String>,
    token_endpoint: String,
    client_auth: Option<ClientAuthWay>,
    resource: Option<String>,
    scopes: Vec<String>,
}

impl FoundServer {
    /// Returns the authorization server of a login that is configured already.
    fn configured(login: &ServerOauth) -> FoundServer {
        FoundServer {
            issuer: login.issuer.clone(),
            token_endpoint: login.token_endpoint.clone(),
            client_auth: ClientAuthWay::parse(&login.client_auth),
            resource: Some(login.resource.clone().unwrap_or_default()),
            scopes: login.scopes.clone(),
        }
    }
}

impl Servers {
    /// Configures how the gateway logs in at a server, in the place of what was configured before, and lists the server. Without
    /// an issuer or token endpoint, the authorization server of before stays, with what else the request does not name; at first, the
    /// request has to name it, and the error says what the server itself names: a secret goes where an administrator sends it.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] for a field or without a
    /// tenant, [`GatewayError::Conflict`] for a changed version, or [`GatewayError::Unavailable`].
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
        let kind = check(&request)?;
        if server.header_names.iter().any(|name| name.eq_ignore_ascii_case("authorization")) {
            let message = "The server has a header Authorization, in which the token of a login is sent. Remove that header first \
                           (headers without it).";
            return Err(GatewayError::Conflict(message.to_owned()));
        }
        let found = match &server.oauth {
            // the client belongs to one authorization server: what the server names today may be another
            Some(before) if request.issuer.is_none() && request.token_endpoint.is_none() => {
                FoundServer::configured(before)
            }
            _ => self.authorization_server(tenant, &url, &request).await?,
        };
        self.upstreams
            .check_issuer_url(&found.token_endpoint)
            .map_err(|error| GatewayError::invalid("token_endpoint", error.whole()))?;
        let place = without_query(&url).to_owned();
        let (data_key_id, client_sealed) =
            self.seal_client(tenant, server.id(), &found.token_endpoint, &request.client_secret).await?;
        let resource = request.resource.or(found.resource).unwrap_or_else(|| place.clone());
        let new = NewServerOauth {
            // the place was read in this version
            version: request.version.unwrap_or(server.version),
            place,
            kind,
            issuer: found.issuer,
            token_endpoint: found.token_endpoint,
            resource: (!resource.is_empty()).then_some(resource),
            scopes: request.scopes.unwrap_or(found.scopes),
            client_id: request.client_id,
            client_auth: request.client_auth.or(found.client_auth).unwrap_or(ClientAuthWay::Basic),
            data_key_id,
            client_sealed,
        };
        let updated = self.store.put_server_oauth(tenant, server.id(), &new).await;
        let updated = updated.map_err(|error| GatewayError::from_store(error, "server"))?;
        self.tenants.refresh(tenant, RevisionKind::Catalogue).await;
        self.upstreams.reset_breaker(tenant.0, server.server_id);
        self.list_if_enabled(tenant, &updated).await;
        self.get_server(caller, name).await
    }

    /// Removes the gateway's login at a server, with its tokens.
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

    /// Returns the connections of a server: the logins for which there are tokens, or were.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn list_connections(
        &self,
        caller: &Caller,
        name: &str,
    ) -> Result<Vec<ConnectionRow>, GatewayError> {
        let server = self.get_server(caller, name).await?;
        let rows = self.store.list_connections(caller.tenant()?.id, server.id()).await;
        rows.map_err(|error| GatewayError::from_store(error, "server"))
    }

    /// Forgets a connection with its token: the next call logs in again.
    ///
    /// # Errors
    /// [`GatewayError::Forbidden`] for the role, [`GatewayError::NotFound`], [`GatewayError::Invalid`] without a tenant, or
    /// [`GatewayError::Unavailable`].
    pub async fn remove_connection(
        &self,
        caller: &Caller,
        name: &str,
        connection: Uuid,
    ) -> Result<(), GatewayError> {
        caller.authorise(Action::ChangeServers)?;
        let tenant = caller.tenant()?.id;
        let server = self.get_server(caller, name).await?;
        let removed = self.store.remove_connection(tenant, server.id(), connection).await;
        removed.map_err(|error| GatewayError::from_store(error, "connection"))?;
        self.tenants.refresh(tenant, RevisionKind::Catalogue).await;
        Ok(())
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

    async fn seal_client(
        &self,
        tenant: TenantId,
        server: ServerId,
        endpoint: &str,
        secret: &str,
    ) -> Result<(Uuid, Vec<u8>), GatewayError> {
        let (key_id, key) = data_key(&self.store, &self.options.keyring, tenant).await?;
        let bound = Place::ServerOauth { tenant, server, endpoint };
        let sealed = seal::seal(&key, random()?, bound, secret.as_bytes()).map_err(unsealable)?;
        Ok((key_id, sealed))
    }

    /// Returns the authorization server: as the request names it, or as the server at `url` does.
    async fn authorization_server(
        &self,
        tenant: TenantId,
        url: &str,
        request: &OauthRequest,
    ) -> Result<FoundServer, GatewayError> {
        if let Some(endpoint) = &request.token_endpoint {
            let (issuer, token_endpoint) = (request.issuer.clone(), endpoint.clone());
            return Ok(FoundServer { issuer, token_endpoint, ..FoundServer::default() });
        }
        let resource = self.protected_resource(tenant, url).await;
        let Some(issuer) = &request.issuer else {
            let (resource, _) = resource?;
            let issuer = resource.authorization_servers.first().map_or("", String::as_str);
            let message = format!(
                "the server says that its tokens come from {issuer}: give that as issuer, if it is where client_id and client_secret \
                 are from"
            );
            return Err(GatewayError::invalid("issuer", message));
        };
        let found = self.metadata_of(tenant, issuer, "issuer", "give token_endpoint").await?;
        Ok(match resource {
            Ok((resource, scopes)) if resource.authorization_servers.contains(issuer) => {
                FoundServer { resource: Some(resource.resource), scopes, ..found }
            }
            Ok(_) | Err(_) => found,
        })
    }

    /// Reads the metadata of the server at `url`, which its challenge names, or which is at its well-known place.
    async fn protected_resource(
        &self,
        tenant: TenantId,
        url: &str,
    ) -> Result<(ProtectedResource, Vec<String>), GatewayError> {
        let fault = |why: &str| {
            let message = format!("the server does not say where its tokens come from ({why}); {NAME_IT}");
            GatewayError::invalid("token_endpoint", message)
        };
        let challenge = self.upstreams.challenge(tenant.0, url).await;
        let challenge = challenge.map_err(|error| fault(&error.whole()))?.unwrap_or_default();
        let named = challenge.resource_metadata.map(|named| vec![named]);
        let mut why = "it has no protected-resource metadata".to_owned();
        for place in named.unwrap_or_else(|| resource_urls(url)) {
            match self.upstreams.fetch_document(Some(tenant.0), &place, METADATA_BYTES_MAX).await {
                Ok(text) => match ProtectedResource::read(&text, url) {
                    Ok(resource) => return Ok((resource, challenge.scopes)),
                    Err(fault) => fault.clone_into(&mut why),
                },
                Err(error) => why = format!("its protected-resource metadata: {error}"),
            }
        }
        Err(fault(&why))
    }

    /// Reads the metadata of an issuer. Errors are about `field`.
    async fn metadata_of(
        &self,
        tenant: TenantId,
        issuer: &str,
        field: &str,
        advice: &str,
    ) -> Result<FoundServer, GatewayError> {
        let mut why = "it is no URL".to_owned();
        for place in metadata_urls(issuer) {
            match self.upstreams.fetch_document(Some(tenant.0), &place, METADATA_BYTES_MAX).await {
                Ok(text) => match AuthorizationServer::read(&text, issuer) {
                    Ok(read) => {
                        let client_auth = read.client_auth();
                        if client_auth.is_none() {
                            "it takes no client secret by client_secret_basic or client_secret_post"
                                .clone_into(&mut why);
                            break;
                        }
                        let (issuer, token_endpoint) =
                            (Some(issuer.to_owned()), read.token_endpoint().to_owned());
                        return Ok(FoundServer {
                            issuer,
                            token_endpoint,
                            client_auth,
                            ..FoundServer::default()
                        });
                    }
                    Err(fault) => fault.clone_into(&mut why),
                },
                Err(error) => why = error.to_string(),
            }
        }
        let message =
            format!("the authorization server's metadata gives no token endpoint ({why}); {advice}");
        Err(GatewayError::invalid(field, message))
    }
}

/// Checks the fields of a request, and returns the kind of login.
fn check(request: &OauthRequest) -> Result<LoginKind, GatewayError> {
    let kind = LoginKind::parse(&request.kind).ok_or_else(|| {
        let known = LoginKind::WORDS.join(" or ");
        GatewayError::invalid("kind", format!("kind must be {known}: this release knows no other login"))
    })?;
    let is_plain = |text: &str, max: usize| {
        !text.is_empty() && text.len() <= max && text.bytes().all(|byte| matches!(byte, 0x20..=0x7e))
    };
    if !is_plain(&request.client_id, CLIENT_ID_BYTES_MAX) {
        let message = format!("client_id must be 1 to {CLIENT_ID_BYTES_MAX} visible ASCII characters");
        return Err(GatewayError::invalid("client_id", message));
    }
    if !is_plain(&request.client_secret, CLIENT_SECRET_BYTES_MAX) {
        let message =
            format!("client_secret must be 1 to {CLIENT_SECRET_BYTES_MAX} visible ASCII characters");
        return Err(GatewayError::invalid("client_secret", message));
    }
    for (name, url) in [("issuer", &request.issuer), ("token_endpoint", &request.token_endpoint)] {
        let is_url =
            |url: &String| url.len() <= URL_BYTES_MAX && !url.contains('#') && url::Url::parse(url).is_ok();
        if url.as_ref().is_some_and(|url| !is_url(url)) {
            return Err(GatewayError::invalid(name, format!("{name} must be a URL without a fragment")));
        }
    }
    let is_resource = |text: &String| {
        let is_uri = text.len() <= URL_BYTES_MAX && !text.contains('#') && url::Url::parse(text).is_ok();
        text.is_empty() || is_uri
    };
    if request.resource.as_ref().is_some_and(|resource| !is_resource(resource)) {
        let message = "resource must be an absolute URI without a fragment, or empty for none";
        return Err(GatewayError::invalid("resource", message));
    }
    let (count, bytes) = SCOPES_MAX;
    let scopes = request.scopes.as_deref().unwrap_or_default();
    if scopes.len() > count || !scopes.iter().all(|scope| scope.len() <= bytes && is_scope(scope)) {
        let message = format!(
            "scopes must be at most {count} texts of at most {bytes} visible ASCII characters without spaces, quotes and backslashes"
        );
        return Err(GatewayError::invalid("scopes", message));
    }
    Ok(kind)
}
