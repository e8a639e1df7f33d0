//! Changes of a definition since it was approved.

use crate::domain::diff::Diff;
use crate::faces::console::text::{LongText, indented};

/// Most changes that are shown.
const CHANGES_MAX: usize = 200;
/// Longest value of a change, in bytes.
const VALUE_BYTES_MAX: usize = 4096;

/// Change of a definition since it was approved.
pub(super) struct ChangeLine {
    /// Place in the definition, a JSON pointer.
    pub(super) path: String,
    /// Approved value; `None` for one that is new.
    pub(super) before: Option<LongText>,
    /// Value of now; `None` for one that is gone.
    pub(super) after: Option<LongText>,
}

/// Changes of a definition since it was approved.
pub(super) struct DefinitionChanges {
    /// True if there is an approved definition to compare with.
    pub(super) is_compared: bool,
    /// Changes that are shown.
    pub(super) lines: Vec<ChangeLine>,
    /// True if there are more.
    pub(super) has_more: bool,
}

impl DefinitionChanges {
    /// Compares a definition with the approved one. `approved` is `None` if none was approved, or it is not kept any more.
    pub(super) fn between(approved: Option<&str>, definition: &str) -> DefinitionChanges {
        let diff = approved.map(|approved| Diff::between(approved, definition)).unwrap_or_default();
        let value = |raw: Option<&str>| raw.map(|raw| LongText::within(&indented(raw), VALUE_BYTES_MAX));
        let lines = diff.changes.iter().take(CHANGES_MAX).map(|change| ChangeLine {
            path: change.path.clone(),
            before: value(change.before),
            after: value(change.after),
        });
        let lines: Vec<ChangeLine> = lines.collect();
        let has_more = diff.is_cut || diff.changes.len() > lines.len();
        DefinitionChanges { is_compared: approved.is_some(), lines, has_more }
    }
}
