//! Authorization server of a login, and the gateway's client there: as the request names them, as the server does, or as they were.

use serde::Deserialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::{OauthRequest, Servers, check};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::server_login::{
    AuthorizationServer, ClientAuthWay, CodeEndpoints, ExchangeGrant, LoginKind, ProtectedResource,
    Registration,
};
use crate::gateway::GatewayError;
use crate::gateway::server_logins::discover;
use crate::gateway::tenants::{callback_path, client_metadata_path};
use crate::store::ServerOauth;

/// Largest answer to a registration, in bytes.
const REGISTRATION_BYTES_MAX: usize = 64 * 1024;
/// Scope by which OpenID providers are asked for a token that renews a login.
const OFFLINE: &str = "offline_access";

/// Authorization server of a login.
#[derive(Default)]
pub(super) struct FoundLogin {
    pub(super) issuer: Option<String>,
    pub(super) is_named: bool,
    pub(super) token_endpoint: String,
    pub(super) authorization_endpoint: Option<String>,
    pub(super) revocation_endpoint: Option<String>,
    pub(super) require_iss: bool,
    pub(super) client_auth: Option<ClientAuthWay>,
    pub(super) resource: Option<String>,
    pub(super) scopes: Vec<String>,
    pub(super) audience: Option<String>,
    pub(super) exchange_grant: Option<ExchangeGrant>,
    registration_endpoint: Option<String>,
    takes_metadata_document: bool,
    takes_public: bool,
}

/// Client of the gateway at an authorization server.
pub(super) struct LoginClient {
    pub(super) id: String,
    pub(super) way: ClientAuthWay,
    /// Secret of the client; `None` for a public one.
    pub(super) secret: Option<Zeroizing<String>>,
    pub(super) registration: Registration,
}

/// Answer to a registration (RFC 7591).
#[derive(Deserialize)]
struct Registered {
    client_id: String,
    client_secret: Option<Zeroizing<String>>,
    token_endpoint_auth_method: Option<String>,
}

impl FoundLogin {
    fn of_metadata(
        issuer: &str,
        (kind, metadata): (LoginKind, &AuthorizationServer),
    ) -> Result<FoundLogin, &'static str> {
        let mut found = FoundLogin {
            issuer: Some(issuer.to_owned()),
            token_endpoint: metadata.token_endpoint().to_owned(),
            client_auth: metadata.client_auth(),
            ..FoundLogin::default()
        };
        if kind != LoginKind::AuthorizationCode {
            found
                .client_auth
                .ok_or("it takes no client secret by client_secret_basic or client_secret_post")?;
            return Ok(found);
        }
        let CodeEndpoints {
            authorization,
            revocation,
            registration,
            takes_metadata_document,
            names_itself,
            takes_public,
        } = metadata.code_endpoints()?;
        found.authorization_endpoint = Some(authorization);
        found.revocation_endpoint = revocation;
        found.registration_endpoint = registration;
        found.require_iss = names_itself;
        (found.takes_metadata_document, found.takes_public) = (takes_metadata_document, takes_public);
        if metadata.scopes().iter().any(|scope| scope == OFFLINE) {
            found.scopes.push(OFFLINE.to_owned());
        }
        Ok(found)
    }
}

