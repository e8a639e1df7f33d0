use super::*;
use crate::domain::fuzz::{fuzz, shape};

/// Schemas and arguments, separated by U+0000.
const SEEDS: &[&str] = &[
    "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"integer\",\"maximum\":10}},\"required\":[\"a\"]}\0{\"a\":11}",
    "{\"properties\":{\"a\":{\"pattern\":\"^(a+)+$\",\"maxLength\":3}}}\0{\"a\":\"aaaaaaaab\"}",
    "{\"$ref\":\"#/$defs/a\",\"$defs\":{\"a\":{\"anyOf\":[{\"type\":\"string\"},{\"items\":{\"$ref\":\"#/$defs/a\"}}]}}}\0[[\"x\"]]",
    "{\"additionalProperties\":false,\"patternProperties\":{\"^x-\":{\"enum\":[1,2.5,null]}}}\0{\"x-a\":2.50,\"y\":1}",
    "{\"if\":{\"const\":1},\"then\":false,\"else\":{\"not\":{}},\"uniqueItems\":true,\"contains\":{}}\0[1,1.0,1e0]",
];
const WORDS: &[&str] = &[
    "\\\\p{L}{9}",
    "{\"$ref\":\"#\"}",
    "1e400",
    "\"allOf\":[",
    "\"\\ud800\"",
    "\"$dynamicRef\":\"#a\"",
    "{}",
];

/// Checks that any schema and arguments get an answer in bounded time, with a short text.
#[test]
fn schemas() {
    fuzz(SEEDS, WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let (schema, arguments) = text.split_once('\0').unwrap_or((&text, "{}"));
        let arguments = if crate::domain::json::check(arguments).is_ok() { arguments } else { "{}" };
        match Schema::compile(schema) {
            Err(reason) => {
                assert!(!reason.is_empty() && reason.len() <= 1024, "{reason}");
                shape(reason.chars().take(12).collect::<String>())
            }
            Ok(compiled) => {
                let answer = compiled.check(arguments);
                assert_eq!(answer, compiled.check(arguments), "one answer and then another");
                let reason = answer.err().map(|unfit| unfit.to_string());
                if let Some(reason) = &reason {
                    assert!(!reason.is_empty() && reason.len() <= 1024, "{reason}");
                }
                shape(reason.map(|reason| reason.chars().take(24).collect::<String>()))
            }
        }
    });
}
