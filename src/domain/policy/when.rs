//! Conditions on arguments, in the Common Expression Language (CEL).
//!
//! The crate `cel` parses and evaluates, and bounds neither. So an expression is short and flat, has no other functions than
//! those listed here, no loop within a loop, and an upper bound of its work that is known before it runs.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, operators as ops};
use cel::common::value::{CowVal, Val};
use cel::context::VariableResolver;
use cel::extractors::This;
use cel::parser::PrattParser;
use cel::{Context, Env, ExecutionError, IdedExpr, Value};
use serde_json::Value as Json;

use crate::domain::log_line;
use crate::domain::near;
use crate::domain::schema::Pattern;

/// Longest expression, in bytes.
pub(super) const EXPRESSION_BYTES_MAX: usize = 1024;
/// Most work of all conditions on one call, in units of about a nanosecond.
pub(super) const WORK_MAX: u64 = 4_000_000;
/// Longest arguments that conditions read, in bytes.
const ARGUMENTS_BYTES_MAX: usize = 64 * 1024;
/// Deepest nesting of an expression.
const DEPTH_MAX: usize = 24;
/// Deepest recursion of the parser.
const PARSER_DEPTH_MAX: u16 = 24;
/// Most patterns in one expression.
const PATTERNS_MAX: usize = 8;
/// Work of a part of an expression that does not depend on the length of a text.
const PART_WORK: u64 = 100;

/// Name of the arguments in expressions.
const ARGUMENTS: &str = "args";
/// Functions with a receiver, and the number of their arguments.
const METHODS: [(&str, usize); 5] =
    [("contains", 1), ("startsWith", 1), ("endsWith", 1), ("matches", 1), ("size", 0)];
/// Functions of one argument.
const FUNCTIONS: [&str; 4] = ["size", "int", "double", "string"];
/// Macros that may be used; the parser replaces them.
const MACROS: [&str; 4] = ["has", "exists", "all", "exists_one"];
/// Operators that take the same time whatever their operands are.
const OPERATORS: [&str; 11] = [
    ops::CONDITIONAL,
    ops::LOGICAL_AND,
    ops::LOGICAL_OR,
    ops::LOGICAL_NOT,
    ops::SUBSTRACT,
    ops::MULTIPLY,
    ops::DIVIDE,
    ops::MODULO,
    ops::NEGATE,
    ops::INDEX,
    ops::NOT_STRICTLY_FALSE,
];
/// Operators that may read their operands whole.
const READING_OPERATORS: [&str; 8] = [
    ops::EQUALS,
    ops::NOT_EQUALS,
    ops::LESS,
    ops::LESS_EQUALS,
    ops::GREATER,
    ops::GREATER_EQUALS,
    ops::IN,
    ops::ADD,
];

static ENVIRONMENT: LazyLock<Arc<Env>> = LazyLock::new(|| {
    // the macros of the standard library, without optional values
    Arc::new(Env::stdlib().with_optional_support(false))
});

/// Compiled condition.
#[derive(Debug)]
pub(super) struct When {
    expression: IdedExpr,
    patterns: Arc<[(String, Pattern)]>,
    work: Work,
}

/// Upper bound of the work of an expression.
#[derive(Debug, Default)]
struct Work {
    once: Load,
    /// Work for each element of the arguments, in loops.
    each: Load,
    /// Most texts that are joined to one.
    joined: u64,
}

#[derive(Debug, Default)]
struct Load {
    parts: u64,
    /// Parts that may read all arguments.
    readings: u64,
    /// Patterns that may be searched for in all arguments, as places in the list.
    patterns: Vec<usize>,
}

impl When {
    /// Compiles a condition.
    ///
    /// # Errors
    /// The reason why the expression is refused, with a near name where one was meant.
    pub(super) fn compile(text: &str) -> Result<When, String> {
        if text.len() > EXPRESSION_BYTES_MAX {
            return Err(format!("is longer than {EXPRESSION_BYTES_MAX} bytes"));
        }
        // the other parser of the crate overflows the stack on expressions of this length
        let parser = PrattParser::new().max_recursion_depth(PARSER_DEPTH_MAX);
        let parsed = catch_unwind(AssertUnwindSafe(|| parser.parse(text)));
        let expression = parsed.map_err(|_| "is no CEL expression".to_owned())?.map_err(|errors| {
            let first = errors.errors.first().map(|error| (error.pos, error.msg.as_str()));
            let ((line, column), message) = first.unwrap_or(((1, 1), "no expression"));
            let message: String = message.chars().take(200).collect();
            let message = log_line::plain(&message);
            format!("is no CEL expression: line {line}, column {column}: {message}")
        })?;
        let mut check = Check { work: Work::default(), patterns: Vec::new(), variables: Vec::new() };
        check.part(&expression, 0)?;
        Ok(When { expression, patterns: check.patterns.into(), work: check.work })
    }

