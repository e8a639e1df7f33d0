//! `inspect_provenance`: the tool by which agents see what their own calls did to the pages of a server.

use serde_json::{Value, json};

use super::facts::{PAGE_FACTS, PageFacts, PageToolKind};
use crate::domain::provenance::LedgerRow;

/// Name of the tool; no form gets it.
pub const INSPECT_PROVENANCE: &str = "inspect_provenance";
/// Most calls that one answer shows.
pub const INSPECTED_MAX: usize = 10;

/// Returns the definition of the tool, as a server lists it.
pub fn definition() -> Value {
    let facts = PageFacts::about_none(PageToolKind::InspectProvenance);
    json!({
        "name": INSPECT_PROVENANCE,
        "title": "Inspect provenance",
        "description": "Shows what your own calls did to the forms of this server's pages: each value that was set, where the \
            form was sent, and how it ended. Changes nothing, and asks no site.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": INSPECTED_MAX,
                    "description": "Number of calls, the newest first"
                }
            },
            "additionalProperties": false
        },
        "annotations": {
            "readOnlyHint": true,
            "destructiveHint": false,
            "idempotentHint": true,
            "openWorldHint": false
        },
        "_meta": { PAGE_FACTS: facts },
    })
}

/// Returns the number of calls that these arguments ask for.
pub fn limit(arguments: &[u8]) -> usize {
    let given: Option<Value> = serde_json::from_slice(arguments).ok();
    let limit = given.as_ref().and_then(|given| given.get("limit")?.as_u64());
    limit.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(INSPECTED_MAX).clamp(1, INSPECTED_MAX)
}

/// Ledger of one call, for its caller.
#[derive(Debug)]
pub struct InspectedCall {
    /// Id of the call's record.
    pub id: String,
    /// True if the ledger is as it was written; `None` without a record of the call, which says whether it is whole.
    pub is_intact: Option<bool>,
    /// Rows of the ledger.
    pub rows: Vec<LedgerRow>,
}

/// Returns the result of the tool, as JSON text.
pub fn render(calls: &[InspectedCall]) -> String {
    let row = |row: &LedgerRow| {
        json!({
            "step": row.step,
            "at": row.at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true),
            "phase": row.phase.as_str(),
            "layer": row.layer.as_str(),
            "selector": row.selector,
            "explanation": row.explanation,
            "new_preview": row.new_preview,
            "page_url": row.page_url,
            "consent_id": row.consent_id,
        })
    };
    let shown = |call: &InspectedCall| json!({"id": call.id, "intact": call.is_intact, "rows": call.rows.iter().map(row).collect::<Vec<_>>()});
    let calls: Vec<Value> = calls.iter().map(shown).collect();
    let structured = json!({ "calls": calls });
    let text = if calls.is_empty() {
        "None of your calls filled in a form here".to_owned()
    } else {
        structured.to_string()
    };
    json!({"content": [{"type": "text", "text": text}], "structuredContent": structured}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_says_that_it_reads() {
        let definition = definition().to_string();
        let facts = PageFacts::read(&definition).unwrap();
        assert_eq!(facts.kind, PageToolKind::InspectProvenance);
        assert!(!facts.asks_for_permission());
        let read = crate::domain::tool::Definition::read(&definition).unwrap();
        assert_eq!(
            read.annotations.tier(crate::domain::annotations::Unannotated::Distrust),
            crate::domain::annotations::Tier::Read
        );
        for (arguments, expected) in [("{}", 10), (r#"{"limit":3}"#, 3), (r#"{"limit":99}"#, 10), ("[", 10)] {
            assert_eq!(limit(arguments.as_bytes()), expected, "{arguments}");
        }
    }
}
