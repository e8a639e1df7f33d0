//! Conditions on arguments, in the Common Expression Language (CEL).
//!
//! The crate `cel` parses and evaluates, and bounds neither. So an expression is short and flat, has no other functions than
//! those listed here, no loop within a loop, and an upper bound of its work that is known before it runs.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, operators as ops};
use cel::common::types::CelBool;
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
/// Work of copying or comparing one value, beside its text.
const VALUE_WORK: u64 = 50;
/// Work of a step of a pattern.
const STEP_WORK: u64 = 4;
/// Longest text of a number, in bytes: that of a fraction near zero.
const NUMBER_BYTES_MAX: usize = 400;

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
const OPERATORS: [&str; 6] = [
    ops::CONDITIONAL,
    ops::LOGICAL_AND,
    ops::LOGICAL_OR,
    ops::LOGICAL_NOT,
    ops::NEGATE,
    ops::NOT_STRICTLY_FALSE,
];
/// Operators that may read their operands whole: an error copies them.
const READING_OPERATORS: [&str; 10] = [
    ops::LESS,
    ops::LESS_EQUALS,
    ops::GREATER,
    ops::GREATER_EQUALS,
    ops::IN,
    ops::ADD,
    ops::SUBSTRACT,
    ops::MULTIPLY,
    ops::DIVIDE,
    ops::MODULO,
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
    /// Work of each turn, in loops.
    each: Load,
    /// Times that a loop may run over all arguments, beside what is written out in the expression.
    turns: u64,
}

#[derive(Debug, Default)]
struct Load {
    parts: u64,
    /// Times that the text of all arguments may be read.
    readings: u64,
    /// Times that all values of the arguments may be copied or compared.
    visits: u64,
    /// Work on what is as long whatever the arguments are.
    fixed: u64,
    /// Patterns, as places in the list, with the length of the text.
    patterns: Vec<(usize, Extent)>,
}

/// Length that the value of a part may have: a sum.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    /// Times that all arguments may be in it.
    arguments: u64,
    /// Times that one element of the open loop may be in it.
    elements: u64,
    /// Bytes besides: literals, and numbers as texts.
    fixed: u64,
}

impl Extent {
    fn fixed(bytes: usize) -> Extent {
        Extent { fixed: bytes as u64, ..Extent::default() }
    }

    fn and(self, other: Extent) -> Extent {
        Extent {
            arguments: self.arguments + other.arguments,
            elements: self.elements + other.elements,
            fixed: self.fixed + other.fixed,
        }
    }

