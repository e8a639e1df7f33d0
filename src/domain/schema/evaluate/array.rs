//! Rules about the items of an array.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};

use super::{Marks, Run};
use crate::domain::schema::arena::{Id, NodeChildren};
use crate::domain::schema::digest::digest;
use crate::domain::schema::meter::Stop;
use crate::domain::schema::node::{ArrayRule, Contains, NodeId};
use crate::domain::schema::violation::PathPart;

/// Hasher for digests, which are hashes already.
#[derive(Default)]
struct Folded(u64);

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }
}

type Digests = HashSet<u128, BuildHasherDefault<Folded>>;

impl Run<'_, '_> {
    pub(super) fn array(
        &mut self,
        rule: &ArrayRule,
        value: Id,
        mut marks: Option<&mut Marks>,
    ) -> Result<(), Stop> {
        let items = self.arena.children(value, &mut self.meter)?;
        let others = rule.rest.filter(|_| items.items_len() > rule.prefix.len());
        for (at, item) in items.items().enumerate() {
            match (rule.prefix.get(at), others) {
                (Some(node), _) => {
                    let through = [PathPart::Word(rule.prefix_keyword), PathPart::Position(at)];
                    self.inside(PathPart::Position(at), &through, *node, item)?;
                    if let Some(marks) = marks.as_deref_mut() {
                        marks.set(at);
                    }
                }
                (None, Some(node)) => {
                    self.inside(PathPart::Position(at), &[PathPart::Word(rule.rest_keyword)], node, item)?;
                }
                (None, None) => break,
            }
        }
        if rule.rest.is_some()
            && let Some(marks) = marks.as_deref_mut()
        {
            marks.set_all();
        }
        if let Some(contains) = &rule.contains {
            self.contains(contains, items, marks)?;
        }
        if rule.is_unique { self.unique(items) } else { Ok(()) }
    }

    fn contains(
        &mut self,
        contains: &Contains,
        items: NodeChildren,
        marks: Option<&mut Marks>,
    ) -> Result<(), Stop> {
        let mut marks = marks.filter(|_| contains.marks);
        let mut found = 0;
        for (at, item) in items.items().enumerate() {
            if contains.max.is_none() && found >= contains.min && marks.is_none() {
                break;
            }
            if self.passes(contains.node, item, None)? {
                found += 1;
                if let Some(marks) = marks.as_deref_mut() {
                    marks.set(at);
                }
            }
            if contains.max.is_some_and(|max| found > max) {
                return Err(self.broken("maxContains", || "too many items match".into()));
            }
        }
        if found >= contains.min {
            return Ok(());
        }
        let keyword = if contains.min == 1 { "contains" } else { "minContains" };
        Err(self.broken(keyword, || "too few items match".into()))
    }

    fn unique(&mut self, items: NodeChildren) -> Result<(), Stop> {
        let mut seen = Digests::default();
        for item in items.items() {
            let digest = digest(&self.schema.keys, &mut self.arena, &mut self.meter, item)?;
            self.meter.spend(8)?;
            if !seen.insert(digest) {
                return Err(self.broken("uniqueItems", || "two items are equal".into()));
            }
        }
        Ok(())
    }

    pub(super) fn unevaluated_items(
        &mut self,
        node: NodeId,
        value: Id,
        marks: Option<&mut Marks>,
    ) -> Result<(), Stop> {
        let items = self.arena.children(value, &mut self.meter)?;
        let Some(marks) = marks else { return Ok(()) };
        self.meter.spend(items.items_len() as u64 / 4)?;
        for (at, item) in items.items().enumerate() {
            if !marks.has(at) {
                self.inside(PathPart::Position(at), &[PathPart::Word("unevaluatedItems")], node, item)?;
            }
        }
        marks.set_all();
        Ok(())
    }
}
