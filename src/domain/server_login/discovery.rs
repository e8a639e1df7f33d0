//! Documents and headers by which a server names its authorization server (RFC 9728), and that its token endpoint (RFC 8414).

use serde::Deserialize;

use super::ClientAuthWay;
use crate::domain::origin::Origin;
use crate::domain::server_url::{ServerPlace, without_query};

/// Longest URL in a document or header that is taken, in bytes.
const URL_BYTES_MAX: usize = 2000;
/// Longest scope of a challenge that is taken, in bytes.
const SCOPE_BYTES_MAX: usize = 200;
/// Most scopes of a challenge that are taken.
const SCOPES_MAX: usize = 50;

/// Challenge of a server that wants a token, or another one (`WWW-Authenticate: Bearer`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenChallenge {
    /// True if the token was good and has too few scopes (`error="insufficient_scope"`, RFC 6750).
    pub wants_more: bool,
    /// URL of the protected-resource metadata; `None` if the server does not name one.
    pub resource_metadata: Option<String>,
    /// Scopes that the server asks for.
    pub scopes: Vec<String>,
}

impl TokenChallenge {
    /// Reads the header of a challenge; `None` without the scheme `Bearer`.
    pub fn read(header: &str) -> Option<TokenChallenge> {
        let at = header.to_ascii_lowercase().find("bearer")?;
        let mut rest = header.get(at + "bearer".len()..)?;
        let mut challenge = TokenChallenge::default();
        while let Some((name, after)) = rest.split_once('=') {
            let (value, after) = value(after);
            rest = after;
            match name.trim_matches([' ', '\t', ',']).to_ascii_lowercase().as_str() {
                "resource_metadata" if value.len() <= URL_BYTES_MAX => {
                    challenge.resource_metadata = Some(value);
                }
                "error" => challenge.wants_more = value == "insufficient_scope",
                "scope" => {
                    let scopes = value
                        .split(' ')
                        .filter(|scope| super::is_scope(scope) && scope.len() <= SCOPE_BYTES_MAX);
                    challenge.scopes = scopes.take(SCOPES_MAX).map(str::to_owned).collect();
                }
                _ => {}
            }
        }
        Some(challenge)
    }
}

/// Returns the value at the beginning of a text, quoted or not, and what follows it.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.trim_start().strip_prefix('"') else {
        let end = text.find([',', ' ']).unwrap_or(text.len());
        let (value, rest) = text.split_at(end);
        return (value.to_owned(), rest);
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    (value, "")
}

/// Protected-resource metadata, as far as logins need it.
#[derive(Clone, Debug, Deserialize)]
pub struct ProtectedResource {
    /// URL of the resource.
    pub resource: String,
    /// Issuers of the authorization servers.
    #[serde(default)]
    pub authorization_servers: Vec<String>,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

impl ProtectedResource {
    /// Reads the metadata of the server at `url`. The error is a sentence for administrators.
    ///
    /// # Errors
    /// The text is no such metadata, is about another place, or names no authorization server.
    pub fn read(text: &str, url: &str) -> Result<ProtectedResource, &'static str> {
        let read: ProtectedResource =
            serde_json::from_str(text).map_err(|_| "its protected-resource metadata cannot be read")?;
        if !read.is_of(url) {
            return Err("its protected-resource metadata is about another server");
        }
        let is_plain = url::Url::parse(&read.resource).is_ok_and(|url| {
            url.query().is_none()
                && url.fragment().is_none()
                && url.username().is_empty()
                && url.password().is_none()
        });
        if !is_plain || read.resource.len() > URL_BYTES_MAX {
            return Err("its protected-resource metadata has a resource that is no plain URL");
        }
        match read.authorization_servers.first() {
            Some(issuer) if issuer.len() <= URL_BYTES_MAX => {
                let is_usable = |scope: &String| super::is_scope(scope) && scope.len() <= SCOPE_BYTES_MAX;
                let scopes_supported =
                    read.scopes_supported.into_iter().filter(is_usable).take(SCOPES_MAX).collect();
                Ok(ProtectedResource { scopes_supported, ..read })
            }
            _ => Err("its protected-resource metadata names no authorization server"),
        }
    }

    /// Returns the scopes that the server knows, as far as they can be asked for.
    pub fn scopes(&self) -> &[String] {
        &self.scopes_supported
    }

