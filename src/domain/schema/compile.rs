//! Compiler from a schema's text to its rules, with bounds on nodes, bytes, patterns and work.

mod keywords;

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::RandomState;

use super::arena::{Arena, Id, NodeKind};
use super::cost;
use super::dialect::Draft;
use super::meter::StepMeter;
use super::node::{Compiled, Node, NodeId, Rule};
use super::pattern::Pattern;
use super::resources::{Resources, too_large};

/// Longest schema, in bytes.
const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Most values of a schema's text.
const VALUES_MAX: usize = 200_000;
/// Most steps that compiling takes, patterns apart.
const STEPS_MAX: u64 = 10_000_000;
/// Most bytes of a compiled schema.
const BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes of all patterns of a schema, as they are written.
const PATTERNS_TEXT_BYTES_MAX: usize = 64 * 1024;
/// Most bytes of all patterns of a schema, compiled.
const PATTERNS_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Most patterns of a schema for which the search for a table may fail: a failed search takes long.
const TABLES_MISSED_MAX: usize = 8;

/// Names of the types, by bit of [`Rule::Type`].
pub(super) const TYPES: [&str; 7] = ["null", "boolean", "number", "string", "array", "object", "integer"];

/// Compiles a schema. Also returns its size in memory, in bytes.
///
/// # Errors
/// The reason why the schema is not used, for the activity record.
pub(super) fn compile(text: &str) -> Result<(Compiled, usize), String> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("it is longer than {TEXT_BYTES_MAX} bytes"));
    }
    // the arena needs JSON; a row of an old database may contain anything
    serde_json::from_str::<serde::de::IgnoredAny>(text)
        .map_err(|error| format!("it is not JSON: {error}"))?;
    let mut meter = StepMeter::new(STEPS_MAX);
    let (mut arena, root) = Arena::open(text, VALUES_MAX).ok_or("it is empty")?;
    let draft = draft(&mut arena, &mut meter, root)?;
    let resources = Resources::scan(&mut arena, &mut meter, root, draft)?;
    let mut compiler = Compiler {
        arena,
        meter,
        draft,
        resources,
        nodes: Vec::new(),
        open: Vec::new(),
        known: HashMap::new(),
        patterns: Vec::new(),
        pattern_texts: HashMap::new(),
        pattern_bytes: 0,
        tables_missed: 0,
        text_bytes: 0,
        bytes: 0,
        keys: [RandomState::new(), RandomState::new()],
    };
    compiler.node(root)?;
    while let Some((node, schema)) = compiler.open.pop() {
        compiler.fill(node, schema)?;
    }
    cost::check(&compiler.nodes)?;
    let bytes = compiler.bytes + compiler.pattern_bytes;
    let (nodes, patterns) = (compiler.nodes.into(), compiler.patterns.into());
    Ok((Compiled { nodes, patterns, keys: compiler.keys }, bytes))
}

fn draft(arena: &mut Arena<'_>, meter: &mut StepMeter, root: Id) -> Result<Draft, String> {
    if arena.kind(root) != NodeKind::Object {
        return Ok(Draft::D2020);
    }
    let members = arena.children(root, meter).map_err(too_large)?;
    let named = members.members().find(|(name, _)| arena.string(*name) == "$schema");
    let Some((_, named)) = named else { return Ok(Draft::D2020) };
    let is_text = arena.kind(named) == NodeKind::String;
    let draft = if is_text { Draft::named(&arena.string(named)) } else { None };
    draft.ok_or_else(|| "its $schema names no draft that is known".to_owned())
}

struct Compiler<'a> {
    arena: Arena<'a>,
    meter: StepMeter,
    draft: Draft,
    resources: Resources,
    nodes: Vec<Node>,
    /// Nodes whose rules are not compiled yet.
    open: Vec<(NodeId, Id)>,
    /// Nodes by the offset of their schema in the text.
    known: HashMap<u32, NodeId>,
    patterns: Vec<Pattern>,
    pattern_texts: HashMap<String, u32>,
    pattern_bytes: usize,
    tables_missed: usize,
    text_bytes: usize,
    bytes: usize,
    keys: [RandomState; 2],
}

/// Keywords of one schema object.
struct Keywords<'a>(HashMap<Cow<'a, str>, Id>);

impl Keywords<'_> {
    fn get(&self, keyword: &str) -> Option<Id> {
        self.0.get(keyword).copied()
    }
}

