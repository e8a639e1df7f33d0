//! `/activity`: the records a key may see.

/// Parameters of every route that filters records, with further ones of the route.
macro_rules! filters {
    [$($more:literal),*] => {
        &[
            "type",
            "source",
            "server",
            "tool",
            "tier",
            "not_read",
            "status",
            "intent_type",
            "key",
            "identity_id",
            "owner",
            "client_address",
            "session_id",
            "request_id",
            "decision",
            "consent_id",
            $($more),*
        ]
    };
}

pub(super) mod export;
pub(super) mod provenance;
pub(super) mod stream;
pub(super) mod summary;

use std::net::IpAddr;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;
use ulid::Ulid;
use uuid::Uuid;

use super::cursor;
use super::exchange::Exchange;
use super::params::{ParamNames, Params};
use super::show;
use super::show::RestAnswer;
use crate::domain::activity::{RecordKind, Source, Status, time_of};
use crate::domain::annotations::Tier;
use crate::domain::id::{IdentityId, KeyId, split_canonical};
use crate::domain::operation::OperationType;
use crate::domain::policy::Ruling;
use crate::faces::wire;
use crate::gateway::GatewayError;
use crate::store::{ActivityFilter, ActivityRow};

/// Parameters of a list.
pub(super) const PARAMS: ParamNames = filters!["contains", "start_time", "end_time", "limit", "cursor"];
/// Memory of a record on a page, in bytes: as loaded, and as JSON.
const RECORD_MEMORY_BYTES: usize = 20 * 1024;
/// Longest text that is searched for, in characters.
const CONTAINS_CHARS_MAX: usize = 200;
/// Default length of the time range of a list.
const WINDOW: TimeDelta = TimeDelta::days(7);
/// Time by which a list reaches past now by default, since the clocks of replicas differ.
const SKEW: TimeDelta = TimeDelta::minutes(1);

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let page = params.page()?;
    let mut filter = filter(&params, exchange.attempt.started_at)?;
    filter.before =
        page.after(None, |key| Ulid::from_string(key).ok().map(|id| Some((time_of(id), id.into()))))?;
    exchange.expect_answer(page.limit * RECORD_MEMORY_BYTES).await?;
    if filter.contains.is_some() {
        return search(&exchange, filter, page.limit).await;
    }
    let rows = exchange.gateway().log.list_activity(exchange.caller(), filter, page.fetch()).await?;
    cursor::list(&rows, &page, |row| Ulid::from(row.id).to_string(), |row| Ok(shown(row)))
}

/// Page of a search for a text.
#[derive(Serialize)]
struct Found<'a> {
    items: Vec<Shown<'a>>,
    next_cursor: Option<String>,
    /// Time back to which all records were looked at.
    searched_to: String,
}

async fn search(exchange: &Exchange, filter: ActivityFilter, limit: usize) -> RestAnswer {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let hits = exchange.gateway().log.search_activity(exchange.caller(), filter, limit).await?;
    let next_cursor = hits.next.map(|(_, id)| cursor::encode(&Ulid::from(id).to_string()));
    let searched_to = show::time(hits.searched_to);
    show::ok(&Found { items: hits.rows.iter().map(shown).collect(), next_cursor, searched_to })
}

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let row = exchange.gateway().log.get_activity(exchange.caller(), id(&exchange)?).await?;
    show::ok(&shown(&row))
}

/// Returns the record that the path names. A text that cannot be an id is that of no record.
fn id(exchange: &Exchange) -> Result<Ulid, GatewayError> {
    Ulid::from_string(exchange.segment("id")).map_err(|_| GatewayError::NotFound("activity record"))
}

fn filter(params: &Params, now: DateTime<Utc>) -> Result<ActivityFilter, GatewayError> {
    let (start, end) = window(params, now)?;
    let text = |name: &str| params.text(name).map(str::to_owned);
    // a tool's canonical name says its server too
    let (server, tool) = match params.text("tool").and_then(split_canonical) {
        Some((server, tool)) if params.text("server").is_none_or(|given| given == server) => {
            (Some(server.to_owned()), Some(tool.to_owned()))
        }
        _ => (text("server"), text("tool")),
    };
    // a text that cannot be an id is a name
    let key = params.text("key").and_then(|key| Uuid::try_parse(key).ok());
    let key_name = text("key").filter(|_| key.is_none());
    Ok(ActivityFilter {
        kind: params.one_of("type", &RecordKind::ALL)?,
        source: params.one_of("source", &Source::ALL)?,
        server,
        tool,
        tier: params.one_of("tier", &Tier::ALL)?,
        not_read: params.flag("not_read")?,
        status: params.one_of("status", &Status::ALL)?,
        intent_type: params.one_of("intent_type", &OperationType::ALL)?,
        key: key.map(KeyId),
        identity: uuid(params, "identity_id", "an identity")?.map(IdentityId),
        key_name,
        owner: text("owner"),
        client_address: address(params)?,
        // as the log names it, or as the client sent it
        session_id: text("session_id").map(|id| wire::session::id_of(&id).unwrap_or(id)),
        request_id: text("request_id"),
        decision: params.one_of("decision", &Ruling::ALL)?,
        consent_id: uuid(params, "consent_id", "a permission request")?,
        contains: contains(params)?,
        start,
        end,
        before: None,
    })
}

