//! Compilation of the keywords of JSON Schema to rules. A keyword with a malformed value makes the schema unusable.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::{Compiler, Keywords, TYPES};
use crate::domain::schema::arena::{Id, NodeKind};
use crate::domain::schema::dialect::Draft;
use crate::domain::schema::digest::digest;
use crate::domain::schema::node::{
    ArrayRule, Contains, CountedKeywords, Dependency, IfRule, Name, Needs, NodeId, NumberBound, ObjectRule,
    Rule, Values,
};
use crate::domain::schema::number::Number;
use crate::domain::schema::resources::too_large;

const COUNTS: [(&str, CountedKeywords, bool); 6] = [
    ("minLength", CountedKeywords::Characters, false),
    ("maxLength", CountedKeywords::Characters, true),
    ("minItems", CountedKeywords::Items, false),
    ("maxItems", CountedKeywords::Items, true),
    ("minProperties", CountedKeywords::Members, false),
    ("maxProperties", CountedKeywords::Members, true),
];

type Rules = Vec<Rule>;

impl<'a> Compiler<'a> {
    /// Compiles all rules of one schema object: cheap ones first, those that need the results of others last.
    pub(super) fn rules(
        &mut self,
        keywords: &Keywords<'a>,
        schema: Id,
        rules: &mut Rules,
    ) -> Result<(), String> {
        let reference = keywords.get("$ref");
        if let Some(reference) = reference.filter(|_| self.draft.ref_stands_alone()) {
            return self.ref_rule("$ref", reference, schema, rules);
        }
        self.scalar_rules(keywords, rules)?;
        if let Some(rule) = self.object(keywords)? {
            rules.push(Rule::Object(Box::new(rule)));
        }
        if let Some(rule) = self.array(keywords)? {
            rules.push(Rule::Array(Box::new(rule)));
        }
        self.branches(keywords, schema, rules)?;
        if self.draft >= Draft::D2019 {
            if let Some(node) = self.one(keywords, "unevaluatedItems")? {
                rules.push(Rule::UnevaluatedItems(node));
            }
            if let Some(node) = self.one(keywords, "unevaluatedProperties")? {
                rules.push(Rule::UnevaluatedProperties(node));
            }
        }
        Ok(())
    }

    fn one(&mut self, keywords: &Keywords<'a>, keyword: &str) -> Result<Option<NodeId>, String> {
        keywords.get(keyword).map(|schema| self.node(schema)).transpose()
    }

    fn ref_rule(
        &mut self,
        keyword: &'static str,
        value: Id,
        schema: Id,
        rules: &mut Rules,
    ) -> Result<(), String> {
        let reference = self.text(keyword, value)?;
        rules.push(Rule::Ref(keyword, self.reference(schema, &reference)?));
        Ok(())
    }

    fn scalar_rules(&mut self, keywords: &Keywords<'a>, rules: &mut Rules) -> Result<(), String> {
        if let Some(value) = keywords.get("type") {
            rules.push(Rule::Type(self.types(value)?));
        }
        if let Some(value) = keywords.get("const").filter(|_| self.draft >= Draft::D6) {
            rules.push(self.values("const", vec![value])?);
        }
        if let Some(value) = keywords.get("enum") {
            let values = self.list("enum", value)?;
            rules.push(self.values("enum", values)?);
        }
        self.number_rules(keywords, rules)?;
        for (keyword, counted, is_most) in COUNTS {
            if let Some(value) = keywords.get(keyword) {
                rules.push(Rule::Count { counted, is_most, limit: self.count(keyword, value)? });
            }
        }
        if let Some(value) = keywords.get("pattern") {
            let text = self.text("pattern", value)?;
            rules.push(Rule::Pattern(self.pattern(&text)?));
        }
        Ok(())
    }

    fn types(&mut self, value: Id) -> Result<u8, String> {
        let names = match self.arena.kind(value) {
            NodeKind::String => vec![self.arena.string(value)],
            _ => self.names("type", value)?,
        };
        names.iter().try_fold(0, |types, name| {
            let bit = TYPES.iter().position(|known| known == name);
            bit.map(|bit| types | 1 << bit).ok_or_else(|| "type names no type of JSON".to_owned())
        })
    }

    fn values(&mut self, keyword: &'static str, values: Vec<Id>) -> Result<Rule, String> {
        self.weigh(size_of::<Values>() + values.len() * size_of::<u128>())?;
        let kinds = values.iter().fold(0, |kinds, value| kinds | 1 << self.arena.kind(*value) as u8);
        let digests = values.into_iter().map(|value| {
            digest(&self.keys, &mut self.arena, &mut self.meter, value)
                .map_err(|_| format!("a value of {keyword} is too large"))
        });
        let mut digests = digests.collect::<Result<Vec<u128>, String>>()?;
        digests.sort_unstable();
        digests.dedup();
        Ok(Rule::Values(Box::new(Values { keyword, digests: digests.into(), kinds })))
    }

