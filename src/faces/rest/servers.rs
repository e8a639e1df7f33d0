//! `/servers` and the verbs on a server.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Map, Value};
use uuid::Uuid;

use super::cursor;
use super::exchange::Exchange;
use super::fields::{Fields, Nulls};
use super::pages::{self, ShownPages};
use super::params::Params;
use super::show;
use super::show::{RestAnswer, RouteAnswer};
use super::shown_oauth::{self, ShownOauth};
use crate::domain::id::is_name;
use crate::domain::relay::Relay;
use crate::domain::server_url::{masked, query_digest};
use crate::domain::tenant::Action;
use crate::faces::query::server::{connection, last_error};
use crate::gateway::{GatewayError, Headers, Reconnect, ServerChange, ServerRequest, ServerView};
use crate::store::Stored;

#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    id: Uuid,
    kind: &'a str,
    url: Option<Cow<'a, str>>,
    /// Digest of the URL's query, to compare with a query that one knows; `None` except for admins.
    #[serde(skip_serializing_if = "Option::is_none")]
    query_digest: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<&'a str>,
    enabled: bool,
    quarantined: bool,
    auto_approve: bool,
    connection: &'a str,
    era: Option<&'a str>,
    last_error: Option<String>,
    last_ok_at: Option<String>,
    limits: &'a Map<String, Value>,
    relay: Relay,
    /// Names of the headers, without values.
    headers: &'a [String],
    /// Login of the gateway; nothing without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    oauth: Option<ShownOauth<'a>>,
    /// Settings of web pages; nothing for other kinds.
    #[serde(flatten)]
    pages: Option<ShownPages<'a>>,
    version: i64,
    created_at: String,
    added_by: Option<Uuid>,
}

/// Servers fetched at once where all are read; a tenant's quota bounds their number.
const WHOLE_PAGE: i64 = 500;

#[derive(Serialize)]
struct Quarantined<'a> {
    items: Vec<Shown<'a>>,
}

fn shown(server: &ServerView) -> Shown<'_> {
    Shown {
        name: &server.name,
        id: server.server_id,
        kind: server.kind.as_str(),
        url: server.url.as_deref().map(masked),
        query_digest: None,
        command: server.command.as_deref(),
        enabled: server.enabled,
        quarantined: server.quarantined,
        auto_approve: server.auto_approve,
        connection: connection(server),
        era: server.era.as_ref().map(Stored::as_str),
        last_error: last_error(server),
        last_ok_at: server.last_ok_at.map(show::time),
        limits: &server.limits.0,
        relay: server.relay(),
        // those of web pages are names of fields
        headers: if server.web_page.is_some() { &[] } else { &server.header_names },
        oauth: shown_oauth::shown(server),
        pages: pages::shown(server),
        version: server.version,
        created_at: show::time(server.created_at),
        added_by: server.added_by,
    }
}

/// Shows a server to a caller. Admins also see the digest of the URL's query, unless a model acts for them.
fn shown_to<'a>(exchange: &Exchange, server: &'a ServerView) -> Shown<'a> {
    let may_tell = exchange.caller().role.may(Action::ManageKeys) && !exchange.is_over_mcp();
    let url = server.url.as_deref().filter(|_| may_tell);
    Shown { query_digest: url.and_then(|url| query_digest(server.id(), url)), ..shown(server) }
}

/// Returns the server name in the path.
///
/// # Errors
/// `NotFound` for a text that cannot be a name.
pub(super) fn name(exchange: &Exchange) -> Result<&str, GatewayError> {
    let name = exchange.segment("name");
    if is_name(name) { Ok(name) } else { Err(GatewayError::NotFound("server")) }
}

/// Reads the headers that a server is called with; `null` stands for no headers.
fn headers(fields: &mut Fields) -> Result<Option<Headers>, GatewayError> {
    fields.nullable_object("headers")?.map(|given| Headers::read(given.unwrap_or_default())).transpose()
}

/// Refuses automatic approval over MCP, where nothing may be approved.
fn forbid_approval(exchange: &Exchange, auto_approve: Option<bool>) -> Result<(), GatewayError> {
    if auto_approve == Some(true) && exchange.is_over_mcp() {
        let message =
            "over MCP nothing is approved; a person sets auto_approve by the API or the command line";
        return Err(GatewayError::Forbidden(message.to_owned()));
    }
    Ok(())
}

pub(super) fn answer(exchange: &Exchange, server: &ServerView) -> RestAnswer {
    show::ok(&shown_to(exchange, server))
}

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let page = params.page()?;
    let after = page.after(String::new(), |key| is_name(key).then(|| key.to_owned()))?;
    let servers = exchange.gateway().servers.list_servers(exchange.caller(), &after, page.fetch()).await?;
    cursor::list(&servers, &page, |server| server.name.clone(), |server| Ok(shown_to(&exchange, server)))
}

/// Lists the servers in quarantine. Only management tools ask for this.
pub(super) async fn list_quarantined(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let (mut after, mut found) = (String::new(), Vec::new());
    loop {
        let servers = exchange.gateway().servers.list_servers(exchange.caller(), &after, WHOLE_PAGE).await?;
        let Some(last) = servers.last() else { break };
        after.clone_from(&last.name);
        found.extend(servers.into_iter().filter(|server| server.quarantined));
    }
    show::ok(&Quarantined { items: found.iter().map(shown).collect() })
}

