//! Reading and editing of the top level of an object; every other byte stays as it is.
//!
//! The text must be JSON: it passed [`super::check`], or came out of a JSON parser whole. Only the top level is
//! read; values are stepped over.

use std::borrow::Cow;
use std::ops::Range;

use super::lexer::Lexer;
use super::skip::value_end;
use super::text::escape_into;
use super::{JsonFault, MEMBERS_USUAL, Member};

/// Returns the values of the top-level members called `names`, in the order of `names`, each without
/// surrounding white space.
///
/// For large texts: other members are stepped over, neither checked nor searched for duplicates.
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

/// Returns the object `text` without its top-level members called `names`; every other byte stays. A text that
/// is not an object is returned unchanged.
pub fn without_members<'a>(text: &'a str, names: &[&str]) -> Cow<'a, str> {
    match parts_without(text, names).as_slice() {
        [whole] => Cow::Borrowed(*whole),
        parts => Cow::Owned(parts.concat()),
    }
}

/// Returns the ranges of the members called `names` in the object `text`, with the commas to remove, in their order.
pub fn ranges_of_members(text: &str, names: &[&str]) -> Vec<Range<usize>> {
    let stay = ranges_without(text, names).unwrap_or_default();
    stay.windows(2)
        .filter_map(|pair| match pair {
            [before, after] => Some(before.end..after.start),
            _ => None,
        })
        .collect()
}

/// Returns the parts of `text` that stay without the members called `names`, in order; one part when nothing goes.
fn parts_without<'a>(text: &'a str, names: &[&str]) -> Vec<&'a str> {
    match ranges_without(text, names) {
        Ok(ranges) => ranges.into_iter().map(|range| text.get(range).unwrap_or_default()).collect(),
        Err(_) => vec![text],
    }
}

fn ranges_without(text: &str, names: &[&str]) -> Result<Vec<Range<usize>>, JsonFault> {
    let mut object = TopLevel::open(text)?;
    // one range per gap: grows with the members that go, not with those that stay
    let mut ranges: Vec<Range<usize>> = Vec::new();
    let (mut before, mut empty) = (None, true);
    while let Some(Member { name, span, .. }) = object.next()? {
        if ranges.is_empty() {
            ranges.push(0..span.start);
        }
        if !names.contains(&name.as_ref()) {
            // The comma and the space around it belong to the member that follows them.
            let from = before.filter(|_| !empty).unwrap_or(span.start);
            extend(&mut ranges, from..span.end);
            empty = false;
        }
        before = Some(span.end);
    }
    extend(&mut ranges, before.unwrap_or_default()..text.len());
    Ok(ranges)
}

fn extend(ranges: &mut Vec<Range<usize>>, next: Range<usize>) {
    match ranges.last_mut() {
        Some(last) if last.end == next.start => last.end = next.end,
        _ => ranges.push(next),
    }
}

/// Text of an object, split after its opening brace, where members can be inserted.
#[derive(Debug, PartialEq, Eq)]
pub struct OpenedObject<'a> {
    /// Text up to and with the opening brace.
    pub start: &'a str,
    /// Text after the brace: one part, unless members are left out.
    pub rest: Vec<&'a str>,
    /// True if the rest has no member.
    pub is_empty: bool,
}

/// Opens the object `text` without its top-level members called `names`, without copying; `None` when it is no object.
pub fn opened<'a>(text: &'a str, names: &[&str]) -> Option<OpenedObject<'a>> {
    let mut rest = if names.is_empty() { vec![text] } else { parts_without(text, names) };
    let first = rest.first_mut()?;
    let mut lexer = Lexer::new(first);
    lexer.skip_space();
    if !lexer.take(b'{') {
        return None;
    }
    let (start, after) = first.split_at_checked(lexer.pos())?;
    *first = after;
    let next = rest.iter().flat_map(|part| part.bytes()).find(|byte| !byte.is_ascii_whitespace());
    Some(OpenedObject { start, is_empty: next == Some(b'}'), rest })
}

/// Returns the object `text` with `"name":raw_value` as its first member. `raw_value` must be JSON, and the object
/// must not have a member of that name yet. A text that is not an object is returned unchanged.
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

/// Returns the members of the object `text`, in their order, without reading their values. For parts of a text
/// that passed [`super::check`] whole, so that nothing is checked twice.
///
/// # Errors
/// [`JsonFault::NotAnObject`]; [`JsonFault::Syntax`] when the top level is visibly broken.
pub fn top_level_members(text: &str) -> Result<Vec<Member<'_>>, JsonFault> {
    let mut object = TopLevel::open(text)?;
    let mut found = Vec::with_capacity(MEMBERS_USUAL);
    while let Some(member) = object.next()? {
        found.push(member);
    }
    Ok(found)
}

/// Calls `seen` with each member of the object `text`, in their order, up to the first fault.
pub fn for_each_member<'a>(text: &'a str, mut seen: impl FnMut(Member<'a>)) {
    let Ok(mut object) = TopLevel::open(text) else { return };
    while let Ok(Some(member)) = object.next() {
        seen(member);
    }
}

/// Returns the elements of the array `text`, in their order, without white space around; `None` when it is no array.
pub fn elements(text: &str) -> Option<Elements<'_>> {
    let mut lexer = Lexer::new(text);
    lexer.skip_space();
    lexer.take(b'[').then_some(Elements { lexer, bytes: text.as_bytes() })
}

/// Iterator over the elements of one array, which are not read inside.
#[derive(Debug)]
pub struct Elements<'a> {
    lexer: Lexer<'a>,
    bytes: &'a [u8],
}

impl Elements<'_> {
    /// Returns the range of the next element in the text, in bytes; `None` at the end.
    pub fn next_range(&mut self) -> Option<Range<usize>> {
        self.lexer.skip_space();
        if self.lexer.take(b',') {
            self.lexer.skip_space();
        }
        let start = self.lexer.pos();
        // no value begins with the closing bracket
        let end = value_end(self.bytes, start)?;
        self.lexer.move_to(end);
        Some(start..end)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let range = self.next_range()?;
        Some(self.lexer.slice(range))
    }
}

/// Iterator over the members of one object, whose values are not read inside.
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