impl Servers {
    /// Returns the authorization server of a login.
    pub(super) async fn found(
        &self,
        tenant: TenantId,
        (kind, url): (LoginKind, &str),
        request: &OauthRequest,
        before: Option<&ServerOauth>,
    ) -> Result<FoundLogin, GatewayError> {
        // the client belongs to one authorization server: what the server names today may be another
        if let Some(before) = before.filter(|_| request.names_nothing() && request.client_id.is_some()) {
            return self.configured(tenant, kind, before).await;
        }
        if let Some(endpoint) = &request.token_endpoint {
            let (issuer, token_endpoint) = (request.issuer.clone(), endpoint.clone());
            let authorization_endpoint = request.authorization_endpoint.clone();
            let takes_public = true;
            return Ok(FoundLogin {
                issuer,
                token_endpoint,
                authorization_endpoint,
                takes_public,
                ..FoundLogin::default()
            });
        }
        let resource = discover::protected_resource(&self.upstreams, tenant, url).await;
        let (issuer, field) = match (&request.issuer, &resource) {
            (Some(issuer), _) => (issuer.clone(), "issuer"),
            (None, Err(why)) => {
                let message =
                    format!("the server does not say where its tokens come from ({why}); {}", name_it(kind));
                return Err(GatewayError::invalid("token_endpoint", message));
            }
            (None, Ok((resource, _))) => {
                let named = resource.authorization_servers.first().cloned().unwrap_or_default();
                if request.client_id.is_some() {
                    let message = format!(
                        "the server says that its tokens come from {named}: give that as issuer, if it is where the client is from"
                    );
                    return Err(GatewayError::invalid("issuer", message));
                }
                (named, "issuer")
            }
        };
        let mut found = self.metadata_of(tenant, kind, &issuer, field).await?;
        if let Ok((resource, scopes)) = resource
            && resource.authorization_servers.contains(&issuer)
        {
            found.is_named = true;
            let asked = scopes_of(&resource, scopes, kind);
            found.scopes.splice(0..0, asked);
            found.resource = Some(resource.resource);
        }
        Ok(found)
    }

    /// Returns the authorization server of a login that is configured already. What its metadata adds is read anew.
    async fn configured(
        &self,
        tenant: TenantId,
        kind: LoginKind,
        before: &ServerOauth,
    ) -> Result<FoundLogin, GatewayError> {
        let kept = FoundLogin {
            issuer: before.issuer.clone(),
            token_endpoint: before.token_endpoint.clone(),
            authorization_endpoint: before.authorization_endpoint.clone(),
            client_auth: ClientAuthWay::parse(&before.client_auth),
            resource: Some(before.resource.clone().unwrap_or_default()),
            scopes: before.scopes.clone(),
            audience: before.audience.clone(),
            exchange_grant: before.exchange_grant.as_deref().and_then(ExchangeGrant::parse),
            takes_public: true,
            ..FoundLogin::default()
        };
        let Some(issuer) = before.issuer.as_ref().filter(|_| kind == LoginKind::AuthorizationCode) else {
            return Ok(kept);
        };
        let read = self.metadata_of(tenant, kind, issuer, "issuer").await?;
        if read.token_endpoint != kept.token_endpoint
            || read.authorization_endpoint != kept.authorization_endpoint
        {
            let message =
                format!("the metadata of {issuer} names other endpoints now: give issuer to take them");
            return Err(GatewayError::invalid("issuer", message));
        }
        let FoundLogin { resource, scopes, audience, .. } = kept;
        Ok(FoundLogin { resource, scopes, audience, is_named: before.is_named, ..read })
    }

    async fn metadata_of(
        &self,
        tenant: TenantId,
        kind: LoginKind,
        issuer: &str,
        field: &str,
    ) -> Result<FoundLogin, GatewayError> {
        let read = discover::authorization_server(&self.upstreams, tenant, issuer).await;
        let found = read
            .and_then(|metadata| FoundLogin::of_metadata(issuer, (kind, &metadata)).map_err(str::to_owned));
        found.map_err(|why| {
            let advice = if kind == LoginKind::TokenExchange { "" } else { "; give token_endpoint" };
            let message = format!("the authorization server's metadata cannot be used ({why}){advice}");
            GatewayError::invalid(field, message)
        })
    }

    /// Returns the gateway's client: the one of the request, the gateway's metadata, or one that is registered now, in that order.
    pub(super) async fn client(
        &self,
        (tenant, server): (TenantId, ServerId),
        kind: LoginKind,
        request: &OauthRequest,
        found: &FoundLogin,
    ) -> Result<LoginClient, GatewayError> {
        if kind == LoginKind::AuthorizationCode && self.options.logins.public_url.is_none() {
            let text = "logins of people need server.public_url, to which browsers come back; ask whoever runs this gateway to set it";
            return Err(GatewayError::Conflict(text.to_owned()));
        }
        if let Some(id) = request.client_id.clone() {
            let secret = request.client_secret.clone();
            let of_metadata = found.client_auth.unwrap_or(ClientAuthWay::Basic);
            let way = match (&secret, request.client_auth) {
                (None, _) => ClientAuthWay::Public,
                (Some(_), Some(way)) => way,
                (Some(_), None) if of_metadata == ClientAuthWay::Public => ClientAuthWay::Basic,
                (Some(_), None) => of_metadata,
            };
            return Ok(LoginClient { id, way, secret, registration: Registration::Given });
        }
        let own = self.options.server_logins.metadata_url.clone().or_else(|| self.metadata_url(server));
        if let Some(id) = own.filter(|_| found.takes_metadata_document && found.takes_public) {
            let (way, registration) = (ClientAuthWay::Public, Registration::MetadataDocument);
            return Ok(LoginClient { id, way, secret: None, registration });
        }
        let scopes = request.scopes.as_ref().unwrap_or(&found.scopes);
        self.register((tenant, server), found, scopes).await
    }

