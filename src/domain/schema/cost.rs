//! Upper bound on the work that a schema can cause, computed before the schema is used.
//!
//! A few hundred bytes of `anyOf` and `$ref` can ask for 2^60 checks of one value. Such a schema is not used.

use std::collections::{BTreeMap, HashMap};

use super::meter::StepMeter;
use super::node::{ArrayRule, Needs, Node, NodeId, ObjectRule, Rule};

/// Most schema nodes that may apply to one value, with every reference followed.
pub(super) const NODES_MAX: u64 = 20_000;
/// Deepest chain of nodes and references.
const DEPTH_MAX: usize = 200;
/// Most steps that the analysis itself takes.
const STEPS_MAX: u64 = 2_000_000;

/// Cost of applying a schema once to one value.
#[derive(Clone, Default)]
struct Cost {
    nodes: u64,
    /// Recursive references to each schema that is being applied, by target.
    again: BTreeMap<NodeId, Again>,
}

/// Number of recursive references to one schema, by the value that they apply to. A value is an array or an
/// object, never both: references through items and through members do not add up.
#[derive(Clone, Copy, Default)]
struct Again {
    same: u64,
    items: u64,
    members: u64,
}

impl Again {
    /// Returns the most recursive references that one value can follow.
    fn most(self) -> u64 {
        self.same.saturating_add(self.items.max(self.members))
    }

    fn plus(self, other: Again) -> Again {
        Again {
            same: self.same.saturating_add(other.same),
            items: self.items.saturating_add(other.items),
            members: self.members.saturating_add(other.members),
        }
    }
}

impl Cost {
    fn plus(mut self, other: Cost) -> Cost {
        self.nodes = self.nodes.saturating_add(other.nodes);
        for (target, again) in other.again {
            let sum = self.again.entry(target).or_default();
            *sum = sum.plus(again);
        }
        self
    }

    /// Adds a cost like `plus`, but keeps the larger number of recursive references: the two apply to
    /// different values.
    fn beside(mut self, other: Cost) -> Cost {
        self.nodes = self.nodes.saturating_add(other.nodes);
        for (target, again) in other.again {
            let most = self.again.entry(target).or_default();
            if again.most() > most.most() {
                *most = again;
            }
        }
        self
    }

    fn through(mut self, step: fn(u64) -> Again) -> Cost {
        self.again.values_mut().for_each(|again| *again = step(again.most()));
        self
    }

    fn in_items(self) -> Cost {
        self.through(|items| Again { items, ..Again::default() })
    }

    fn in_members(self) -> Cost {
        self.through(|members| Again { members, ..Again::default() })
    }
}

/// Checks that the work of a schema is bounded.
///
/// # Errors
/// The reason why the work is not bounded, for the activity record.
pub(super) fn check(nodes: &[Node]) -> Result<(), String> {
    let mut walk = Walk { nodes, open: vec![0], known: HashMap::new(), meter: StepMeter::new(STEPS_MAX) };
    let mut cost = walk.cost(0, 0)?;
    close(&mut cost, 0)?;
    if cost.nodes > NODES_MAX {
        return Err(format!("it applies more than {NODES_MAX} schemas to one value"));
    }
    Ok(())
}

struct Walk<'a> {
    nodes: &'a [Node],
    /// Targets of the references being followed; the first is the whole schema.
    open: Vec<NodeId>,
    known: HashMap<NodeId, Cost>,
    meter: StepMeter,
}

impl Walk<'_> {
    fn cost(&mut self, node: NodeId, depth: usize) -> Result<Cost, String> {
        if depth > DEPTH_MAX {
            return Err(format!("it is nested deeper than {DEPTH_MAX} levels"));
        }
        let mut cost = Cost { nodes: 1, again: BTreeMap::new() };
        let nodes = self.nodes;
        for rule in nodes.get(node as usize).map(|node| &*node.rules).unwrap_or_default() {
            let of_rule = self.rule(rule, depth)?;
            self.meter.spend(1 + of_rule.again.len() as u64).map_err(super::resources::too_large)?;
            cost = cost.plus(of_rule);
        }
        Ok(cost)
    }

    fn rule(&mut self, rule: &Rule, depth: usize) -> Result<Cost, String> {
        match rule {
            Rule::Ref(_, target) => self.reference(*target, depth),
            Rule::AllOf(list) | Rule::AnyOf(list) | Rule::OneOf(list) => self.all(list, depth),
            Rule::Not(node) => self.cost(*node, depth + 1),
            Rule::If(rule) => {
                let branches = rule.then.iter().chain(&rule.otherwise).chain([&rule.condition]);
                self.all(branches, depth)
            }
            Rule::Object(rule) => self.object(rule, depth),
            Rule::Array(rule) => self.array(rule, depth),
            Rule::UnevaluatedItems(node) => self.cost(*node, depth + 1).map(Cost::in_items),
            Rule::UnevaluatedProperties(node) => self.cost(*node, depth + 1).map(Cost::in_members),
            _ => Ok(Cost::default()),
        }
    }

    fn all<'a>(&mut self, list: impl IntoIterator<Item = &'a NodeId>, depth: usize) -> Result<Cost, String> {
        let mut sum = Cost::default();
        for node in list {
            let cost = self.cost(*node, depth + 1)?;
            self.meter.spend(1 + cost.again.len() as u64).map_err(super::resources::too_large)?;
            sum = sum.plus(cost);
        }
        Ok(sum)
    }

    /// Returns the cost of rules about members. Properties of different names are different values: of their
    /// recursive references only the largest number counts.
    fn object(&mut self, rule: &ObjectRule, depth: usize) -> Result<Cost, String> {
        let mut named = Cost::default();
        for node in rule.names.iter().filter_map(|name| name.property) {
            named = named.beside(self.cost(node, depth + 1)?);
        }
        let patterns = rule.patterns.iter().map(|(_, node)| node);
        let others = patterns.chain(&rule.additional).chain(&rule.property_names);
        let members = named.plus(self.all(others, depth)?).in_members();
        let schemas = rule.dependencies.iter().filter_map(|dependency| match &dependency.needs {
            Needs::Schema(node) => Some(node),
            Needs::Names(_) => None,
        });
        Ok(members.plus(self.all(schemas, depth)?))
    }

    fn array(&mut self, rule: &ArrayRule, depth: usize) -> Result<Cost, String> {
        let contains = rule.contains.as_ref().map(|contains| &contains.node);
        self.all(rule.prefix.iter().chain(&rule.rest).chain(contains), depth).map(Cost::in_items)
    }

    fn reference(&mut self, target: NodeId, depth: usize) -> Result<Cost, String> {
        if self.open.contains(&target) {
            let again = BTreeMap::from([(target, Again { same: 1, ..Again::default() })]);
            return Ok(Cost { nodes: 1, again });
        }
        if let Some(cost) = self.known.get(&target) {
            return Ok(cost.clone());
        }
        self.open.push(target);
        let mut cost = self.cost(target, depth + 1)?;
        self.open.pop();
        close(&mut cost, target)?;
        self.known.insert(target, cost.clone());
        Ok(cost)
    }
}

/// Checks the recursive references to `target`, and removes them from `cost`. One reference on the very same
/// value never ends; two references to the same part double the work at every level.
fn close(cost: &mut Cost, target: NodeId) -> Result<(), String> {
    let again = cost.again.remove(&target).unwrap_or_default();
    if again.same > 0 || again.most() > 1 {
        return Err("it applies itself more than once to the same value".to_owned());
    }
    Ok(())
}
