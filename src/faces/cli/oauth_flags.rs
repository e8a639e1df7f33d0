//! Flags of `upstream add` and `upstream update` for logins at a server.

use clap::Args;
use http::Method;
use serde_json::{Map, Value};

use super::client::{ApiAnswer, ApiClient};
use super::failure::Failure;
use super::input;
use crate::domain::server_login::{ClientAuthWay, ExchangeGrant, LoginKind};

/// Login at a server (OAuth): of the gateway itself, or of each person.
#[derive(Args)]
pub(super) struct OauthFlags {
    /// Kind of the login: client_credentials is the gateway's own; with authorization_code each person logs in
    /// (mcpproxy upstream connect); with token_exchange people's own tokens are exchanged [default with --oauth-client-id: that of before, or client_credentials]
    #[arg(long = "oauth", value_name = "KIND", value_parser = LoginKind::WORDS)]
    oauth_kind: Option<String>,
    /// Client id of the gateway. People's logins do without where the login service knows the gateway or registers it
    #[arg(long, value_name = "ID")]
    oauth_client_id: Option<String>,
    /// Client secret, or - to read it from standard input. Prefer -: other users can read command lines
    #[arg(long, value_name = "SECRET", requires = "oauth_client_id")]
    oauth_client_secret: Option<String>,
    /// Issuer of the tokens. Without it and endpoints, that of before stays; at first, the error says what the server names
    #[arg(long, value_name = "URL")]
    oauth_issuer: Option<String>,
    /// Token endpoint, instead of that in the issuer's metadata
    #[arg(long, value_name = "URL")]
    oauth_token_endpoint: Option<String>,
    /// Authorization endpoint, instead of that in the issuer's metadata
    #[arg(long, value_name = "URL")]
    oauth_authorization_endpoint: Option<String>,
    /// Scope to ask for; may be repeated. Without it, those that the server asks for
    #[arg(long = "oauth-scope", value_name = "SCOPE")]
    oauth_scopes: Vec<String>,
    /// Resource that the tokens are for; empty to name none [default: the address of the server]
    #[arg(long, value_name = "URI")]
    oauth_resource: Option<String>,
    /// Audience that the tokens are for, for login services that ask for one; empty to name none
    #[arg(long, value_name = "TEXT")]
    oauth_audience: Option<String>,
    /// Request by which tokens of people are exchanged [default: token_exchange]
    #[arg(long, value_parser = ExchangeGrant::WORDS)]
    oauth_exchange_grant: Option<String>,
    /// Authentication at the token endpoint [default: what its metadata says, else client_secret_basic]
    #[arg(long, value_parser = ClientAuthWay::WORDS)]
    oauth_client_auth: Option<String>,
}

impl OauthFlags {
    /// Returns whether a login is given.
    pub(super) fn is_given(&self) -> bool {
        self.oauth_kind.is_some() || self.oauth_client_id.is_some()
    }

    /// Returns whether a login is given.
    ///
    /// # Errors
    /// [`Failure::Usage`] for flags that belong to one, without it.
    pub(super) fn is_wanted(&self) -> Result<bool, Failure> {
        let is_alone = self.texts().iter().any(|(_, text)| text.is_some()) || !self.oauth_scopes.is_empty();
        match self.is_given() {
            false if is_alone => Err(Failure::Usage(
                "a login needs --oauth-client-id and --oauth-client-secret, or --oauth authorization_code or token_exchange".to_owned(),
            )),
            is_given => Ok(is_given),
        }
    }

    /// Returns the members of the request that are texts.
    fn texts(&self) -> [(&'static str, &Option<String>); 8] {
        [
            ("client_id", &self.oauth_client_id),
            ("issuer", &self.oauth_issuer),
            ("token_endpoint", &self.oauth_token_endpoint),
            ("authorization_endpoint", &self.oauth_authorization_endpoint),
            ("resource", &self.oauth_resource),
            ("audience", &self.oauth_audience),
            ("exchange_grant", &self.oauth_exchange_grant),
            ("client_auth", &self.oauth_client_auth),
        ]
    }

    /// Returns the body of the request that configures the login; `None` if none is given. Without a kind, that of `before` stays.
    pub(super) fn body(&self, before: Option<&str>) -> Result<Option<Map<String, Value>>, Failure> {
        if !self.is_wanted()? {
            return Ok(None);
        }
        let kind = self.oauth_kind.as_deref().or(before).unwrap_or(LoginKind::ClientCredentials.as_str());
        let is_own = kind != LoginKind::AuthorizationCode.as_str();
        if is_own && (self.oauth_client_id.is_none() || self.oauth_client_secret.is_none()) {
            let text = format!("a login of kind {kind} needs --oauth-client-id and --oauth-client-secret");
            return Err(Failure::Usage(text));
        }
        let mut body = match &self.oauth_client_secret {
            Some(secret) => input::secrets("oauth-client-secret", &[format!("client_secret={secret}")])?,
            None => Map::new(),
        };
        body.insert("kind".to_owned(), kind.into());
        for (name, text) in self.texts() {
            if let Some(text) = text {
                body.insert(name.to_owned(), text.clone().into());
            }
        }
        if !self.oauth_scopes.is_empty() {
            body.insert("scopes".to_owned(), self.oauth_scopes.clone().into());
        }
        Ok(Some(body))
    }
}

/// Configures the login at a server.
pub(super) async fn put(
    client: &ApiClient,
    name: &str,
    body: Map<String, Value>,
) -> Result<ApiAnswer, Failure> {
    client.send(Method::PUT, &["servers", name, "oauth"], Value::Object(body).to_string()).await
}
