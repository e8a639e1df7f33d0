//! Edits that turn a definition into the one that `/mcp/direct` lists.

use std::ops::Range;

use super::{Reader, faults};
use crate::domain::header_hints;
use crate::domain::json;

/// Replacement of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    /// Name of the tool.
    Name,
    /// Empty text: the range is removed.
    Nothing,
    /// Schema that accepts anything, in place of `true`.
    Anything,
    /// Schema that accepts nothing, in place of `false`.
    Never,
}

impl With {
    /// Returns the replacement text; empty for the name, which the caller writes.
    pub(super) fn text(self) -> &'static str {
        match self {
            With::Name | With::Nothing => "",
            With::Anything => "{}",
            With::Never => r#"{"not":{}}"#,
        }
    }
}

/// Range of the definition, in bytes, and its replacement.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) with: With,
}

/// Returns the edits of a definition for these clients, in the order of the text.
pub(super) fn of(definition: &str, reader: Reader) -> Vec<Edit> {
    let mut edits = Vec::new();
    let left_out = faults::members_left_out(definition, reader);
    remove(json::ranges_of_members(definition, &left_out), 0, &mut edits);
    json::for_each_member(definition, |member| {
        if left_out.contains(&&*member.name) {
            return;
        }
        let Range { start, end } = member.value_range();
        match &*member.name {
            "name" => edits.push(Edit { start, end, with: With::Name }),
            "annotations" => {
                let hints = faults::hints_left_out(member.value);
                remove(json::ranges_of_members(member.value, &hints), start, &mut edits);
            }
            "inputSchema" => {
                let mut hints = Vec::new();
                header_hints::hints(member.value, start, &mut hints);
                remove(hints, 0, &mut edits);
                object_properties(member.value, start, reader, &mut edits);
            }
            "outputSchema" => object_properties(member.value, start, reader, &mut edits),
            _ => {}
        }
    });
    edits.sort_unstable_by_key(|edit| edit.start);
    edits
}

fn remove(ranges: Vec<Range<usize>>, base: usize, edits: &mut Vec<Edit>) {
    let edit =
        |range: Range<usize>| Edit { start: base + range.start, end: base + range.end, with: With::Nothing };
    edits.extend(ranges.into_iter().map(edit));
}

/// Adds edits for properties whose schema is `true` or `false`: handshake clients accept objects only.
fn object_properties(schema: &str, base: usize, reader: Reader, edits: &mut Vec<Edit>) {
    if reader != Reader::Handshake {
        return;
    }
    json::for_each_member(schema, |member| {
        if member.name != "properties" {
            return;
        }
        let base = base + member.value_range().start;
        json::for_each_member(member.value, |property| {
            let Range { start, end } = property.value_range();
            let with = match property.value {
                "true" => With::Anything,
                "false" => With::Never,
                _ => return,
            };
            edits.push(Edit { start: base + start, end: base + end, with });
        });
    });
}
