//! Cutting of long texts in a tool's result (behaviour, section 5, large results). The cut text ends with a note on how
//! to read the rest. Every other byte of the result stays as it is.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::json::{self, escape_body_into};
use super::page::{RECORDS_DEFAULT, RecordsAhead};

/// Time for which a cut text can be read with `read_cache`, in seconds.
pub const KEPT_S: u32 = 2 * 3600;
/// Most texts that are cut in one result; further ones stay whole.
pub const PARTS_MAX: usize = 100;

/// Tool result with texts that are too long.
#[derive(Debug)]
pub struct Cut<'a> {
    raw: &'a str,
    parts: Vec<Part<'a>>,
}

/// Text block that is cut, or the `structuredContent` that is left out with it.
#[derive(Debug)]
struct Part<'a> {
    place: Place,
    /// The whole text as the body of a JSON string literal.
    body: Cow<'a, str>,
    characters: usize,
    /// Length of the beginning that stays, in characters and in bytes of the body.
    shown: (usize, usize),
    records: Option<RecordsAhead>,
}

/// Position of a part in the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Text of the content block `index`. The literal's body begins at byte `at` of the result.
    Block { index: usize, at: usize },
    /// The member `structuredContent`.
    Structured,
}

/// Tool result after the cut.
#[derive(Debug, PartialEq, Eq)]
pub struct Rendered {
    /// The result object, JSON.
    pub result: String,
    /// Object for the result's `_meta` that describes the cut, JSON.
    pub meta: String,
}

