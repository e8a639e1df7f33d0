//! Definitions as `/mcp/direct` lists them: under another name, without what a reader must not see; every other byte stays.

mod faults;
mod offers;

use std::borrow::Cow;
use std::ops::Range;

use super::json::{self, Member, escape_into};
use super::tool::published_schema;
pub use faults::NotListed;
pub use offers::OfferPart;

/// Who reads a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// Clients of the handshake revisions.
    Handshake,
    /// Clients of revision 2026-07-28.
    Modern,
}

/// A definition's text, with the place where the name goes.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    text: Box<str>,
    name: Range<usize>,
}

impl Part {
    fn of(definition: &str, reader: Reader) -> Option<Part> {
        let left_out = faults::members_left_out(definition, reader);
        let text = json::without_members(definition, &left_out);
        let text = with_value(text, "inputSchema", published_schema);
        let text = with_value(text, "annotations", faults::readable_annotations);
        let members = json::top_level_members(&text).ok()?;
        let name = value_range(members.iter().find(|member| member.name == "name")?);
        Some(Part { text: text.into(), name })
    }

    /// Writes the definition under this name.
    pub fn write(&self, name: &str, out: &mut String) {
        out.push_str(self.text.get(..self.name.start).unwrap_or_default());
        escape_into(out, name);
        out.push_str(self.text.get(self.name.end..).unwrap_or_default());
    }

    /// Its size, in bytes, but for the name.
    pub fn bytes(&self) -> usize {
        self.text.len()
    }
}

/// A definition for both kinds of readers.
#[derive(Debug)]
pub struct Published {
    handshake: Part,
    /// Where it is another one.
    modern: Option<Part>,
}

impl Published {
    /// What is listed of a definition, an object that has a name and passed [`json::check`].
    ///
    /// # Errors
    /// [`NotListed`], where clients would refuse the whole list for it.
    pub fn of(definition: &str) -> Result<Published, NotListed> {
        faults::check(definition)?;
        let part = |reader| Part::of(definition, reader).ok_or(NotListed("it has no name"));
        let (handshake, modern) = (part(Reader::Handshake)?, part(Reader::Modern)?);
        let modern = Some(modern).filter(|modern| *modern != handshake);
        Ok(Published { handshake, modern })
    }

    /// For these readers.
    pub fn part(&self, reader: Reader) -> &Part {
        match reader {
            Reader::Handshake => &self.handshake,
            Reader::Modern => self.modern.as_ref().unwrap_or(&self.handshake),
        }
    }
}

/// The object `text` with the value of one member changed, where `change` changes it.
fn with_value<'a>(text: Cow<'a, str>, name: &str, change: impl Fn(&str) -> Cow<'_, str>) -> Cow<'a, str> {
    let Ok(members) = json::top_level_members(&text) else { return text };
    let Some(member) = members.iter().find(|member| member.name == name) else { return text };
    let Cow::Owned(value) = change(member.value) else { return text };
    let Range { start, end } = value_range(member);
    let (before, after) = (text.get(..start).unwrap_or_default(), text.get(end..).unwrap_or_default());
    Cow::Owned([before, &value, after].concat())
}

/// Where a member's value stands in the text of its object.
fn value_range(member: &Member<'_>) -> Range<usize> {
    member.span.end.saturating_sub(member.value.len())..member.span.end
}

#[cfg(test)]
mod tests;
