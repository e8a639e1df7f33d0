//! Opaque cursors, and the pages that they lead to.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::gateway::GatewayError;

/// Default number of items on a page.
pub(in crate::faces) const LIMIT_DEFAULT: usize = 50;
/// Most items of a page.
pub(in crate::faces) const LIMIT_MAX: usize = 100;
/// Definitions of tools, prompts or resources on a page, approved ones included, in bytes; two of the largest tools
/// fit.
pub(in crate::faces) const DEFINITIONS_BYTES_MAX: i64 = 1024 * 1024;
/// Memory of such a page and one more definition, in bytes: as loaded, and as JSON.
pub(in crate::faces) const DEFINITIONS_MEMORY_BYTES: usize = 3 * 1024 * 1024;
/// Longest cursor that is decoded, in bytes: the longest key, a URI, encoded.
const CURSOR_BYTES_MAX: usize = 3072;

/// Page that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::faces) struct CursorPage {
    /// Most items, 1 to [`LIMIT_MAX`].
    pub(in crate::faces) limit: usize,
    /// Key of the last item of the page before; `None` for the first page.
    pub(in crate::faces) after: Option<String>,
}

impl CursorPage {
    /// Returns the number of rows to fetch: one more than shown, to see whether more follow.
    pub(in crate::faces) fn fetch(&self) -> i64 {
        i64::try_from(self.limit).unwrap_or(0) + 1
    }

    /// Ends a page of definitions before the one that makes it larger than [`DEFINITIONS_BYTES_MAX`], which the store
    /// loads last. The first definition is always shown.
    pub(in crate::faces) fn fit(&mut self, sizes: impl ExactSizeIterator<Item = usize>) {
        let rows = sizes.len();
        let bytes = i64::try_from(sizes.sum::<usize>()).unwrap_or(i64::MAX);
        if bytes > DEFINITIONS_BYTES_MAX {
            self.limit = self.limit.min(rows.saturating_sub(1)).max(1);
        }
    }

    /// Splits `rows`, which were fetched by [`CursorPage::fetch`], into those of the page and the cursor of the next
    /// page; `None` if there is no further page. `key` returns the key of a row.
    pub(in crate::faces) fn split<'a, T>(
        &self,
        rows: &'a [T],
        key: impl Fn(&'a T) -> String,
    ) -> (&'a [T], Option<String>) {
        let shown = rows.get(..self.limit).unwrap_or(rows);
        let last = shown.last().filter(|_| rows.len() > shown.len());
        (shown, last.map(|last| encode(&key(last))))
    }

    /// Returns the key of the cursor as `read` parses it, or `start` without a cursor.
    pub(in crate::faces) fn after<K>(
        &self,
        start: K,
        read: impl FnOnce(&str) -> Option<K>,
    ) -> Result<K, GatewayError> {
        match &self.after {
            None => Ok(start),
            Some(key) => read(key).ok_or_else(malformed),
        }
    }
}

/// Returns the cursor of a key.
pub(in crate::faces) fn encode(key: &str) -> String {
    URL_SAFE_NO_PAD.encode(key)
}

/// Returns the key of a cursor.
pub(in crate::faces) fn decode(cursor: &str) -> Result<String, GatewayError> {
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
pub(in crate::faces) fn malformed() -> GatewayError {
    GatewayError::invalid("cursor", "cursor must be a next_cursor that this list gave")
}

#[cfg(test)]
mod fuzz;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        let page = CursorPage { limit: 2, after: None };
        let shown = |rows: &[u32]| {
            let (shown, next) = page.split(rows, u32::to_string);
            (shown.to_vec(), next)
        };
        assert_eq!(shown(&[1, 2, 3]), (vec![1, 2], Some(encode("2"))));
        assert_eq!(shown(&[1, 2]), (vec![1, 2], None));
        assert_eq!(shown(&[]), (vec![], None));
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
