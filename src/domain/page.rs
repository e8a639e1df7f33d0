//! Pages of a text that was cut and kept. JSON that is mostly one array is read record by record, any other text by
//! characters. Records and characters stay as the upstream spelled them.

mod records;

use std::borrow::Cow;

use self::records::Records;
pub use self::records::RecordsAhead;
use super::json::{self, escape_body_into};

/// Records of a page when the request has no limit.
pub const RECORDS_DEFAULT: usize = 50;
/// Most records of a page.
pub const RECORDS_MAX: usize = 1000;
/// Deepest level of records within records that can be requested.
pub const LEVELS_MAX: usize = 8;
/// Longest beginning that is shown of a record too large for a page, in characters.
const START_CHARACTERS_MAX: usize = 500;

/// Request for a page of a text.
#[derive(Clone, Debug)]
pub struct PageRequest {
    /// Path of indices to the record that is read instead of the whole: a record, a record within it, and so on. Empty for
    /// the whole text.
    pub within: Vec<usize>,
    /// Records or characters before the page.
    pub offset: usize,
    /// Most records or characters of the page; `None` for the default.
    pub limit: Option<usize>,
    /// Largest page, in characters.
    pub characters_max: usize,
}

/// Page of a text.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// Records, or characters.
    pub content: Content,
    /// Records or characters of the text in all.
    pub total: usize,
    /// Records or characters before the page.
    pub offset: usize,
    /// Most records or characters that the page could have had.
    pub limit: usize,
    /// Offset of the next page; `None` on the last.
    pub next_offset: Option<usize>,
    /// Characters of the text in all, also when it is read by records.
    pub total_characters: usize,
}

/// Content of a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Content {
    /// Characters, as the body of a JSON string.
    Text(String),
    /// Records of an array.
    Records {
        /// The records, raw, with commas between them.
        joined: String,
        /// JSON pointer (RFC 6901) to the array.
        path: String,
        /// The JSON around the array, raw, with the array empty; `None` when the array is the whole.
        around: Option<String>,
        /// Record that fits on no page, between this page's records and the next page's.
        large: Option<LargeRecord>,
    },
}

/// Record too large for a page, which is read as a text of its own.
#[derive(Debug, PartialEq, Eq)]
pub struct LargeRecord {
    /// Index in the array, from 0.
    pub index: usize,
    /// Size of the record, in characters.
    pub characters: usize,
    /// Beginning of the record, as the body of a JSON string.
    pub start: String,
}

/// Reads a page of the text that a literal's body spells; `None` when the record to read does not exist.
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
            // the record would not fit on a page that begins with it either
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