impl<'a> Compiler<'a> {
    /// Returns the node of a schema; its rules are compiled later.
    fn node(&mut self, schema: Id) -> Result<NodeId, String> {
        if !matches!(self.arena.kind(schema), NodeKind::Object | NodeKind::Bool) {
            return Err("a schema in it is neither an object nor a boolean".to_owned());
        }
        let offset = self.arena.offset(schema);
        if let Some(known) = self.known.get(&offset) {
            return Ok(*known);
        }
        if self.nodes.len() as u64 >= cost::NODES_MAX {
            return Err(format!("it has more than {} schemas", cost::NODES_MAX));
        }
        let node = self.nodes.len() as NodeId;
        self.weigh(size_of::<Node>())?;
        self.nodes.push(Node::default());
        self.known.insert(offset, node);
        self.open.push((node, schema));
        Ok(node)
    }

    fn fill(&mut self, node: NodeId, schema: Id) -> Result<(), String> {
        let mut rules = Vec::new();
        if self.arena.kind(schema) == NodeKind::Bool {
            if self.arena.text(schema) == "false" {
                rules.push(Rule::Never);
            }
        } else {
            let members = self.arena.children(schema, &mut self.meter).map_err(too_large)?;
            let members = members.members().map(|(name, value)| (self.arena.string(name), value));
            let keywords = Keywords(members.collect());
            self.rules(&keywords, schema, &mut rules)?;
        }
        self.weigh(rules.len() * size_of::<Rule>())?;
        let looks_back = rules
            .iter()
            .any(|rule| matches!(rule, Rule::UnevaluatedItems(_) | Rule::UnevaluatedProperties(_)));
        if let Some(slot) = self.nodes.get_mut(node as usize) {
            *slot = Node { rules: rules.into(), looks_back };
        }
        Ok(())
    }

    fn weigh(&mut self, bytes: usize) -> Result<(), String> {
        self.bytes += bytes;
        if self.bytes > BYTES_MAX {
            return Err(format!("it takes more than {BYTES_MAX} bytes"));
        }
        Ok(())
    }

    /// Returns the target of a reference in the schema `from`.
    fn reference(&mut self, from: Id, reference: &str) -> Result<NodeId, String> {
        let offset = self.arena.offset(from);
        let target = self.resources.find(&mut self.arena, &mut self.meter, offset, reference)?;
        self.node(target)
    }

    /// Compiles a pattern and returns its number; equal patterns are kept once.
    fn pattern(&mut self, text: &str) -> Result<u32, String> {
        if let Some(known) = self.pattern_texts.get(text) {
            return Ok(*known);
        }
        self.text_bytes += text.len();
        if self.text_bytes > PATTERNS_TEXT_BYTES_MAX {
            return Err(format!("its patterns are longer than {PATTERNS_TEXT_BYTES_MAX} bytes"));
        }
        let pattern = Pattern::compile(text, self.tables_missed < TABLES_MISSED_MAX)?;
        self.tables_missed += usize::from(!pattern.has_table());
        self.pattern_bytes += pattern.bytes;
        if self.pattern_bytes > PATTERNS_BYTES_MAX {
            return Err(format!("its patterns need more than {PATTERNS_BYTES_MAX} bytes"));
        }
        let at = self.patterns.len() as u32;
        self.patterns.push(pattern);
        self.pattern_texts.insert(text.to_owned(), at);
        Ok(at)
    }

    fn text(&self, keyword: &str, value: Id) -> Result<Cow<'a, str>, String> {
        match self.arena.kind(value) {
            NodeKind::String => Ok(self.arena.string(value)),
            _ => Err(format!("{keyword} is not a string")),
        }
    }

    /// Returns the items of a keyword's array.
    fn list(&mut self, keyword: &str, value: Id) -> Result<Vec<Id>, String> {
        if self.arena.kind(value) != NodeKind::Array {
            return Err(format!("{keyword} is not an array"));
        }
        Ok(self.arena.children(value, &mut self.meter).map_err(too_large)?.items().collect())
    }

    /// Returns the members of a keyword's object.
    fn map(&mut self, keyword: &str, value: Id) -> Result<Vec<(Cow<'a, str>, Id)>, String> {
        if self.arena.kind(value) != NodeKind::Object {
            return Err(format!("{keyword} is not an object"));
        }
        let members = self.arena.children(value, &mut self.meter).map_err(too_large)?;
        Ok(members.members().map(|(name, value)| (self.arena.string(name), value)).collect())
    }

    /// Returns the names in a keyword's array.
    fn names(&mut self, keyword: &str, value: Id) -> Result<Vec<Cow<'a, str>>, String> {
        self.list(keyword, value)?.into_iter().map(|name| self.text(keyword, name)).collect()
    }

    /// Returns the nodes of the schemas in a keyword's array.
    fn schemas(&mut self, keyword: &str, value: Id) -> Result<Box<[NodeId]>, String> {
        let list = self.list(keyword, value)?;
        self.weigh(list.len() * size_of::<NodeId>())?;
        list.into_iter().map(|schema| self.node(schema)).collect()
    }
}
