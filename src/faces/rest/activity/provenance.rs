//! `/activity/{id}/provenance`: the ledger of a call that filled in a form of a web page.

use std::sync::Arc;

use serde::Serialize;
use uuid::Uuid;

use super::id;
use crate::domain::provenance::{LEDGER_ROWS_MAX, LedgerRow};
use crate::faces::rest::exchange::Exchange;
use crate::faces::rest::params::Params;
use crate::faces::rest::show::{self, RestAnswer};

/// Memory of a row, in bytes: as loaded, and as JSON.
const ROW_MEMORY_BYTES: usize = 2 * 1024;

/// Ledger of a call on the wire.
#[derive(Serialize)]
struct ShownLedger<'a> {
    items: Vec<ShownRow<'a>>,
    /// Always null: a ledger is short enough for one answer.
    next_cursor: Option<&'a str>,
    /// Null without rows.
    intact: Option<bool>,
}

/// Row of a ledger on the wire. Every member is always present.
#[derive(Serialize)]
struct ShownRow<'a> {
    step: i32,
    at: String,
    phase: &'a str,
    layer: &'a str,
    consent_id: Option<Uuid>,
    page_url: &'a str,
    page_hash: String,
    selector: &'a str,
    explanation: &'a str,
    original_digest: Option<String>,
    new_digest: Option<String>,
    new_preview: Option<&'a str>,
    orchestrator: Option<&'a str>,
    prev_hash: String,
    hash: String,
}

pub(in crate::faces::rest) async fn get(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let id = id(&exchange)?;
    exchange.expect_answer(LEDGER_ROWS_MAX * ROW_MEMORY_BYTES).await?;
    let (rows, intact) = exchange.gateway().log.provenance(exchange.caller(), id).await?;
    show::ok(&ShownLedger { items: rows.iter().map(shown).collect(), next_cursor: None, intact })
}

fn shown(row: &LedgerRow) -> ShownRow<'_> {
    ShownRow {
        step: row.step,
        at: show::time(row.at),
        phase: row.phase.as_str(),
        layer: row.layer.as_str(),
        consent_id: row.consent_id,
        page_url: &row.page_url,
        page_hash: hex(&row.page_hash),
        selector: &row.selector,
        explanation: &row.explanation,
        original_digest: row.original_digest.map(|digest| hex(&digest)),
        new_digest: row.new_digest.map(|digest| hex(&digest)),
        new_preview: row.new_preview.as_deref(),
        orchestrator: row.orchestrator.as_deref(),
        prev_hash: hex(&row.prev_hash),
        hash: hex(&row.hash),
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
