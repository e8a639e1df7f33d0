//! Records of a JSON text: the array that is most of it.

use serde::de::IgnoredAny;

use crate::domain::json;

/// Deepest level of objects in which arrays are searched for.
const DEPTH_MAX: usize = 4;
/// Longest member name in the path of the array, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Largest JSON around the array, in bytes; it is part of every page.
const AROUND_BYTES_MAX: usize = 4096;

/// Records that a reader who has seen the beginning of a text can go on with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordsAhead {
    /// Number of records.
    pub total: usize,
    /// Index of the first record that was not seen whole, from 0.
    pub next: usize,
}

impl RecordsAhead {
    /// Finds the records of the text that a literal's body spells, of which `shown` characters were seen. `None` when it
    /// is not read by records.
    pub fn find(body: &str, shown: usize, characters_max: usize) -> Option<RecordsAhead> {
        let text = json_of(body)?;
        let records = Records::find(&text, characters_max)?;
        let seen = text.char_indices().nth(shown).map_or(text.len(), |(at, _)| at);
        let mut ahead = RecordsAhead { total: 0, next: 0 };
        for record in records.iter() {
            ahead.total += 1;
            let end = (record.as_ptr() as usize + record.len()).saturating_sub(text.as_ptr() as usize);
            ahead.next += usize::from(end <= seen);
        }
        Some(ahead)
    }
}

/// Returns the text that a literal's body spells; `None` when it is not JSON.
pub(super) fn json_of(body: &str) -> Option<String> {
    let mut start = body.trim_start();
    while let Some(after) = ["\\n", "\\r", "\\t"].into_iter().find_map(|space| start.strip_prefix(space)) {
        start = after.trim_start();
    }
    // most texts are not JSON, and need not be decoded
    if !start.starts_with(['{', '[']) {
        return None;
    }
    let text = json::literal_text(body)?;
    serde_json::from_str::<IgnoredAny>(&text).ok()?;
    Some(text)
}

/// Array that is most of a JSON text.
#[derive(Debug)]
pub(super) struct Records<'a> {
    whole: &'a str,
    array: &'a str,
    /// JSON pointer (RFC 6901) to the array; empty when the array is the whole.
    pub(super) path: String,
}

impl<'a> Records<'a> {
    /// Finds the array: the text itself, or the largest array that is a member of it or of objects in it. `None` when
    /// it has less than two elements, or the JSON around it is too large.
    pub(super) fn find(whole: &'a str, characters_max: usize) -> Option<Records<'a>> {
        let mut largest = None;
        look(whole.trim(), String::new(), DEPTH_MAX, &mut largest);
        let (array, path) = largest?;
        let around = if path.is_empty() { 0 } else { whole.len() - array.len() };
        let is_most = around <= AROUND_BYTES_MAX.min(characters_max / 2);
        let has_two = json::elements(array)?.nth(1).is_some();
        (is_most && has_two).then_some(Records { whole, array, path })
    }

    /// Returns the records, raw.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        json::elements(self.array).into_iter().flatten()
    }

    /// Returns the text with the array emptied.
    pub(super) fn around(&self) -> String {
        let at = (self.array.as_ptr() as usize).saturating_sub(self.whole.as_ptr() as usize);
        let (before, rest) = self.whole.split_at_checked(at).unwrap_or_default();
        let after = rest.get(self.array.len()..).unwrap_or_default();
        [before, "[]", after].concat()
    }
}

fn look<'a>(value: &'a str, path: String, depth: usize, largest: &mut Option<(&'a str, String)>) {
    if value.starts_with('[') {
        if largest.as_ref().is_none_or(|(known, _)| known.len() < value.len()) {
            *largest = Some((value, path));
        }
    } else if value.starts_with('{') && depth > 0 {
        json::for_each_member(value, |member| {
            if member.value.starts_with(['[', '{']) && member.name.len() <= NAME_BYTES_MAX {
                let name = member.name.replace('~', "~0").replace('/', "~1");
                look(member.value, format!("{path}/{name}"), depth - 1, largest);
            }
        });
    }
}
