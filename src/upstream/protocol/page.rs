//! Parses the pages of a list. Everything in them is untrusted.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use bytes::Bytes;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::domain::era::Era;
use crate::upstream::error::{FailureKind, UpstreamError};
use crate::upstream::protocol::jsonrpc;
use crate::upstream::protocol::list_kind::{DEFINITION_BYTES_MAX, ListForm, ListKind};
use crate::upstream::protocol::param_headers::check_param_headers;

/// Longest cursor, in bytes.
const CURSOR_BYTES_MAX: usize = 16 * 1024;
/// Most problems reported of one list.
const PROBLEMS_MAX: usize = 100;
/// Most characters of a name that are shown in a problem.
const SHOWN_CHARS_MAX: usize = 64;

/// Tool, prompt, resource or template, as its server defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of a tool or a prompt, URI of a resource, or URI template.
    pub name: String,
    /// Definition, byte for byte. Shares memory with its whole page: copy it to keep it for long.
    pub definition: Bytes,
}

/// Complete list of one kind of entries of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The entries, in the server's order.
    pub entries: Vec<Entry>,
    /// Entries that were left out, each with the reason.
    pub problems: Vec<String>,
}

/// List that is being read, page by page.
pub(in crate::upstream) struct Reading {
    pub(in crate::upstream) listing: Listing,
    /// Bytes of the pages so far.
    pub(in crate::upstream) bytes: usize,
    kind: ListKind,
    form: &'static ListForm,
    names: HashSet<String>,
    cursors: HashSet<Vec<u8>>,
    entries: usize,
}

/// Members of a definition that decide whether it is accepted; all others pass unread.
#[derive(Deserialize)]
struct Definition<'a> {
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    uri: Option<&'a RawValue>,
    #[serde(borrow, rename = "uriTemplate")]
    uri_template: Option<&'a RawValue>,
    #[serde(borrow, rename = "inputSchema")]
    input_schema: Option<&'a RawValue>,
}

impl<'a> Definition<'a> {
    /// Returns the name, URI or URI template of an entry; `None` if it is not a string.
    fn key(&self, kind: ListKind) -> Option<Cow<'a, str>> {
        let raw = match kind {
            ListKind::Tools | ListKind::Prompts => self.name,
            ListKind::Resources => self.uri,
            ListKind::Templates => self.uri_template,
        };
        serde_json::from_str::<Text<'a>>(raw?.get()).ok().map(|text| text.0)
    }
}

impl Reading {
    pub(in crate::upstream) fn new(kind: ListKind) -> Self {
        Self {
            listing: Listing::default(),
            bytes: 0,
            kind,
            form: kind.form(),
            names: HashSet::new(),
            cursors: HashSet::new(),
            entries: 0,
        }
    }

    /// Adds one page; returns the cursor of the next as JSON, `None` after the last.
    pub(in crate::upstream) fn page(
        &mut self,
        result: &Bytes,
        era: Option<Era>,
    ) -> Result<Option<Vec<u8>>, UpstreamError> {
        let ListForm { method, nouns, entries_max, .. } = self.form;
        self.bytes = self.bytes.saturating_add(result.len());
        let page = PageOf(self.form).deserialize(&mut serde_json::Deserializer::from_slice(result)).map_err(
            |_| UpstreamError::invalid(format!("{method} was answered without a list of {nouns}")),
        )?;
        if self.entries.saturating_add(page.entries.len()) > *entries_max {
            return Err(too_large(format!("too many {nouns}")));
        }
        for entry in page.entries {
            self.entries += 1;
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
            return Err(UpstreamError::invalid(format!("the pages of {method} go round in circles")));
        }
        Ok(Some(cursor))
    }

    fn entry(&mut self, page: &Bytes, entry: &RawValue, era: Option<Era>) -> Result<(), String> {
        let ListForm { noun, key, key_bytes_max, .. } = self.form;
        if !entry.get().starts_with('{') {
            return Err("an entry is not an object".to_owned());
        }
        let definition = serde_json::from_str::<Definition<'_>>(entry.get()).ok();
        let named = definition.as_ref().and_then(|definition| definition.key(self.kind));
        let (Some(definition), Some(name)) = (definition, named) else {
            return Err(format!("a {noun} has no {key} or two of a kind"));
        };
        if name.is_empty() {
            return Err(format!("a {noun} has an empty {key}"));
        }
        if name.len() > *key_bytes_max {
            return Err(format!("the {key} of {} is too long", self.shown(&name)));
        }
        if entry.get().len() > DEFINITION_BYTES_MAX {
            return Err(format!("the definition of {} is too large", self.shown(&name)));
        }
        let schema = definition.input_schema.map_or("{}", RawValue::get);
        if self.kind == ListKind::Tools
            && era == Some(Era::Modern)
            && let Err(rule) = check_param_headers(schema)
        {
            return Err(format!("{} is left out: {rule}", self.shown(&name)));
        }
        if !self.names.insert(name.to_string()) {
            return Err(format!("{} is listed twice; the first stands", self.shown(&name)));
        }
        let definition = jsonrpc::slice(page, entry);
        self.listing.entries.push(Entry { name: name.into_owned(), definition });
        Ok(())
    }

