//! `/consent`: permission requests, decisions about them, and what was remembered.

pub(super) mod stream;

use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use super::cursor;
use super::exchange::Exchange;
use super::fields::Nulls;
use super::params::{ParamNames, Params};
use super::show;
use super::show::{RestAnswer, RouteAnswer};
use crate::domain::activity::Source;
use crate::domain::consent::{ConsentDecision, ConsentState, DecidedVia};
use crate::faces::query::consent::filter;
use crate::gateway::{DecideRequest, GatewayError};
use crate::store::{ConsentFilter, ConsentGrant};

/// Parameters of a list.
pub(super) const PARAMS: ParamNames = &["state", "tool", "server", "key", "owner", "risk", "cursor", "limit"];
/// Memory of a request on a page, in bytes: as loaded, and as JSON.
const REQUEST_MEMORY_BYTES: usize = 20 * 1024;
/// Longest life of what is remembered, in seconds, as a decision may name it; the gateway's own bounds are shorter.
const EXPIRES_IN_S_MAX: u32 = 86_400;

#[derive(Serialize)]
struct ShownGrant<'a> {
    id: Uuid,
    effect: &'a str,
    tool: &'a str,
    server: &'a str,
    operation_type: &'a str,
    risk: Option<&'a str>,
    key_id: Option<Uuid>,
    owner: &'a str,
    consent_id: Uuid,
    granted_by: &'a str,
    granted_via: &'a str,
    created_at: String,
    expires_at: String,
}

/// Returns the id in the path. A text that cannot be an id is not found.
fn id(exchange: &Exchange, what: &'static str) -> Result<Uuid, GatewayError> {
    Uuid::try_parse(exchange.segment("id")).map_err(|_| GatewayError::NotFound(what))
}

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let page = params.page()?;
    let filter = ConsentFilter {
        state: params.one_of("state", &ConsentState::ALL)?,
        behind: page.after(None, |key| Uuid::try_parse(key).ok().map(Some))?,
        ..filter(&params)?
    };
    exchange.expect_answer(page.limit * REQUEST_MEMORY_BYTES).await?;
    let views = exchange.gateway().consent.list(exchange.caller(), filter, page.fetch()).await?;
    let language = exchange.attempt.language();
    cursor::list(&views, &page, |view| view.row.id.to_string(), |view| Ok(view.shown(language)))
}

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let id = id(&exchange, "permission request")?;
    let view = exchange.gateway().consent.get(exchange.caller(), id).await?;
    show::ok(&view.shown(exchange.attempt.language()))
}

pub(super) async fn decide(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&["decision", "comment", "expires_in_s"], Nulls::Absent).await?;
    let decision = fields.needed_text("decision")?;
    let request = DecideRequest {
        decision: super::params::one_of("decision", &decision, &ConsentDecision::ALL)?,
        comment: fields.text("comment")?.filter(|comment| !comment.is_empty()),
        expires_in_s: fields.count("expires_in_s", EXPIRES_IN_S_MAX)?,
        via: match exchange.attempt.source {
            Source::Cli => DecidedVia::Cli,
            _ => DecidedVia::Rest,
        },
    };
    let id = id(&exchange, "permission request")?;
    let view = exchange.gateway().consent.decide(&exchange.attempt, id, request).await?;
    show::ok(&view.shown(exchange.attempt.language()))
}

pub(super) async fn grants(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let page = params.page()?;
    let before = page.after(Uuid::max(), |key| Uuid::try_parse(key).ok())?;
    let rows = exchange.gateway().consent.list_grants(exchange.caller(), before, page.fetch()).await?;
    cursor::list(
        &rows,
        &page,
        |row| row.id.to_string(),
        |row: &ConsentGrant| {
            Ok(ShownGrant {
                id: row.id,
                effect: row.effect.as_str(),
                tool: &row.tool,
                server: &row.server,
                operation_type: row.operation_type.as_str(),
                risk: row.risk.as_ref().map(|risk| risk.as_str()),
                key_id: (!row.principal.is_nil()).then_some(row.principal),
                owner: &row.owner,
                consent_id: row.request_id,
                granted_by: &row.granted_owner,
                granted_via: &row.granted_via,
                created_at: show::time(row.created_at),
                expires_at: show::time(row.expires_at),
            })
        },
    )
}

pub(super) async fn revoke(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    exchange.gateway().consent.revoke_grant(&exchange.attempt, id(&exchange, "grant")?).await?;
    Ok(RouteAnswer::Nothing)
}
