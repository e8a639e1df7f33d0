//! Worst cases of schemas and arguments, and the bounds on their time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Map, Value, json};

use super::{STEPS_MAX, Schema, Unfit, VALUES_MAX};

/// Longest processor time of one validation: 20 ms in a release build, on the machine of docs/performance.md. A test
/// build is not optimised and may share its cores: its looser bound only finds work without any bound.
const LONGEST: Duration = Duration::from_millis(if cfg!(debug_assertions) { 3000 } else { 20 });
/// Size of the largest arguments, in bytes.
const BODY: usize = 4 * 1024 * 1024;

/// Returns the processor time of this thread, which does not depend on other processes.
fn now() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

fn list(item: &str, count: usize) -> String {
    format!("[{}]", vec![item; count].join(","))
}

fn object(value: &str, count: usize) -> String {
    let members: Vec<String> = (0..count).map(|n| format!("\"k{n}\":{value}")).collect();
    format!("{{{}}}", members.join(","))
}

fn numbers(count: usize) -> String {
    let numbers: Vec<String> = (0..count).map(|n| n.to_string()).collect();
    format!("[{}]", numbers.join(","))
}

/// Returns schemas and arguments, each pair with a worst case of its own.
fn families() -> Vec<(&'static str, Value, String)> {
    let any = |n: usize, schema: Value| json!({"anyOf": vec![schema; n]});
    let names: Map<String, Value> =
        (0..2000).map(|n| (format!("k{n}"), json!({"type": "integer"}))).collect();
    let deep = (0..30).fold(
        json!({"type": "string"}),
        |inner, _| json!({"anyOf": [{"not": {"not": inner}}, {"type": "null"}]}),
    );
    let nest = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    let digits = "7".repeat(BODY / 3);
    let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}});
    vec![
        ("numbers against a type", json!({"items": {"type": "number"}}), list("1", BODY / 2)),
        ("as many as are looked at", json!({"items": {"type": "number"}}), list("1", VALUES_MAX - 1)),
        (
            "many values against a large enum",
            json!({"items": {"enum": (0..30_000).collect::<Vec<_>>()}}),
            numbers(30_000),
        ),
        (
            "many values against an enum",
            json!({"items": {"enum": (0..3000).collect::<Vec<_>>()}}),
            list("17", 190_000),
        ),
        ("unique numbers", json!({"uniqueItems": true}), numbers(190_000)),
        (
            "unique objects",
            json!({"uniqueItems": true}),
            format!("[{}]", (0..60_000).map(|n| format!("{{\"a\":{n}}}")).collect::<Vec<_>>().join(",")),
        ),
        (
            "unique texts",
            json!({"uniqueItems": true}),
            format!(
                "[\"{}\"]",
                (0..4).map(|n| n.to_string().repeat(BODY / 5)).collect::<Vec<_>>().join("\",\"")
            ),
        ),
        ("wide possibilities", any(5000, json!({"items": {"type": "string"}})), list("1", 1000)),
        (
            "wide possibilities on texts",
            any(5000, json!({"pattern": "^(a+)+$"})),
            format!("\"{}\"", "a".repeat(5000) + "b"),
        ),
        ("deep possibilities", json!({"items": deep}), list("\"x\"", 100_000)),
        (
            "a pattern in a table",
            json!({"pattern": "^(a|b)*a(a|b){5}$"}),
            format!("\"{}\"", "ab".repeat(BODY / 2 - 2)),
        ),
        (
            "a pattern without a table",
            json!({"pattern": "(a|b)*a(a|b){20}x"}),
            format!("\"{}\"", "ab".repeat(BODY / 2 - 2)),
        ),
        (
            "a pattern on many texts",
            json!({"items": {"pattern": "(\\p{L}{3}|a)*\\p{Lu}{2}$"}}),
            list("\"aé\"", 190_000),
        ),
        (
            "a large pattern on short texts",
            json!({"items": {"pattern": "(a|b)*a(a|b){60}x"}}),
            list("\"aaaaaaaaaaaaaaaaaaaa\"", 150_000),
        ),
        (
            "patterns of names",
            json!({"patternProperties": (0..100).map(|n| (format!("^{n}.*z$"), json!({}))).collect::<Map<_, _>>()}),
            object("1", 100_000),
        ),
        (
            "many names",
            json!({"properties": names, "additionalProperties": {"type": "integer"}}),
            object("1", 120_000),
        ),
        ("alternatives that lack a member", any(5000, json!({"required": ["zz"]})), object("1", 20_000)),
        (
            "alternatives that lack one of many members",
            any(500, json!({"required": ["zz", "k1", "k2", "k3", "k4", "k5", "k6", "k7"]})),
            object("1", 100_000),
        ),
        (
            "dependencies",
            json!({"dependentRequired": (0..5000).map(|n| (format!("x{n}"), json!(["y"]))).collect::<Map<_, _>>()}),
            object("1", 100_000),
        ),
        (
            "unevaluated members",
            json!({"allOf": vec![json!({"anyOf": [{"properties": {"k1": true}}, {"properties": {"k2": true}}]}); 40], "unevaluatedProperties": {"type": "integer"}}),
            object("1", 100_000),
        ),
        (
            "unevaluated items",
            json!({"anyOf": vec![json!({"contains": {"const": 1}}); 20], "unevaluatedItems": {"type": "integer"}}),
            list("1", 100_000),
        ),
        ("deep arrays", tree.clone(), list(&nest(60), BODY / 121)),
        (
            "deep and long",
            tree,
            format!("{}\"{}\"{}", "[".repeat(60), "x".repeat(BODY - 200), "]".repeat(60)),
        ),
        (
            "deep numbers",
            json!({"$ref": "#/$defs/t", "$defs": {"t": {"items": {"$ref": "#/$defs/t"}}}}),
            format!("{}{}{}", "[".repeat(60), list("1", BODY / 2 - 100), "]".repeat(60)),
        ),
        ("long numbers", any(200, json!({"multipleOf": 999_999_999_999_999_989_u64})), digits.clone()),
        ("long numbers compared", any(200, json!({"minimum": 8, "maximum": 7})), digits),
        (
            "escapes",
            any(50, json!({"minLength": 1, "pattern": "x"})),
            format!("\"{}\"", "\\u00e9".repeat(BODY / 6 - 1)),
        ),
        ("whitespace", json!({"items": {"items": {}}}), format!("[{}[1]]", " ".repeat(BODY - 10))),
        ("empty names", json!({"type": "object"}), format!("{{\"a\":{}}}", list("{\"\":0}", BODY / 9))),
        (
            "counted characters",
            any(300, json!({"maxLength": 10})),
            format!("\"{}\"", "é".repeat(BODY / 2 - 2)),
        ),
    ]
}