    /// Returns so many of what is as long as this.
    fn times(self, times: u64) -> Extent {
        Extent {
            arguments: self.arguments * times,
            elements: self.elements * times,
            fixed: self.fixed * times,
        }
    }
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
        let mut check = Check {
            work: Work::default(),
            patterns: Vec::new(),
            variables: Vec::new(),
            range: Extent::default(),
        };
        check.part(&expression, 0)?;
        Ok(When { expression, patterns: check.patterns.into(), work: check.work })
    }

    /// Returns the most work that the condition takes on these arguments.
    fn work(&self, arguments: &Arguments) -> u64 {
        let bytes = arguments.bytes as u64;
        let load = |load: &Load| {
            let steps = |(at, extent): &(usize, Extent)| {
                let bytes = extent.arguments.saturating_mul(bytes).saturating_add(extent.fixed);
                let steps = self.patterns.get(*at).map(|(_, pattern)| pattern.steps(bytes as usize));
                steps.unwrap_or_default().saturating_mul(STEP_WORK)
            };
            let all = [
                load.parts * PART_WORK,
                load.readings.saturating_mul(bytes),
                load.visits.saturating_mul(arguments.values * VALUE_WORK),
                load.fixed,
            ];
            all.into_iter().chain(load.patterns.iter().map(steps)).fold(0, u64::saturating_add)
        };
        let turns = self.work.turns.saturating_mul(arguments.values).saturating_add(self.work.once.parts);
        load(&self.work.once).saturating_add(load(&self.work.each).saturating_mul(turns))
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
        let held = catch_unwind(AssertUnwindSafe(|| {
            // the value may be all of the arguments: it is not copied
            let value = Value::resolve_val(&self.expression, &context)?;
            Ok(value.downcast_ref::<CelBool>().map(|held| *held.inner()))
        }));
        match held {
            Ok(Ok(Some(holds))) => Ok(holds),
            Ok(Ok(None)) => Err("the condition is neither true nor false".to_owned()),
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
    /// Length of what that loop runs over.
    range: Extent,
}

impl Check {
    /// Checks a part. Returns how long its value may be.
    fn part(&mut self, part: &IdedExpr, depth: usize) -> Result<Extent, String> {
        if depth > DEPTH_MAX {
            return Err(format!("is nested deeper than {DEPTH_MAX} levels"));
        }
        self.load().parts += 1;
        match &part.expr {
            Expr::Literal(LiteralValue::Bytes(_)) => Err("must not have bytes".to_owned()),
            Expr::Literal(LiteralValue::String(text)) => Ok(Extent::fixed(text.inner().len())),
            Expr::Literal(_) => Ok(Extent::default()),
            Expr::Ident(name) if name == ARGUMENTS => Ok(Extent { arguments: 1, ..Extent::default() }),
            Expr::Ident(name) if self.variables.contains(name) => {
                Ok(Extent { elements: 1, ..Extent::default() })
            }
            Expr::Ident(name) => Err(unknown("name", name, [ARGUMENTS].into_iter())),
            Expr::Select(select) => {
                // the name is looked up by its hash
                self.load().fixed += select.field.len() as u64;
                self.part(&select.operand, depth + 1)
            }
            Expr::List(list) => {
                let places = Extent::fixed(list.elements.len() * VALUE_WORK as usize);
                let extent = self.parts(&list.elements, depth)?.and(places);
                self.reads(extent);
                self.visits(extent);
                Ok(extent)
            }
            Expr::Call(call) => self.call(call, depth),
            Expr::Comprehension(looped) => self.looped(looped, depth),
            Expr::Map(_) | Expr::Struct(_) | Expr::Unspecified => {
                Err("must not make maps or messages".to_owned())
            }
        }
    }

    fn parts(&mut self, parts: &[IdedExpr], depth: usize) -> Result<Extent, String> {
        parts.iter().try_fold(Extent::default(), |all, part| Ok(all.and(self.part(part, depth + 1)?)))
    }

    fn call(&mut self, call: &CallExpr, depth: usize) -> Result<Extent, String> {
        let name = call.func_name.as_str();
        match (&call.target, name, call.args.as_slice()) {
            (None, ops::INDEX, [of, index]) => {
                let of = self.part(of, depth + 1)?;
                // a name is hashed, and nothing else is read
                let index = self.part(index, depth + 1)?;
                self.reads(index);
                return Ok(of);
            }
            (None, ops::EQUALS | ops::NOT_EQUALS, [left, right]) => {
                let both = [self.part(left, depth + 1)?, self.part(right, depth + 1)?];
                // no more of the longer one is read than the shorter one has
                let shorter = both.into_iter().min_by_key(|extent| (extent.arguments, extent.fixed));
                let shorter = shorter.unwrap_or_default();
                self.reads(shorter);
                self.visits(shorter);
                return Ok(Extent::default());
            }
            _ => {}
        }
        let of_target = call.target.as_ref().map(|target| self.part(target, depth + 1)).transpose()?;
        let of_target = of_target.unwrap_or_default();
        let extent = self.parts(&call.args, depth)?.and(of_target);
        if call.target.is_none() && OPERATORS.contains(&name) {
            return Ok(extent);
        }
        let is_known = match &call.target {
            None => READING_OPERATORS.contains(&name) || (FUNCTIONS.contains(&name) && call.args.len() == 1),
            Some(_) => METHODS.contains(&(name, call.args.len())),
        };
        if !is_known {
            let known = METHODS.iter().map(|(method, _)| *method).chain(FUNCTIONS).chain(MACROS);
            return Err(unknown("function", name, known));
        }
        self.reads(extent);
        if name == "matches" {
            self.pattern(&call.args, of_target)?;
        }
        // what is no text is copied before matches() refuses it
        if name == "matches" || READING_OPERATORS.contains(&name) {
            self.visits(extent);
        }
        let number = if name == "string" { NUMBER_BYTES_MAX } else { 0 };
        Ok(extent.and(Extent::fixed(number)))
    }

    /// Compiles the pattern of `matches`, which must be written out, so that nothing compiles at a call.
    fn pattern(&mut self, arguments: &[IdedExpr], searched: Extent) -> Result<(), String> {
        let [IdedExpr { expr: Expr::Literal(LiteralValue::String(text)), .. }] = arguments else {
            return Err("the pattern of matches() must be a text in quotes".to_owned());
        };
        let pattern = Pattern::compile_with_case(text.inner())
            .map_err(|why| format!("calls matches('{}'): {why}", shown(text.inner())))?;
        if self.patterns.len() == PATTERNS_MAX {
            return Err(format!("has more than {PATTERNS_MAX} patterns"));
        }
        let at = self.patterns.len();
        self.patterns.push((text.inner().to_owned(), pattern));
        self.load().patterns.push((at, searched));
        if searched.elements > 0 {
            self.work.once.patterns.push((at, self.range.times(searched.elements)));
        }
        Ok(())
    }

    /// Checks a loop over elements or names of members.
    fn looped(&mut self, looped: &ComprehensionExpr, depth: usize) -> Result<Extent, String> {
        if !self.variables.is_empty() {
            return Err("must not have a loop within a loop".to_owned());
        }
        if matches!(looped.accu_init.expr, Expr::List(_)) {
            return Err("must not make lists: use exists(), all() or exists_one()".to_owned());
        }
        if looped.iter_var == ARGUMENTS {
            return Err(format!("must not call its own variable '{ARGUMENTS}'"));
        }
        let range = self.part(&looped.iter_range, depth + 1)?;
        // each element is copied for its turn
        self.reads(range);
        self.visits(range);
        self.work.turns = self.work.turns.max(range.arguments);
        self.range = range;
        self.variables = vec![looped.iter_var.clone(), looped.accu_var.clone()];
        self.variables.extend(looped.iter_var2.clone());
        for part in [&looped.accu_init, &looped.loop_cond, &looped.loop_step, &looped.result] {
            self.part(part, depth + 1)?;
        }
        self.variables.clear();
        self.range = Extent::default();
        Ok(Extent::default())
    }

    /// Returns the load of the part that is checked: that of each turn within a loop.
    fn load(&mut self) -> &mut Load {
        if self.variables.is_empty() { &mut self.work.once } else { &mut self.work.each }
    }

    /// Counts that a text is read. The elements of a loop are together as long as what it runs over.
    fn reads(&mut self, extent: Extent) {
        let of_elements = self.range.times(extent.elements);
        self.load().readings += extent.arguments;
        self.load().fixed += extent.fixed;
        self.work.once.readings += of_elements.arguments;
        self.work.once.fixed += of_elements.fixed;
    }

    /// Counts that each value is copied or compared.
    fn visits(&mut self, extent: Extent) {
        self.load().visits += extent.arguments;
        self.work.once.visits += self.range.times(extent.elements).arguments;
    }
}

/// Returns a part of the expression as a fault repeats it.
fn shown(text: &str) -> String {
    text.chars().take(64).flat_map(char::escape_debug).collect()
}

fn unknown<'a>(kind: &str, name: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let shown = shown(name);
    match near::closest(name, known.clone()) {
        Some(meant) => format!("has an unknown {kind} '{shown}'; did you mean '{meant}'?"),
        None => format!("has an unknown {kind} '{shown}'; known: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

#[cfg(test)]
mod tests;
