//! Pages of a text that was cut off and kept: record by record where it is JSON that is mostly one array, else by
//! characters. Nothing is decoded on the way out: records and characters are as the upstream spelled them.

mod records;

use std::borrow::Cow;

use self::records::Records;
pub use self::records::RecordsAhead;
use super::json::{self, escape_body_into};

/// Records of a page when nothing is said.
pub const RECORDS_DEFAULT: usize = 50;
/// Records of a page at most.
pub const RECORDS_MAX: usize = 1000;
/// Records within records that can be asked for, in levels.
pub const LEVELS_MAX: usize = 8;
/// What is shown of a record that is too large for a page, in characters.
const START_CHARACTERS_MAX: usize = 500;

/// Which part of a text is wanted.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// The record, and the record within it, and so on, that is read instead of the whole; empty for the whole.
    pub within: Vec<usize>,
    /// Records or characters before it.
    pub offset: usize,
    /// Records or characters at most, as far as they fit.
    pub limit: Option<usize>,
    /// What fits, in characters.
    pub characters_max: usize,
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// Records, or characters.
    pub content: Content,
    /// How many of them there are in all.
    pub total: usize,
    /// How many came before.
    pub offset: usize,
    /// How many could have been here.
    pub limit: usize,
    /// Where the next page begins.
    pub next_offset: Option<usize>,
    /// Characters of the text in all.
    pub total_characters: usize,
}

/// What is on a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// Characters, as the body of a JSON string.
    Text(String),
    /// Records of an array.
    Records {
        /// Raw, with commas between them.
        joined: String,
        /// Where the array is in the JSON (RFC 6901).
        path: String,
        /// The JSON around the array, which is empty in it. Raw; `None` when there is nothing.
        around: Option<String>,
        /// A record that fits on no page. It stands between this page and the next.
        large: Option<LargeRecord>,
    },
}

/// A record that is read as a text of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct LargeRecord {
    /// Which one.
    pub index: usize,
    /// How large it is.
    pub characters: usize,
    /// How it begins, as the body of a JSON string.
    pub start: String,
}

/// Reads a page of the text that a literal's body spells. `None` when there is no such record.
pub fn read(body: &str, request: &PageRequest) -> Option<Page> {
    let whole = records::json_of(body);
    let mut json = whole.as_deref();
    for index in &request.within {
        json = Some(Records::find(json?, request.characters_max)?.iter().nth(*index)?);
    }
    if let Some(json) = json
        && let Some(records) = Records::find(json, request.characters_max)
    {
        return Some(records_page(json, &records, request));
    }
    let body = match json.filter(|_| !request.within.is_empty()) {
        Some(record) => Cow::Owned(escaped(record)),
        None => Cow::Borrowed(body),
    };
    Some(text_page(&body, request))
}

fn text_page(body: &str, request: &PageRequest) -> Page {
    let limit = request.limit.unwrap_or(request.characters_max).min(request.characters_max);
    let total = json::literal_characters(body);
    let (_, rest) = json::literal_split(body, request.offset);
    let (page, after) = json::literal_split(rest, limit);
    Page {
        content: Content::Text(page.to_owned()),
        total,
        offset: request.offset,
        limit,
        next_offset: (!after.is_empty()).then(|| request.offset + limit),
        total_characters: total,
    }
}

fn records_page(json: &str, records: &Records<'_>, request: &PageRequest) -> Page {
    let limit = request.limit.unwrap_or(RECORDS_DEFAULT).min(RECORDS_MAX);
    let around = Some(records.around()).filter(|_| !records.path.is_empty());
    let mut room =
        request.characters_max - around.as_ref().map_or(0, String::len).min(request.characters_max);
    let (mut joined, mut large) = (String::new(), None);
    let (mut taken, mut total) = (0, 0);
    let mut is_full = false;
    for record in records.iter() {
        let here = total >= request.offset && taken < limit && !is_full;
        total += 1;
        if !here {
            continue;
        }
        let characters = record.chars().count();
        if characters <= room {
            room -= characters;
            joined.push_str(if joined.is_empty() { "" } else { "," });
            joined.push_str(record);
            taken += 1;
        } else {
            // a page that begins with it would not have room for it either
            if characters > request.characters_max || (taken == 0 && around.is_some()) {
                large = Some(LargeRecord { index: total - 1, characters, start: start_of(record) });
                taken += 1;
            }
            is_full = true;
        }
    }
    let next = request.offset.saturating_add(taken);
    Page {
        content: Content::Records { joined, path: records.path.clone(), around, large },
        total,
        offset: request.offset,
        limit,
        next_offset: (next < total).then_some(next),
        total_characters: json.chars().count(),
    }
}

fn start_of(record: &str) -> String {
    escaped(&record.chars().take(START_CHARACTERS_MAX).collect::<String>())
}

fn escaped(text: &str) -> String {
    let mut body = String::with_capacity(text.len() + text.len() / 8);
    escape_body_into(&mut body, text);
    body
}

#[cfg(test)]
mod tests;