    fn number(&self, keyword: &str, value: Id) -> Result<(Number<'a>, &'a str), String> {
        if self.arena.kind(value) != NodeKind::Number {
            return Err(format!("{keyword} is not a number"));
        }
        let text = self.arena.text(value);
        Number::read(text)
            .map(|number| (number, text))
            .map_err(|_| format!("{keyword} is too large a number"))
    }

    fn count(&self, keyword: &str, value: Id) -> Result<u64, String> {
        let (number, _) = self.number(keyword, value)?;
        number.count().ok_or_else(|| format!("{keyword} is not a count"))
    }

    fn number_rules(&mut self, keywords: &Keywords<'a>, rules: &mut Rules) -> Result<(), String> {
        for (keyword, exclusive, bound, strict) in [
            ("minimum", "exclusiveMinimum", NumberBound::Minimum, NumberBound::ExclusiveMinimum),
            ("maximum", "exclusiveMaximum", NumberBound::Maximum, NumberBound::ExclusiveMaximum),
        ] {
            let mut bound = bound;
            if let Some(value) = keywords.get(exclusive) {
                if self.draft > Draft::D4 {
                    rules.push(self.bound(exclusive, strict, value)?);
                } else if self.flag(exclusive, value)? {
                    bound = strict;
                }
            }
            if let Some(value) = keywords.get(keyword) {
                rules.push(self.bound(keyword, bound, value)?);
            }
        }
        if let Some(value) = keywords.get("multipleOf") {
            let (number, text) = self.number("multipleOf", value)?;
            let divisor =
                number.divisor().ok_or("multipleOf is not above zero, or has more than 18 digits")?;
            self.weigh(text.len() + size_of_val(&divisor))?;
            rules.push(Rule::MultipleOf(Box::new((divisor, text.into()))));
        }
        Ok(())
    }

    fn bound(&mut self, keyword: &str, bound: NumberBound, value: Id) -> Result<Rule, String> {
        let (_, text) = self.number(keyword, value)?;
        self.weigh(text.len())?;
        Ok(Rule::NumberBound(bound, text.into()))
    }

    fn flag(&self, keyword: &str, value: Id) -> Result<bool, String> {
        match (self.arena.kind(value), self.arena.text(value)) {
            (NodeKind::Bool, text) => Ok(text == "true"),
            _ => Err(format!("{keyword} is not a boolean")),
        }
    }

    fn object(&mut self, keywords: &Keywords<'a>) -> Result<Option<ObjectRule>, String> {
        let mut names: BTreeMap<Cow<'a, str>, (Option<NodeId>, bool)> = BTreeMap::new();
        let mut rule = ObjectRule::default();
        if let Some(value) = keywords.get("properties") {
            for (name, schema) in self.map("properties", value)? {
                names.entry(name).or_default().0 = Some(self.node(schema)?);
            }
        }
        if let Some(value) = keywords.get("required") {
            for name in self.names("required", value)? {
                names.entry(name).or_default().1 = true;
            }
        }
        self.weigh(names.keys().map(|name| name.len() + size_of::<Name>()).sum())?;
        let name = |(name, (property, is_required)): (Cow<'a, str>, _)| Name {
            name: name.into(),
            property,
            is_required,
        };
        rule.names = names.into_iter().map(name).collect();
        rule.required = rule.names.iter().filter(|name| name.is_required).count();
        if let Some(value) = keywords.get("patternProperties") {
            let patterns = self.map("patternProperties", value)?;
            self.weigh(patterns.len() * size_of::<(u32, NodeId)>())?;
            let patterns =
                patterns.into_iter().map(|(text, schema)| Ok((self.pattern(&text)?, self.node(schema)?)));
            rule.patterns = patterns.collect::<Result<_, String>>()?;
        }
        rule.additional = self.one(keywords, "additionalProperties")?;
        if self.draft >= Draft::D6 {
            rule.property_names = self.one(keywords, "propertyNames")?;
        }
        rule.dependencies = self.dependencies(keywords)?;
        let is_empty = rule.names.is_empty()
            && rule.patterns.is_empty()
            && rule.additional.is_none()
            && rule.property_names.is_none()
            && rule.dependencies.is_empty();
        if is_empty {
            return Ok(None);
        }
        self.weigh(size_of::<ObjectRule>())?;
        Ok(Some(rule))
    }