    /// Returns the current entry as problems show it: by its name, or by its number if the name may hold a password.
    fn shown(&self, name: &str) -> String {
        if !self.kind.has_plain_names() {
            return format!("{} {}", self.form.noun, self.entries);
        }
        let start: String = name.chars().take(SHOWN_CHARS_MAX).collect();
        format!("{start:?}")
    }

    fn problem(&mut self, problem: String) {
        if self.listing.problems.len() < PROBLEMS_MAX {
            self.listing.problems.push(problem);
        }
    }
}

pub(in crate::upstream) fn too_large(detail: impl Into<Cow<'static, str>>) -> UpstreamError {
    UpstreamError::sent(FailureKind::TooLarge, detail)
}

/// String, owned only where it had to be unescaped.
#[derive(Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct Page<'a> {
    entries: Vec<&'a RawValue>,
    next: Option<Cow<'a, str>>,
}

/// Deserializer of a page of this form.
struct PageOf(&'static ListForm);

impl<'de> DeserializeSeed<'de> for PageOf {
    type Value = Page<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Page<'de>, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for PageOf {
    type Value = Page<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a page of a list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Page<'de>, A::Error> {
        let ListForm { member, entries_max, .. } = *self.0;
        let (mut entries, mut next) = (None, None);
        while let Some(Text(name)) = members.next_key()? {
            if name == member {
                if entries.replace(members.next_value_seed(Entries { most: entries_max })?).is_some() {
                    return Err(A::Error::duplicate_field(member));
                }
            } else if name == "nextCursor" {
                if next.replace(members.next_value::<Option<Text<'de>>>()?).is_some() {
                    return Err(A::Error::duplicate_field("nextCursor"));
                }
            } else {
                members.next_value::<IgnoredAny>()?;
            }
        }
        let entries = entries.ok_or_else(|| A::Error::missing_field(member))?;
        Ok(Page { entries, next: next.flatten().map(|text| text.0) })
    }
}

/// Deserializer of a page's entries. It keeps at most one entry more than `most`, so that a page of nothing but
/// commas costs no more memory than its own size.
struct Entries {
    most: usize,
}

impl<'de> DeserializeSeed<'de> for Entries {
    type Value = Vec<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Entries {
    type Value = Vec<&'de RawValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while found.len() <= self.most {
            match entries.next_element()? {
                Some(entry) => found.push(entry),
                None => return Ok(found),
            }
        }
        // One more than allowed: the caller reports that. The rest only has to be JSON.
        while entries.next_element::<IgnoredAny>()?.is_some() {}
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ListKind::{Prompts, Resources, Templates, Tools};

    const ALL: [ListKind; 4] = [Tools, Prompts, Resources, Templates];

    fn read_as(kind: ListKind, pages: &[&str], era: Era) -> Result<Listing, UpstreamError> {
        let mut list = Reading::new(kind);
        for page in pages {
            list.page(&Bytes::copy_from_slice(page.as_bytes()), Some(era))?;
        }
        Ok(list.listing)
    }

    fn read(kind: ListKind, pages: &[&str]) -> Result<Listing, UpstreamError> {
        read_as(kind, pages, Era::Modern)
    }

    fn names(listing: &Listing) -> Vec<&str> {
        listing.entries.iter().map(|entry| entry.name.as_str()).collect()
    }

