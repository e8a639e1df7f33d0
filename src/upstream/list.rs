//! Lists an upstream's tools, each definition as the bytes that were sent.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::connection::{Ask, Connection, refused};
use super::discover::Era;
use super::error::{Kind, UpstreamError};
use super::jsonrpc::{self, Answer};
use super::param_headers::check_param_headers;

/// Most pages of one list.
pub const PAGES_MAX: usize = 1000;
/// Most tools of one server.
pub const TOOLS_MAX: usize = 10_000;
/// Largest definition, in bytes.
pub const DEFINITION_BYTES_MAX: usize = 256 * 1024;
/// Largest list, in bytes, all pages together.
pub const LIST_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Longest tool name, in bytes.
pub const NAME_BYTES_MAX: usize = 256;
/// Longest cursor, in bytes.
const CURSOR_BYTES_MAX: usize = 16 * 1024;
/// Most problems reported of one list.
const PROBLEMS_MAX: usize = 100;
/// Characters of a tool's name shown in a problem.
const SHOWN_CHARS_MAX: usize = 64;

/// A tool as its server defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The definition, byte for byte. Shares memory with its whole page: copy what is kept for long.
    pub definition: Bytes,
}

/// All tools of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The tools, in the server's order.
    pub tools: Vec<Tool>,
    /// Entries that were left out, each with the reason.
    pub problems: Vec<String>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    tools: Entries<'a>,
    #[serde(borrow, rename = "nextCursor")]
    next: Option<Cow<'a, str>>,
}

struct Entries<'a>(Vec<&'a RawValue>);

#[derive(Deserialize)]
struct Definition<'a> {
    #[serde(borrow)]
    name: Name<'a>,
    #[serde(borrow, rename = "inputSchema")]
    input_schema: Option<&'a RawValue>,
}

/// A name, owned only where it had to be unescaped.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl Connection {
    /// Lists the upstream's tools, all pages, past the queue of calls.
    ///
    /// # Errors
    /// Any [`Kind`]. A list that is not complete is an error, never a shorter list.
    pub async fn list_tools(&self) -> Result<Listing, UpstreamError> {
        self.aside(self.limits.listing_timeout, |dispatched| async move {
            let mut list = Reading::default();
            let mut cursor: Option<Vec<u8>> = None;
            for _ in 0..PAGES_MAX {
                let members = cursor.as_ref().map(|cursor| [("cursor", cursor.as_slice())]);
                let members = members.as_ref().map_or(&[][..], |members| &members[..]);
                let ask = Ask::plain("tools/list", members, LIST_BYTES_MAX.saturating_sub(list.bytes));
                let page = match self.request(ask, Arc::clone(&dispatched)).await? {
                    Answer::Result(page) => page,
                    Answer::Error(error) => return Err(refused("tools/list", &error)),
                };
                cursor = list.page(&page, self.era())?;
                if cursor.is_none() {
                    return Ok(list.listing);
                }
            }
            Err(too_large("too many pages"))
        })
        .await
    }
}

/// A list as far as it has been read.
#[derive(Default)]
struct Reading {
    listing: Listing,
    names: HashSet<String>,
    cursors: HashSet<Vec<u8>>,
    bytes: usize,
    entries: usize,
}

impl Reading {
    /// Takes one page; returns the cursor of the next, as JSON.
    fn page(&mut self, result: &Bytes, era: Option<Era>) -> Result<Option<Vec<u8>>, UpstreamError> {
        self.bytes = self.bytes.saturating_add(result.len());
        let page: Page<'_> = serde_json::from_slice(result)
            .map_err(|_| UpstreamError::invalid("tools/list was answered without a list of tools"))?;
        self.entries = self.entries.saturating_add(page.tools.0.len());
        if self.entries > TOOLS_MAX {
            return Err(too_large("too many tools"));
        }
        for entry in page.tools.0 {
            if let Err(problem) = self.entry(result, entry, era) {
                self.problem(problem);
            }
        }
        let Some(next) = page.next else { return Ok(None) };
        if next.len() > CURSOR_BYTES_MAX {
            return Err(too_large("the cursor is too long"));
        }
        let cursor = jsonrpc::quoted(&next);
        if !self.cursors.insert(cursor.clone()) {
            return Err(UpstreamError::invalid("the pages of tools/list go round in circles"));
        }
        Ok(Some(cursor))
    }

    fn entry(&mut self, page: &Bytes, entry: &RawValue, era: Option<Era>) -> Result<(), String> {
        if !entry.get().starts_with('{') {
            return Err("an entry is not an object".to_owned());
        }
        let definition: Definition<'_> = serde_json::from_str(entry.get())
            .map_err(|_| "a tool has no name or two of a kind".to_owned())?;
        let name = definition.name.0;
        if name.is_empty() {
            return Err("a tool has an empty name".to_owned());
        }
        if name.len() > NAME_BYTES_MAX {
            return Err(format!("the name of {} is too long", shown(&name)));
        }
        if entry.get().len() > DEFINITION_BYTES_MAX {
            return Err(format!("the definition of {} is too large", shown(&name)));
        }
        let schema = definition.input_schema.map_or("{}", RawValue::get);
        if era == Some(Era::Modern)
            && let Err(rule) = check_param_headers(schema)
        {
            return Err(format!("{} is left out: {rule}", shown(&name)));
        }
        if !self.names.insert(name.to_string()) {
            return Err(format!("{} is listed twice; the first stands", shown(&name)));
        }
        let definition = jsonrpc::slice(page, entry);
        self.listing.tools.push(Tool { name: name.into_owned(), definition });
        Ok(())
    }

