//! `/servers/{name}/oauth` and `/servers/{name}/connections`: logins of the gateway at a server.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::exchange::Exchange;
use super::fields::Nulls;
use super::params::Params;
use super::servers::{self, name};
use super::show::{self, RestAnswer, RouteAnswer};
use crate::domain::server_login::{ClientAuthWay, LoginState};
use crate::domain::server_url::masked;
use crate::gateway::{GatewayError, OauthRequest, ServerView};
use crate::store::ConnectionRow;

/// Login at a server, without its secret.
#[derive(Serialize)]
pub(super) struct ShownOauth<'a> {
    kind: &'a str,
    issuer: Option<&'a str>,
    token_endpoint: Cow<'a, str>,
    /// Value of `resource` in token requests; null if none is sent.
    resource: Option<&'a str>,
    scopes: &'a [String],
    client_id: &'a str,
    client_auth: &'a str,
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
        resource: oauth.resource.as_deref(),
        scopes: &oauth.scopes,
        client_id: &oauth.client_id,
        client_auth: &oauth.client_auth,
        state: &oauth.state,
        last_error: oauth.last_error.as_deref(),
    })
}

/// Returns whether an administrator has to act before the gateway can log in at a server.
pub(super) fn wants_login(server: &ServerView) -> bool {
    server.oauth.as_ref().is_some_and(|oauth| oauth.state == LoginState::LoginRequired.as_str())
}

#[derive(Serialize)]
struct ShownConnection<'a> {
    id: Uuid,
    /// Principal whose login it is; null for the tenant's.
    principal_id: Option<Uuid>,
    state: &'a str,
    /// Number of tokens so far.
    generation: i64,
    expires_at: Option<String>,
    retry_at: Option<String>,
    last_error: Option<&'a str>,
}

#[derive(Serialize)]
struct ShownConnections<'a> {
    items: Vec<ShownConnection<'a>>,
}

fn shown_connection(row: &ConnectionRow) -> ShownConnection<'_> {
    ShownConnection {
        id: row.connection_id,
        principal_id: row.principal_id,
        state: &row.state,
        generation: row.generation,
        expires_at: row.expires_at.map(show::time),
        retry_at: row.retry_at.map(show::time),
        last_error: row.last_error.as_deref(),
    }
}

pub(super) async fn put(exchange: Arc<Exchange>) -> RestAnswer {
    const FIELDS: [&str; 9] = [
        "kind",
        "client_id",
        "client_secret",
        "issuer",
        "token_endpoint",
        "resource",
        "scopes",
        "client_auth",
        "version",
    ];
    let mut fields = exchange.fields(&FIELDS, Nulls::Absent).await?;
    let request = OauthRequest {
        kind: fields.needed_text("kind")?,
        client_id: fields.needed_text("client_id")?,
        client_secret: Zeroizing::new(fields.needed_text("client_secret")?),
        issuer: fields.text("issuer")?,
        token_endpoint: fields.text("token_endpoint")?,
        resource: fields.text("resource")?,
        scopes: fields.texts("scopes")?,
        client_auth: fields.word("client_auth", &ClientAuthWay::WORDS, ClientAuthWay::parse)?,
        version: fields.version()?,
    };
    let server = exchange.gateway().servers.set_oauth(exchange.caller(), name(&exchange)?, request).await?;
    servers::answer(&exchange, &server)
}

pub(super) async fn remove(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    exchange.gateway().servers.remove_oauth(exchange.caller(), name(&exchange)?).await?;
    Ok(RouteAnswer::Nothing)
}

pub(super) async fn connections(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let rows = exchange.gateway().servers.list_connections(exchange.caller(), name(&exchange)?).await?;
    show::ok(&ShownConnections { items: rows.iter().map(shown_connection).collect() })
}

pub(super) async fn remove_connection(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let id = exchange.segment("id").parse().map_err(|_| GatewayError::NotFound("connection"))?;
    exchange.gateway().servers.remove_connection(exchange.caller(), name(&exchange)?, id).await?;
    Ok(RouteAnswer::Nothing)
}
