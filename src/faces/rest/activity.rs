//! `/activity`: the records a key may see.

pub(super) mod export;
pub(super) mod provenance;
pub(super) mod stream;
pub(super) mod summary;

use std::sync::Arc;

use serde::Serialize;
use ulid::Ulid;

use super::cursor;
use super::exchange::Exchange;
use super::params::Params;
use super::show;
use super::show::RestAnswer;
use crate::faces::query::activity::{RECORD_MEMORY_BYTES, before, filter, filters};
use crate::faces::query::record::{ShownRecord, shown};
use crate::gateway::GatewayError;
use crate::store::ActivityFilter;

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
    items: Vec<ShownRecord<'a>>,
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
