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
use crate::domain::server_login::{ClientAuthWay, ExchangeGrant};
use crate::gateway::{GatewayError, OauthRequest};
use crate::store::ConnectionRow;

#[derive(Serialize)]
struct ShownConnection<'a> {
    id: Uuid,
    /// Principal whose login it is: an API key, or a person's identity; null for the tenant's.
    principal_id: Option<Uuid>,
    key_name: Option<&'a str>,
    owner: Option<&'a str>,
    /// True if the server is listed with this login.
    for_listing: bool,
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
        key_name: row.key_name.as_deref(),
        owner: row.owner.as_deref(),
        for_listing: row.is_for_listing,
        state: &row.state,
        generation: row.generation,
        expires_at: row.expires_at.map(show::time),
        retry_at: row.retry_at.map(show::time),
        last_error: row.last_error.as_deref(),
    }
}

pub(super) async fn put(exchange: Arc<Exchange>) -> RestAnswer {
    const FIELDS: [&str; 12] = [
        "kind",
        "client_id",
        "client_secret",
        "issuer",
        "token_endpoint",
        "authorization_endpoint",
        "resource",
        "audience",
        "exchange_grant",
        "scopes",
        "client_auth",
        "version",
    ];
    let mut fields = exchange.fields(&FIELDS, Nulls::Absent).await?;
    let request = OauthRequest {
        kind: fields.needed_text("kind")?,
        client_id: fields.text("client_id")?,
        client_secret: fields.text("client_secret")?.map(Zeroizing::new),
        issuer: fields.text("issuer")?,
        token_endpoint: fields.text("token_endpoint")?,
        authorization_endpoint: fields.text("authorization_endpoint")?,
        resource: fields.text("resource")?,
        audience: fields.text("audience")?,
        exchange_grant: fields.word("exchange_grant", &ExchangeGrant::WORDS, ExchangeGrant::parse)?,
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
    let rows = exchange.gateway().connect.list(exchange.caller(), name(&exchange)?).await?;
    show::ok(&ShownConnections { items: rows.iter().map(shown_connection).collect(), next_cursor: None })
}

pub(super) async fn remove_connection(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let id = exchange.segment("id").parse().map_err(|_| GatewayError::NotFound("connection"))?;
    exchange.gateway().connect.disconnect(exchange.caller(), name(&exchange)?, id).await?;
    Ok(RouteAnswer::Nothing)
}

/// Login that was begun.
#[derive(Serialize)]
struct ShownBegun<'a> {
    url: &'a str,
    /// Host of the authorization server.
    authorization_host: &'a str,
    expires_at: String,
}

/// Login that is stored.
#[derive(Serialize)]
struct ShownReturned<'a> {
    server: &'a str,
    for_listing: bool,
}

pub(super) async fn begin(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&["redirect_uri", "for_listing"], Nulls::Absent).await?;
    let redirect = fields.needed_text("redirect_uri")?;
    let for_listing = fields.flag("for_listing")?.unwrap_or_default();
    let connect = &exchange.gateway().connect;
    let begun = connect.begin(exchange.caller(), name(&exchange)?, (&redirect, for_listing)).await?;
    show::created(&ShownBegun {
        url: &begun.url,
        authorization_host: &begun.host,
        expires_at: show::time(begun.expires_at),
    })
}

pub(super) async fn claim(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&["claim_token"], Nulls::Absent).await?;
    let code = Zeroizing::new(fields.needed_text("claim_token")?);
    let (gateway, caller) = (exchange.gateway(), exchange.caller());
    let returned = gateway.connect.claim(caller, name(&exchange)?, &code).await?;
    if returned.for_listing {
        gateway.servers.list_after_login(caller, &returned.server).await;
    }
    show::ok(&ShownReturned { server: &returned.server, for_listing: returned.for_listing })
}