    /// Returns the most work that the condition takes on these arguments.
    fn work(&self, arguments: &Arguments) -> u64 {
        let load = |load: &Load| {
            let read = arguments
                .bytes
                .saturating_add(EXPRESSION_BYTES_MAX)
                .saturating_mul(self.work.joined as usize + 1);
            let patterns = load.patterns.iter().filter_map(|at| self.patterns.get(*at));
            let searched: u64 = patterns.map(|(_, pattern)| pattern.steps(read)).sum();
            load.parts * PART_WORK + load.readings.saturating_mul(read as u64).saturating_add(searched)
        };
        load(&self.work.once).saturating_add(load(&self.work.each).saturating_mul(arguments.values))
    }

    /// Evaluates the condition and takes its work from `left`.
    ///
    /// # Errors
    /// The reason why it has no value. The text shows no value of the arguments.
    pub(super) fn holds(&self, arguments: &Arguments, left: &mut u64) -> Result<bool, String> {
        if arguments.value.is_none() {
            return Err(format!("conditions read at most {ARGUMENTS_BYTES_MAX} bytes of arguments"));
        }
        let work = self.work(arguments);
        *left = left.checked_sub(work).ok_or("the condition is too much work on these arguments")?;
        let mut context = Context::with_env(Arc::clone(&ENVIRONMENT));
        context.set_variable_resolver(arguments);
        let patterns = Arc::clone(&self.patterns);
        let matches = move |This(text): This<Arc<String>>, wanted: Arc<String>| {
            patterns.iter().any(|(own, pattern)| *own == *wanted && pattern.is_found_in(&text))
        };
        context.add_function("matches", matches).map_err(|error| error.to_string())?;
        // a fault of the crate must not end the call's task
        match catch_unwind(AssertUnwindSafe(|| Value::resolve(&self.expression, &context))) {
            Ok(Ok(Value::Bool(holds))) => Ok(holds),
            Ok(Ok(_)) => Err("the condition is neither true nor false".to_owned()),
            Ok(Err(ExecutionError::NoSuchKey(name))) => {
                let name: String = name.chars().take(64).collect();
                Err(format!("the arguments have no '{}'", name.escape_debug()))
            }
            _ => Err("the condition does not fit these arguments".to_owned()),
        }
    }
}

/// Arguments of a call, as conditions see them.
#[derive(Debug)]
pub(super) struct Arguments {
    /// `None` if they are too long or no JSON.
    value: Option<Box<dyn Val>>,
    bytes: usize,
    /// Most values in the text, elements and members alike.
    values: u64,
}

impl Arguments {
    pub(super) fn read(text: &str) -> Arguments {
        let json =
            (text.len() <= ARGUMENTS_BYTES_MAX).then(|| serde_json::from_str::<Json>(text).ok()).flatten();
        let value = json.and_then(|json| value(json).try_into().ok());
        let values = 1 + text.bytes().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count() as u64;
        Arguments { value, bytes: text.len(), values }
    }
}

impl VariableResolver for Arguments {
    fn resolve<'b>(&'b self, variable: &str) -> Option<CowVal<'b, 'b>> {
        (variable == ARGUMENTS).then_some(CowVal::Borrowed(&**self.value.as_ref()?))
    }
}

/// Turns JSON into a value of CEL; whole numbers are `int` where they fit.
fn value(json: Json) -> Value {
    match json {
        Json::Null => Value::Null,
        Json::Bool(is) => Value::Bool(is),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(whole), _) => Value::Int(whole),
            (None, Some(large)) => Value::UInt(large),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::String(Arc::new(text)),
        Json::Array(items) => Value::from(items.into_iter().map(value).collect::<Vec<_>>()),
        Json::Object(members) => Value::from(
            members.into_iter().map(|(name, json)| (name, value(json))).collect::<HashMap<_, _>>(),
        ),
    }
}

/// Check of an expression, part by part.
struct Check {
    work: Work,
    patterns: Vec<(String, Pattern)>,
    /// Variables of the loop that is open.
    variables: Vec<String>,
}

