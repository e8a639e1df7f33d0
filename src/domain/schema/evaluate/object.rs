//! Rules about the members of an object.

use std::borrow::Cow;

use super::{Marks, Run};
use crate::domain::schema::arena::{Id, NodeChildren};
use crate::domain::schema::meter::Stop;
use crate::domain::schema::node::{Dependency, Name, Needs, NodeId, ObjectRule};
use crate::domain::schema::violation::{self, PathPart};

impl<'a, 's> Run<'a, 's> {
    pub(super) fn object(
        &mut self,
        rule: &'s ObjectRule,
        value: Id,
        mut marks: Option<&mut Marks>,
    ) -> Result<(), Stop> {
        let members = self.arena.children(value, &mut self.meter)?;
        let mut required = 0;
        for (at, (name, member)) in members.members().enumerate() {
            if self.member(rule, name, member, &mut required)?
                && let Some(marks) = marks.as_deref_mut()
            {
                marks.set(at);
            }
        }
        if required < rule.required {
            return Err(self.missing(rule, members));
        }
        for dependency in &rule.dependencies {
            if self.has(members, &dependency.name)? {
                self.needs(dependency, value, members, marks.as_deref_mut())?;
            }
        }
        Ok(())
    }

    /// Returns the un-escaped name of a member, and spends the steps for reading it.
    fn name(&mut self, name: Id) -> Result<Cow<'a, str>, Stop> {
        let length = self.arena.text(name).len() as u64;
        self.meter.spend(2 + length / 8)?;
        Ok(self.arena.string(name))
    }

    /// Checks one member. Returns whether a schema was applied to its value.
    fn member(
        &mut self,
        rule: &'s ObjectRule,
        name_id: Id,
        member: Id,
        required: &mut usize,
    ) -> Result<bool, Stop> {
        let name = self.name(name_id)?;
        let mut is_known = false;
        self.meter.spend(1 + u64::from((rule.names.len() + 1).ilog2()))?;
        let known = rule.names.binary_search_by(|known| (*known.name).cmp(&name)).ok();
        if let Some(known) = known.and_then(|at| rule.names.get(at)) {
            *required += usize::from(known.is_required);
            if let Some(node) = known.property {
                is_known = true;
                let through = [PathPart::Word("properties"), PathPart::Text(&known.name)];
                self.inside(PathPart::Value(name_id), &through, node, member)?;
            }
        }
        for (pattern, node) in &rule.patterns {
            if self.finds(*pattern, &name)? {
                is_known = true;
                self.inside(PathPart::Value(name_id), &[PathPart::Word("patternProperties")], *node, member)?;
            }
        }
        if let Some(node) = rule.additional.filter(|_| !is_known) {
            is_known = true;
            self.unknown("additionalProperties", node, (name_id, member), &rule.names)?;
        }
        if let Some(node) = rule.property_names {
            self.inside(PathPart::Value(name_id), &[PathPart::Word("propertyNames")], node, name_id)?;
        }
        Ok(is_known)
    }

    /// Applies the schema of `additionalProperties` or `unevaluatedProperties` to a member. `known` are the names that the
    /// rule has beside it.
    fn unknown(
        &mut self,
        keyword: &'static str,
        node: NodeId,
        (name, member): (Id, Id),
        known: &[Name],
    ) -> Result<(), Stop> {
        if self.schema.is_never(node) {
            self.at.push(PathPart::Value(name));
            let text = || {
                let known = known.iter().filter(|name| name.property.is_some()).map(|name| &*name.name);
                format!("no member of that name is allowed{}", violation::known(known))
            };
            return Err(self.broken(keyword, text));
        }
        self.inside(PathPart::Value(name), &[PathPart::Word(keyword)], node, member)
    }

    /// Returns whether the object has a member of this name.
    fn has(&mut self, members: NodeChildren, name: &str) -> Result<bool, Stop> {
        for (id, _) in members.members() {
            if self.name(id)? == name {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reports the first required member that is not there. Within alternatives nobody reads the report, so none is made: its
    /// cost is in no step.
    fn missing(&mut self, rule: &'s ObjectRule, members: NodeChildren) -> Stop {
        if self.quiet > 0 {
            return Stop::Invalid;
        }
        let arena = &self.arena;
        let mut present: Vec<Cow<'_, str>> = members.members().map(|(name, _)| arena.string(name)).collect();
        present.sort_unstable();
        let is_missing = |name: &str| present.binary_search_by(|present| (**present).cmp(name)).is_err();
        let missing = rule.names.iter().find(|name| name.is_required && is_missing(&name.name));
        let shown = missing.map(|name| violation::shown(&name.name)).unwrap_or_default();
        drop(present);
        self.broken("required", || format!("'{shown}' is missing"))
    }

    fn needs(
        &mut self,
        dependency: &'s Dependency,
        value: Id,
        members: NodeChildren,
        marks: Option<&mut Marks>,
    ) -> Result<(), Stop> {
        let (keyword, name) = (dependency.keyword, &*dependency.name);
        match &dependency.needs {
            Needs::Schema(node) => {
                self.below(&[PathPart::Word(keyword), PathPart::Text(name)], *node, value, marks)
            }
            Needs::Names(needed) => {
                for other in needed {
                    if !self.has(members, other)? {
                        let (other, name) = (violation::shown(other), violation::shown(name));
                        return Err(self.broken(keyword, || format!("'{other}' is missing beside '{name}'")));
                    }
                }
                Ok(())
            }
        }
    }

    pub(super) fn unevaluated_members(
        &mut self,
        node: NodeId,
        value: Id,
        marks: Option<&mut Marks>,
    ) -> Result<(), Stop> {
        let members = self.arena.children(value, &mut self.meter)?;
        let Some(marks) = marks else { return Ok(()) };
        self.meter.spend(members.members_len() as u64 / 4)?;
        for (at, (name, member)) in members.members().enumerate() {
            if !marks.has(at) {
                self.unknown("unevaluatedProperties", node, (name, member), &[])?;
            }
        }
        marks.set_all();
        Ok(())
    }
}
