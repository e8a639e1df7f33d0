use proptest::prelude::*;

use super::*;

fn run(when: &str, arguments: &str) -> Result<bool, String> {
    let when = When::compile(when).unwrap_or_else(|why| panic!("{when}: {why}"));
    when.holds(&Arguments::read(arguments), &mut WORK_MAX.clone())
}

#[test]
fn conditions_on_arguments() {
    for (when, arguments, expected) in [
        (r#"args.sql.matches("(?i)\\b(DROP|TRUNCATE)\\b")"#, r#"{"sql":"drop table a"}"#, true),
        (r#"args.sql.matches("(?i)\\b(DROP|TRUNCATE)\\b")"#, r#"{"sql":"select dropped"}"#, false),
        ("args.n > 5 && args.n < 10", r#"{"n":7}"#, true),
        ("args.n == 5", r#"{"n":5}"#, true),
        ("args.n >= 9223372036854775808u", r#"{"n":9223372036854775808}"#, true),
        ("has(args.force) && args.force", r#"{}"#, false),
        ("!has(args.a.b)", r#"{"a":{}}"#, true),
        (r#"args["a b"] == "x""#, r#"{"a b":"x"}"#, true),
        (r#"args.to.exists(a, !a.endsWith("@acme.com"))"#, r#"{"to":["a@acme.com","b@x.org"]}"#, true),
        (r#"args.to.all(a, a.endsWith("@acme.com"))"#, r#"{"to":["a@acme.com","b@x.org"]}"#, false),
        (r#"args.to.exists_one(a, a == "x")"#, r#"{"to":["x","y"]}"#, true),
        (r#"args.exists(name, name.startsWith("x_"))"#, r#"{"x_a":1}"#, true),
        (r#"args.env in ["prod", "staging"]"#, r#"{"env":"prod"}"#, true),
        ("size(args.ids) > 2 || args.ids.size() == 0", r#"{"ids":[1,2,3]}"#, true),
        ("args.a == null ? true : int(args.a) > 3", r#"{"a":"4"}"#, true),
    ] {
        assert_eq!(run(when, arguments), Ok(expected), "{when} on {arguments}");
    }
}

#[test]
fn errors_show_no_values() {
    for (when, arguments, expected) in [
        ("args.sql == 'x'", r#"{}"#, "the arguments have no 'sql'"),
        ("args.sql", r#"{"sql":"hunter2"}"#, "the condition is neither true nor false"),
        ("args.sql > 3", r#"{"sql":"hunter2"}"#, "the condition does not fit these arguments"),
        ("args.sql.matches('a')", r#"{"sql":7}"#, "the condition does not fit these arguments"),
        ("args.a / 0 == 1", r#"{"a":1}"#, "the condition does not fit these arguments"),
    ] {
        assert_eq!(run(when, arguments), Err(expected.to_owned()), "{when}");
    }
    let long = format!(r#"{{"a":"{}"}}"#, "x".repeat(ARGUMENTS_BYTES_MAX));
    assert!(run("args.a == 'x'", &long).unwrap_err().contains("65536 bytes"));
}

#[test]
fn what_is_refused_when_it_is_saved() {
    let unary = ["!", "-", "- ", "[", "(", "args[", "args.a(", "true ? 1 : ", "1?1:", "true ? "];
    for beginning in unary {
        assert!(
            When::compile(&beginning.repeat(EXPRESSION_BYTES_MAX / beginning.len())).is_err(),
            "{beginning}"
        );
        let whole = format!("{}true", beginning.repeat(EXPRESSION_BYTES_MAX / beginning.len() - 4));
        drop(When::compile(&whole));
    }
    for end in [".a", "[1]", " + 1", " && true", " == 1", ".a()"] {
        let whole = format!("args{}", end.repeat(EXPRESSION_BYTES_MAX / end.len() - 4));
        drop(When::compile(&whole));
    }
    let deep = format!("{}true{}", "!(".repeat(40), ")".repeat(40));
    let chain = vec!["args.a"; 60].join(" + ");
    let long = "args.a == 1 && ".repeat(80);
    for (when, expected) in [
        ("args.a ==", "is no CEL expression"),
        ("", "is no CEL expression"),
        ("arg.a == 1", "unknown name 'arg'; did you mean 'args'?"),
        ("env.HOME == 1", "unknown name 'env'"),
        ("args.a.startWith('x')", "did you mean 'startsWith'?"),
        ("args.a.map(x, x) == []", "must not make lists"),
        ("args.a.filter(x, true) == []", "must not make lists"),
        ("args.a.exists(x, x.exists(y, y == 1))", "a loop within a loop"),
        ("args.a.exists(args, true)", "must not call its own variable"),
        ("args.a.matches(args.b)", "must be a text in quotes"),
        ("args.a.matches('(a')", "calls matches('(a'): a pattern does not compile: unclosed group"),
        ("args.a.matches('(?=a)')", "calls matches('(?=a)'): a pattern does not compile: "),
        ("{'a': 1}.a == 1", "must not make maps"),
        ("args.?a == 1", "is no CEL expression"),
        ("type(args) == map", "unknown function 'type'"),
        ("args.a == b'x'", "must not have bytes"),
        (&deep, "is "),
        (&chain, "is "),
        (&long, "is longer than 1024 bytes"),
    ] {
        let why = When::compile(when).map(|_| ()).unwrap_err();
        assert!(why.contains(expected), "{when}: {why}");
    }
}

#[test]
fn work_is_bounded_before_it_is_done() {
    let list = |count: usize| {
        format!(r#"{{"to":[{}"z"],"s":"{}"}}"#, "\"a@acme.com\",".repeat(count), "x".repeat(1000))
    };
    let one = r#"args.to.exists(a, a.endsWith("@acme.org"))"#;
    assert_eq!(run(one, &list(2000)), Ok(false));
    // each element against all of another text
    let all = "args.to.exists(a, args.s.contains(a))";
    assert_eq!(run(all, &list(20)), Ok(false));
    assert!(run(all, &list(2000)).unwrap_err().contains("too much work"));
    // conditions of one call share the bound
    let (when, arguments) = (When::compile(one).unwrap(), Arguments::read(&list(1000)));
    let mut left = WORK_MAX;
    let held = (0..100).take_while(|_| when.holds(&arguments, &mut left).is_ok()).count();
    assert!((1..99).contains(&held), "{held}");
}

/// Returns the least work that a condition does on arguments: bytes that it searches, turn by turn.
fn searched(turns: usize, bytes: usize, pattern: &str) -> u64 {
    turns as u64 * Pattern::compile_with_case(pattern).unwrap().steps(bytes)
}

#[test]
fn the_worst_conditions_are_bounded() {
    let numbers =
        |count: usize, number: &str| format!(r#"{{"xs":[{}1]}}"#, format!("{number},").repeat(count - 1));
    let literal = "a".repeat(900);
    let states = r"\p{L}{8}1";
    let ten =
        "args.xs + args.xs + args.xs + args.xs + args.xs + args.xs + args.xs + args.xs + args.xs + args.xs";
    let listed = format!("[{}\"b\"]", r#""a","#.repeat(150));
    for (when, arguments, actual) in [
        // a literal of the condition in each turn
        (
            format!(r#"args.xs.exists(x, ("{literal}" + string(x)).matches("b$"))"#),
            numbers(10_000, "1"),
            searched(10_000, 901, "b$"),
        ),
        (
            format!(r#"args.xs.exists(x, ("{literal}" + string(x)).matches("\{states}"))"#),
            numbers(100, "1"),
            searched(100, 901, states),
        ),
        (
            format!(r#"args.xs.exists(x, "{literal}".matches("b$"))"#),
            numbers(10_000, "1"),
            searched(10_000, 900, "b$"),
        ),
        (format!(r#"args.xs.exists(x, "{literal}" < string(x))"#), numbers(10_000, "1"), 10_000 * 900),
        (format!(r#"args.xs.exists(x, size("{literal}") == 1)"#), numbers(10_000, "1"), 10_000 * 900),
        (format!("args.xs.exists(x, has(x.{literal}))"), numbers(10_000, "1"), 10_000 * 900),
        // numbers whose text is longer than they are
        (
            r#"args.xs.exists(x, string(x).matches("b$"))"#.to_owned(),
            numbers(8000, "1e-307"),
            searched(8000, 309, "b$"),
        ),
        (
            r#"args.xs.exists(x, (string(x) + string(x) + string(x)).contains("b"))"#.to_owned(),
            numbers(8000, "1e-307"),
            8000 * 3 * 309,
        ),
        // a text of the arguments in each turn
        (
            "args.xs.exists(x, args.m[args.s])".to_owned(),
            format!(r#"{{"xs":[{}1],"m":{{}},"s":"{}"}}"#, "1,".repeat(9999), "a".repeat(30_000)),
            10_000 * 30_000,
        ),
        (
            "args.xs.exists(x, args.s - x == 1)".to_owned(),
            format!(r#"{{"xs":[{}1],"s":"{}"}}"#, "1,".repeat(9999), "a".repeat(30_000)),
            10_000 * 30_000,
        ),
        // more turns than the arguments have values
        (
            format!(r#"({ten}).exists(x, string(x).matches("b$"))"#),
            numbers(2000, "1"),
            searched(20_000, 1, "b$"),
        ),
        (
            format!(r#"{listed}.exists(x, (args.s + x).matches("b$"))"#),
            format!(r#"{{"s":"{}"}}"#, "a".repeat(60_000)),
            searched(150, 60_000, "b$"),
        ),
        // copies of many small values
        (format!("[{}1] == args", "args.xs,".repeat(100)), numbers(30_000, "1"), 100 * 30_000 * 20),
    ] {
        let condition = When::compile(&when).unwrap_or_else(|why| panic!("{when}: {why}"));
        let read = Arguments::read(&arguments);
        assert!(read.value.is_some(), "{when}");
        let work = condition.work(&read);
        assert!(work >= actual, "{when}: {work} for {actual}");
        if actual > WORK_MAX {
            assert!(run(&when, &arguments).unwrap_err().contains("too much work"), "{when}");
        }
    }
}

#[test]
fn usual_conditions_read_long_arguments() {
    let recipients = |count: usize| {
        format!(r#"{{"to":[{}"z@acme.com"],"from":"a@x.org"}}"#, "\"a@acme.com\",".repeat(count - 1))
    };
    for (when, arguments) in [
        ("args.to.exists(x, x == args.from)", recipients(1000)),
        (r#"args.to.exists(x, x.matches("(?i)@evil\\.org$"))"#, recipients(1000)),
        (r#"args.to.exists(x, x in ["a@x.org", "b@x.org"])"#, recipients(1000)),
        ("args.from in args.to", recipients(3000)),
        (
            r#"args.sql.matches("(?i)\\b(DROP|TRUNCATE)\\b") || args.sql.contains("; ")"#,
            format!(r#"{{"sql":"{}"}}"#, "select a ".repeat(7000)),
        ),
    ] {
        assert_eq!(run(when, &arguments), Ok(false), "{when}");
    }
}

proptest! {
    #[test]
    fn any_expression_and_arguments_are_survived(
        when in r#"(args|x|[0-9]|"a")(\.(a|exists|size|matches)|\[|\]|\(|\)| (==|\+|&&|\?|:|in) |args|x|1|"a"|,){0,12}"#,
        arguments in r#"\{"a":([0-9]|"a"|\[1,"a"\]|null|\{"a":1\})\}"#,
    ) {
        if let Ok(when) = When::compile(&when) {
            drop(when.holds(&Arguments::read(&arguments), &mut WORK_MAX.clone()));
        }
    }
}
