use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const SCHEMA: &str = r#""inputSchema":{"type":"object"}"#;

fn written(definition: &str, reader: Reader) -> String {
    let mut out = String::new();
    Published::of(definition).unwrap().part(reader).write("s:\"t\"", &mut out);
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
    assert!(Published::of(definition).unwrap().modern.is_none(), "kept twice");
}

#[test]
fn each_era_gets_what_it_knows() {
    for (members, handshake, modern) in [
        (r#","execution":{"taskSupport":"optional"}"#, true, false),
        (r#","execution":{"taskSupport":"sometimes"}"#, false, false),
        (r#","outputSchema":{"type":"object","properties":{"a":{}}}"#, true, true),
        (r#","outputSchema":{"type":"array"}"#, false, true),
        (r#","outputSchema":true"#, false, false),
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
fn a_tool_whose_schema_breaks_lists_is_in_none() {
    for schema in [
        "",
        r#","inputSchema":{}"#,
        r#","inputSchema":true"#,
        r#","inputSchema":{"type":"string"}"#,
        r#","inputSchema":{"type":["object"]}"#,
        r#","inputSchema":{"type":"object","properties":[]}"#,
        r#","inputSchema":{"type":"object","properties":{"a":true}}"#,
        r#","inputSchema":{"type":"object","required":"a"}"#,
        r#","inputSchema":{"type":"object","required":[1]}"#,
    ] {
        assert!(Published::of(&format!(r#"{{"name":"t"{schema}}}"#)).is_err(), "{schema}");
    }
}

#[test]
fn header_hints_stay_between_gateway_and_server() {
    let definition =
        r#"{"inputSchema":{"type":"object","properties":{"a":{"x-mcp-header":"A","n":1e400}}},"name":"t"}"#;
    let expected = r#"{"inputSchema":{"type":"object","properties":{"a":{"n":1e400}}},"name":"s:\"t\""}"#;
    assert_eq!(written(definition, Reader::Handshake), expected);
}

/// A member of a definition whose value nobody has an opinion on.
fn extra() -> impl Strategy<Value = (String, String)> {
    let value = prop_oneof![
        Just("1e400".to_owned()),
        Just("-0.10".to_owned()),
        Just(r#"{ "name" : "\ud800" , "a":[ ]}"#.to_owned()),
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
