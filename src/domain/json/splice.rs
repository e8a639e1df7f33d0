//! Reading and changing the top level of an object without touching any other byte.
//!
//! These trust that the text is JSON (it passed [`super::check`], or came out of a JSON parser whole): they
//! look at the top level only and step over the values.

use std::borrow::Cow;
use std::ops::Range;

use super::lexer::Lexer;
use super::skip::value_end;
use super::text::escape_into;
use super::{JsonFault, Member};

/// The values of the top-level members called `names`, in the order of `names`, each without surrounding
/// white space.
///
/// For large texts: what is not asked for is stepped over, neither checked nor searched for duplicates.
///
/// # Errors
/// [`JsonFault::NotAnObject`]; [`JsonFault::DuplicateMember`] when one of `names` is there twice;
/// [`JsonFault::Syntax`] when the top level is visibly broken.
pub fn find_members<'a, const N: usize>(
    text: &'a str,
    names: [&str; N],
) -> Result<[Option<&'a str>; N], JsonFault> {
    let mut found = [None; N];
    let mut object = TopLevel::open(text)?;
    while let Some(member) = object.next()? {
        for (wanted, slot) in names.iter().zip(found.iter_mut()) {
            if *wanted == member.name && slot.replace(member.value).is_some() {
                return Err(JsonFault::duplicate(&member.name));
            }
        }
    }
    Ok(found)
}

/// The object `text` without its top-level members called `names`; every other byte stays, and so does all
/// of a text that is not an object.
pub fn without_members<'a>(text: &'a str, names: &[&str]) -> Cow<'a, str> {
    let Ok(members) = top_level_members(text) else { return Cow::Borrowed(text) };
    let goes = |member: &Member<'_>| names.contains(&member.name.as_ref());
    let (Some(first), Some(last)) = (members.first(), members.last()) else { return Cow::Borrowed(text) };
    if !members.iter().any(goes) {
        return Cow::Borrowed(text);
    }
    let part = |range: Range<usize>| text.get(range).unwrap_or_default();
    let mut out = String::with_capacity(text.len());
    out.push_str(part(0..first.span.start));
    let mut empty = true;
    let mut before = first.span.start;
    for member in &members {
        if !goes(member) {
            // The comma and the space around it belong to the member that follows them.
            let from = if empty { member.span.start } else { before };
            out.push_str(part(from..member.span.end));
            empty = false;
        }
        before = member.span.end;
    }
    out.push_str(part(last.span.end..text.len()));
    Cow::Owned(out)
}

/// The object `text` with `"name":raw_value` as its first member; `raw_value` must be JSON, and the object
/// must not have a member of that name yet. A text that is not an object comes back as it is.
pub fn with_member_first(text: &str, name: &str, raw_value: &str) -> String {
    let mut lexer = Lexer::new(text);
    lexer.skip_space();
    if !lexer.take(b'{') {
        return text.to_owned();
    }
    let open = lexer.pos();
    lexer.skip_space();
    let mut out = String::with_capacity(text.len() + name.len() + raw_value.len() + 4);
    out.push_str(text.get(..open).unwrap_or_default());
    escape_into(&mut out, name);
    out.push(':');
    out.push_str(raw_value);
    if lexer.peek() != Some(b'}') {
        out.push(',');
    }
    out.push_str(text.get(open..).unwrap_or_default());
    out
}

/// The members of the object `text`, in their order, without looking into their values: for parts of a text
/// that passed [`super::check`] whole, so that nothing is checked twice.
///
/// # Errors
/// [`JsonFault::NotAnObject`]; [`JsonFault::Syntax`] when the top level is visibly broken.
pub fn top_level_members(text: &str) -> Result<Vec<Member<'_>>, JsonFault> {
    let mut object = TopLevel::open(text)?;
    let mut found = Vec::new();
    while let Some(member) = object.next()? {
        found.push(member);
    }
    Ok(found)
}

/// Walks the members of one object without looking into their values.
struct TopLevel<'a> {
    lexer: Lexer<'a>,
    bytes: &'a [u8],
    first: bool,
}

impl<'a> TopLevel<'a> {
    fn open(text: &'a str) -> Result<Self, JsonFault> {
        let mut lexer = Lexer::new(text);
        lexer.skip_space();
        if !lexer.take(b'{') {
            return Err(JsonFault::NotAnObject);
        }
        Ok(Self { lexer, bytes: text.as_bytes(), first: true })
    }

    fn next(&mut self) -> Result<Option<Member<'a>>, JsonFault> {
        self.lexer.skip_space();
        if self.lexer.take(b'}') {
            self.lexer.skip_space();
            return if self.lexer.at_end() { Ok(None) } else { Err(self.lexer.fault()) };
        }
        if !self.first {
            self.lexer.expect(b',')?;
            self.lexer.skip_space();
        }
        self.first = false;
        let start = self.lexer.pos();
        let name = self.lexer.string()?.unescape();
        self.lexer.skip_space();
        self.lexer.expect(b':')?;
        self.lexer.skip_space();
        let value_start = self.lexer.pos();
        let Some(end) = value_end(self.bytes, value_start) else { return Err(self.lexer.fault()) };
        self.lexer.move_to(end);
        Ok(Some(Member { name, value: self.lexer.slice(value_start..end), span: start..end }))
    }
}
