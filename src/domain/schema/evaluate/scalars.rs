//! Rules about types, values, numbers, texts and counts.

use super::Run;
use crate::domain::json;
use crate::domain::schema::arena::{Id, NodeKind};
use crate::domain::schema::compile::TYPES;
use crate::domain::schema::digest::digest;
use crate::domain::schema::meter::Stop;
use crate::domain::schema::node::{CountedKeywords, NumberBound, Rule, Values};
use crate::domain::schema::number::Number;

/// Longest part of a schema's number that a violation repeats, in bytes.
const NUMBER_SHOWN_BYTES_MAX: usize = 40;
const INTEGER: u8 = 1 << 6;

impl Run<'_, '_> {
    pub(super) fn scalar(&mut self, rule: &Rule, value: Id, kind: NodeKind) -> Result<(), Stop> {
        match rule {
            Rule::Never => Err(self.broken("false", || "no value is allowed here".into())),
            Rule::Type(types) => self.is_of(*types, value, kind),
            Rule::Values(values) => self.is_among(values, value, kind),
            Rule::NumberBound(bound, limit) if kind == NodeKind::Number => {
                self.is_within(*bound, limit, value)
            }
            Rule::MultipleOf(divisor) if kind == NodeKind::Number => {
                self.meter.spend(self.arena.text(value).len() as u64 / 2)?;
                let number = self.number(value)?;
                if number.is_multiple_of(divisor.0) {
                    return Ok(());
                }
                let shown = shown(&divisor.1).to_owned();
                Err(self.broken("multipleOf", || format!("the value is not a multiple of {shown}")))
            }
            Rule::Count { counted, is_most, limit } => {
                self.has_count(*counted, *is_most, *limit, value, kind)
            }
            Rule::Pattern(pattern) if kind == NodeKind::String => {
                let body = self.arena.body(value);
                self.meter.spend(body.len() as u64 / 8)?;
                let text = self.arena.string(value);
                if self.finds(*pattern, &text)? {
                    return Ok(());
                }
                Err(self.broken("pattern", || "the value does not match the pattern".into()))
            }
            _ => Ok(()),
        }
    }

    fn is_of(&mut self, types: u8, value: Id, kind: NodeKind) -> Result<(), Stop> {
        if types & (1 << kind as u8) != 0
            || (kind == NodeKind::Number && types & INTEGER != 0 && self.number(value)?.is_integer())
        {
            return Ok(());
        }
        Err(self.broken("type", || {
            let named = TYPES.iter().enumerate().filter(|(bit, _)| types & (1 << bit) != 0);
            let named: Vec<&str> = named.map(|(_, name)| *name).collect();
            format!("the value is not of type {}", named.join(" or "))
        }))
    }

    fn is_among(&mut self, values: &Values, value: Id, kind: NodeKind) -> Result<(), Stop> {
        let is_known = values.kinds & (1 << kind as u8) != 0 && {
            let digest = digest(&self.schema.keys, &mut self.arena, &mut self.meter, value)?;
            self.meter.spend(1 + u64::from((values.digests.len() + 1).ilog2()))?;
            values.digests.binary_search(&digest).is_ok()
        };
        if is_known {
            return Ok(());
        }
        Err(self.broken(values.keyword, || "the value is none of those that are allowed".into()))
    }

    fn number(&mut self, value: Id) -> Result<Number<'_>, Stop> {
        let text = self.arena.text(value);
        self.meter.spend(3 + text.len() as u64 / 4)?;
        Number::read(text)
    }

    fn is_within(&mut self, bound: NumberBound, limit: &str, value: Id) -> Result<(), Stop> {
        self.meter.spend(3 + limit.len() as u64 / 4)?;
        let order = self.number(value)?.cmp(&Number::read(limit)?);
        let (is_within, keyword, what) = match bound {
            NumberBound::Minimum => (order.is_ge(), "minimum", "below the least of"),
            NumberBound::ExclusiveMinimum => (order.is_gt(), "exclusiveMinimum", "not above"),
            NumberBound::Maximum => (order.is_le(), "maximum", "above the most of"),
            NumberBound::ExclusiveMaximum => (order.is_lt(), "exclusiveMaximum", "not below"),
        };
        if is_within {
            return Ok(());
        }
        Err(self.broken(keyword, || format!("the value is {what} {}", shown(limit))))
    }

    fn has_count(
        &mut self,
        counted: CountedKeywords,
        is_most: bool,
        limit: u64,
        value: Id,
        kind: NodeKind,
    ) -> Result<(), Stop> {
        let (count, keyword, what) = match (counted, kind) {
            (CountedKeywords::Characters, NodeKind::String) => {
                (self.characters(value, is_most, limit)?, ["minLength", "maxLength"], "characters")
            }
            (CountedKeywords::Items, NodeKind::Array) => {
                let items = self.arena.children(value, &mut self.meter)?.items_len();
                (items as u64, ["minItems", "maxItems"], "items")
            }
            (CountedKeywords::Members, NodeKind::Object) => {
                let members = self.arena.children(value, &mut self.meter)?.members_len();
                (members as u64, ["minProperties", "maxProperties"], "members")
            }
            _ => return Ok(()),
        };
        let [least, most] = keyword;
        if is_most && count > limit {
            return Err(self.broken(most, || format!("the value has more than {limit} {what}")));
        }
        if !is_most && count < limit {
            return Err(self.broken(least, || format!("the value has fewer than {limit} {what}")));
        }
        Ok(())
    }

    /// Counts the characters of a string, or only its bytes where these already decide about `limit`.
    fn characters(&mut self, value: Id, is_most: bool, limit: u64) -> Result<u64, Stop> {
        let body = self.arena.body(value);
        let bytes = body.len() as u64;
        // there are never more characters than bytes
        if (is_most && bytes <= limit) || (!is_most && bytes < limit) {
            return Ok(bytes);
        }
        self.meter.spend(1 + bytes / 4)?;
        Ok(json::literal_characters(body) as u64)
    }

    /// Returns whether a pattern, given by its number, matches anywhere in `text`.
    pub(super) fn finds(&mut self, pattern: u32, text: &str) -> Result<bool, Stop> {
        let Some(pattern) = self.schema.patterns.get(pattern as usize) else { return Ok(false) };
        self.meter.spend(pattern.steps(text.len()))?;
        Ok(pattern.is_found_in(text))
    }
}

/// Cuts a number of the schema to [`NUMBER_SHOWN_BYTES_MAX`] bytes, for a violation.
fn shown(number: &str) -> &str {
    number.get(..NUMBER_SHOWN_BYTES_MAX).unwrap_or(number)
}
