//! `/activity`: the records a key may see.

pub(super) mod export;
pub(super) mod provenance;
pub(super) mod stream;
pub(super) mod summary;

use std::sync::Arc;

use serde::Serialize;
use ulid::Ulid;
use uuid::Uuid;

use super::cursor;
use super::exchange::Exchange;
use super::params::Params;
use super::show;
use super::show::RestAnswer;
use crate::faces::query::activity::{RECORD_MEMORY_BYTES, before, filter, filters};
use crate::gateway::GatewayError;
use crate::store::{ActivityFilter, ActivityRow};

pub(super) use crate::faces::query::activity::PARAMS;

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let page = params.page()?;
    let mut filter = filter(&params, exchange.attempt.started_at)?;
    filter.before = before(&page)?;
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
