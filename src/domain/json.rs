//! Strict reading of JSON: texts that this module accepts have exactly one meaning for every reader.
//!
//! Texts are checked and cut, never decoded: numbers keep their digits, members their order, strings their
//! spelling, and what was checked is byte for byte what is passed on.

mod comments;
pub(super) mod lexer;
mod literal;
mod scalars;
mod skip;
mod splice;
pub(super) mod text;

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use lexer::{Lexer, RawString};

pub use comments::without_comments;
pub use literal::{literal_characters, literal_split, literal_text};
pub use scalars::{has_infinite_number, is_widely_readable};
pub(in crate::domain) use skip::value_end_counted;
pub use splice::{
    Elements, OpenedObject, elements, find_members, for_each_member, opened, ranges_of_members,
    top_level_members, with_member_first, without_members,
};
pub(in crate::domain) use text::escape_body_into;
pub use text::{JsonOut, escape_into};

/// Deepest nesting of arrays and objects that is accepted, in levels; a lone scalar has none.
pub const DEPTH_MAX: usize = 64;

/// Largest object that is searched for duplicates member by member; larger ones are sorted first.
const LINEAR_MEMBERS_MAX: usize = 16;

/// Longest part of a member name that a fault repeats, in characters.
const NAME_SHOWN_CHARS_MAX: usize = 64;

/// Reason why a JSON text was refused. The message may be shown to the client that sent the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JsonFault {
    /// An object has two members of one name.
    DuplicateMember {
        /// Duplicate name, un-escaped; long names are shortened.
        name: String,
    },
    /// More than [`DEPTH_MAX`] levels of arrays and objects.
    TooDeep,
    /// The text is not JSON.
    Syntax {
        /// Offset at which the text stops being JSON, in bytes.
        offset: usize,
    },
    /// The text is JSON, but not an object where one is needed.
    NotAnObject,
    /// A string, or a member name, has a lone surrogate (half of a pair), which is no text.
    LoneSurrogate {
        /// Offset of the string's opening quote, in bytes from the start of the text.
        offset: usize,
    },
}

impl JsonFault {
    pub(super) fn duplicate(name: &str) -> Self {
        Self::DuplicateMember { name: name.chars().take(NAME_SHOWN_CHARS_MAX).collect() }
    }
}

impl fmt::Display for JsonFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DuplicateMember { name } => write!(f, "duplicate member name '{}'", name.escape_debug()),
            Self::TooDeep => write!(f, "JSON is nested deeper than {DEPTH_MAX} levels"),
            Self::Syntax { offset } => write!(f, "invalid JSON at byte {offset}"),
            Self::NotAnObject => f.write_str("must be a JSON object"),
            Self::LoneSurrogate { offset } => {
                write!(f, "the string at byte {offset} has a lone surrogate, which is no text")
            }
        }
    }
}

impl std::error::Error for JsonFault {}

/// Member of an object, as written in the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member<'a> {
    /// Name of the member, un-escaped.
    pub name: Cow<'a, str>,
    /// Text of the value, without surrounding white space.
    pub value: &'a str,
    /// Range of `"name": value`, in bytes of the object's text.
    pub span: Range<usize>,
}

impl Member<'_> {
    /// Returns the range of the value, in bytes of the object's text.
    pub fn value_range(&self) -> Range<usize> {
        self.span.end.saturating_sub(self.value.len())..self.span.end
    }
}

/// Returns the value of the member called `name`; `None` without one.
pub fn value_of<'a>(members: &[Member<'a>], name: &str) -> Option<&'a str> {
    members.iter().find(|member| member.name == name).map(|member| member.value)
}

/// Checks that `text` is one JSON value (RFC 8259), nested at most [`DEPTH_MAX`] levels, in which no object
/// has two members of one name.
///
/// Names are compared un-escaped. A lone surrogate escape counts as U+FFFD, as lenient readers see it, so two
/// names that any reader could take for one are refused. Numbers of any size pass.
///
/// # Errors
/// The first fault in the text.
pub fn check(text: &str) -> Result<(), JsonFault> {
    let mut checker = Checker::new(text);
    checker.lexer.skip_space();
    checker.value(0)?;
    checker.end()
}

/// Returns the members of the object `text` in their order, after the same check of its whole content as
/// [`check`].
///
/// # Errors
/// The faults of [`check`], or [`JsonFault::NotAnObject`] when `text` is another kind of value.
pub fn members(text: &str) -> Result<Vec<Member<'_>>, JsonFault> {
    members_by(Checker::new(text))
}

/// Returns the members of an object that a caller sends, like [`members`]. Every string must be text: a lone
/// surrogate has no single reading.
///
/// # Errors
/// The faults of [`members`], or [`JsonFault::LoneSurrogate`].
pub fn members_of_text(text: &str) -> Result<Vec<Member<'_>>, JsonFault> {
    members_by(Checker { is_text: true, ..Checker::new(text) })
}

