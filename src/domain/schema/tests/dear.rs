//! Schemas that are too costly by themselves, whatever the arguments.

use serde_json::{Value, json};

use super::Schema;

fn check(schema: &Value) -> Result<(), String> {
    Schema::compile(&schema.to_string()).map(drop)
}

#[test]
fn what_doubles_at_every_step_is_refused() {
    let mut defs = serde_json::Map::new();
    for n in 0..60 {
        let next = json!({"$ref": format!("#/$defs/a{}", n + 1)});
        defs.insert(format!("a{n}"), json!({"anyOf": [next, next]}));
    }
    defs.insert("a60".into(), json!(false));
    assert!(check(&json!({"$ref": "#/$defs/a0", "$defs": defs})).is_err());
    let both = json!({"properties": {"x": {"$ref": "#/$defs/a"}}});
    let doubling = json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [both, both]}}});
    assert!(check(&doubling).is_err());
    let root = json!({"anyOf": [{"properties": {"x": {"$ref": "#"}}}, {"properties": {"x": {"$ref": "#"}}}]});
    assert!(check(&root).is_err());
    for circle in [json!({"$ref": "#"}), json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}})]
    {
        assert!(check(&circle).is_err(), "{circle}");
    }
    let fibonacci = json!({"$ref": "#/$defs/a", "$defs": {"a": {
        "items": {"$ref": "#/$defs/a"},
        "prefixItems": [{"items": {"$ref": "#/$defs/a"}}]
    }}});
    assert!(check(&fibonacci).is_err());
}

#[test]
fn ordinary_schemas_pass() {
    let tree = json!({
        "$ref": "#/$defs/node",
        "$defs": {"node": {"type": "object", "properties": {
            "value": {"type": "string"},
            "children": {"type": "array", "items": {"$ref": "#/$defs/node"}}
        }}}
    });
    assert_eq!(check(&tree), Ok(()));
    let pair = json!({
        "$defs": {"t": {"properties": {"left": {"$ref": "#/$defs/t"}, "right": {"$ref": "#/$defs/t"}}}},
        "$ref": "#/$defs/t"
    });
    assert_eq!(check(&pair), Ok(()));
    let json_value = json!({
        "$defs": {"v": {"anyOf": [
            {"type": "string"},
            {"type": "array", "items": {"$ref": "#/$defs/v"}},
            {"type": "object", "additionalProperties": {"$ref": "#/$defs/v"}}
        ]}},
        "properties": {"a": {"$ref": "#/$defs/v"}, "b": {"$ref": "#/$defs/v"}}
    });
    assert_eq!(check(&json_value), Ok(()));
    let either = json!({
        "$defs": {"t": {"items": {"$ref": "#/$defs/t"}}, "u": {"items": {"$ref": "#/$defs/u"}}},
        "anyOf": [{"$ref": "#/$defs/t"}, {"$ref": "#/$defs/u"}, {"$ref": "#/$defs/t"}]
    });
    assert_eq!(check(&either), Ok(()));
    assert_eq!(check(&json!({"type": "object", "properties": {"a": {"enum": [1, 2]}}})), Ok(()));
    assert_eq!(check(&json!(true)), Ok(()));
}

#[test]
fn what_cannot_be_used_does_not_compile() {
    for schema in [
        json!({"$ref": "http://169.254.169.254/schema"}),
        json!({"$ref": "other.json"}),
        json!({"$ref": "#/$defs/none"}),
        json!({"$schema": "https://example.com/own"}),
        json!({"$schema": 7}),
        json!({"type": "nonsense"}),
        json!({"properties": []}),
        json!({"properties": {"a": 7}}),
        json!({"required": "a"}),
        json!({"minLength": -1}),
        json!({"minLength": 1.5}),
        json!({"multipleOf": 0}),
        json!({"enum": {}}),
        json!({"items": [{}]}),
        json!({"allOf": []}),
        json!({"pattern": "(?=a)"}),
        json!({"patternProperties": {"(": {}}}),
        json!({"$dynamicRef": "#a", "$defs": {"x": {"$id": "x"}, "a": {"$dynamicAnchor": "a"}}}),
    ] {
        assert!(check(&schema).is_err(), "{schema}");
    }
    for schema in [
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object"}}}),
        json!({"$ref": "#a", "$defs": {"a": {"$anchor": "a"}}}),
        json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}], "additionalItems": false}),
        json!({"format": "no-such-format", "x-own": {"type": "nonsense"}}),
    ] {
        assert_eq!(check(&schema), Ok(()), "{schema}");
    }
}

#[test]
fn size_is_bounded() {
    let many: Vec<Value> = (0..20_001).map(|_| json!({})).collect();
    let why = check(&json!({"anyOf": many})).expect_err("too many");
    assert!(why.contains("20000"), "{why}");
    let long = json!({"description": "d".repeat(300_000)});
    assert!(check(&long).is_err());
    let properties: serde_json::Map<_, _> =
        (0..500).map(|n| (format!("p{n}"), json!({"pattern": "\\p{L}{160}"}))).collect();
    let why = check(&json!({"properties": properties})).expect_err("too large");
    assert!(why.contains("pattern"), "{why}");
    let values: Vec<u32> = (0..30_000).collect();
    let schema = Schema::compile(&json!({"enum": values}).to_string()).expect("compiles");
    assert!((480_000..600_000).contains(&schema.bytes()), "{}", schema.bytes());
}