    #[test]
    fn definitions_are_the_bytes_sent() {
        for kind in ALL {
            let ListForm { member, key, .. } = kind.form();
            let definition = format!(r#"{{ "{key}":"\u0061b", "x":[1.0, 2e3 ] ,"inputSchema":{{}}}}"#);
            let page = format!(r#"{{"ttlMs":0,"{member}":[ {definition} ],"tool":[7]}}"#);
            let listing = read(kind, &[&page]).unwrap();
            let entry = Entry { name: "ab".to_owned(), definition: Bytes::from(definition) };
            assert_eq!((listing.entries, listing.problems), (vec![entry], vec![]), "{kind:?}");
        }
        // a name with escapes counts as what it decodes to
        let listing = read(Tools, &[r#"{"to\u006fls":[{"name":"a"}],"next\u0043ursor":"x"}"#]).unwrap();
        assert_eq!(names(&listing), ["a"]);
    }

    #[test]
    fn bad_entries_are_left_out_and_reported() {
        for kind in ALL {
            let ListForm { member, key, key_bytes_max, .. } = kind.form();
            let long = format!(r#"{{"{key}":"{}"}}"#, "n".repeat(key_bytes_max + 1));
            let large = format!(r#"{{"{key}":"large","d":"{}"}}"#, "n".repeat(DEFINITION_BYTES_MAX));
            let page = format!(
                r#"{{"{member}":[1,["a"],{{}},{{"{key}":7}},{{"{key}":""}},{{"{key}":"a","{key}":"b"}},{long},{large},
                {{"{key}":"fine"}},{{"{key}":"fine","v":2}},
                {{"{key}":"h","inputSchema":{{"properties":{{"p":{{"type":"object","x-mcp-header":"P"}}}}}}}}]}}"#
            );
            let modern = read(kind, &[&page]).unwrap();
            let (want, problems): (&[&str], _) =
                if kind == Tools { (&["fine"], 10) } else { (&["fine", "h"], 9) };
            assert_eq!((names(&modern).as_slice(), modern.problems.len()), (want, problems), "{kind:?}");
            assert_eq!(modern.entries[0].definition, format!(r#"{{"{key}":"fine"}}"#));
            let old = read_as(kind, &[&page], Era::Handshake).unwrap();
            assert_eq!(names(&old), ["fine", "h"], "{kind:?}");
        }
    }

    #[test]
    fn problems_name_tools_but_no_uris() {
        let twice = |kind: ListKind| {
            let ListForm { member, key, .. } = kind.form();
            let entry = format!(r#"{{"{key}":"db://user:password@host"}}"#);
            read(kind, &[&format!(r#"{{"{member}":[{entry},{entry}]}}"#)]).unwrap().problems
        };
        assert_eq!(twice(Tools), [r#""db://user:password@host" is listed twice; the first stands"#]);
        assert_eq!(twice(Resources), ["resource 2 is listed twice; the first stands"]);
        assert_eq!(twice(Templates), ["template 2 is listed twice; the first stands"]);
    }

    #[test]
    fn bounds_and_circles_are_errors() {
        for kind in ALL {
            let ListForm { member, nouns, entries_max, .. } = kind.form();
            let fault = |pages: &[&str]| read(kind, pages).unwrap_err();
            let crowd =
                |n: usize| format!(r#"{{"{member}":[{}],"nextCursor":"{n}"}}"#, vec!["0"; n].join(","));
            let most = crowd(*entries_max);
            for pages in [&[crowd(entries_max + 5).as_str()][..], &[&most, &crowd(1)]] {
                let fault = fault(pages);
                let want = (FailureKind::TooLarge, format!("too many {nouns}"));
                assert_eq!((fault.kind, fault.detail.into_owned()), want);
            }
            assert_eq!(read(kind, &[&most]).unwrap().problems.len(), PROBLEMS_MAX);

            let round = format!(r#"{{"{member}":[],"nextCursor":""}}"#);
            assert_eq!(fault(&[&round, &round]).kind, FailureKind::Invalid);
            let long = "c".repeat(CURSOR_BYTES_MAX + 1);
            let long = format!(r#"{{"{member}":[],"nextCursor":"{long}"}}"#);
            assert_eq!(fault(&[&long]).kind, FailureKind::TooLarge);
            let bad =
                ["{}", r#"{"M":{}}"#, r#"{"M":null}"#, r#"{"M":[],"nextCursor":7}"#, r#"{"M":[],"M":[]}"#];
            let worse = [r#"{"nextCursor":"a"}"#, r#"{"M":[],"nextCursor":"a","nextCursor":"b"}"#, r#"[[]]"#];
            for bad in bad.iter().chain(&worse) {
                assert_eq!(fault(&[&bad.replace('M', member)]).kind, FailureKind::Invalid, "{bad}");
            }
            let last = format!(r#"{{"{member}":[],"nextCursor":null}}"#);
            assert!(read(kind, &[&last]).unwrap().entries.is_empty());
        }
    }
}
