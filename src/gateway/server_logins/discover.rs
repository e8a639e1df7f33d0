//! Documents by which a server and its authorization server say how to log in. The errors are sentences for administrators.

use crate::domain::id::TenantId;
use crate::domain::server_login::{
    AuthorizationServer, ProtectedResource, TokenChallenge, metadata_urls, resource_urls,
};
use crate::upstream::Pool;

/// Largest metadata document, in bytes.
const METADATA_BYTES_MAX: usize = 256 * 1024;

/// Longest issuer that a server wants and that is repeated, in bytes.
const ISSUER_BYTES_MAX: usize = 120;

/// Reads the metadata of the server at `url`, which its challenge names, or which is at its well-known place, and the scopes of the
/// challenge.
pub(in crate::gateway) async fn protected_resource(
    upstreams: &Pool,
    tenant: TenantId,
    url: &str,
) -> Result<(ProtectedResource, Vec<String>), String> {
    let challenge = upstreams.challenge(tenant.0, url).await;
    let challenge = challenge.map_err(|error| error.whole())?.unwrap_or_default();
    resource_of(upstreams, tenant, url, challenge).await
}

async fn resource_of(
    upstreams: &Pool,
    tenant: TenantId,
    url: &str,
    challenge: TokenChallenge,
) -> Result<(ProtectedResource, Vec<String>), String> {
    let named = challenge.resource_metadata.map(|named| vec![named]);
    let mut why = "it has no protected-resource metadata".to_owned();
    for place in named.unwrap_or_else(|| resource_urls(url)) {
        match upstreams.fetch_document(Some(tenant.0), &place, METADATA_BYTES_MAX).await {
            Ok(text) => match ProtectedResource::read(&text, url) {
                Ok(resource) => return Ok((resource, challenge.scopes)),
                Err(fault) => fault.clone_into(&mut why),
            },
            Err(error) => why = format!("its protected-resource metadata: {error}"),
        }
    }
    Err(why)
}

/// Returns the issuer whose tokens a server wants that refuses requests without one (RFC 9728); `None` if it does not refuse them, or
/// does not say.
pub(in crate::gateway) async fn wanted_issuer(
    upstreams: &Pool,
    tenant: TenantId,
    url: &str,
) -> Option<String> {
    let challenge = upstreams.challenge(tenant.0, url).await.ok().flatten()?;
    let (resource, _) = resource_of(upstreams, tenant, url, challenge).await.ok()?;
    // somebody may paste it into a shell
    let is_plain = |issuer: &&String| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":/._~-".contains(&byte);
        issuer.len() <= ISSUER_BYTES_MAX && issuer.bytes().all(is_plain) && url::Url::parse(issuer).is_ok()
    };
    resource.authorization_servers.first().filter(is_plain).cloned()
}

/// Reads the metadata of an issuer.
pub(in crate::gateway) async fn authorization_server(
    upstreams: &Pool,
    tenant: TenantId,
    issuer: &str,
) -> Result<AuthorizationServer, String> {
    let mut why = "it is no URL".to_owned();
    for place in metadata_urls(issuer) {
        match upstreams.fetch_document(Some(tenant.0), &place, METADATA_BYTES_MAX).await {
            Ok(text) => match AuthorizationServer::read(&text, issuer) {
                Ok(read) => return Ok(read),
                Err(fault) => fault.clone_into(&mut why),
            },
            Err(error) => why = error.to_string(),
        }
    }
    Err(why)
}