#[test]
#[expect(clippy::print_stdout, reason = "figures, shown by `--no-capture`")]
fn the_worst_admitted_validation_is_short() {
    let mut slow = Vec::new();
    for (what, schema, arguments) in families() {
        let schema = Schema::compile(&schema.to_string()).unwrap_or_else(|why| panic!("{what}: {why}"));
        let run = || {
            let began = now();
            let (checked, left) = schema.run(&arguments, STEPS_MAX);
            (now() - began, checked.is_ok(), STEPS_MAX - left)
        };
        // the best of three, as other processes use this machine; only a release build has figures
        let first = run();
        let is_enough = cfg!(debug_assertions) && first.0 <= LONGEST;
        let more = (0..if is_enough { 0 } else { 2 }).map(|_| run());
        let (took, is_ok, steps) = more.fold(first, |best, next| if next.0 < best.0 { next } else { best });
        println!(
            "{what:36} {took:>12.3?} {steps:>8} steps, {:>5.1} ns each, fit: {is_ok}",
            took.as_nanos() as f64 / steps as f64
        );
        if took > LONGEST {
            slow.push((what, took));
        }
    }
    assert!(slow.is_empty(), "longer than {LONGEST:?}: {slow:?}");
}

#[test]
#[expect(clippy::print_stdout, reason = "figures, shown by `--no-capture`")]
fn compiling_is_short() {
    let schemas = [
        (
            "properties",
            json!({"properties": (0..9000).map(|n| (format!("k{n}"), json!({"type": "integer"}))).collect::<Map<_, _>>()}),
        ),
        ("an enum", json!({"enum": (0..30_000).collect::<Vec<_>>()})),
        (
            "patterns with tables",
            json!({"allOf": (0..60).map(|n| json!({"pattern": format!("^(a|b)*a(a|b){{7}}{n}$")})).collect::<Vec<_>>()}),
        ),
        (
            "patterns without",
            json!({"allOf": (0..400).map(|n| json!({"pattern": format!("(a|b)*a(a|b){{20}}{n}$")})).collect::<Vec<_>>()}),
        ),
        (
            "patterns of letters",
            json!({"allOf": (0..60).map(|n| json!({"pattern": format!("^\\p{{L}}+{n}\\p{{N}}*$")})).collect::<Vec<_>>()}),
        ),
        (
            "classes of letters",
            json!({"allOf": (0..60).map(|n| json!({"pattern": format!("[{}{n}]", "\\p{L}\\P{N}".repeat(15))})).collect::<Vec<_>>()}),
        ),
        (
            "repeated letters",
            json!({"allOf": (0..500).map(|n| json!({"pattern": format!("\\p{{L}}{{160}}{n}")})).collect::<Vec<_>>()}),
        ),
        (
            "references",
            json!({"$ref": "#/$defs/d0", "$defs": (0..90).map(|n| (format!("d{n}"), json!({"anyOf": [{"items": {"$ref": format!("#/$defs/d{}", (n + 1) % 90)}}]}))).collect::<Map<_, _>>()}),
        ),
    ];
    let longest = Duration::from_millis(if cfg!(debug_assertions) { 6000 } else { 200 });
    let mut slow = Vec::new();
    for (what, schema) in schemas {
        let text = schema.to_string();
        let began = now();
        let made = Schema::compile(&text);
        let took = now() - began;
        println!("{what:36} {took:>12.3?} {:?}", made.map(|schema| schema.bytes()));
        if took > longest {
            slow.push((what, took));
        }
    }
    assert!(slow.is_empty(), "longer than {longest:?}: {slow:?}");
}

