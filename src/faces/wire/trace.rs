//! W3C Trace Context: the trace that a request belongs to.

use http::HeaderMap;

/// The trace id of the header `traceparent`; `None` when there is none that follows the form.
pub fn from_headers(headers: &HeaderMap) -> Option<String> {
    trace_id(headers.get("traceparent")?.to_str().ok()?)
}

/// The trace id of a `traceparent`.
pub fn trace_id(text: &str) -> Option<String> {
    let mut parts = text.split('-');
    let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let good = hex(version, 2) && version != "ff" && hex(id, 32) && hex(span, 16) && hex(flags, 2);
    let set = id.bytes().any(|b| b != b'0');
    (good && set).then(|| id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::trace_id;

    #[test]
    fn only_a_well_formed_traceparent_has_a_trace_id() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        let span = "00f067aa0ba902b7";
        for (text, expected) in [
            (format!("00-{id}-{span}-01"), Some(id)),
            (format!("cc-{id}-{span}-01-later-parts"), Some(id)),
            (format!("ff-{id}-{span}-01"), None),
            (format!("00-{}-{span}-01", id.to_uppercase()), None),
            (format!("00-{}-{span}-01", "0".repeat(32)), None),
            (format!("00-{id}-{span}"), None),
            (id.to_owned(), None),
        ] {
            assert_eq!(trace_id(&text).as_deref(), expected, "{text}");
        }
    }
}