impl<'a> Cut<'a> {
    /// Finds the text blocks of more than `limit` characters. `None` when there is none, or when `limit` is 0: then
    /// nothing is cut.
    pub fn find(raw: &'a str, limit: usize) -> Option<Cut<'a>> {
        if limit == 0 || raw.len() <= limit {
            return None;
        }
        let [content, structured] = json::find_members(raw, ["content", "structuredContent"]).ok()?;
        let mut parts: Vec<Part<'a>> = json::elements(content?)?
            .enumerate()
            .filter(|(_, block)| block.len() > limit)
            .filter_map(|(index, block)| Part::of_block(raw, index, text_of(block)?, limit))
            .take(PARTS_MAX)
            .collect();
        if parts.is_empty() {
            return None;
        }
        // a client that shows this to its model would undo the cut
        parts.extend(structured.filter(|value| is_longer(value, limit)).map(Part::of_structured));
        Some(Cut { raw, parts })
    }

    /// Finds out which of the cut texts can be read record by record, in pages of at most `limit` characters. Parses
    /// every text that looks like JSON.
    pub fn look_for_records(&mut self, limit: usize) {
        for part in &mut self.parts {
            part.records = RecordsAhead::find(&part.body, part.shown.0, limit);
        }
    }

    /// Returns the whole texts to be kept, as bodies of literals, in the order of the keys for [`Cut::render`].
    pub fn bodies(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().map(|part| &*part.body)
    }

    /// Returns the result with every part cut. Each cut text ends with a note that names its key.
    pub fn render(&self, keys: &[String], limit: usize) -> Rendered {
        let keyed: Vec<(&Part<'_>, &String)> = self.parts.iter().zip(keys).collect();
        let left_out = keyed.iter().find(|(part, _)| part.place == Place::Structured);
        let last_block = keyed.iter().rposition(|(part, _)| part.place != Place::Structured);
        let mut out = String::with_capacity(self.raw.len() - self.cut_bytes() + 512 * keyed.len());
        let mut from = 0;
        for (n, (part, key)) in keyed.iter().enumerate() {
            let Place::Block { at, .. } = part.place else { continue };
            out.push_str(self.raw.get(from..at + part.shown.1).unwrap_or_default());
            let also = left_out.filter(|_| Some(n) == last_block);
            escape_body_into(
                &mut out,
                &part.note(key, also.map(|(part, key)| (part.characters, *key)), limit),
            );
            from = at + part.body.len();
        }
        out.push_str(self.raw.get(from..).unwrap_or_default());
        if left_out.is_some() {
            out = json::without_members(&out, &["structuredContent"]).into_owned();
        }
        Rendered { result: out, meta: meta(&keyed) }
    }

    /// Returns the number of bytes that are cut off the text blocks.
    fn cut_bytes(&self) -> usize {
        let blocks = self.parts.iter().filter(|part| part.place != Place::Structured);
        blocks.map(|part| part.body.len() - part.shown.1).sum()
    }
}

impl<'a> Part<'a> {
    fn of_block(raw: &str, index: usize, body: &'a str, limit: usize) -> Option<Part<'a>> {
        let (shown, rest) = json::literal_split(body, limit);
        if rest.is_empty() {
            return None;
        }
        // the body is a part of the result's text
        let at = (body.as_ptr() as usize).checked_sub(raw.as_ptr() as usize)?;
        Some(Part {
            place: Place::Block { index, at },
            characters: limit + json::literal_characters(rest),
            shown: (limit, shown.len()),
            body: Cow::Borrowed(body),
            records: None,
        })
    }

    fn of_structured(value: &str) -> Part<'a> {
        let mut body = String::with_capacity(value.len() + value.len() / 8);
        escape_body_into(&mut body, value);
        let characters = value.chars().count();
        Part { place: Place::Structured, body: Cow::Owned(body), characters, shown: (0, 0), records: None }
    }

    /// Returns the note at the end of a cut text: how much is shown, and how to read the rest.
    fn note(&self, key: &str, left_out: Option<(usize, &String)>, limit: usize) -> String {
        let (shown, all, hours) = (self.shown.0, self.characters, KEPT_S / 3600);
        let next = match self.records {
            Some(records) => format!(
                "The whole is JSON with {} records. For {hours} hours they can be read with \
                 read_cache {{\"key\": \"{key}\", \"offset\": {}, \"limit\": {RECORDS_DEFAULT}}}",
                records.total, records.next
            ),
            None => format!(
                "For {hours} hours the rest can be read with \
                 read_cache {{\"key\": \"{key}\", \"offset\": {shown}, \"limit\": {limit}}}"
            ),
        };
        let also = left_out.map(|(characters, key)| {
            format!(". structuredContent ({characters} characters) was left out: read_cache {{\"key\": \"{key}\"}}")
        });
        format!(
            "\n\n[Cut by mcpproxy: {shown} of {all} characters are shown. {next}{}]",
            also.unwrap_or_default()
        )
    }

    fn meta(&self, key: &str) -> Value {
        let part = match self.place {
            Place::Block { index, .. } => format!("content[{index}].text"),
            Place::Structured => "structuredContent".to_owned(),
        };
        let mut meta = json!({
            "key": key, "part": part, "total_characters": self.characters, "shown": self.shown.0,
        });
        if let (Some(records), Some(object)) = (self.records, meta.as_object_mut()) {
            object.insert("records".to_owned(), records.total.into());
        }
        meta
    }
}

/// Returns the object for `_meta`: the first part, with any others in its `also`.
fn meta(keyed: &[(&Part<'_>, &String)]) -> String {
    let mut all = keyed.iter().map(|(part, key)| part.meta(key));
    let mut first = all.next().unwrap_or_default();
    let others: Vec<Value> = all.collect();
    if let (false, Some(object)) = (others.is_empty(), first.as_object_mut()) {
        object.insert("also".to_owned(), others.into());
    }
    first.to_string()
}

/// Returns the text of a text block as the body of a literal; `None` for other blocks.
fn text_of(block: &str) -> Option<&str> {
    let [kind, text] = json::find_members(block, ["type", "text"]).ok()?;
    let is_text =
        kind == Some(r#""text""#) || kind.and_then(|kind| serde_json::from_str(kind).ok()) == Some("text");
    text.filter(|_| is_text)?.strip_prefix('"')?.strip_suffix('"')
}

fn is_longer(text: &str, limit: usize) -> bool {
    text.len() > limit && text.chars().nth(limit).is_some()
}

#[cfg(test)]
mod tests;
