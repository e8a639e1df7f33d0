mod bounds;
mod dear;
mod differential;

use super::*;

#[test]
fn violations_name_path_and_rule_but_no_value() {
    let schema = Schema::compile(
        r#"{"type":"object","properties":{"limit":{"type":"integer","maximum":10},
           "token":{"type":"string","maxLength":3}},"required":["limit"],"additionalProperties":false}"#,
    )
    .expect("compiles");
    let error = |arguments: &str| schema.check(arguments).expect_err(arguments).to_string();
    assert_eq!(schema.check(r#"{"limit":1}"#), Ok(()));
    assert_eq!(
        error(r#"{"limit":11}"#),
        "/limit: the value is above the most of 10 (rule /properties/limit/maximum)"
    );
    let text = error(r#"{"limit":1,"token":"hunter2hunter2"}"#);
    assert!(text.contains("/token") && !text.contains("hunter2"), "{text}");
    assert_eq!(error("{}"), "the arguments: 'limit' is missing (rule /required)");
    assert!(error(r#"{"limit":1e400}"#).contains("maximum"));
    let long = format!(r#"{{"limit":1,"{}":1}}"#, "n".repeat(5000));
    assert!(error(&long).len() < 200 && error(&long).contains("additionalProperties"));
}

#[test]
fn unknown_members_come_with_the_known_ones() {
    let error = |schema: &str, arguments: &str| {
        let schema = Schema::compile(schema).expect("compiles");
        schema.check(arguments).expect_err(arguments).to_string()
    };
    let closed = r#"{"properties":{"to":{},"body":{}},"required":["body"],"additionalProperties":false}"#;
    let says = "/too: no member of that name is allowed; known: body, to (rule /additionalProperties)";
    assert_eq!(error(closed, r#"{"too":1,"body":2}"#), says);
    let says = "/too: no member of that name is allowed (rule /additionalProperties)";
    assert_eq!(error(r#"{"additionalProperties":false}"#, r#"{"too":1}"#), says);
    let names: Vec<String> = (100..1000).map(|n| format!(r#""name{n}":{{}}"#)).collect();
    let many = format!(r#"{{"properties":{{{}}},"additionalProperties":false}}"#, names.join(","));
    let long = error(&many, r#"{"too":1}"#);
    assert!(long.len() < 600 && long.contains("known: name100, name101, "), "{long}");
    assert!(long.contains(" more (rule"), "{long}");
}
