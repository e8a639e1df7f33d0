//! `/mcp/direct`: how tools are spelled there, and their list.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

use super::jsonrpc::RpcError;
use super::{Era, management, methods, tools};
use crate::domain::intent::OperationType;
use crate::domain::json::{Member, escape_into};
use crate::domain::settings::ToolNames;
use crate::gateway::{Caller, Catalog, DirectView, Gateway, ListKey};

/// Longest cursor that is looked at, in bytes.
const CURSOR_BYTES_MAX: usize = 1024;
/// Longest part of a query that is repeated, in characters.
const QUERY_SHOWN_CHARS_MAX: usize = 64;

/// The spelling that a request asks for by `?names=`, else the key's own.
pub(super) fn names(query: Option<&str>, own: ToolNames) -> Result<ToolNames, RpcError> {
    match query {
        None | Some("") => Ok(own),
        Some("names=colon") => Ok(ToolNames::Colon),
        Some("names=safe") => Ok(ToolNames::Safe),
        Some(other) => {
            let shown: String = other.chars().take(QUERY_SHOWN_CHARS_MAX).collect();
            Err(RpcError::invalid_request(format!(
                "Invalid request: the query may be names=colon or names=safe, not '{shown}'"
            )))
        }
    }
}

/// The canonical name after which a page begins; `None` for the first page.
pub(super) fn cursor(params: &[Member<'_>]) -> Result<Option<String>, RpcError> {
    let invalid = || RpcError::invalid_params("Invalid cursor");
    let raw = params.iter().find(|member| member.name == "cursor").map(|member| member.value);
    let Some(raw) = raw.filter(|raw| *raw != "null") else { return Ok(None) };
    let cursor: String = serde_json::from_str(raw).map_err(|_| invalid())?;
    if cursor.is_empty() {
        return Ok(None);
    }
    if cursor.len() > CURSOR_BYTES_MAX {
        return Err(invalid());
    }
    let name = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| invalid())?;
    String::from_utf8(name).map(Some).map_err(|_| invalid())
}

/// `tools/list`: prepared once for all who see the same, and cut from there.
pub(super) fn tools_list(
    gateway: &Gateway,
    caller: &Caller,
    era: Era,
    names: ToolNames,
    after: Option<&str>,
) -> Result<Bytes, RpcError> {
    let catalogue = methods::catalogue(caller)?;
    let view = catalogue.direct_view(&caller.settings);
    let from = after.map(|name| view.position_after(&catalogue, name));
    let (tenant, manages) = (caller.tenant_id(), management::ceiling(caller));
    let key = ListKey { tenant, print: view.print, reader: era.reader(), names, manages, from };
    Ok(gateway.list_body(key, || body(era, (names, manages), &catalogue, &view, from)))
}

fn body(
    era: Era,
    (names, manages): (ToolNames, Option<OperationType>),
    catalogue: &Catalog,
    view: &DirectView,
    from: Option<usize>,
) -> Bytes {
    let page = view.page(catalogue, from.unwrap_or_default(), names, era.reader());
    let mut items = String::from("[");
    if from.is_none() {
        tools::on_direct(manages).iter().for_each(|tool| begin(&mut items).push_str(&tool.to_string()));
    }
    for (tool, name) in page.tools {
        if let Some(published) = &tool.shape.published {
            published.part(era.reader()).write(name, begin(&mut items));
        }
    }
    items.push(']');
    let mut out = methods::list_result(era, "tools", &items);
    if let Some(last) = page.next {
        out.pop();
        out.push_str(r#","nextCursor":"#);
        escape_into(&mut out, &URL_SAFE_NO_PAD.encode(last));
        out.push('}');
    }
    out.into()
}

/// The list, ready for its next item.
fn begin(items: &mut String) -> &mut String {
    if items.len() > 1 {
        items.push(',');
    }
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::json;

    #[test]
    fn a_query_asks_for_a_spelling_and_for_nothing_else() {
        use ToolNames::{Colon, Safe};
        for (query, expected) in [
            (None, Some(Safe)),
            (Some(""), Some(Safe)),
            (Some("names=colon"), Some(Colon)),
            (Some("names=safe"), Some(Safe)),
            (Some("names="), None),
            (Some("names=Safe"), None),
            (Some("names=safe&names=colon"), None),
            (Some("key=x"), None),
        ] {
            assert_eq!(names(query, Safe).ok(), expected, "{query:?}");
        }
    }

    #[test]
    fn a_cursor_is_a_name() {
        let read = |params: &str| cursor(&json::top_level_members(params).unwrap()).ok();
        for first in ["{}", r#"{"cursor":null}"#, r#"{"cursor":""}"#] {
            assert_eq!(read(first), Some(None), "{first}");
        }
        let own = URL_SAFE_NO_PAD.encode("s:é");
        assert_eq!(read(&format!(r#"{{"cursor":"{own}"}}"#)), Some(Some("s:é".to_owned())));
        let long = "A".repeat(CURSOR_BYTES_MAX + 4);
        for bad in ["7", r#""=""#, r#""_w""#, r#""a b""#, &format!("\"{long}\"")] {
            assert_eq!(read(&format!(r#"{{"cursor":{bad}}}"#)), None, "{bad}");
        }
    }
}
