//! Flags of `upstream add` and `upstream update` for the gateway's login at a server.

use clap::Args;
use http::Method;
use serde_json::{Map, Value};

use super::client::{ApiAnswer, ApiClient};
use super::failure::Failure;
use super::input;
use crate::domain::server_login::{ClientAuthWay, LoginKind};

/// Login of the gateway at a server, as itself (OAuth, grant client_credentials).
#[derive(Args)]
pub(super) struct OauthFlags {
    /// Client id with which the gateway logs in at the server (OAuth, client credentials)
    #[arg(long, value_name = "ID", requires = "oauth_client_secret")]
    oauth_client_id: Option<String>,
    /// Client secret, or - to read it from standard input. Prefer -: other users can read command lines
    #[arg(long, value_name = "SECRET", requires = "oauth_client_id")]
    oauth_client_secret: Option<String>,
    /// Issuer of the tokens. Without it and --oauth-token-endpoint, that of before stays; at first, the error says what the server names
    #[arg(long, value_name = "URL", requires = "oauth_client_id")]
    oauth_issuer: Option<String>,
    /// Token endpoint, instead of that in the issuer's metadata
    #[arg(long, value_name = "URL", requires = "oauth_client_id")]
    oauth_token_endpoint: Option<String>,
    /// Scope to ask for; may be repeated. Without it, those that the server asks for
    #[arg(long = "oauth-scope", value_name = "SCOPE", requires = "oauth_client_id")]
    oauth_scopes: Vec<String>,
    /// Resource that the tokens are for; empty to name none [default: the address of the server]
    #[arg(long, value_name = "URI", requires = "oauth_client_id")]
    oauth_resource: Option<String>,
    /// Authentication at the token endpoint [default: what its metadata says, else client_secret_basic]
    #[arg(long, requires = "oauth_client_id", value_parser = ClientAuthWay::WORDS)]
    oauth_client_auth: Option<String>,
}

impl OauthFlags {
    /// Returns whether a login is given.
    pub(super) fn is_given(&self) -> bool {
        self.oauth_client_id.is_some()
    }

    /// Returns the body of the request that configures the login; `None` if none is given.
    pub(super) fn body(&self) -> Result<Option<Map<String, Value>>, Failure> {
        let (Some(id), Some(secret)) = (&self.oauth_client_id, &self.oauth_client_secret) else {
            return Ok(None);
        };
        let mut body = input::secrets("oauth-client-secret", &[format!("client_secret={secret}")])?;
        body.insert("kind".to_owned(), LoginKind::ClientCredentials.as_str().into());
        body.insert("client_id".to_owned(), id.clone().into());
        for (name, text) in [
            ("issuer", &self.oauth_issuer),
            ("token_endpoint", &self.oauth_token_endpoint),
            ("resource", &self.oauth_resource),
            ("client_auth", &self.oauth_client_auth),
        ] {
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
