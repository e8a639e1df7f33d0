//! Validation of a value against a compiled schema. The first broken rule ends the validation; every access takes steps.

mod array;
mod marks;
mod object;
mod scalars;

use self::marks::Marks;
use super::arena::{Arena, Id, NodeKind};
use super::meter::{StepMeter, Stop};
use super::node::{Compiled, IfRule, NodeId, Rule};
use super::violation::{self, PathPart};

/// Deepest chain of schemas that are applied inside each other.
pub(super) const DEPTH_MAX: usize = 400;

/// State of one validation.
pub(super) struct Run<'a, 's> {
    schema: &'s Compiled,
    arena: Arena<'a>,
    meter: StepMeter,
    /// Path of the current value: names and positions.
    at: Vec<PathPart<'s>>,
    /// Path of the current rule: keywords and their parts.
    through: Vec<PathPart<'s>>,
    /// Number of alternatives being tried (see `passes`). A broken rule is reported only where it is 0.
    quiet: usize,
    depth: usize,
    said: String,
}

impl<'a, 's> Run<'a, 's> {
    pub(super) fn new(schema: &'s Compiled, arena: Arena<'a>, steps: u64) -> Run<'a, 's> {
        let meter = StepMeter::new(steps);
        Run {
            schema,
            arena,
            meter,
            at: Vec::new(),
            through: Vec::new(),
            quiet: 0,
            depth: 0,
            said: String::new(),
        }
    }

    /// Checks a value against the whole schema.
    pub(super) fn whole(&mut self, value: Id) -> Result<(), Stop> {
        self.apply(0, value, None)
    }

    /// Returns the sentence about the broken rule, after [`Stop::Invalid`].
    pub(super) fn said(self) -> String {
        self.said
    }

    /// Returns the steps that are left.
    pub(super) fn left(&self) -> u64 {
        self.meter.left()
    }

    /// Applies a node to a value. `marks` collects the members or items that were evaluated.
    fn apply(&mut self, node: NodeId, value: Id, marks: Option<&mut Marks>) -> Result<(), Stop> {
        self.meter.spend(2)?;
        if self.depth >= DEPTH_MAX {
            return Err(Stop::Depth);
        }
        self.depth += 1;
        let schema: &'s Compiled = self.schema;
        let ((rules, looks_back), kind) = (schema.node(node), self.arena.kind(value));
        let mut own = Marks::default();
        if looks_back && matches!(kind, NodeKind::Array | NodeKind::Object) {
            self.rules(rules, value, kind, Some(&mut own))?;
            if let Some(marks) = marks {
                self.meter.spend(marks.merge(&own))?;
            }
        } else {
            self.rules(rules, value, kind, marks)?;
        }
        self.depth -= 1;
        Ok(())
    }

    fn rules(
        &mut self,
        rules: &'s [Rule],
        value: Id,
        kind: NodeKind,
        mut marks: Option<&mut Marks>,
    ) -> Result<(), Stop> {
        for rule in rules {
            self.meter.spend(1)?;
            let marks = marks.as_deref_mut();
            match rule {
                Rule::Object(rule) if kind == NodeKind::Object => self.object(rule, value, marks)?,
                Rule::Array(rule) if kind == NodeKind::Array => self.array(rule, value, marks)?,
                Rule::UnevaluatedProperties(node) if kind == NodeKind::Object => {
                    self.unevaluated_members(*node, value, marks)?;
                }
                Rule::UnevaluatedItems(node) if kind == NodeKind::Array => {
                    self.unevaluated_items(*node, value, marks)?;
                }
                Rule::Ref(keyword, node) => self.below(&[PathPart::Word(keyword)], *node, value, marks)?,
                Rule::AllOf(list) => self.all_of(list, value, marks)?,
                Rule::AnyOf(list) => self.any_of(list, value, marks)?,
                Rule::OneOf(list) => self.one_of(list, value, marks)?,
                Rule::Not(node) => {
                    if self.passes(*node, value, None)? {
                        return Err(
                            self.broken("not", || "the value matches a schema that it must not".into())
                        );
                    }
                }
                Rule::If(rule) => self.either(rule, value, marks)?,
                scalar => self.scalar(scalar, value, kind)?,
            }
        }
        Ok(())
    }