    /// Registers the gateway at an authorization server (RFC 7591), for these scopes.
    async fn register(
        &self,
        (tenant, server): (TenantId, ServerId),
        found: &FoundLogin,
        scopes: &[String],
    ) -> Result<LoginClient, GatewayError> {
        let redirect_uri = self.redirect_uri(server);
        let fault = |why: &str| {
            let message = format!(
                "the authorization server does not register this gateway by itself ({why}): register a client there with the redirect URI \
                 {redirect_uri}, and give its client_id"
            );
            GatewayError::invalid("client_id", message)
        };
        let endpoint = found.registration_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| fault("its metadata names no registration_endpoint"))?;
        let way = match found.takes_public {
            true => ClientAuthWay::Public,
            false => found.client_auth.ok_or_else(|| fault("it takes no client secret in a known way"))?,
        };
        let mut document = json!({
            "client_name": "mcpproxy",
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "token_endpoint_auth_method": way.as_str(),
            "application_type": "web",
        });
        if let Some(members) = document.as_object_mut().filter(|_| !scopes.is_empty()) {
            members.insert("scope".to_owned(), scopes.join(" ").into());
        }
        let posted =
            self.upstreams.post_document(tenant.0, endpoint, document.to_string(), REGISTRATION_BYTES_MAX);
        let answer = posted.await.map_err(|error| fault(&error.to_string()))?;
        let registered: Registered =
            serde_json::from_str(&answer).map_err(|_| fault("its answer cannot be read"))?;
        let way = match &registered.token_endpoint_auth_method {
            Some(way) => {
                ClientAuthWay::parse(way).ok_or_else(|| fault("it wants an unknown authentication"))?
            }
            None if registered.client_secret.is_some() => found.client_auth.unwrap_or(ClientAuthWay::Basic),
            None => way,
        };
        let secret = registered.client_secret.filter(|_| way != ClientAuthWay::Public);
        if !check::is_client(&registered.client_id, secret.as_ref().map(|secret| secret.as_str())) {
            return Err(fault("its answer has a client_id or client_secret that cannot be used"));
        }
        if secret.is_none() && way != ClientAuthWay::Public {
            return Err(fault("its answer has no client_secret"));
        }
        Ok(LoginClient { id: registered.client_id, way, secret, registration: Registration::Dynamic })
    }

    /// Returns the URL that the authorization server of a server sends browsers back to.
    pub(super) fn redirect_uri(&self, server: ServerId) -> String {
        let public = self.options.logins.public_url.as_ref();
        format!("{}{}", public.map_or("", |public| public.as_str()), callback_path(server.0))
    }

    /// Returns the URL of the gateway's metadata for the login at a server; `None` unless it is at https, as such ids are.
    fn metadata_url(&self, server: ServerId) -> Option<String> {
        let public = self.options.logins.public_url.as_ref().filter(|public| public.scheme() == "https")?;
        Some(format!("{}{}", public.as_str(), client_metadata_path(server.0)))
    }
}

/// Returns the advice where the authorization server of a server cannot be found out.
fn name_it(kind: LoginKind) -> &'static str {
    if kind == LoginKind::TokenExchange { "give issuer" } else { "give issuer or token_endpoint" }
}

/// Returns the scopes that a server asks for: those of its challenge or, for people without any, all that it names.
fn scopes_of(resource: &ProtectedResource, challenged: Vec<String>, kind: LoginKind) -> Vec<String> {
    match kind {
        LoginKind::AuthorizationCode if challenged.is_empty() => resource.scopes().to_vec(),
        _ => challenged,
    }
}
