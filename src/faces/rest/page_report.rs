//! `/servers/{name}/page-report`: what the last listing found on web pages.

use std::sync::Arc;

use http::StatusCode;

use super::exchange::Exchange;
use super::params::Params;
use super::servers::name;
use super::show::{RestAnswer, RouteAnswer};
use crate::faces::wire::error::json_response;

/// Memory of the largest report, in bytes: as loaded, and as an answer.
const REPORT_MEMORY_BYTES: usize = 2 * 1024 * 1024;

pub(super) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    exchange.expect_answer(REPORT_MEMORY_BYTES).await?;
    let report = exchange.gateway().servers.page_report(exchange.caller(), name(&exchange)?).await?;
    Ok(RouteAnswer::Ready(json_response(StatusCode::OK, report)))
}
