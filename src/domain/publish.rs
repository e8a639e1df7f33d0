//! Tool definitions as `/mcp/direct` lists them: under another name, without the parts that a client cannot read; every
//! other byte stays.

mod edits;
mod faults;
mod members;
mod offers;
mod output;
mod pattern;

use super::json::{self, escape_into};
use edits::{Edit, With};
pub use faults::NotListed;
pub use offers::OfferPart;

/// Kind of clients that read a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reader {
    /// Clients of the handshake revisions.
    Handshake,
    /// Clients of revision 2026-07-28.
    Modern,
}

/// Edits of a definition's text for one kind of clients.
#[derive(Debug)]
pub struct Part {
    edits: Box<[Edit]>,
    bytes: usize,
}

impl Part {
    fn of(definition: &str, reader: Reader) -> Result<Part, NotListed> {
        faults::check(definition, reader)?;
        let edits = edits::of(definition, reader);
        if !edits.iter().any(|edit| edit.with == With::Name) {
            return Err(NotListed("it has no name"));
        }
        let gone: usize = edits.iter().map(|edit| edit.end.saturating_sub(edit.start)).sum();
        let put: usize = edits.iter().map(|edit| edit.with.text().len()).sum();
        Ok(Part { edits: edits.into(), bytes: (definition.len() + put).saturating_sub(gone) })
    }

    /// Writes the edited definition under this name. `definition` must be the text that the edits were made for.
    pub fn write(&self, definition: &str, name: &str, out: &mut String) {
        let mut at = 0;
        for edit in &self.edits {
            out.push_str(definition.get(at..edit.start).unwrap_or_default());
            match edit.with {
                With::Name => escape_into(out, name),
                other => out.push_str(other.text()),
            }
            at = edit.end;
        }
        out.push_str(definition.get(at..).unwrap_or_default());
    }

    /// Returns the size of the edited definition without the name, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Edits of a definition for both kinds of clients.
#[derive(Debug)]
pub struct Published {
    handshake: Result<Part, NotListed>,
    modern: Result<Part, NotListed>,
}

impl Published {
    /// Prepares a definition for listing: an object that has a name and passed [`json::check`].
    pub fn of(definition: &str) -> Published {
        if !json::is_widely_readable(definition) {
            let why = NotListed(
                "not every client can read its definition: it has half of a surrogate pair, or a number of over 300 digits",
            );
            return Published { handshake: Err(why), modern: Err(why) };
        }
        let part = |reader| Part::of(definition, reader);
        Published { handshake: part(Reader::Handshake), modern: part(Reader::Modern) }
    }

    /// Returns the edits for these clients; `None` where they would refuse the whole list because of this tool.
    pub fn part(&self, reader: Reader) -> Option<&Part> {
        match reader {
            Reader::Handshake => self.handshake.as_ref().ok(),
            Reader::Modern => self.modern.as_ref().ok(),
        }
    }

    /// Returns whether the tool is in any list.
    pub fn is_listed(&self) -> bool {
        self.handshake.is_ok() || self.modern.is_ok()
    }

    /// Returns the reason why a list lacks the tool; `None` when every list has it.
    pub fn not_listed(&self) -> Option<NotListed> {
        self.modern.as_ref().err().or(self.handshake.as_ref().err()).copied()
    }
}

#[cfg(test)]
mod tests;
