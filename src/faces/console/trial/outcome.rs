//! Outcomes of calls, as their page shows them: texts of the server as texts, pictures and sounds as a note.

use crate::domain::json;
use crate::domain::refusal::{Class, Code};
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::permissions;
use crate::faces::console::text::{LongText, indented_within, short};
use crate::gateway::{CallOutcome, Refused};

/// Most parts of a result that are shown.
const PARTS_MAX: usize = 100;
/// Longest texts of a result together, in bytes.
const TEXTS_BYTES_MAX: usize = 256 * 1024;
/// Longest name of a type or address in a note, in characters.
const NAME_CHARS_MAX: usize = 200;

/// Part of a result.
pub(super) struct ResultPart {
    /// Remark about the part; `None` for a plain text.
    pub(super) note: Option<String>,
    /// Text of the part; `None` without one.
    pub(super) text: Option<LongText>,
}

/// Outcome of a call.
pub(super) struct OutcomeShown {
    /// Outcome in a word.
    pub(super) word: &'static str,
    /// Class by which the word stands out.
    pub(super) tone: &'static str,
    /// Reason, or warning; `None` without one.
    pub(super) says: Option<LongText>,
    /// Parts of the result.
    pub(super) parts: Vec<ResultPart>,
    /// True if the result has more parts than are shown.
    pub(super) has_more: bool,
    /// Structured result, as JSON; `None` without one.
    pub(super) structured: Option<LongText>,
    /// Page of the permission request that the call waits for; `None` without one.
    pub(super) permission: Option<String>,
    /// Page with the record of the call; `None` if the visitor may see none.
    pub(super) record: Option<String>,
}

impl OutcomeShown {
    fn new(visit: &PageVisit, word: &'static str, tone: &'static str, says: Option<&str>) -> OutcomeShown {
        let request = visit.attempt().request_id.as_deref();
        let request = request.filter(|_| Section::Activity.is_open_to(visit.caller()));
        let link = |id: &str| {
            let mut query = url::form_urlencoded::Serializer::new(String::new());
            query.append_pair("request_id", id);
            format!("{}?{}", Section::Activity.href(), query.finish())
        };
        OutcomeShown {
            word,
            tone,
            says: says.map(LongText::of),
            parts: Vec::new(),
            has_more: false,
            structured: None,
            permission: None,
            record: request.map(link),
        }
    }

    /// Describes the outcome of a call.
    pub(super) fn of(visit: &PageVisit, outcome: &CallOutcome) -> OutcomeShown {
        match outcome {
            CallOutcome::Result { raw, head, warning, .. } => {
                let (word, tone) =
                    if head.is_error { ("failed, says the tool", "bad") } else { ("done", "good") };
                let shown = OutcomeShown::new(visit, word, tone, warning.as_deref());
                shown.with_result(std::str::from_utf8(raw).unwrap_or_default())
            }
            CallOutcome::UpstreamError { raw, .. } => {
                let mut shown =
                    OutcomeShown::new(visit, "failed: the server answered with an error", "bad", None);
                let error = std::str::from_utf8(raw).unwrap_or_default();
                shown.structured = Some(indented_within(error, TEXTS_BYTES_MAX));
                shown
            }
            CallOutcome::Refused(refused) => OutcomeShown::refused(visit, refused),
            // people at the console declare no capabilities, so their calls ask them nothing
            CallOutcome::InputRequired { .. } | CallOutcome::InvalidState => {
                OutcomeShown::new(visit, "not done: it takes another round", "bad", None)
            }
        }
    }

    fn refused(visit: &PageVisit, refused: &Refused) -> OutcomeShown {
        let refusal = &refused.refusal;
        let asked = refusal.consent_id.filter(|_| Section::Permissions.is_open_to(visit.caller()));
        let (word, tone) = match refusal.code {
            Code::ConsentPending => ("waits for a person", "open"),
            Code::ConsentDenied => ("denied by a person", "held"),
            Code::ConsentTimedOut => ("expired: nobody answered in time", "held"),
            Code::Cancelled => ("ended: it may have run", "bad"),
            code if code.class() == Class::AfterDispatch => ("no usable answer: it may have run", "bad"),
            _ => ("not done", "held"),
        };
        let says = format!("{} ({})", refusal.message, refusal.code.as_str());
        let mut shown = OutcomeShown::new(visit, word, tone, Some(&says));
        shown.permission = asked.map(permissions::href_of);
        shown
    }

