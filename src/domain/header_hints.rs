//! Removal of `x-mcp-header` from schemas that clients see. The transport of a parameter is a matter between gateway and
//! upstream (behaviour, section 4).

use std::borrow::Cow;
use std::ops::Range;

use super::json;

const KEYWORD: &str = "x-mcp-header";
/// Keywords whose value maps names to subschemas, so that its names are no keywords.
const MAPS: [&str; 5] = ["properties", "$defs", "definitions", "dependentSchemas", "patternProperties"];
/// Keywords whose value is data, not a schema.
const DATA: [&str; 5] = ["const", "default", "enum", "examples", "required"];

/// Returns the schema without the `x-mcp-header` hints at any depth; every other byte stays.
pub fn published_schema(schema: &str) -> Cow<'_, str> {
    let mut found = Vec::new();
    hints(schema, 0, &mut found);
    if found.is_empty() {
        return Cow::Borrowed(schema);
    }
    let mut out = String::with_capacity(schema.len());
    let mut at = 0;
    for hint in found {
        out.push_str(schema.get(at..hint.start).unwrap_or_default());
        at = hint.end;
    }
    out.push_str(schema.get(at..).unwrap_or_default());
    Cow::Owned(out)
}

/// Appends the ranges of the hints, with their commas, to `found`, and sorts it. `base` is the offset of the schema in a
/// larger text, in bytes.
pub(super) fn hints(schema: &str, base: usize, found: &mut Vec<Range<usize>>) {
    // nearly no schema has hints; an escape could hide the keyword
    if schema.contains(KEYWORD) || schema.contains("\\u") {
        of_schema(schema, base, found);
        found.sort_unstable_by_key(|range| range.start);
    }
}

/// Finds the hints of a schema, or of each schema in an array; any other value has none.
fn of_schema(schema: &str, base: usize, found: &mut Vec<Range<usize>>) {
    match schema.as_bytes().first() {
        Some(b'{') => {
            let own = json::ranges_of_members(schema, &[KEYWORD]);
            found.extend(own.into_iter().map(|range| base + range.start..base + range.end));
            json::for_each_member(schema, |member| {
                let value = base + member.value_range().start;
                match &*member.name {
                    KEYWORD => {}
                    name if DATA.contains(&name) => {}
                    name if MAPS.contains(&name) && member.value.starts_with('{') => {
                        json::for_each_member(member.value, |named| {
                            of_schema(named.value, value + named.value_range().start, found);
                        });
                    }
                    _ => of_schema(member.value, value, found),
                }
            });
        }
        Some(b'[') => {
            let Some(mut elements) = json::elements(schema) else { return };
            while let Some(range) = elements.next_range() {
                of_schema(schema.get(range.clone()).unwrap_or_default(), base + range.start, found);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn hints_leave_the_schema_wherever_they_are_and_nothing_else_does() {
        for (schema, expected) in [
            (
                r#"{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"x-mcp-header":{"type":"number"}}}"#,
                r#"{"type":"object","properties":{"a":{"type":"string"},"x-mcp-header":{"type":"number"}}}"#,
            ),
            (r#"{ "b" : 1e400 }"#, r#"{ "b" : 1e400 }"#),
            (r#"{ "x-mcp-h\u0065ader" : "A" , "\ud800":1 }"#, r#"{ "\ud800":1 }"#),
            (
                r#"{"anyOf":[ {"x-mcp-header":1}, {"a":[{ "x-mcp-header":1 }]} ],"additionalProperties":{"x-mcp-header":"P", "t":1}}"#,
                r#"{"anyOf":[ {}, {"a":[{  }]} ],"additionalProperties":{"t":1}}"#,
            ),
            (
                r#"{"$defs":{"x-mcp-header":{"items":{"x-mcp-header":1}}},"default":{"x-mcp-header":1}}"#,
                r#"{"$defs":{"x-mcp-header":{"items":{}}},"default":{"x-mcp-header":1}}"#,
            ),
            (
                r#"{"properties":[{"x-mcp-header":1}],"x-mcp-header":{"x-mcp-header":1}}"#,
                r#"{"properties":[{}]}"#,
            ),
        ] {
            assert_eq!(published_schema(schema), expected, "{schema}");
        }
    }

    /// Returns members of a schema, with spaces, escapes and numbers that a JSON parser would change.
    fn plain() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(r#""\u0061" : 1e400"#.to_owned()),
            Just(r#""b":[ 1.10 , {"c" :null} ]"#.to_owned()),
            Just(r#""enum":[{"x-mcp-header":"data"}]"#.to_owned()),
            "[a-z]{1,3}".prop_map(|text| format!("\"\\ud800{text}\" :\t\"\\/{text}\"")),
        ]
    }

    proptest! {
        #[test]
        fn every_other_byte_stays(
            before in prop::collection::vec(plain(), 0..3),
            after in prop::collection::vec(plain(), 1..3),
            space in "[ \n\t]{0,2}",
            keyword in prop_oneof![Just("x-mcp-header"), Just("x-mcp-h\\u0065ader")],
            place in prop_oneof![
                Just(("", "")), Just((r#"{"properties":{"\u0078" :"#, "}}")), Just((r#"{"not" : "#, " }")),
                Just((r#"{"oneOf":[true, "#, r#"],"items":{ }}"#)), Just((r#"{"$defs":{"x-mcp-header":"#, "} }")),
            ],
        ) {
            let text = |members: &[String]| format!("{}{{{space}{}{space}}}{}", place.0, members.join(","), place.1);
            let hint = format!("{space}\"{keyword}\"{space}:{space}\"A\"");
            let with = [before.clone(), vec![hint], after.clone()].concat();
            let with = text(&with);
            // the space after a comma belongs to the member that is removed
            let without = text(&[before, after].concat());
            let found = published_schema(&with);
            let strip = |text: &str| text.replace([' ', '\n', '\t'], "");
            prop_assert_eq!(strip(&found), strip(&without));
            prop_assert!(!found.contains(keyword) || with.contains(r#""x-mcp-header":"data""#) || place.0.contains(keyword));
        }
    }
}
