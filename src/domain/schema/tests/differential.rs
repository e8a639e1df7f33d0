//! Comparison with the `jsonschema` crate, on random schemas and values. Left out are cases that its release 0.33 gets
//! wrong, and that the official suite covers: `unevaluatedProperties` and `unevaluatedItems` (it counts failed branches),
//! `multipleOf` of fractions (for negative numbers), and `1.0` (no integer in a list of types).

use proptest::prelude::*;
use serde_json::{Value, json};

use super::Schema;

const NAMES: [&str; 4] = ["a", "b", "ab", "c"];

fn name() -> BoxedStrategy<String> {
    prop::sample::select(NAMES.as_slice()).prop_map(str::to_owned).boxed()
}

fn scalar() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-3_i64..6).prop_map(Value::from),
        (-3_i64..6).prop_map(|n| json!(n as f64 + 0.5)),
        "[abé]{0,4}".prop_map(Value::from),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    scalar().prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(name(), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn leaf() -> impl Strategy<Value = Value> {
    let kind = prop::sample::select(
        ["null", "boolean", "number", "integer", "string", "array", "object"].as_slice(),
    );
    prop_oneof![
        any::<bool>().prop_map(Value::from),
        kind.clone().prop_map(|kind| json!({"type": kind})),
        prop::collection::btree_set(kind, 1..3).prop_map(|kinds| json!({"type": kinds})),
        prop::collection::vec(value(), 1..3).prop_map(|values| json!({"enum": values})),
        value().prop_map(|value| json!({"const": value})),
        (-2_i64..4).prop_map(|n| json!({"minimum": n})),
        (-2_i64..4).prop_map(|n| json!({"exclusiveMaximum": n})),
        (1_i64..4).prop_map(|n| json!({"multipleOf": n})),
        (0_u8..4).prop_map(|n| json!({"minLength": n, "maxLength": n + 1})),
        (0_u8..3).prop_map(|n| json!({"minItems": n, "maxItems": n + 2})),
        (0_u8..3).prop_map(|n| json!({"minProperties": n, "maxProperties": n + 2})),
        prop::sample::select(["^a", "b$", "^[ab]+$", "a|b", "^.{2}$"].as_slice())
            .prop_map(|p| json!({"pattern": p})),
        prop::collection::btree_set(name(), 1..3).prop_map(|names| json!({"required": names})),
        Just(json!({"uniqueItems": true})),
        (name(), name()).prop_map(|(one, other)| json!({"dependentRequired": {one: [other]}})),
    ]
}

fn schema() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 24, 4, |inner| {
        let few = prop::collection::vec(inner.clone(), 1..3);
        let named = prop::collection::btree_map(name(), inner.clone(), 1..3);
        prop_oneof![
            few.clone().prop_map(|list| json!({"allOf": list})),
            few.clone().prop_map(|list| json!({"anyOf": list})),
            few.clone().prop_map(|list| json!({"oneOf": list})),
            inner.clone().prop_map(|schema| json!({"not": schema})),
            (inner.clone(), inner.clone(), inner.clone())
                .prop_map(|(a, b, c)| json!({"if": a, "then": b, "else": c})),
            (few, inner.clone()).prop_map(|(few, rest)| json!({"prefixItems": few, "items": rest})),
            (inner.clone(), 0_u8..3)
                .prop_map(|(schema, n)| json!({"contains": schema, "minContains": n, "maxContains": n + 1})),
            (named.clone(), inner.clone())
                .prop_map(|(named, rest)| json!({"properties": named, "additionalProperties": rest})),
            (named.clone(), inner)
                .prop_map(|(named, rest)| json!({"properties": named, "propertyNames": rest})),
            named.clone().prop_map(
                |named| json!({"patternProperties": {"^a": named.values().next()}, "properties": named})
            ),
            named.prop_map(|named| json!({"dependentSchemas": named})),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn both_say_the_same(schema in schema(), values in prop::collection::vec(value(), 8)) {
        let Ok(other) = jsonschema::draft202012::new(&schema) else { return Ok(()) };
        let own = Schema::compile(&schema.to_string()).expect("compiles");
        for value in values {
            let checked = own.check(&value.to_string());
            prop_assert_eq!(checked.is_ok(), other.is_valid(&value), "{} {}: {:?}", schema, value, checked);
        }
    }
}
