//! Compiled schemas: nodes of rules, which refer to each other by number.

use std::hash::RandomState;

use super::number::Divisor;
use super::pattern::Pattern;

/// Number of a node.
pub(super) type NodeId = u32;

/// Compiled schema. The first node is its root.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) nodes: Box<[Node]>,
    pub(super) patterns: Box<[Pattern]>,
    /// Keys of the digests in the rules.
    pub(super) keys: [RandomState; 2],
}

/// Rules of one schema object, in the order in which they are checked.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) rules: Box<[Rule]>,
    /// True if an `unevaluated…` rule needs the members or items that the other rules evaluated.
    pub(super) looks_back: bool,
}

/// Kind of a numeric bound, such as `minimum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NumberBound {
    Minimum,
    ExclusiveMinimum,
    Maximum,
    ExclusiveMaximum,
}

/// Unit that `minLength`, `maxItems` and the like count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CountedKeywords {
    Characters,
    Items,
    Members,
}

/// Rule of a schema object.
#[derive(Debug)]
pub(super) enum Rule {
    /// Schema `false`.
    Never,
    /// Kinds that are allowed, as bits of [`super::compile::TYPES`].
    Type(u8),
    Values(Box<Values>),
    NumberBound(NumberBound, Box<str>),
    MultipleOf(Box<(Divisor, Box<str>)>),
    Count {
        counted: CountedKeywords,
        is_most: bool,
        limit: u64,
    },
    Pattern(u32),
    Object(Box<ObjectRule>),
    Array(Box<ArrayRule>),
    /// `$ref`, `$recursiveRef` or `$dynamicRef`, with its keyword.
    Ref(&'static str, NodeId),
    AllOf(Box<[NodeId]>),
    AnyOf(Box<[NodeId]>),
    OneOf(Box<[NodeId]>),
    Not(NodeId),
    If(Box<IfRule>),
    UnevaluatedItems(NodeId),
    UnevaluatedProperties(NodeId),
}

/// Rule of `enum` or `const`.
#[derive(Debug)]
pub(super) struct Values {
    pub(super) keyword: &'static str,
    /// Digests of the values, sorted.
    pub(super) digests: Box<[u128]>,
    /// Kinds of the values, as bits by [`super::arena::NodeKind`].
    pub(super) kinds: u8,
}

/// Rule of `if`, `then` and `else`.
#[derive(Debug)]
pub(super) struct IfRule {
    pub(super) condition: NodeId,
    pub(super) then: Option<NodeId>,
    pub(super) otherwise: Option<NodeId>,
}

/// Rules about the members of an object.
#[derive(Debug, Default)]
pub(super) struct ObjectRule {
    /// Names of `properties` and `required`, sorted.
    pub(super) names: Box<[Name]>,
    /// Number of names that are required.
    pub(super) required: usize,
    /// Patterns of `patternProperties`.
    pub(super) patterns: Box<[(u32, NodeId)]>,
    pub(super) additional: Option<NodeId>,
    pub(super) property_names: Option<NodeId>,
    pub(super) dependencies: Box<[Dependency]>,
}

/// Name of a member that an [`ObjectRule`] knows.
#[derive(Debug)]
pub(super) struct Name {
    pub(super) name: Box<str>,
    pub(super) property: Option<NodeId>,
    pub(super) is_required: bool,
}

/// Rule that applies when an object has the member `name`.
#[derive(Debug)]
pub(super) struct Dependency {
    pub(super) keyword: &'static str,
    pub(super) name: Box<str>,
    pub(super) needs: Needs,
}

/// Requirement of a [`Dependency`]: the names of other members, or a schema for the object.
#[derive(Debug)]
pub(super) enum Needs {
    Names(Box<[Box<str>]>),
    Schema(NodeId),
}

/// Rules about the items of an array.
#[derive(Debug, Default)]
pub(super) struct ArrayRule {
    /// Schemas of the first items, by position.
    pub(super) prefix: Box<[NodeId]>,
    pub(super) prefix_keyword: &'static str,
    /// Schema of the items after `prefix`.
    pub(super) rest: Option<NodeId>,
    pub(super) rest_keyword: &'static str,
    pub(super) contains: Option<Contains>,
    pub(super) is_unique: bool,
}

/// Rule of `contains` with its counts.
#[derive(Debug)]
pub(super) struct Contains {
    pub(super) node: NodeId,
    pub(super) min: u64,
    pub(super) max: Option<u64>,
    /// True if matching items count as evaluated (since draft 2020-12).
    pub(super) marks: bool,
}

impl Compiled {
    /// Returns the rules of a node, and its `looks_back`.
    pub(super) fn node(&self, id: NodeId) -> (&[Rule], bool) {
        self.nodes.get(id as usize).map_or((&[], false), |node| (&*node.rules, node.looks_back))
    }

    /// Returns whether a node is the schema `false`.
    pub(super) fn is_never(&self, id: NodeId) -> bool {
        matches!(self.node(id), ([Rule::Never], _))
    }
}
