//! `/servers/{name}/oauth` and `/servers/{name}/connections`: logins of the gateway at a server.

use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::exchange::Exchange;
use super::fields::Nulls;
use super::params::Params;
use super::servers::{self, name};
use super::show::{self, RestAnswer, RouteAnswer};
use crate::domain::server_login::ClientAuthWay;
use crate::gateway::{GatewayError, OauthRequest};
use crate::store::ConnectionRow;

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
    /// Always null: a server has few.
    next_cursor: Option<&'a str>,
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
    show::ok(&ShownConnections { items: rows.iter().map(shown_connection).collect(), next_cursor: None })
}

pub(super) async fn remove_connection(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let id = exchange.segment("id").parse().map_err(|_| GatewayError::NotFound("connection"))?;
    exchange.gateway().servers.remove_connection(exchange.caller(), name(&exchange)?, id).await?;
    Ok(RouteAnswer::Nothing)
}