impl Check {
    /// Checks a part. Returns whether it may be as long as all arguments each time, not only their share of one element.
    fn part(&mut self, part: &IdedExpr, depth: usize) -> Result<bool, String> {
        if depth > DEPTH_MAX {
            return Err(format!("is nested deeper than {DEPTH_MAX} levels"));
        }
        self.load().parts += 1;
        match &part.expr {
            Expr::Literal(LiteralValue::Bytes(_)) => Err("must not have bytes".to_owned()),
            Expr::Literal(_) => Ok(false),
            Expr::Ident(name) if name == ARGUMENTS => Ok(true),
            Expr::Ident(name) if self.variables.contains(name) => Ok(false),
            Expr::Ident(name) => Err(unknown("name", name, [ARGUMENTS].into_iter())),
            Expr::Select(select) => self.part(&select.operand, depth + 1),
            Expr::List(list) => {
                let is_long = self.parts(&list.elements, depth)?;
                self.reads(is_long);
                Ok(is_long)
            }
            Expr::Call(call) => self.call(call, depth),
            Expr::Comprehension(looped) => self.looped(looped, depth),
            Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => {
                Err("must not make maps or messages".to_owned())
            }
        }
    }

    fn parts(&mut self, parts: &[IdedExpr], depth: usize) -> Result<bool, String> {
        let mut is_long = false;
        for part in parts {
            is_long |= self.part(part, depth + 1)?;
        }
        Ok(is_long)
    }

    fn call(&mut self, call: &CallExpr, depth: usize) -> Result<bool, String> {
        let name = call.func_name.as_str();
        let of_target = call.target.as_ref().map(|target| self.part(target, depth + 1)).transpose()?;
        let is_long = self.parts(&call.args, depth)? | of_target.unwrap_or_default();
        if call.target.is_none() && OPERATORS.contains(&name) {
            return Ok(is_long);
        }
        let is_known = match &call.target {
            None => READING_OPERATORS.contains(&name) || (FUNCTIONS.contains(&name) && call.args.len() == 1),
            Some(_) => METHODS.contains(&(name, call.args.len())),
        };
        if !is_known {
            let known = METHODS.iter().map(|(method, _)| *method).chain(FUNCTIONS).chain(MACROS);
            return Err(unknown("function", name, known));
        }
        self.work.joined += u64::from(name == ops::ADD);
        if name == "matches" {
            self.pattern(&call.args, is_long)?;
        } else {
            self.reads(is_long);
        }
        Ok(is_long)
    }

    /// Compiles the pattern of `matches`, which must be written out, so that nothing compiles at a call.
    fn pattern(&mut self, arguments: &[IdedExpr], is_long: bool) -> Result<(), String> {
        let [IdedExpr { expr: Expr::Literal(LiteralValue::String(text)), .. }] = arguments else {
            return Err("the pattern of matches() must be a text in quotes".to_owned());
        };
        let pattern = Pattern::compile_with_case(text.inner())?;
        if self.patterns.len() == PATTERNS_MAX {
            return Err(format!("has more than {PATTERNS_MAX} patterns"));
        }
        let at = self.patterns.len();
        self.patterns.push((text.inner().to_owned(), pattern));
        let is_each = is_long && !self.variables.is_empty();
        let load = if is_each { &mut self.work.each } else { &mut self.work.once };
        load.patterns.push(at);
        Ok(())
    }

    /// Checks a loop over elements or names of members.
    fn looped(&mut self, looped: &ComprehensionExpr, depth: usize) -> Result<bool, String> {
        if !self.variables.is_empty() {
            return Err("must not have a loop within a loop".to_owned());
        }
        if matches!(looped.accu_init.expr, Expr::List(_)) {
            return Err("must not make lists: use exists(), all() or exists_one()".to_owned());
        }
        if looped.iter_var == ARGUMENTS {
            return Err(format!("must not call its own variable '{ARGUMENTS}'"));
        }
        self.part(&looped.iter_range, depth + 1)?;
        // each element is copied for its turn
        self.work.once.readings += 1;
        self.variables = vec![looped.iter_var.clone(), looped.accu_var.clone()];
        self.variables.extend(looped.iter_var2.clone());
        for part in [&looped.accu_init, &looped.loop_cond, &looped.loop_step, &looped.result] {
            self.part(part, depth + 1)?;
        }
        self.variables.clear();
        Ok(false)
    }

    fn load(&mut self) -> &mut Load {
        if self.variables.is_empty() { &mut self.work.once } else { &mut self.work.each }
    }

    /// Counts a part that reads its operands. Those of a loop's elements are read once in all its turns.
    fn reads(&mut self, is_long: bool) {
        let is_each = is_long && !self.variables.is_empty();
        let load = if is_each { &mut self.work.each } else { &mut self.work.once };
        load.readings += 1;
    }
}

fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let shown: String = name.chars().take(64).flat_map(char::escape_debug).collect();
    match near::closest(name, known.clone()) {
        Some(meant) => format!("has an unknown {kind} '{shown}'; did you mean '{meant}'?"),
        None => format!("has an unknown {kind} '{shown}'; known: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests {
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
            ("args.a.matches('(a')", "does not compile"),
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
}