fn uuid(params: &Params, name: &str, what: &str) -> Result<Option<Uuid>, GatewayError> {
    let id = params.text(name).map(Uuid::try_parse).transpose();
    id.map_err(|_| GatewayError::invalid(name, format!("{name} must be the id of {what} (a UUID)")))
}

fn contains(params: &Params) -> Result<Option<String>, GatewayError> {
    let name = "contains";
    let Some(text) = params.text(name) else { return Ok(None) };
    if text.chars().count() > CONTAINS_CHARS_MAX {
        let message = format!("{name} must have at most {CONTAINS_CHARS_MAX} characters");
        return Err(GatewayError::invalid(name, message));
    }
    Ok(Some(text.to_owned()))
}

fn address(params: &Params) -> Result<Option<IpAddr>, GatewayError> {
    let name = "client_address";
    let address = params.text(name).map(str::parse::<IpAddr>).transpose();
    let address =
        address.map_err(|_| GatewayError::invalid(name, format!("{name} must be an IP address")))?;
    Ok(address.map(|address| address.to_canonical()))
}

/// Returns the time range of the records: its start, inclusive, and its end, exclusive.
fn window(params: &Params, now: DateTime<Utc>) -> Result<(DateTime<Utc>, DateTime<Utc>), GatewayError> {
    let given = params.time("end_time")?;
    let end = given.unwrap_or(now + SKEW);
    let start = match params.time("start_time")? {
        Some(start) => start,
        None => given.unwrap_or(now) - WINDOW,
    };
    if start >= end {
        let message = "start_time must be earlier than end_time, which is now when absent";
        return Err(GatewayError::invalid("start_time", message));
    }
    Ok((start, end))
}

#[derive(Serialize)]
struct Intent<'a> {
    operation_type: &'a str,
    data_sensitivity: Option<&'a str>,
    reason: Option<&'a str>,
}

#[derive(Serialize)]
struct Client<'a> {
    name: Option<&'a str>,
    version: Option<&'a str>,
}

/// Activity record on the wire. Every member is always present.
#[derive(Serialize)]
struct Shown<'a> {
    id: String,
    started_at: String,
    #[serde(rename = "type")]
    kind: &'a str,
    source: &'a str,
    server: Option<&'a str>,
    tool: Option<&'a str>,
    tool_variant: Option<&'a str>,
    tier: Option<&'a str>,
    intent: Option<Intent<'a>>,
    intent_declared: bool,
    warning: Option<&'a str>,
    status: &'a str,
    error_code: Option<&'a str>,
    error_message: Option<&'a str>,
    decision: Option<&'a str>,
    rule: Option<&'a str>,
    consent_id: Option<Uuid>,
    key_id: Option<Uuid>,
    key_name: Option<&'a str>,
    identity_id: Option<Uuid>,
    owner: Option<&'a str>,
    client: Client<'a>,
    client_address: Option<&'a str>,
    session_id: Option<&'a str>,
    request_id: Option<&'a str>,
    trace_id: Option<&'a str>,
    parent_id: Option<String>,
    duration_ms: Option<f64>,
    upstream_ms: Option<f64>,
    wait_ms: Option<f64>,
    request_bytes: Option<i64>,
    response_bytes: Option<i64>,
    arguments: Option<&'a str>,
    response: Option<&'a str>,
    truncated: bool,
}

fn shown(row: &ActivityRow) -> Shown<'_> {
    Shown {
        id: Ulid::from(row.id).to_string(),
        started_at: show::time(row.started_at),
        kind: &row.kind,
        source: &row.source,
        server: row.server.as_deref(),
        tool: row.tool.as_deref(),
        tool_variant: row.tool_variant.as_deref(),
        tier: row.tier.as_deref(),
        intent: intent(row),
        intent_declared: row.intent_declared,
        warning: row.warning.as_deref(),
        status: &row.status,
        error_code: row.error_code.as_deref(),
        error_message: row.error_message.as_deref(),
        decision: row.decision.as_deref(),
        rule: row.rule.as_deref(),
        consent_id: row.consent_id,
        key_id: row.key_id,
        key_name: row.key_name.as_deref(),
        identity_id: row.identity_id,
        owner: row.owner.as_deref(),
        client: Client { name: row.client_name.as_deref(), version: row.client_version.as_deref() },
        client_address: row.client_address.as_deref(),
        session_id: row.session_id.as_deref(),
        request_id: row.request_id.as_deref(),
        trace_id: row.trace_id.as_deref(),
        parent_id: row.parent_id.map(|id| Ulid::from(id).to_string()),
        duration_ms: row.duration_ms,
        upstream_ms: row.upstream_ms,
        wait_ms: row.wait_ms,
        request_bytes: row.request_bytes,
        response_bytes: row.response_bytes,
        arguments: row.arguments.as_deref(),
        response: row.response.as_deref(),
        truncated: row.truncated,
    }
}

fn intent(row: &ActivityRow) -> Option<Intent<'_>> {
    let operation_type = row.intent_type.as_deref()?;
    Some(Intent {
        operation_type,
        data_sensitivity: row.intent_sensitivity.as_deref(),
        reason: row.intent_reason.as_deref(),
    })
}

#[cfg(test)]
mod tests;