    fn problem(&mut self, problem: String) {
        if self.listing.problems.len() < PROBLEMS_MAX {
            self.listing.problems.push(problem);
        }
    }
}

fn shown(name: &str) -> String {
    let start: String = name.chars().take(SHOWN_CHARS_MAX).collect();
    format!("{start:?}")
}

fn too_large(detail: &'static str) -> UpstreamError {
    UpstreamError::sent(Kind::TooLarge, detail)
}

impl<'de: 'a, 'a> Deserialize<'de> for Entries<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(EntriesVisitor).map(Entries)
    }
}

/// Stops early, so that a page of nothing but commas cannot cost more memory than its own size.
struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tools")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while found.len() <= TOOLS_MAX {
            match entries.next_element()? {
                Some(entry) => found.push(entry),
                None => return Ok(found),
            }
        }
        // One more than allowed: the caller says so. The rest only has to be JSON.
        while entries.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pages: &[&str], era: Era) -> Result<Listing, UpstreamError> {
        let mut list = Reading::default();
        for page in pages {
            list.page(&Bytes::copy_from_slice(page.as_bytes()), Some(era))?;
        }
        Ok(list.listing)
    }

    #[test]
    fn definitions_are_the_bytes_sent() {
        let definition = r#"{ "name":"\u0061b", "x":[1.0, 2e3 ] ,"inputSchema":{}}"#;
        let listing = read(&[&format!(r#"{{"tools":[ {definition} ]}}"#)], Era::Modern).unwrap();
        assert_eq!(listing.tools, [Tool { name: "ab".to_owned(), definition: Bytes::from(definition) }]);
        assert!(listing.problems.is_empty());
    }

    #[test]
    fn bad_entries_are_left_out_and_reported() {
        let long = format!(r#"{{"name":"{}"}}"#, "n".repeat(NAME_BYTES_MAX + 1));
        let large = format!(r#"{{"name":"large","d":"{}"}}"#, "n".repeat(DEFINITION_BYTES_MAX));
        let page = format!(
            r#"{{"tools":[1,["a"],{{}},{{"name":7}},{{"name":""}},{{"name":"a","name":"b"}},{long},{large},
            {{"name":"fine"}},{{"name":"fine","v":2}},
            {{"name":"h","inputSchema":{{"properties":{{"p":{{"type":"object","x-mcp-header":"P"}}}}}}}}]}}"#
        );
        let names = |listing: &Listing| listing.tools.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
        let modern = read(&[&page], Era::Modern).unwrap();
        assert_eq!(names(&modern), ["fine"]);
        assert_eq!(modern.problems.len(), 10);
        assert_eq!(modern.tools[0].definition, r#"{"name":"fine"}"#);
        let old = read(&[&page], Era::Handshake).unwrap();
        assert_eq!(names(&old), ["fine", "h"]);
    }

    #[test]
    fn bounds_and_circles_are_errors() {
        let crowd = |n: usize| format!(r#"{{"tools":[{}],"nextCursor":"{n}"}}"#, vec!["0"; n].join(","));
        assert_eq!(read(&[&crowd(TOOLS_MAX + 5)], Era::Modern).unwrap_err().kind, Kind::TooLarge);
        assert_eq!(read(&[&crowd(TOOLS_MAX), &crowd(1)], Era::Modern).unwrap_err().kind, Kind::TooLarge);
        let many = read(&[&crowd(TOOLS_MAX)], Era::Modern).unwrap();
        assert_eq!(many.problems.len(), PROBLEMS_MAX);

        let round = r#"{"tools":[],"nextCursor":""}"#;
        assert_eq!(read(&[round, round], Era::Modern).unwrap_err().kind, Kind::Invalid);
        let long = format!(r#"{{"tools":[],"nextCursor":"{}"}}"#, "c".repeat(CURSOR_BYTES_MAX + 1));
        assert_eq!(read(&[&long], Era::Modern).unwrap_err().kind, Kind::TooLarge);
        for bad in ["{}", r#"{"tools":{}}"#, r#"{"tools":null}"#, r#"{"tools":[],"nextCursor":7}"#] {
            assert_eq!(read(&[bad], Era::Modern).unwrap_err().kind, Kind::Invalid, "{bad}");
        }
        assert!(read(&[r#"{"tools":[],"nextCursor":null}"#], Era::Modern).unwrap().tools.is_empty());
    }
}