#[test]
fn what_is_over_a_bound_is_refused_by_its_name() {
    let items = Schema::compile(r#"{"items":{"type":"number"}}"#).unwrap();
    assert_eq!(items.check(&list("1", VALUES_MAX - 1)), Ok(()));
    assert_eq!(items.check(&list("1", VALUES_MAX)), Err(Unfit::Values));
    assert!(Unfit::Values.to_string().contains("200000 values"));
    // values that no rule is about are not read
    let whole = Schema::compile(r#"{"type":"object"}"#).unwrap();
    let (checked, left) = whole.run(&format!("{{\"a\":{}}}", list("{\"\":0}", BODY / 9)), STEPS_MAX);
    assert_eq!(checked, Ok(()));
    assert!(STEPS_MAX - left < 10, "{left}");
    let mut possible = vec![json!({"type": "null"}); 100];
    possible.push(json!({"type": "number"}));
    let wide = Schema::compile(&json!({"items": {"anyOf": possible}}).to_string()).unwrap();
    assert_eq!(wide.check(&list("1", 100_000)), Err(Unfit::Steps(STEPS_MAX)));
    assert_eq!(wide.check_within("[1]", 10), Err(Unfit::Steps(10)));
    let chain = (0..150).fold(json!({"items": {"$ref": "#"}}), |inner, _| json!({"allOf": [inner]}));
    let chain = Schema::compile(&chain.to_string()).unwrap();
    assert_eq!(chain.check(&format!("{}{}", "[".repeat(60), "]".repeat(60))), Err(Unfit::Depth));
    assert_eq!(chain.check("[1,2]"), Ok(()));
    let number = Schema::compile(r#"{"maximum":5}"#).unwrap();
    assert_eq!(number.check("1e1000000000000000000"), Err(Unfit::Exponent));
}

#[test]
fn more_to_do_takes_more_steps() {
    for (what, schema, arguments) in families() {
        let schema = Schema::compile(&schema.to_string()).unwrap();
        let (checked, left) = schema.run(&arguments, STEPS_MAX);
        if checked == Err(Unfit::Steps(STEPS_MAX)) {
            continue;
        }
        let all = STEPS_MAX - left;
        for steps in [0, all / 2, all.saturating_sub(1)] {
            let (checked, left) = schema.run(&arguments, steps);
            assert_eq!((checked, left), (Err(Unfit::Steps(steps)), 0), "{what}: {steps} of {all}");
        }
        assert_ne!(schema.run(&arguments, all).0, Err(Unfit::Steps(all)), "{what}");
    }
}