    fn with_result(mut self, raw: &str) -> OutcomeShown {
        let [content, structured] =
            json::find_members(raw, ["content", "structuredContent"]).unwrap_or_default();
        let mut left = TEXTS_BYTES_MAX;
        let mut parts = content.and_then(json::elements).into_iter().flatten();
        while left > 0 && self.parts.len() < PARTS_MAX {
            let Some(part) = parts.next() else { break };
            let part = part_of(part, left);
            left = left.saturating_sub(part.text.as_ref().map_or(0, |long| long.text.len()));
            self.parts.push(part);
        }
        self.has_more = parts.next().is_some();
        self.structured = structured.map(|raw| indented_within(raw, left));
        self
    }
}

/// Returns a part of a result. Its text is cut after `bytes_max`.
fn part_of(raw: &str, bytes_max: usize) -> ResultPart {
    let names = ["type", "text", "data", "mimeType", "uri", "resource"];
    let [kind, text, data, media, uri, resource] = json::find_members(raw, names).unwrap_or_default();
    let word = |raw: Option<&str>| {
        raw.and_then(|raw| serde_json::from_str::<String>(raw).ok()).map(|text| short(&text, NAME_CHARS_MAX))
    };
    let long = |raw: Option<&str>| {
        let text = raw.and_then(|raw| serde_json::from_str::<String>(raw).ok());
        text.map(|text| LongText::within(&text, bytes_max))
    };
    let media = word(media).unwrap_or_else(|| "no type given".to_owned());
    let note = |note: String| Some(note);
    match word(kind).as_deref() {
        Some("text") => ResultPart { note: None, text: long(text) },
        Some(kind @ ("image" | "audio")) => {
            // base64 has four characters for three bytes
            let bytes = data.map_or(0, |data| data.len().saturating_sub(2) / 4 * 3);
            ResultPart { note: note(format!("{kind}, {media}, about {bytes} bytes: not shown")), text: None }
        }
        Some("resource_link") => ResultPart {
            note: note(format!("link to a resource: {}", word(uri).unwrap_or_default())),
            text: None,
        },
        Some("resource") => {
            let [uri, text] =
                json::find_members(resource.unwrap_or("{}"), ["uri", "text"]).unwrap_or_default();
            let what = if text.is_some() { "resource" } else { "resource, not a text" };
            ResultPart { note: note(format!("{what}: {}", word(uri).unwrap_or_default())), text: long(text) }
        }
        _ => ResultPart {
            note: note("part of a kind that the console does not know".to_owned()),
            text: Some(indented_within(raw, bytes_max)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_texts_and_notes() {
        let of = |raw: &str| {
            let part = part_of(raw, 5);
            (part.note.unwrap_or_default(), part.text.map(|long| (long.text, long.left_out)))
        };
        let text = |text: &str, left_out| Some((text.to_owned(), left_out));
        assert_eq!(of(r#"{"type":"text","text":"a<b>cdef"}"#), (String::new(), text("a<b>c", Some(3))));
        let image = of(r#"{"type":"image","data":"AAAAAAAA","mimeType":"image/png"}"#);
        assert_eq!(image, ("image, image/png, about 6 bytes: not shown".to_owned(), None));
        let link = of(r#"{"type":"resource_link","uri":"doc://a"}"#);
        assert_eq!(link, ("link to a resource: doc://a".to_owned(), None));
        let held = of(r#"{"type":"resource","resource":{"uri":"doc://a","text":"x"}}"#);
        assert_eq!(held, ("resource: doc://a".to_owned(), text("x", None)));
        for odd in [r#"{"type":7}"#, "7", r#"{"type":"x"}"#] {
            assert!(of(odd).0.starts_with("part of a kind"), "{odd}");
        }
    }
}