    /// Returns whether the resource is the server at this URL, or a path above it on the same origin.
    fn is_of(&self, url: &str) -> bool {
        let same_origin = Origin::of(&self.resource).is_some_and(|own| Some(own) == Origin::of(url));
        let (own, place) = (ServerPlace::of(&self.resource), ServerPlace::of(url));
        let (Some(own), Some(place)) = (own, place) else { return false };
        let (own, place) = (own.to_string(), place.to_string());
        let below = place.strip_prefix(own.trim_end_matches('/'));
        same_origin && below.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Metadata of an authorization server, as far as logins need it.
#[derive(Clone, Debug, Deserialize)]
pub struct AuthorizationServer {
    issuer: String,
    token_endpoint: Option<String>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    authorization_endpoint: Option<String>,
    registration_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    code_challenge_methods_supported: Option<Vec<String>>,
    #[serde(default)]
    authorization_response_iss_parameter_supported: bool,
    #[serde(default)]
    client_id_metadata_document_supported: bool,
    #[serde(default)]
    scopes_supported: Vec<String>,
}

/// Parts of an authorization server that logins of people need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodeEndpoints {
    /// URL that browsers are sent to.
    pub authorization: String,
    /// URL where tokens are revoked (RFC 7009); `None` if there is none.
    pub revocation: Option<String>,
    /// URL where clients register themselves (RFC 7591); `None` if they cannot.
    pub registration: Option<String>,
    /// True if a client's id may be the URL of its metadata.
    pub takes_metadata_document: bool,
    /// True if the server names itself in its answers (RFC 9207).
    pub names_itself: bool,
    /// True if the server says that it takes public clients, or says nothing about authentication.
    pub takes_public: bool,
}

impl AuthorizationServer {
    /// Reads the metadata of an issuer. The error is a sentence for administrators.
    ///
    /// # Errors
    /// The text is no such metadata, is of another issuer, or names no token endpoint.
    pub fn read(text: &str, issuer: &str) -> Result<AuthorizationServer, &'static str> {
        let read: AuthorizationServer =
            serde_json::from_str(text).map_err(|_| "its metadata cannot be read")?;
        if read.issuer != issuer {
            return Err("its metadata names another issuer");
        }
        if !read.token_endpoint.as_ref().is_some_and(|url| url.len() <= URL_BYTES_MAX && !url.contains('#')) {
            return Err("its metadata has no usable token_endpoint");
        }
        Ok(read)
    }

    /// Returns the URL of the token endpoint.
    pub fn token_endpoint(&self) -> &str {
        self.token_endpoint.as_deref().unwrap_or_default()
    }

    /// Returns the scopes that the server knows.
    pub fn scopes(&self) -> &[String] {
        &self.scopes_supported
    }

    /// Returns what logins of people need. The error is a sentence for administrators.
    ///
    /// # Errors
    /// The metadata names no authorization endpoint, or no PKCE with `S256`, which MCP requires.
    pub fn code_endpoints(&self) -> Result<CodeEndpoints, &'static str> {
        let url =
            |url: &Option<String>| url.clone().filter(|url| url.len() <= URL_BYTES_MAX && !url.contains('#'));
        let has = |list: &Option<Vec<String>>, word: &str| {
            list.as_ref().is_some_and(|list| list.iter().any(|own| own == word))
        };
        if !has(&self.code_challenge_methods_supported, "S256") {
            return Err(
                "its metadata does not say that it takes PKCE with S256 (code_challenge_methods_supported)",
            );
        }
        let ways = &self.token_endpoint_auth_methods_supported;
        Ok(CodeEndpoints {
            authorization: url(&self.authorization_endpoint)
                .ok_or("its metadata has no usable authorization_endpoint")?,
            revocation: url(&self.revocation_endpoint),
            registration: url(&self.registration_endpoint),
            takes_metadata_document: self.client_id_metadata_document_supported,
            names_itself: self.authorization_response_iss_parameter_supported,
            takes_public: ways.is_none() || has(ways, ClientAuthWay::Public.as_str()),
        })
    }

    /// Returns the way of authentication to use with a secret; `None` if the server takes one in no known way. Without a word
    /// about it, the header is meant (RFC 8414, section 2).
    pub fn client_auth(&self) -> Option<ClientAuthWay> {
        let Some(ways) = &self.token_endpoint_auth_methods_supported else {
            return Some(ClientAuthWay::Basic);
        };
        let secret = [ClientAuthWay::Basic, ClientAuthWay::Post];
        secret.into_iter().find(|way| ways.iter().any(|own| own == way.as_str()))
    }
}