fn members_by(mut checker: Checker<'_>) -> Result<Vec<Member<'_>>, JsonFault> {
    checker.lexer.skip_space();
    if checker.lexer.peek() != Some(b'{') {
        checker.value(0)?;
        checker.end()?;
        return Err(JsonFault::NotAnObject);
    }
    let mut found = Vec::with_capacity(MEMBERS_USUAL);
    checker.object(1, |name, value, span| found.push(Member { name: name.unescape(), value, span }))?;
    checker.end()?;
    Ok(found)
}

/// Members that most objects have room for, and names of open objects that most messages have room for: vectors that grow are copied.
const MEMBERS_USUAL: usize = 8;
const NAMES_USUAL: usize = 16;

/// Checker of a text in one pass, with the member names of all objects that are open on one stack.
struct Checker<'a> {
    lexer: Lexer<'a>,
    names: Vec<Cow<'a, str>>,
    /// True if strings with a lone surrogate are refused.
    is_text: bool,
}

impl<'a> Checker<'a> {
    fn new(text: &'a str) -> Self {
        Self { lexer: Lexer::new(text), names: Vec::with_capacity(NAMES_USUAL), is_text: false }
    }

    fn end(&mut self) -> Result<(), JsonFault> {
        self.lexer.skip_space();
        if self.lexer.at_end() { Ok(()) } else { Err(self.lexer.fault()) }
    }

    /// Reads one value inside `depth` open containers.
    fn value(&mut self, depth: usize) -> Result<(), JsonFault> {
        match self.lexer.peek() {
            Some(b'"') => self.string().map(drop),
            Some(b'{') => self.object(depth + 1, |_, _, _| {}),
            Some(b'[') => self.array(depth + 1),
            _ => self.lexer.scalar(),
        }
    }

    fn string(&mut self) -> Result<RawString<'a>, JsonFault> {
        let offset = self.lexer.pos();
        let string = self.lexer.string()?;
        if self.is_text && string.escaped && scalars::has_lone_surrogate(string.raw) {
            return Err(JsonFault::LoneSurrogate { offset });
        }
        Ok(string)
    }

    fn array(&mut self, depth: usize) -> Result<(), JsonFault> {
        if depth > DEPTH_MAX {
            return Err(JsonFault::TooDeep);
        }
        self.lexer.step();
        self.lexer.skip_space();
        if self.lexer.take(b']') {
            return Ok(());
        }
        loop {
            self.value(depth)?;
            self.lexer.skip_space();
            if self.lexer.take(b']') {
                return Ok(());
            }
            self.lexer.expect(b',')?;
            self.lexer.skip_space();
        }
    }

    /// Reads one object and hands each member to `seen`: name, value text, span.
    fn object(
        &mut self,
        depth: usize,
        mut seen: impl FnMut(RawString<'a>, &'a str, Range<usize>),
    ) -> Result<(), JsonFault> {
        if depth > DEPTH_MAX {
            return Err(JsonFault::TooDeep);
        }
        self.lexer.step();
        self.lexer.skip_space();
        if self.lexer.take(b'}') {
            return Ok(());
        }
        let base = self.names.len();
        loop {
            let start = self.lexer.pos();
            let name = self.string()?;
            self.name(base, name)?;
            self.lexer.skip_space();
            self.lexer.expect(b':')?;
            self.lexer.skip_space();
            let value_start = self.lexer.pos();
            self.value(depth)?;
            let end = self.lexer.pos();
            seen(name, self.lexer.slice(value_start..end), start..end);
            self.lexer.skip_space();
            if self.lexer.take(b'}') {
                return self.close(base);
            }
            self.lexer.expect(b',')?;
            self.lexer.skip_space();
        }
    }

    /// Adds a member name to the object whose names start at `base`. Small objects are searched for duplicates here.
    fn name(&mut self, base: usize, name: RawString<'a>) -> Result<(), JsonFault> {
        let name = name.unescape();
        let known = self.names.get(base..).unwrap_or_default();
        if known.len() < LINEAR_MEMBERS_MAX && known.contains(&name) {
            return Err(JsonFault::duplicate(&name));
        }
        self.names.push(name);
        Ok(())
    }

    /// Removes the names of the object that ends, after the search for duplicates in a large one.
    fn close(&mut self, base: usize) -> Result<(), JsonFault> {
        let own = self.names.get_mut(base..).unwrap_or_default();
        if own.len() > LINEAR_MEMBERS_MAX {
            own.sort_unstable();
            let mut pairs = own.iter().zip(own.iter().skip(1));
            if let Some((name, _)) = pairs.find(|(a, b)| a == b) {
                return Err(JsonFault::duplicate(name));
            }
        }
        self.names.truncate(base);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
