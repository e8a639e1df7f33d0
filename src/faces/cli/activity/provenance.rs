//! `mcpproxy activity show ID --provenance`.

use serde_json::Value;

use super::local;
use crate::faces::cli::output::{self, text};

/// Characters of a digest that a table shows.
const DIGEST_CHARS: usize = 12;

/// Formats a ledger for people.
pub(super) fn shown(raw: &str) -> String {
    let ledger: Value = serde_json::from_str(raw).unwrap_or_default();
    let rows = ledger.get("items").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let Some(first) = rows.first() else {
        let text = match ledger.get("intact") {
            Some(Value::Bool(false)) => "BROKEN: this call had a ledger, and all its rows are gone\n",
            _ => "This call filled in no form of a web page\n",
        };
        return text.to_owned();
    };
    let names = ["STEP", "TIME", "PHASE", "LAYER", "SELECTOR", "EXPLANATION", "VALUE", "DIGEST"];
    let seal = match ledger.get("intact") {
        Some(Value::Bool(true)) => "intact",
        _ => "BROKEN: a row was altered, added or left out",
    };
    let mut out = format!("Page    {}\nSeal    {seal}\n", output::safe(&text(first, "page_url")));
    for (title, name) in [("Consent", "consent_id"), ("Client ", "orchestrator")] {
        let value = text(first, name);
        if !value.is_empty() {
            out.push_str(&format!("{title} {}\n", output::safe(&value)));
        }
    }
    out.push('\n');
    out.push_str(&output::columns(&names, rows.iter().map(cells).collect()));
    out.push('\n');
    out
}

fn cells(row: &Value) -> Vec<String> {
    let value = match (text(row, "new_preview"), text(row, "new_digest")) {
        (preview, digest) if preview.is_empty() && !digest.is_empty() => "(hidden)".to_owned(),
        (preview, _) => preview,
    };
    vec![
        text(row, "step"),
        local(&text(row, "at")),
        text(row, "phase"),
        text(row, "layer"),
        text(row, "selector"),
        text(row, "explanation"),
        value,
        text(row, "new_digest").chars().take(DIGEST_CHARS).collect(),
    ]
}