/// Returns the URLs where the metadata of an issuer may be, in the order of the MCP specification; nothing for a text that
/// is no URL.
pub fn metadata_urls(issuer: &str) -> Vec<String> {
    let Some((base, path)) = split(issuer) else { return Vec::new() };
    let (oauth, openid) = ("oauth-authorization-server", "openid-configuration");
    match path.trim_matches('/') {
        "" => [oauth, openid].map(|name| format!("{base}/.well-known/{name}")).to_vec(),
        path => vec![
            format!("{base}/.well-known/{oauth}/{path}"),
            format!("{base}/.well-known/{openid}/{path}"),
            format!("{base}/{path}/.well-known/{openid}"),
        ],
    }
}

/// Returns the URLs where the protected-resource metadata of a server may be: for its path, and for its root.
pub fn resource_urls(url: &str) -> Vec<String> {
    const NAME: &str = ".well-known/oauth-protected-resource";
    let Some((base, path)) = split(without_query(url)) else { return Vec::new() };
    let root = format!("{base}/{NAME}");
    match path.trim_matches('/') {
        "" => vec![root],
        path => vec![format!("{base}/{NAME}/{path}"), root],
    }
}

/// Splits a URL into scheme with authority, and path.
fn split(url: &str) -> Option<(&str, &str)> {
    let after = url.find("://")? + "://".len();
    let end = url.get(after..)?.find('/').map_or(url.len(), |at| after + at);
    Some(url.split_at(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_read() {
        let header = "Basic realm=\"x\", Bearer error=\"invalid_token\", resource_metadata=\"https://a/m?x=1\", scope=\"a b\\\"c d\"";
        let challenge = TokenChallenge::read(header).unwrap();
        assert_eq!(challenge.resource_metadata.as_deref(), Some("https://a/m?x=1"));
        assert_eq!(challenge.scopes, ["a", "d"]);
        assert_eq!(TokenChallenge::read("bearer"), Some(TokenChallenge::default()));
        assert_eq!(TokenChallenge::read("Basic realm=x"), None);
        assert_eq!(TokenChallenge::read("Bearer scope=a, x=\"").unwrap().scopes, ["a"]);
        let more = TokenChallenge::read("Bearer error=\"insufficient_scope\", scope=\"a b\"").unwrap();
        assert!(more.wants_more && !challenge.wants_more);
    }

    #[test]
    fn metadata_is_at_three_places() {
        assert_eq!(
            metadata_urls("https://a:8443/t/x"),
            [
                "https://a:8443/.well-known/oauth-authorization-server/t/x",
                "https://a:8443/.well-known/openid-configuration/t/x",
                "https://a:8443/t/x/.well-known/openid-configuration",
            ]
        );
        assert_eq!(metadata_urls("https://a/").len(), 2);
        assert_eq!(
            resource_urls("https://a/mcp?k=1"),
            [
                "https://a/.well-known/oauth-protected-resource/mcp",
                "https://a/.well-known/oauth-protected-resource"
            ]
        );
    }

    #[test]
    fn metadata_of_another_place_is_refused() {
        let text =
            |resource: &str| format!(r#"{{"resource":"{resource}","authorization_servers":["https://as"]}}"#);
        for (resource, is_good) in [
            ("https://a/mcp", true),
            ("https://a", true),
            ("https://a/", true),
            ("https://a/m", false),
            ("https://b/mcp", false),
            ("http://a/mcp", false),
            ("https://a/mcp/more", false),
            ("https://a/mcp?x=1", false),
            ("https://u:p@a/mcp", false),
            ("https://a/mcp#x", false),
        ] {
            let read = ProtectedResource::read(&text(resource), "https://a/mcp?x=1");
            assert_eq!(read.is_ok(), is_good, "{resource}");
        }
        let other = r#"{"issuer":"https://b","token_endpoint":"https://a/t"}"#;
        assert!(AuthorizationServer::read(other, "https://a").is_err());
        let bare = AuthorizationServer::read(other, "https://b").unwrap();
        assert_eq!(bare.client_auth(), Some(ClientAuthWay::Basic));
    }
}
