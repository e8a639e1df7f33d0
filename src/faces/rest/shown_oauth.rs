//! Logins of the gateway at servers, as they are shown with a server.

use std::borrow::Cow;

use serde::Serialize;

use crate::domain::server_url::masked;
use crate::gateway::ServerView;

/// Login at a server, without its secret.
#[derive(Serialize)]
pub(super) struct ShownOauth<'a> {
    kind: &'a str,
    issuer: Option<&'a str>,
    token_endpoint: Cow<'a, str>,
    /// Value of `resource` in token requests; null if none is sent.
    resource: Option<Cow<'a, str>>,
    /// Value of `audience` in token requests; null if none is sent.
    audience: Option<&'a str>,
    exchange_grant: Option<&'a str>,
    scopes: &'a [String],
    client_id: &'a str,
    client_auth: &'a str,
    registration: &'a str,
    authorization_endpoint: Option<Cow<'a, str>>,
    state: &'a str,
    last_error: Option<&'a str>,
}

/// Shows the login at a server; `None` without one.
pub(super) fn shown(server: &ServerView) -> Option<ShownOauth<'_>> {
    let oauth = server.oauth.as_ref()?;
    Some(ShownOauth {
        kind: &oauth.kind,
        issuer: oauth.issuer.as_deref(),
        token_endpoint: masked(&oauth.token_endpoint),
        resource: oauth.resource.as_deref().map(masked),
        audience: oauth.audience.as_deref(),
        exchange_grant: oauth.exchange_grant.as_deref(),
        scopes: &oauth.scopes,
        client_id: &oauth.client_id,
        client_auth: &oauth.client_auth,
        registration: &oauth.registration,
        authorization_endpoint: oauth.authorization_endpoint.as_deref().map(masked),
        state: &oauth.state,
        last_error: oauth.last_error.as_deref(),
    })
}