    /// Applies a node to the same value, and extends the path of the rule by `through`.
    fn below(
        &mut self,
        through: &[PathPart<'s>],
        node: NodeId,
        value: Id,
        marks: Option<&mut Marks>,
    ) -> Result<(), Stop> {
        let before = self.through.len();
        self.through.extend_from_slice(through);
        self.apply(node, value, marks)?;
        self.through.truncate(before);
        Ok(())
    }

    /// Applies a node to a child, and extends the path of the value by `at` and that of the rule by `through`.
    fn inside(
        &mut self,
        at: PathPart<'s>,
        through: &[PathPart<'s>],
        node: NodeId,
        child: Id,
    ) -> Result<(), Stop> {
        self.at.push(at);
        self.below(through, node, child, None)?;
        self.at.pop();
        Ok(())
    }

    /// Returns whether a value satisfies a node. A broken rule inside the node is not reported.
    fn passes(&mut self, node: NodeId, value: Id, marks: Option<&mut Marks>) -> Result<bool, Stop> {
        self.meter.spend(1)?;
        let (at, through, depth) = (self.at.len(), self.through.len(), self.depth);
        let mut own = Marks::default();
        self.quiet += 1;
        let applied = self.apply(node, value, marks.is_some().then_some(&mut own));
        self.quiet -= 1;
        match applied {
            Ok(()) => {
                if let Some(marks) = marks {
                    self.meter.spend(marks.merge(&own))?;
                }
                Ok(true)
            }
            Err(Stop::Invalid) => {
                self.at.truncate(at);
                self.through.truncate(through);
                self.depth = depth;
                Ok(false)
            }
            Err(stop) => Err(stop),
        }
    }

    fn all_of(&mut self, list: &'s [NodeId], value: Id, mut marks: Option<&mut Marks>) -> Result<(), Stop> {
        for (at, node) in list.iter().enumerate() {
            let through = [PathPart::Word("allOf"), PathPart::Position(at)];
            self.below(&through, *node, value, marks.as_deref_mut())?;
        }
        Ok(())
    }

    fn any_of(&mut self, list: &'s [NodeId], value: Id, mut marks: Option<&mut Marks>) -> Result<(), Stop> {
        let mut found = false;
        for node in list {
            found |= self.passes(*node, value, marks.as_deref_mut())?;
            // the others matter only for the members or items that they evaluate
            if found && marks.is_none() {
                break;
            }
        }
        if found {
            Ok(())
        } else {
            Err(self.broken("anyOf", || "the value matches none of the schemas".into()))
        }
    }

    fn one_of(&mut self, list: &'s [NodeId], value: Id, mut marks: Option<&mut Marks>) -> Result<(), Stop> {
        let mut found = 0;
        for node in list {
            found += usize::from(self.passes(*node, value, marks.as_deref_mut())?);
            if found > 1 {
                return Err(self.broken("oneOf", || "the value matches more than one of the schemas".into()));
            }
        }
        if found == 1 {
            Ok(())
        } else {
            Err(self.broken("oneOf", || "the value matches none of the schemas".into()))
        }
    }

    fn either(&mut self, rule: &'s IfRule, value: Id, mut marks: Option<&mut Marks>) -> Result<(), Stop> {
        let holds = self.passes(rule.condition, value, marks.as_deref_mut())?;
        let (keyword, branch) = if holds { ("then", rule.then) } else { ("else", rule.otherwise) };
        branch.map_or(Ok(()), |node| self.below(&[PathPart::Word(keyword)], node, value, marks))
    }

    /// Returns [`Stop::Invalid`], and records the broken rule unless an alternative is being tried.
    fn broken(&mut self, keyword: &'static str, text: impl FnOnce() -> String) -> Stop {
        if self.quiet == 0 {
            self.through.push(PathPart::Word(keyword));
            self.said = violation::sentence(&self.arena, &self.at, &text(), &self.through);
        }
        Stop::Invalid
    }
}
