//! Paging: opaque cursors, and the shape of lists.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use super::error::RestError;
use super::show;
use super::show::RestAnswer;
use crate::gateway::GatewayError;

/// Default number of items on a page.
pub(super) const LIMIT_DEFAULT: usize = 50;
/// Most items of a page.
pub(super) const LIMIT_MAX: usize = 100;
/// Definitions of tools, prompts or resources on a page, approved ones included, in bytes; two of the largest tools fit.
pub(super) const DEFINITIONS_BYTES_MAX: i64 = 1024 * 1024;
/// Memory of such a page and one more definition, in bytes: as loaded, and as JSON.
pub(super) const DEFINITIONS_MEMORY_BYTES: usize = 3 * 1024 * 1024;
/// Longest cursor that is decoded, in bytes: the longest key, a URI, encoded.
const CURSOR_BYTES_MAX: usize = 3072;

/// Page that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CursorPage {
    /// Most items, 1 to [`LIMIT_MAX`].
    pub(super) limit: usize,
    /// Key of the last item of the page before; `None` for the first page.
    pub(super) after: Option<String>,
}

impl CursorPage {
    /// Returns the number of rows to fetch: one more than shown, to see whether more follow.
    pub(super) fn fetch(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(0) + 1
    }

    /// Ends a page of definitions before the one that makes it larger than [`DEFINITIONS_BYTES_MAX`], which the store loads
    /// last. The first definition is always shown.
    pub(super) fn fit(&mut self, sizes: impl ExactSizeIterator<Item = usize>) {
        let rows = sizes.len();
        let bytes = i64::try_from(sizes.sum::<usize>()).unwrap_or(i64::MAX);
        if bytes > DEFINITIONS_BYTES_MAX {
            self.limit = self.limit.min(rows.saturating_sub(1)).max(1);
        }
    }

    /// Returns the key of the cursor as `read` parses it, or `start` without a cursor.
    pub(super) fn after<K>(&self, start: K, read: impl FnOnce(&str) -> Option<K>) -> Result<K, GatewayError> {
        match &self.after {
            None => Ok(start),
            Some(key) => read(key).ok_or_else(malformed),
        }
    }
}

/// Returns the cursor of a key.
pub(super) fn encode(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

/// Returns the key of a cursor.
pub(super) fn decode(cursor: &str) -> Result<String, GatewayError> {
    if cursor.len() > CURSOR_BYTES_MAX {
        return Err(malformed());
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| malformed())?;
    let key = String::from_utf8(bytes).map_err(|_| malformed())?;
    if key.is_empty() || key.contains('\0') {
        return Err(malformed());
    }
    Ok(key)
}

/// Returns the error for a cursor that no list gave.
pub(super) fn malformed() -> GatewayError {
    GatewayError::invalid("cursor", "cursor must be a next_cursor that this list gave")
}

#[derive(Serialize)]
struct List<T> {
    items: Vec<T>,
    next_cursor: Option<String>,
}

/// Responds with a page of `rows`, which were fetched by [`CursorPage::fetch`].
pub(super) fn list<'a, T, S: Serialize>(
    rows: &'a [T],
    page: &CursorPage,
    key: impl Fn(&'a T) -> String,
    show: impl Fn(&'a T) -> Result<S, RestError>,
) -> RestAnswer {
    let shown = rows.get(..page.limit).unwrap_or(rows);
    let next_cursor =
        if rows.len() > shown.len() { shown.last().map(|last| encode(&key(last))) } else { None };
    let items = shown.iter().map(show).collect::<Result<Vec<_>, _>>()?;
    show::ok(&List { items, next_cursor })
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::faces::rest::show::RouteAnswer;

    fn page(rows: &[u32], limit: usize) -> Value {
        let page = CursorPage { limit, after: None };
        match list(rows, &page, |n| n.to_string(), |n| Ok(*n)).unwrap() {
            RouteAnswer::Json(_, text) => serde_json::from_slice(&text).unwrap(),
            _ => panic!("a list is JSON"),
        }
    }

    #[test]
    fn a_page_of_large_definitions_ends_early_but_is_never_empty() {
        let half = usize::try_from(DEFINITIONS_BYTES_MAX / 2).unwrap();
        for (sizes, limit) in [
            (vec![], 50),
            (vec![1, 2, 3], 50),
            (vec![half, half], 50),
            (vec![half, half, 1], 2),
            (vec![half, 2 * half], 1),
            (vec![3 * half], 1),
        ] {
            let mut page = CursorPage { limit: 50, after: None };
            page.fit(sizes.iter().copied());
            assert_eq!(page.limit, limit, "{sizes:?}");
        }
    }

    #[test]
    fn a_cursor_is_there_only_when_there_is_more() {
        assert_eq!(page(&[1, 2, 3], 2), json!({"items": [1, 2], "next_cursor": encode("2")}));
        assert_eq!(page(&[1, 2], 2), json!({"items": [1, 2], "next_cursor": null}));
        assert_eq!(page(&[], 2), json!({"items": [], "next_cursor": null}));
    }

    #[test]
    fn malformed_cursors_are_named() {
        let long = "a".repeat(CURSOR_BYTES_MAX + 1);
        let nul = URL_SAFE_NO_PAD.encode("a\0");
        let latin = URL_SAFE_NO_PAD.encode([0xff_u8]);
        for bad in ["", "=", "a", "YQ==", "%", long.as_str(), nul.as_str(), latin.as_str()] {
            let error = decode(bad).unwrap_err();
            assert!(matches!(error, GatewayError::Invalid { field: Some(f), .. } if f == "cursor"), "{bad}");
        }
        let page = CursorPage { limit: 1, after: Some("x".into()) };
        assert!(page.after(0, |text| text.parse().ok()).is_err());
        assert!(
            CursorPage { limit: 1, after: None }.after(7, |text| text.parse().ok()).is_ok_and(|key| key == 7)
        );
    }

    proptest! {
        #[test]
        fn any_key_comes_back(key in "[^\0]{1,90}") {
            prop_assert_eq!(decode(&encode(&key)).unwrap(), key);
        }
    }
}
