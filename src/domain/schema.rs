//! Check 10: arguments against a tool's input schema.
//!
//! Schemas come from hostile servers, arguments from hostile callers. Nothing is fetched, a schema's size and work are
//! bounded when it is compiled, and a validation counts its steps and the values it reads. A schema that is too costly
//! by itself is not used, and arguments that cost too much are refused: neither can delay other calls.

mod arena;
mod compile;
mod cost;
mod dialect;
mod digest;
mod ecma;
mod evaluate;
#[cfg(test)]
mod fuzz;
mod meter;
mod node;
mod number;
mod pattern;
mod resources;
#[cfg(test)]
mod tests;
mod uri;
mod violation;

use std::fmt;

use arena::Arena;
use evaluate::Run;
use meter::Stop;
use node::Compiled;
pub(in crate::domain) use pattern::Pattern;

/// Most values of the arguments, names of members included, that a schema's rules may read.
pub const VALUES_MAX: usize = 200_000;
/// Most steps of one validation; a step is about ten nanoseconds of work.
pub const STEPS_MAX: u64 = 1_000_000;
/// Longest reason why a schema is not used, in Unicode scalar values.
const REASON_BYTES_MAX: usize = 400;

/// Returns the integer that a JSON number is as written (`42.0`, `1e2`), computed exactly; `None` for any other number, and
/// for integers beyond ±(2⁵³ − 1), which some readers round.
pub fn safe_integer(text: &str) -> Option<i64> {
    const MAX: u64 = (1 << 53) - 1;
    let (digits, sign) = text.strip_prefix('-').map_or((text, 1), |digits| (digits, -1));
    let count = number::Number::read(digits).ok()?.count()?;
    (count <= MAX).then(|| i64::try_from(count).ok().map(|count| sign * count))?
}

/// A compiled input schema.
#[derive(Debug)]
pub struct Schema {
    compiled: Compiled,
    bytes: usize,
}

/// Reason why arguments are refused. The text names a path and a rule, or the bound, and never a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// The arguments break a rule; the text names path and rule.
    Rule(String),
    /// The check takes more than this number of steps.
    Steps(u64),
    /// The rules read more than [`VALUES_MAX`] values.
    Values,
    /// More than 400 schemas would be applied inside each other.
    Depth,
    /// A number has an exponent of more than 17 digits, leading zeros aside.
    Exponent,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let depth = evaluate::DEPTH_MAX;
        match self {
            Self::Rule(text) => f.write_str(text),
            Self::Steps(steps) => write!(
                f,
                "the arguments take more than {steps} steps to check against its input schema; send fewer or smaller values"
            ),
            Self::Values => write!(
                f,
                "the arguments have more than {VALUES_MAX} values that its input schema looks at; send fewer"
            ),
            Self::Depth => {
                write!(f, "the arguments nest its input schema deeper than {depth} levels; nest them less")
            }
            Self::Exponent => {
                f.write_str("a number has an exponent of more than 17 digits; send a smaller one")
            }
        }
    }
}

impl Schema {
    /// Compiles a schema's text.
    ///
    /// # Errors
    /// The reason why the schema is not used, for the activity record.
    pub fn compile(text: &str) -> Result<Schema, String> {
        match compile::compile(text) {
            Ok((compiled, bytes)) => Ok(Schema { compiled, bytes: bytes + size_of::<Schema>() }),
            Err(why) => Err(why.chars().take(REASON_BYTES_MAX).collect()),
        }
    }

    /// Returns the memory that the schema takes, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks arguments: JSON without duplicate names.
    ///
    /// # Errors
    /// The first broken rule, or the bound that was met.
    pub fn check(&self, arguments: &str) -> Result<(), Unfit> {
        self.check_within(arguments, STEPS_MAX)
    }

    /// Checks arguments like [`Schema::check`], in at most `steps` steps.
    ///
    /// # Errors
    /// The first broken rule, or the bound that was met.
    pub fn check_within(&self, arguments: &str, steps: u64) -> Result<(), Unfit> {
        self.run(arguments, steps).0
    }

    /// Checks arguments in at most `steps` steps; also returns the steps that are left.
    fn run(&self, arguments: &str, steps: u64) -> (Result<(), Unfit>, u64) {
        let Some((arena, root)) = Arena::open(arguments, VALUES_MAX) else {
            return (Err(Unfit::Values), steps);
        };
        let mut run = Run::new(&self.compiled, arena, steps);
        let ended = run.whole(root);
        let left = run.left();
        let checked = ended.map_err(|stop| match stop {
            Stop::Invalid => Unfit::Rule(run.said()),
            Stop::Steps => Unfit::Steps(steps),
            Stop::Nodes => Unfit::Values,
            Stop::Depth => Unfit::Depth,
            Stop::Exponent => Unfit::Exponent,
        });
        (checked, left)
    }
}