pub(super) async fn create(exchange: Arc<Exchange>) -> RestAnswer {
    const PLAIN: [&str; 9] =
        ["name", "kind", "url", "enabled", "auto_approve", "limits", "relay", "headers", "command"];
    let allowed = [&PLAIN[..], &pages::FIELDS].concat();
    let mut fields = exchange.fields(&allowed, Nulls::Absent).await?;
    let request = ServerRequest {
        name: fields.needed_text("name")?,
        kind: fields.needed_text("kind")?,
        url: fields.text("url")?,
        command: fields.text("command")?,
        enabled: fields.flag("enabled")?,
        auto_approve: fields.flag("auto_approve")?,
        limits: fields.object("limits")?,
        relay: fields.object("relay")?,
        headers: headers(&mut fields)?,
        pages: pages::read(&mut fields)?,
        field_secrets: pages::read_secrets(&mut fields)?,
        // whatever the role: a key in an IDE is an agent
        quarantined: exchange.is_over_mcp().then_some(true),
    };
    forbid_approval(&exchange, request.auto_approve)?;
    let server = exchange.gateway().servers.create_server(exchange.caller(), request).await?;
    show::created(&shown_to(&exchange, &server))
}

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let server = exchange.gateway().servers.get_server(exchange.caller(), name(&exchange)?).await?;
    answer(&exchange, &server)
}

pub(super) async fn update(exchange: Arc<Exchange>) -> RestAnswer {
    const PLAIN: [&str; 9] = [
        "url",
        "enabled",
        "auto_approve",
        "limits",
        "relay",
        "version",
        "headers",
        "command",
        "keep_credentials",
    ];
    let allowed = [&PLAIN[..], &pages::FIELDS].concat();
    let mut fields = exchange.fields(&allowed, Nulls::Kept).await?;
    let change = ServerChange {
        url: fields.text("url")?,
        command: fields.text("command")?,
        enabled: fields.flag("enabled")?,
        auto_approve: fields.flag("auto_approve")?,
        limits: fields.object("limits")?,
        relay: fields.object("relay")?,
        headers: headers(&mut fields)?,
        pages: pages::read(&mut fields)?,
        field_secrets: pages::read_secrets(&mut fields)?,
        keep_credentials: fields.flag("keep_credentials")?.unwrap_or_default(),
        version: fields.version()?,
        over_mcp: exchange.is_over_mcp(),
    };
    forbid_approval(&exchange, change.auto_approve)?;
    if exchange.is_over_mcp() && change.version.is_none() {
        return Err(
            GatewayError::invalid("version", "version is needed: that of the server as it was read").into()
        );
    }
    let server =
        exchange.gateway().servers.update_server(exchange.caller(), name(&exchange)?, change).await?;
    answer(&exchange, &server)
}

pub(super) async fn remove(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    exchange.gateway().servers.remove_server(exchange.caller(), name(&exchange)?).await?;
    Ok(RouteAnswer::Nothing)
}

pub(super) async fn enable(exchange: Arc<Exchange>) -> RestAnswer {
    switch(&exchange, true).await
}

pub(super) async fn disable(exchange: Arc<Exchange>) -> RestAnswer {
    switch(&exchange, false).await
}

async fn switch(exchange: &Exchange, enabled: bool) -> RestAnswer {
    exchange.no_body().await?;
    let over_mcp = exchange.is_over_mcp();
    let change = ServerChange { enabled: Some(enabled), over_mcp, ..ServerChange::default() };
    let changed = exchange.gateway().servers.update_server(exchange.caller(), name(exchange)?, change);
    answer(exchange, &Box::pin(changed).await?)
}

pub(super) async fn quarantine(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let server = exchange.gateway().servers.quarantine(exchange.caller(), name(&exchange)?).await?;
    answer(&exchange, &server)
}

pub(super) async fn unquarantine(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let server = exchange.gateway().servers.release(exchange.caller(), name(&exchange)?).await?;
    answer(&exchange, &server)
}

pub(super) async fn refresh(exchange: Arc<Exchange>) -> RestAnswer {
    list_again(&exchange, Reconnect::No).await
}

pub(super) async fn restart(exchange: Arc<Exchange>) -> RestAnswer {
    list_again(&exchange, Reconnect::Yes).await
}

async fn list_again(exchange: &Exchange, reconnect: Reconnect) -> RestAnswer {
    exchange.no_body().await?;
    let server =
        exchange.gateway().servers.refresh_server(exchange.caller(), name(exchange)?, reconnect).await?;
    answer(exchange, &server)
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;
    use serde_json::json;

    use super::*;
    use crate::domain::server::ConnectionState;

    fn server(connection: ConnectionState, last_ok_s: Option<i64>) -> ServerView {
        ServerView {
            name: "gh".into(),
            connection: connection.into(),
            last_ok_at: last_ok_s.and_then(|s| DateTime::from_timestamp(s, 0)),
            header_names: vec!["Authorization".into()],
            ..ServerView::example()
        }
    }

    #[test]
    fn the_shape_of_a_server() {
        let text = serde_json::to_value(shown(&server(ConnectionState::Unknown, None))).unwrap();
        let expected = json!({
            "name": "gh", "id": "00000000-0000-0000-0000-000000000000", "kind": "http", "url": "http://u/",
            "enabled": true, "quarantined": false, "auto_approve": false, "connection": "unknown", "era": null,
            "last_error": null, "last_ok_at": null, "limits": {},
            "relay": { "elicitation": true, "sampling": false, "roots": false, "logging": false }, "headers": ["Authorization"], "version": 1,
            "created_at": "1970-01-01T00:00:00.000Z", "added_by": null,
        });
        assert_eq!(text, expected);
    }
}