    fn dependencies(&mut self, keywords: &Keywords<'a>) -> Result<Box<[Dependency]>, String> {
        let known: &[&'static str] = if self.draft <= Draft::D7 {
            &["dependencies"]
        } else {
            &["dependentRequired", "dependentSchemas"]
        };
        let mut dependencies = Vec::new();
        for keyword in known.iter().copied() {
            let Some(value) = keywords.get(keyword) else { continue };
            for (name, needs) in self.map(keyword, value)? {
                let is_list = self.arena.kind(needs) == NodeKind::Array;
                if is_list == (keyword == "dependentSchemas") && keyword != "dependencies" {
                    return Err(format!("{keyword} is malformed"));
                }
                let needs = if is_list {
                    let names: Box<[Box<str>]> =
                        self.names(keyword, needs)?.into_iter().map(Into::into).collect();
                    self.weigh(names.iter().map(|name| name.len() + size_of_val(name)).sum())?;
                    Needs::Names(names)
                } else {
                    Needs::Schema(self.node(needs)?)
                };
                self.weigh(name.len() + size_of::<Dependency>())?;
                dependencies.push(Dependency { keyword, name: name.into(), needs });
            }
        }
        Ok(dependencies.into())
    }

    fn array(&mut self, keywords: &Keywords<'a>) -> Result<Option<ArrayRule>, String> {
        let mut rule = ArrayRule { rest_keyword: "items", ..ArrayRule::default() };
        if let Some(value) = keywords.get("prefixItems").filter(|_| self.draft >= Draft::D2020) {
            (rule.prefix, rule.prefix_keyword) = (self.schemas("prefixItems", value)?, "prefixItems");
        }
        match keywords.get("items") {
            Some(items) if self.arena.kind(items) == NodeKind::Array && self.draft < Draft::D2020 => {
                (rule.prefix, rule.prefix_keyword) = (self.schemas("items", items)?, "items");
                (rule.rest, rule.rest_keyword) = (self.one(keywords, "additionalItems")?, "additionalItems");
            }
            Some(items) => rule.rest = Some(self.node(items)?),
            None => {}
        }
        if self.draft >= Draft::D6 {
            rule.contains = self.contains(keywords)?;
        }
        if let Some(value) = keywords.get("uniqueItems") {
            rule.is_unique = self.flag("uniqueItems", value)?;
        }
        let is_empty =
            rule.prefix.is_empty() && rule.rest.is_none() && rule.contains.is_none() && !rule.is_unique;
        self.weigh(if is_empty { 0 } else { size_of::<ArrayRule>() })?;
        Ok((!is_empty).then_some(rule))
    }

    fn contains(&mut self, keywords: &Keywords<'a>) -> Result<Option<Contains>, String> {
        let Some(node) = self.one(keywords, "contains")? else { return Ok(None) };
        let counts = self.draft >= Draft::D2019;
        let count = |keyword| keywords.get(keyword).filter(|_| counts);
        let min = count("minContains").map(|value| self.count("minContains", value)).transpose()?;
        let max = count("maxContains").map(|value| self.count("maxContains", value)).transpose()?;
        Ok(Some(Contains { node, min: min.unwrap_or(1), max, marks: self.draft >= Draft::D2020 }))
    }

    /// Compiles the rules that apply other schemas to the same value.
    fn branches(&mut self, keywords: &Keywords<'a>, schema: Id, rules: &mut Rules) -> Result<(), String> {
        for keyword in ["$ref", "$recursiveRef", "$dynamicRef"] {
            let since = match keyword {
                "$ref" => Some(Draft::D2019),
                "$recursiveRef" => Some(Draft::D2019).filter(|_| self.draft == Draft::D2019),
                _ => Some(Draft::D2020),
            };
            let Some(value) =
                keywords.get(keyword).filter(|_| since.is_some_and(|since| self.draft >= since))
            else {
                continue;
            };
            if keyword != "$ref" && self.resources.are_several() {
                return Err(format!("{keyword} is not followed where parts of a schema have an $id"));
            }
            self.ref_rule(keyword, value, schema, rules)?;
        }
        for (keyword, rule) in [
            ("allOf", Rule::AllOf as fn(Box<[NodeId]>) -> Rule),
            ("anyOf", Rule::AnyOf),
            ("oneOf", Rule::OneOf),
        ] {
            let Some(value) = keywords.get(keyword) else { continue };
            let list = self.schemas(keyword, value)?;
            if list.is_empty() {
                return Err(format!("{keyword} is empty"));
            }
            rules.push(rule(list));
        }
        if let Some(node) = self.one(keywords, "not")? {
            rules.push(Rule::Not(node));
        }
        if self.draft >= Draft::D7
            && let Some(condition) = self.one(keywords, "if")?
        {
            let (then, otherwise) = (self.one(keywords, "then")?, self.one(keywords, "else")?);
            self.weigh(size_of::<IfRule>())?;
            rules.push(Rule::If(Box::new(IfRule { condition, then, otherwise })));
        }
        self.meter.spend(1).map_err(too_large)
    }
}
