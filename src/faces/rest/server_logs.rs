//! `/servers/{name}/logs`: the newest lines of a server's log, and those that follow.

use std::sync::Arc;

use serde::Serialize;

use super::cursor;
use super::exchange::Exchange;
use super::params::{ParamNames, Params};
use super::servers::name;
use super::show;
use super::show::RestAnswer;
use crate::gateway::LOG_LIMIT_MAX;

/// Parameters of the route.
pub(super) const PARAMS: ParamNames = &["cursor", "limit"];
/// Default number of lines.
const LIMIT_DEFAULT: usize = 100;

/// Memory of the longest line, in bytes: as loaded, and as JSON.
const LINE_MEMORY_BYTES: usize = 5 * 1024;

#[derive(Serialize)]
struct Shown<'a> {
    at: String,
    source: &'a str,
    line: &'a str,
}

#[derive(Serialize)]
struct Page<'a> {
    items: Vec<Shown<'a>>,
    next_cursor: String,
}

pub(super) async fn get(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let limit = params.count("limit", LIMIT_DEFAULT, LOG_LIMIT_MAX)?;
    let after = params.text("cursor").map(cursor::decode).transpose()?;
    let after = match after {
        Some(key) => Some(key.parse::<i64>().ok().filter(|id| *id >= 0).ok_or_else(cursor::malformed)?),
        None => None,
    };
    exchange.expect_answer(limit * LINE_MEMORY_BYTES).await?;
    let page =
        exchange.gateway().servers.server_log(exchange.caller(), name(&exchange)?, after, limit).await?;
    let items = page.lines.iter().map(|line| Shown {
        at: show::time(line.at),
        source: &line.source,
        line: &line.line,
    });
    show::ok(&Page { items: items.collect(), next_cursor: cursor::encode(&page.end.to_string()) })
}
