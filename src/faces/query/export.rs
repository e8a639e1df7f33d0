//! Export of activity records: every one that matches, as one stream of lines.
//!
//! Records are read page by page, so that neither side needs memory for all of them and no transaction stays open while a
//! client reads slowly. A failure after the first page ends the connection early: an export that ends well is complete.

use std::fmt::Display;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use http::{HeaderValue, header};
use serde_json::Value;

use super::activity::{filter, filters};
use super::params::{ParamNames, Params};
use super::record::shown;
use crate::domain::text_enum::text_enum;
use crate::faces::sse::OpenStream;
use crate::gateway::{Attempt, GatewayError, MemoryPurpose, overloaded};
use crate::store::{ActivityFilter, ActivityRow};

/// Parameters: those of a list without paging.
pub(in crate::faces) const PARAMS: ParamNames = filters!["start_time", "end_time", "format"];
/// Columns of CSV, with the place of each in a record (a JSON pointer).
const COLUMNS: [(&str, &str); 38] = [
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
    ("key_name", "/key_name"),
    ("identity_id", "/identity_id"),
    ("owner", "/owner"),
    ("client_name", "/client/name"),
    ("client_version", "/client/version"),
    ("client_address", "/client_address"),
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

/// Memory of a page, in bytes: as loaded, and as text.
const PAGE_MEMORY_BYTES: usize = 1024 * 1024;

text_enum! {
    /// Value of `format`.
    #[derive(Default)]
    enum Format {
        /// JSON Lines.
        #[default]
        Lines = "jsonl",
        /// Comma-separated values.
        Csv = "csv",
    }
}

/// Records to export, as a request asks for them.
pub(in crate::faces) struct AskedExport {
    filter: ActivityFilter,
    format: Format,
}

impl AskedExport {
    /// Reads the parameters.
    ///
    /// # Errors
    /// The first parameter that is no such filter or format.
    pub(in crate::faces) fn read(params: &Params, attempt: &Attempt) -> Result<AskedExport, GatewayError> {
        let format = params.one_of("format", &Format::ALL)?.unwrap_or_default();
        Ok(AskedExport { filter: filter(params, attempt.started_at)?, format })
    }
}

/// Returns the response with all records, for the caller of the stream.
///
/// # Errors
/// Error of the use case for the first page.
pub(in crate::faces) async fn export(
    place: OpenStream,
    AskedExport { filter, format }: AskedExport,
) -> Result<Response, GatewayError> {
    let first = place.gateway().log.export_activity(place.caller(), &filter).await?;
    let start = match format {
        Format::Lines => Vec::new(),
        Format::Csv => written(|csv| csv.write_record(COLUMNS.map(|(name, _)| name)))?,
    };
    let state = Export { place, filter, format, next: Some(first), start };
    // the client sees a failure by the missing end; the log has the reason
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

/// Returns the failure for a page that cannot be written. The cause is logged, and not shown to the client.
fn unshowable(error: impl Display) -> GatewayError {
    tracing::error!(%error, "an export could not be written");
    GatewayError::Unavailable
}

/// Export under way.
struct Export {
    /// Slot among the streams of its key.
    place: OpenStream,
    filter: ActivityFilter,
    format: Format,
    /// Page that has been read; `None` if the next one has to be read.
    next: Option<Vec<ActivityRow>>,
    /// Text before the first record: the CSV header, or nothing.
    start: Vec<u8>,
}

impl Export {
    /// Returns the next page as text; `None` after the last one.
    async fn piece(mut self) -> Result<Option<(Bytes, Export)>, GatewayError> {
        let (gateway, caller) = (self.place.gateway(), self.place.caller());
        // the page before has been sent: a client that reads slowly holds memory of one page
        let mut memory = gateway.tenants.memory(caller, MemoryPurpose::Answer);
        let short = |_| GatewayError::Refused(Box::new(overloaded(MemoryPurpose::Answer)));
        memory.grow(PAGE_MEMORY_BYTES).await.map_err(short)?;
        let rows = match self.next.take() {
            Some(rows) => rows,
            None => gateway.log.export_activity(caller, &self.filter).await?,
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
        memory.shrink(text.len());
        Ok(Some((memory.keep(text.into()), self)))
    }
}

fn lines(rows: &[ActivityRow]) -> Result<Vec<u8>, GatewayError> {
    let mut text = Vec::new();
    for row in rows {
        serde_json::to_writer(&mut text, &shown(row)).map_err(unshowable)?;
        text.push(b'\n');
    }
    Ok(text)
}

fn written(
    write: impl FnOnce(&mut csv::Writer<Vec<u8>>) -> csv::Result<()>,
) -> Result<Vec<u8>, GatewayError> {
    // quoted throughout: a spreadsheet that takes both `,` and `;` for separators keeps cells whole
    let mut csv = csv::WriterBuilder::new().quote_style(csv::QuoteStyle::Always).from_writer(Vec::new());
    write(&mut csv).map_err(unshowable)?;
    csv.into_inner().map_err(unshowable)
}

fn cells(row: &ActivityRow) -> Vec<String> {
    let record = serde_json::to_value(shown(row)).unwrap_or_default();
    COLUMNS.iter().map(|(_, place)| cell(record.pointer(place))).collect()
}

/// Formats a value as a cell.
fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => guarded(text),
        Some(other) => other.to_string(),
    }
}

/// Returns `text` with an apostrophe at each place where a spreadsheet would begin a formula: spreadsheets take a cell
/// that begins with an apostrophe for text. Readers whose separator is not the comma ignore the quotes of the export, so
/// that every separator and line break inside `text` may begin a cell. Taking one apostrophe away at each such place gives
/// `text` back.
fn guarded(text: &str) -> String {
    let mut guarded = String::with_capacity(text.len() + 1);
    let mut rest = text;
    loop {
        if begins_formula(rest) {
            guarded.push('\'');
        }
        let Some((at, separator)) = rest.char_indices().find(|(_, c)| separates(*c)) else { break };
        let (cell, after) = rest.split_at(at + separator.len_utf8());
        guarded.push_str(cell);
        rest = after;
    }
    guarded.push_str(rest);
    guarded
}

/// Returns whether a spreadsheet would run a cell that begins with `text` as a formula. Signs of formulas,
/// also full-width ones, count behind characters that spreadsheets skip. They also count behind apostrophes,
/// so that the guard can be undone.
fn begins_formula(text: &str) -> bool {
    let is_passed_over = |c: char| {
        matches!(c, '\'' | '"' | '\u{feff}' | '\u{200b}'..='\u{200f}') || c.is_whitespace() || c.is_control()
    };
    let first = text.chars().find(|c| !is_passed_over(*c));
    first.is_some_and(|c| {
        let signs = ['=', '+', '-', '@', '＝', '＋', '－', '＠', '﹦', '﹢', '﹣', '﹫', '−'];
        signs.contains(&c)
    })
}

/// Returns whether a character may end a cell in a spreadsheet: a control character such as a tab, a line
/// separator, `;` or `|`. A comma does not: the quotes of the export hold where it is the separator.
fn separates(c: char) -> bool {
    c.is_control() || matches!(c, ';' | '|' | '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
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
            (json!("x;=1+1"), "x;'=1+1"),
            (json!("x\t@SUM(1)"), "x\t'@SUM(1)"),
            (json!("x\n=1\r\n+2"), "x\n'=1\r'\n'+2"),
            (json!("＝1;＋1\t－1\n＠x"), "'＝1;'＋1\t'－1\n'＠x"),
            (json!("x; \"=1"), "x;' \"=1"),
            (json!("'=1"), "''=1"),
            (json!("\u{feff}=1"), "'\u{feff}=1"),
            (json!("a=b, c-d; e@f"), "a=b, c-d; e@f"),
            (json!("{\"n\":-1}"), "{\"n\":-1}"),
        ] {
            assert_eq!(cell(Some(&value)), want);
        }
    }

    /// Returns the cells of a text, for a reader with this separator that ignores quotes.
    fn raw_cells(text: &str, separator: char) -> impl Iterator<Item = &str> {
        text.split([separator, '\n', '\r'])
    }

    proptest! {
        #[test]
        fn no_reader_finds_a_formula_and_the_text_can_be_had_back(text in "[-=+@＝x;,|\"' \t\r\n]{0,12}") {
            let cell = guarded(&text);
            for separator in [';', '\t', '|'] {
                for raw in raw_cells(&cell, separator) {
                    let first = raw.trim_start_matches([' ', '"']).chars().next();
                    prop_assert!(!first.is_some_and(|c| "=+-@＝".contains(c)), "{cell:?}");
                }
            }
            let mut back = String::new();
            let mut rest = cell.as_str();
            loop {
                let plain = rest.strip_prefix('\'').filter(|_| begins_formula(rest));
                rest = plain.unwrap_or(rest);
                let Some((at, c)) = rest.char_indices().find(|(_, c)| separates(*c)) else { break };
                let (cell, after) = rest.split_at(at + c.len_utf8());
                back.push_str(cell);
                rest = after;
            }
            back.push_str(rest);
            prop_assert_eq!(back, text);
        }
    }
}
