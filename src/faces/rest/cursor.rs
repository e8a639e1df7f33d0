//! Paging: the shape of lists.

use serde::Serialize;

use super::error::RestError;
use super::show;
use super::show::RestAnswer;

pub(super) use crate::faces::query::cursor::{
    CursorPage, DEFINITIONS_BYTES_MAX, DEFINITIONS_MEMORY_BYTES, decode, encode, malformed,
};

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
    let (shown, next_cursor) = page.split(rows, key);
    let items = shown.iter().map(show).collect::<Result<Vec<_>, _>>()?;
    show::ok(&List { items, next_cursor })
}

#[cfg(test)]
mod tests {
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
    fn the_shape_of_a_list() {
        assert_eq!(page(&[1, 2, 3], 2), json!({"items": [1, 2], "next_cursor": encode("2")}));
        assert_eq!(page(&[], 2), json!({"items": [], "next_cursor": null}));
    }
}
