//! `GET /activity/export`: every record that matches, as one stream of lines.

use std::sync::Arc;

use crate::faces::query::export::{AskedExport, export};
use crate::faces::rest::exchange::Exchange;
use crate::faces::rest::params::Params;
use crate::faces::rest::show::{RestAnswer, RouteAnswer};
use crate::faces::sse::StreamKind;

pub(in crate::faces::rest) use crate::faces::query::export::PARAMS;

pub(in crate::faces::rest) async fn get(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let asked = AskedExport::read(&params, &exchange.attempt)?;
    let place = exchange.open_stream(StreamKind::Export)?;
    Ok(RouteAnswer::Ready(export(place, asked).await?))
}
