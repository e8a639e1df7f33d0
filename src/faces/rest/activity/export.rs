//! `GET /activity/export`: every record that matches, as one stream of lines.
//!
//! Page by page, so that neither side needs memory for all of them and no transaction stays open while a client
//! reads slowly. What goes wrong after the first page ends the connection early: an export that ends well is whole.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use http::{HeaderValue, header};
use serde_json::Value;

use super::{filter, shown};
use crate::faces::rest::error::RestError;
use crate::faces::rest::exchange::Exchange;
use crate::faces::rest::params::{Names, Params};
use crate::faces::rest::route::Answer;
use crate::faces::sse::{OpenStream, StreamKind};
use crate::store::{ActivityFilter, ActivityRow};

/// The parameters: those of a list without its pages.
pub(in crate::faces::rest) const PARAMS: Names = filters!["start_time", "end_time", "format"];
/// The values of `format`, the first by itself.
const FORMATS: [&str; 2] = ["jsonl", "csv"];
/// The columns of CSV, and where in a record each is.
const COLUMNS: [(&str, &str); 35] = [
    ("id", "/id"),
    ("started_at", "/started_at"),
    ("type", "/type"),
    ("source", "/source"),
    ("server", "/server"),
    ("tool", "/tool"),
    ("tool_variant", "/tool_variant"),
    ("tier", "/tier"),
    ("operation_type", "/intent/operation_type"),
    ("data_sensitivity", "/intent/data_sensitivity"),
    ("reason", "/intent/reason"),
    ("intent_declared", "/intent_declared"),
    ("warning", "/warning"),
    ("status", "/status"),
    ("error_code", "/error_code"),
    ("error_message", "/error_message"),
    ("decision", "/decision"),
    ("rule", "/rule"),
    ("consent_id", "/consent_id"),
    ("key_id", "/key_id"),
    ("owner", "/owner"),
    ("client_name", "/client/name"),
    ("client_version", "/client/version"),
    ("session_id", "/session_id"),
    ("request_id", "/request_id"),
    ("trace_id", "/trace_id"),
    ("parent_id", "/parent_id"),
    ("duration_ms", "/duration_ms"),
    ("upstream_ms", "/upstream_ms"),
    ("wait_ms", "/wait_ms"),
    ("request_bytes", "/request_bytes"),
    ("response_bytes", "/response_bytes"),
    ("arguments", "/arguments"),
    ("response", "/response"),
    ("truncated", "/truncated"),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Lines,
    Csv,
}

pub(in crate::faces::rest) async fn get(exchange: Arc<Exchange>, params: Params) -> Answer {
    let format = match params.one_of("format", &FORMATS)?.as_deref() {
        Some("csv") => Format::Csv,
        _ => Format::Lines,
    };
    let filter = filter(&params, exchange.attempt.started_at)?;
    let place = exchange.open_stream(StreamKind::Export)?;
    let first = exchange.gateway().export_activity(exchange.caller(), &filter).await?;
    let start = match format {
        Format::Lines => Vec::new(),
        Format::Csv => written(|csv| csv.write_record(COLUMNS.map(|(name, _)| name)))?,
    };
    let state = Export { _place: place, exchange, filter, format, next: Some(first), start };
    // whoever reads learns that it broke off by the missing end, the log why
    let broken = |_| std::io::Error::other("the export broke off");
    let pieces = stream::try_unfold(state, Export::piece).map_err(broken);
    let mut response = Response::new(Body::from_stream(pieces));
    let (kind, file) = match format {
        Format::Lines => ("application/x-ndjson", "attachment; filename=\"activity.jsonl\""),
        Format::Csv => ("text/csv; charset=utf-8", "attachment; filename=\"activity.csv\""),
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response.headers_mut().insert(header::CONTENT_DISPOSITION, HeaderValue::from_static(file));
    Ok(response)
}

/// An export under way.
struct Export {
    /// Among the streams of its key.
    _place: OpenStream,
    exchange: Arc<Exchange>,
    filter: ActivityFilter,
    format: Format,
    /// The page that has been read; `None` where it has to be.
    next: Option<Vec<ActivityRow>>,
    /// What comes before the first record.
    start: Vec<u8>,
}

impl Export {
    /// The next page as text.
    async fn piece(mut self) -> Result<Option<(Bytes, Export)>, RestError> {
        let rows = match self.next.take() {
            Some(rows) => rows,
            None => self.exchange.gateway().export_activity(self.exchange.caller(), &self.filter).await?,
        };
        let mut text = std::mem::take(&mut self.start);
        match rows.last() {
            Some(last) => self.filter.before = Some((last.started_at, last.id)),
            None if text.is_empty() => return Ok(None),
            None => {}
        }
        text.extend(match self.format {
            Format::Lines => lines(&rows)?,
            Format::Csv => written(|csv| rows.iter().try_for_each(|row| csv.write_record(cells(row))))?,
        });
        Ok(Some((Bytes::from(text), self)))
    }
}

fn lines(rows: &[ActivityRow]) -> Result<Vec<u8>, RestError> {
    let mut text = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut text, &shown(row)).map_err(RestError::unshowable)?;
        text.push(b'\n');
    }
    Ok(text)
}

fn written(write: impl FnOnce(&mut csv::Writer<Vec<u8>>) -> csv::Result<()>) -> Result<Vec<u8>, RestError> {
    let mut csv = csv::Writer::from_writer(Vec::new());
    write(&mut csv).map_err(RestError::unshowable)?;
    csv.into_inner().map_err(RestError::unshowable)
}

fn cells(row: &ActivityRow) -> Vec<String> {
    let record = serde_json::to_value(shown(row)).unwrap_or_default();
    COLUMNS.iter().map(|(_, place)| cell(record.pointer(place))).collect()
}

/// A value as a cell. Spreadsheets run what begins like a formula: what callers and servers wrote gets an apostrophe
/// before it, which they take for "this is a text".
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => format!("'{text}"),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn cells_are_no_formulas() {
        for (value, want) in [
            (json!(null), ""),
            (json!("plain"), "plain"),
            (json!("=HYPERLINK(1)"), "'=HYPERLINK(1)"),
            (json!("@x"), "'@x"),
            (json!(-1.5), "-1.5"),
            (json!(true), "true"),
        ] {
            assert_eq!(cell(Some(&value)), want);
        }
    }
}
