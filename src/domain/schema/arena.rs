//! Values of a JSON text, indexed when a rule reads them.
//!
//! Values are ranges of the text, neither decoded nor copied. The children of an array or object take memory and steps
//! when a rule first reads them.

use std::borrow::Cow;

use super::meter::{StepMeter, Stop};
use crate::domain::json::lexer::RawString;
use crate::domain::json::value_end_counted;

/// Mark of a value whose children are not indexed.
const UNKNOWN: u32 = u32::MAX;
/// Bytes read one by one that count as one step.
const BYTES_PER_STEP: usize = 8;

/// A value of an arena, or the name of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Id(u32);

/// Kind of a JSON value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Null,
    Bool,
    Number,
    String,
    Array,
    Object,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    start: u32,
    end: u32,
    /// First child, or [`UNKNOWN`].
    first: u32,
    count: u32,
}

/// Children of an array or object. For an object, names and values alternate.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeChildren {
    first: u32,
    count: u32,
}

impl NodeChildren {
    /// Returns the number of items.
    pub(super) fn items_len(self) -> usize {
        self.count as usize
    }

    /// Returns the number of members.
    pub(super) fn members_len(self) -> usize {
        self.count as usize / 2
    }

    /// Returns the item at a position.
    pub(super) fn item(self, at: usize) -> Option<Id> {
        u32::try_from(at).ok().filter(|at| *at < self.count).map(|at| Id(self.first + at))
    }

    /// Returns the items in their order.
    pub(super) fn items(self) -> impl Iterator<Item = Id> {
        (self.first..self.first + self.count).map(Id)
    }

    /// Returns the names and values in their order.
    pub(super) fn members(self) -> impl Iterator<Item = (Id, Id)> {
        (self.first..self.first + self.count).step_by(2).map(|at| (Id(at), Id(at + 1)))
    }
}

/// Values of one text that is known to be JSON with unique member names.
#[derive(Debug)]
pub(super) struct Arena<'a> {
    text: &'a str,
    places: Vec<Place>,
    places_max: usize,
}

impl<'a> Arena<'a> {
    /// Opens a text with a bound on indexed values; `None` for one that is too long or empty.
    pub(super) fn open(text: &'a str, places_max: usize) -> Option<(Arena<'a>, Id)> {
        let trimmed = text.trim_ascii();
        let end = u32::try_from(trimmed.len()).ok().filter(|end| (1..UNKNOWN).contains(end))?;
        let root = Place { start: 0, end, first: UNKNOWN, count: 0 };
        Some((Arena { text: trimmed, places: vec![root], places_max }, Id(0)))
    }

    fn place(&self, id: Id) -> Place {
        let nothing = Place { start: 0, end: 0, first: 0, count: 0 };
        self.places.get(id.0 as usize).copied().unwrap_or(nothing)
    }

    /// Returns the text of a value as written.
    pub(super) fn text(&self, id: Id) -> &'a str {
        let place = self.place(id);
        self.text.get(place.start as usize..place.end as usize).unwrap_or_default()
    }

    /// Returns the offset of a value in the text, in bytes.
    pub(super) fn offset(&self, id: Id) -> u32 {
        self.place(id).start
    }

    /// Returns the offset of the first byte after a value.
    pub(super) fn end(&self, id: Id) -> u32 {
        self.place(id).end
    }

    /// Returns the kind of a value.
    pub(super) fn kind(&self, id: Id) -> NodeKind {
        match self.text(id).as_bytes().first() {
            Some(b'{') => NodeKind::Object,
            Some(b'[') => NodeKind::Array,
            Some(b'"') => NodeKind::String,
            Some(b't' | b'f') => NodeKind::Bool,
            Some(b'n') => NodeKind::Null,
            _ => NodeKind::Number,
        }
    }

    /// Returns the body of a string as written, without the quotes.
    pub(super) fn body(&self, id: Id) -> &'a str {
        let text = self.text(id);
        text.get(1..text.len().saturating_sub(1)).unwrap_or_default()
    }

    /// Returns the un-escaped text of a string. A lone surrogate becomes U+FFFD.
    pub(super) fn string(&self, id: Id) -> Cow<'a, str> {
        let raw = self.body(id);
        RawString { raw, escaped: raw.contains('\\') }.unescape()
    }

    /// Returns the children of an array or object, and indexes them at the first call.
    ///
    /// # Errors
    /// [`Stop::Nodes`] when the arena would have too many values, [`Stop::Steps`] when the meter has too few
    /// steps.
    pub(super) fn children(&mut self, id: Id, meter: &mut StepMeter) -> Result<NodeChildren, Stop> {
        let place = self.place(id);
        if place.first != UNKNOWN {
            return Ok(NodeChildren { first: place.first, count: place.count });
        }
        let first = self.places.len() as u32;
        let is_object = self.kind(id) == NodeKind::Object;
        self.index(place, is_object, meter)?;
        let count = self.places.len() as u32 - first;
        if let Some(place) = self.places.get_mut(id.0 as usize) {
            (place.first, place.count) = (first, count);
        }
        Ok(NodeChildren { first, count })
    }

    fn index(&mut self, of: Place, is_object: bool, meter: &mut StepMeter) -> Result<(), Stop> {
        let bytes = self.text.as_bytes().get(..of.end as usize).unwrap_or_default();
        let mut at = of.start as usize + 1;
        loop {
            let Some(start) = next_value(bytes, at) else { return Ok(()) };
            let name_end = if is_object { self.push(bytes, start, meter)? } else { None };
            let start = match name_end {
                None => start,
                Some(end) => next_value(bytes, end).unwrap_or(bytes.len()),
            };
            match self.push(bytes, start, meter)? {
                Some(end) => at = end,
                None => return Ok(()),
            }
        }
    }

    fn push(&mut self, bytes: &[u8], start: usize, meter: &mut StepMeter) -> Result<Option<usize>, Stop> {
        let mut work = 0;
        let end = value_end_counted(bytes, start, &mut work);
        meter.spend(1 + (work / BYTES_PER_STEP) as u64)?;
        let Some(end) = end else { return Ok(None) };
        if self.places.len() >= self.places_max {
            return Err(Stop::Nodes);
        }
        self.places.push(Place { start: start as u32, end: end as u32, first: UNKNOWN, count: 0 });
        Ok(Some(end))
    }
}

/// Returns the offset of the next value or name, past white space, commas and colons; `None` at the closing bracket.
fn next_value(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let skipped = rest.iter().position(|byte| !matches!(byte, b' ' | b'\n' | b'\t' | b'\r' | b',' | b':'))?;
    rest.get(skipped).filter(|byte| !matches!(byte, b']' | b'}')).map(|_| from + skipped)
}
