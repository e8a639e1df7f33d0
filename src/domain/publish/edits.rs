//! Places of a definition where other text goes.

use std::ops::Range;

use super::{Reader, faults};
use crate::domain::header_hints;
use crate::domain::json;

/// What goes to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum With {
    /// The tool's name.
    Name,
    /// Nothing.
    Nothing,
    /// The schema of anything, for `true`.
    Anything,
    /// The schema of nothing at all, for `false`.
    Never,
}

impl With {
    /// Its text, but for the name.
    pub(super) fn text(self) -> &'static str {
        match self {
            With::Name | With::Nothing => "",
            With::Anything => "{}",
            With::Never => r#"{"not":{}}"#,
        }
    }
}

/// A place, in bytes of the definition, and what goes there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Edit {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) with: With,
}

/// What these readers get another text for, in its order.
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

/// Handshake clients want an object for each property, where JSON schemas may also be `true` or `false`.
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
