use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const SCHEMA: &str = r#""inputSchema":{"type":"object"}"#;

fn written(definition: &str, reader: Reader) -> String {
    let mut out = String::new();
    let published = Published::of(definition);
    let part = published.part(reader).unwrap_or_else(|| panic!("{:?}", published.not_listed()));
    part.write(definition, "s:\"t\"", &mut out);
    assert_eq!(part.bytes() + r#""s:\"t\"""#.len(), out.len(), "{definition}");
    out
}

#[test]
fn only_the_name_changes() {
    let definition = r#"{ "x":{"z":1e400,"a":[ ]} ,"n\u0061me" : "\u0061" ,"inputSchema":{"type":"object", "properties":{ }},
        "annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false,
        "title":"T\u00e9","vendor":18446744073709551617},"description":"\/", "name2":"\u0061"}"#;
    let expected = definition.replacen(r#": "\u0061""#, r#": "s:\"t\"""#, 1);
    for reader in [Reader::Handshake, Reader::Modern] {
        assert_eq!(written(definition, reader), expected);
    }
}

#[test]
fn each_era_gets_what_it_knows() {
    for (members, handshake, modern) in [
        (r#","execution":{"taskSupport":"optional"}"#, true, false),
        (r#","execution":{"taskSupport":"sometimes"}"#, false, false),
        (r#","outputSchema":{"type":"object","properties":{"a":{}}}"#, true, true),
        (r#","outputSchema":{"type":"array"}"#, false, true),
        (r#","outputSchema":true"#, false, false),
        (r#","outputSchema":{"type":"object","properties":{"a":{"pattern":"("}}}"#, false, true),
        (r#","outputSchema":{"type":"object","$schema":7}"#, false, false),
        (r#","outputSchema":{"type":"object","properties":{"a":{"maximum":1e400}}}"#, false, false),
    ] {
        let plain = format!(r#"{{"name":"t",{SCHEMA}}}"#);
        let definition = format!(r#"{{"name":"t"{members},{SCHEMA}}}"#);
        for (reader, is_kept) in [(Reader::Handshake, handshake), (Reader::Modern, modern)] {
            let expected = if is_kept { &definition } else { &plain };
            assert_eq!(written(&definition, reader), expected.replace("\"t\"", r#""s:\"t\"""#), "{reader:?}");
        }
    }
}

#[test]
fn what_cannot_be_read_counts_as_absent() {
    let definition = format!(
        r#"{{"title":null,"description":7,"name":"t",{SCHEMA},"icons":[{{"src":1}}],"_meta":[],
        "annotations":{{"readOnlyHint":null,"destructiveHint":"true","idempotentHint":true,"title":1,"x":null}}}}"#
    );
    let read: Value = serde_json::from_str(&written(&definition, Reader::Modern)).unwrap();
    let expected = json!({"name": "s:\"t\"", "inputSchema": {"type": "object"},
        "annotations": {"idempotentHint": true, "x": null}});
    assert_eq!(read, expected);
    let odd = format!(r#"{{"name":"t",{SCHEMA},"annotations":null}}"#);
    assert!(!written(&odd, Reader::Handshake).contains("annotations"));
    let icons =
        format!(r#"{{"name":"t",{SCHEMA},"icons":[{{"src":"https://x","sizes":["any"],"theme":"dark"}}]}}"#);
    assert!(written(&icons, Reader::Handshake).contains("\"theme\":\"dark\""));
}

#[test]
fn a_tool_that_breaks_lists_is_in_none_of_those() {
    let digits = "9".repeat(301);
    let schema = |members: &str| format!(r#","inputSchema":{{"type":"object"{members}}}"#);
    for (members, handshake, modern) in [
        (String::new(), false, false),
        (r#","inputSchema":{}"#.to_owned(), false, false),
        (r#","inputSchema":true"#.to_owned(), false, false),
        (r#","inputSchema":{"type":"string"}"#.to_owned(), false, false),
        (r#","inputSchema":{"type":["object"]}"#.to_owned(), false, false),
        (schema(r#","$schema":7"#), false, false),
        (schema(r#","$schema":"x","properties":{"a":{}}"#), true, true),
        (schema(r#","properties":{"a":{"maximum":-1e400}}"#), false, false),
        (schema(r#","properties":[]"#), false, true),
        (schema(r#","properties":{"a":7}"#), false, true),
        (schema(r#","required":"a""#), false, true),
        (schema(r#","required":null"#), false, true),
        (schema(r#","required":[1]"#), false, true),
        (format!(r#"{},"x":1e400"#, schema("")), true, true),
        (format!(r#"{},"x":{digits}"#, schema("")), false, false),
        (format!(r#"{},"x":["\ud800"]"#, schema("")), false, false),
        (format!(r#"{},"\udc00":1"#, schema("")), false, false),
    ] {
        let published = Published::of(&format!(r#"{{"name":"t"{members}}}"#));
        let shown = [Reader::Handshake, Reader::Modern].map(|reader| published.part(reader).is_some());
        assert_eq!(shown, [handshake, modern], "{members}");
        assert_eq!(published.is_listed(), modern, "{members}");
        assert_eq!(published.not_listed().is_some(), shown != [true, true], "{members}");
    }
}

#[test]
fn handshake_clients_read_a_schema_for_each_property() {
    let definition = r#"{"name":"t","inputSchema":{"type":"object","properties":{"a":true , "b":false,"c":{"properties":{"d":true}}}},"outputSchema":{"type":"object","properties":{"e":true}}}"#;
    let named = definition.replace("\"t\"", r#""s:\"t\"""#);
    assert_eq!(written(definition, Reader::Modern), named);
    let named = named
        .replace(r#""a":true , "b":false"#, r#""a":{} , "b":{"not":{}}"#)
        .replace(r#""e":true"#, r#""e":{}"#);
    assert_eq!(written(definition, Reader::Handshake), named);
}

#[test]
fn header_hints_stay_between_gateway_and_server() {
    let definition =
        r#"{"inputSchema":{"type":"object","properties":{"a":{"x-mcp-header":"A", "n":1e300}}},"name":"t"}"#;
    let expected = r#"{"inputSchema":{"type":"object","properties":{"a":{"n":1e300}}},"name":"s:\"t\""}"#;
    assert_eq!(written(definition, Reader::Handshake), expected);
}

/// Returns a member of a definition that no rule reads.
fn extra() -> impl Strategy<Value = (String, String)> {
    let value = prop_oneof![
        Just("1e400".to_owned()),
        Just("-0.10".to_owned()),
        Just(r#"{ "name" : "\ud83d\ude00" , "a":[ ]}"#.to_owned()),
        "[a-z\u{e9}]{0,5}".prop_map(|text| format!("\"{text}\\u0000\\/\"")),
    ];
    ("x-[a-z]{1,6}", value)
}

proptest! {
    #[test]
    fn everything_but_the_name_is_as_it_was(
        before in prop::collection::vec(extra(), 0..4),
        after in prop::collection::vec(extra(), 0..4),
        name in "\\PC{1,8}",
        space in "[ \n\t]{0,3}",
    ) {
        let member = |(at, (name, value)): (usize, &(String, String))| format!("\"{name}{at}\"{space}:{space}{value},");
        let before: String = before.iter().enumerate().map(member).collect();
        let after: String = after.iter().enumerate().map(|(at, extra)| member((at + 10, extra))).collect();
        let with = |name: &str| format!("{{{space}{before}\"name\"{space}:{space}{name}{space},{after}{SCHEMA}{space}}}");
        let definition = with(&Value::from(name).to_string());
        prop_assume!(json::check(&definition).is_ok());
        for reader in [Reader::Handshake, Reader::Modern] {
            prop_assert_eq!(written(&definition, reader), with(r#""s:\"t\"""#));
        }
    }
}
