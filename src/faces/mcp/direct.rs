//! `/mcp/direct`: the spelling of tool names, and `tools/list`.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;

use super::jsonrpc::RpcError;
use super::{ClientEra, methods, result, tools};
use crate::domain::json::{Member, escape_into};
use crate::domain::operation::OperationType;
use crate::domain::settings::ToolNames;
use crate::gateway::{Caller, Catalog, DirectView, Gateway, ListKey, ListPlan};

/// Longest cursor that is decoded, in bytes.
const CURSOR_BYTES_MAX: usize = 1024;
/// Start of the member that holds the tools of a list.
const TOOLS: &str = r#""tools":["#;
/// Most retries of a list whose sources changed while it was made.
const TRIES_MAX: usize = 2;
/// Longest part of a query repeated in an error, in characters.
const QUERY_SHOWN_CHARS_MAX: usize = 64;

/// Returns the spelling that a request asks for by `?names=`; `None` for that of the key's settings.
pub(super) fn names(query: Option<&str>) -> Result<Option<ToolNames>, RpcError> {
    match query {
        None | Some("") => Ok(None),
        Some("names=colon") => Ok(Some(ToolNames::Colon)),
        Some("names=safe") => Ok(Some(ToolNames::Safe)),
        Some(other) => {
            let shown: String = other.chars().take(QUERY_SHOWN_CHARS_MAX).collect();
            Err(RpcError::invalid_request(format!(
                "Invalid request: the query may be names=colon or names=safe, not '{shown}'"
            )))
        }
    }
}

/// Returns the canonical name after which a page begins; `None` for the first page.
pub(super) fn cursor(params: &[Member<'_>]) -> Result<Option<String>, RpcError> {
    cursor_within(params, CURSOR_BYTES_MAX)
}

/// Returns the name after which a page begins, from a cursor of at most `bytes_max` bytes; `None` for the first page.
pub(super) fn cursor_within(params: &[Member<'_>], bytes_max: usize) -> Result<Option<String>, RpcError> {
    let invalid = || RpcError::invalid_params("Invalid cursor");
    let raw = params.iter().find(|member| member.name == "cursor").map(|member| member.value);
    let Some(raw) = raw.filter(|raw| *raw != "null") else { return Ok(None) };
    let cursor: String = serde_json::from_str(raw).map_err(|_| invalid())?;
    if cursor.is_empty() {
        return Ok(None);
    }
    if cursor.len() > bytes_max {
        return Err(invalid());
    }
    let name = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| invalid())?;
    String::from_utf8(name).map(Some).map_err(|_| invalid())
}

/// Returns a page of `tools/list`. Callers with the same view share the prepared page.
pub(super) async fn tools_list(
    gateway: &Gateway,
    caller: &Arc<Caller>,
    era: ClientEra,
    names: ToolNames,
    after: Option<&str>,
) -> Result<Bytes, RpcError> {
    let tenant = caller.tenant_id();
    while_current(gateway, caller, |catalogue, view| async move {
        let from = after.map(|name| view.position_after(&catalogue, name));
        let manages = caller.manages();
        let key = ListKey { tenant, print: view.print, reader: era.reader(), names, manages, from };
        let body = gateway.tenants.list_body(key, caller, move || {
            let page = view.page(&catalogue, from.unwrap_or_default(), names, era.reader());
            let (bytes, next, turn) = (page.bytes, page.next.map(|(_, at)| at), catalogue.turn());
            drop(page);
            let make = move || body(era, (names, manages), &catalogue, &view, from);
            ListPlan { bytes, next, make, turn }
        });
        body.await.map_err(|refusal| RpcError::rate_limited(era, &refusal))
    })
    .await
}

/// Returns a list made by `list`, which runs again if the catalogue has changed meanwhile. If the list is out of date even
/// so, the client is notified of the change again.
pub(super) async fn while_current<F: Future<Output = Result<Bytes, RpcError>>>(
    gateway: &Gateway,
    caller: &Arc<Caller>,
    list: impl Fn(Arc<Catalog>, Arc<DirectView>) -> F,
) -> Result<Bytes, RpcError> {
    let mut tries = 0..TRIES_MAX;
    loop {
        let catalogue = methods::catalogue(caller)?;
        let view = catalogue.direct_view_soon(&caller.settings).await;
        let body = list(Arc::clone(&catalogue), Arc::clone(&view)).await?;
        let is_current = gateway.tenants.note_served(caller, &catalogue, &view);
        if is_current {
            return Ok(body);
        }
        if tries.next().is_none() {
            gateway.tenants.serve_outdated(caller);
            return Ok(body);
        }
    }
}

fn body(
    era: ClientEra,
    (names, manages): (ToolNames, Option<OperationType>),
    catalogue: &Catalog,
    view: &DirectView,
    from: Option<usize>,
) -> String {
    let page = view.page(catalogue, from.unwrap_or_default(), names, era.reader());
    let opening = result::opening(era);
    let own: Vec<String> = match from {
        None => tools::on_direct(manages).iter().map(ToString::to_string).collect(),
        Some(_) => Vec::new(),
    };
    let mut end = format!("]{}", result::list_notes(era));
    if let Some((last, _)) = page.next {
        end.push_str(r#","nextCursor":"#);
        escape_into(&mut end, &URL_SAFE_NO_PAD.encode(last));
    }
    end.push('}');
    let names: usize = page.tools.iter().map(|listed| listed.name.len() + r#""","#.len()).sum();
    let own_bytes: usize = own.iter().map(|tool| tool.len() + 1).sum();
    let room = opening.len() + TOOLS.len() + own_bytes + names + page.bytes + end.len();
    let mut out = String::with_capacity(room);
    out.push_str(&opening);
    out.push_str(TOOLS);
    let start = out.len();
    let comma = |out: &mut String| out.push_str(if out.len() > start { "," } else { "" });
    for tool in &own {
        comma(&mut out);
        out.push_str(tool);
    }
    for listed in &page.tools {
        comma(&mut out);
        listed.part.write(&listed.tool.shape.definition, listed.name, &mut out);
    }
    out.push_str(&end);
    // only names with quotes in them need more than was counted
    out.shrink_to_fit();
    out
}

/// Returns a list result. `next`, the last item of the page, becomes the cursor if more items follow.
pub(super) fn finished(era: ClientEra, member: &str, items: &str, next: Option<&str>) -> String {
    let mut out = result::list_result(era, member, items);
    if let Some(last) = next {
        out.pop();
        out.push_str(r#","nextCursor":"#);
        escape_into(&mut out, &URL_SAFE_NO_PAD.encode(last));
        out.push('}');
    }
    out
}

/// Appends a comma to a list that has items. Returns the list, ready for its next item.
pub(super) fn begin(items: &mut String) -> &mut String {
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
            (None, Some(None)),
            (Some(""), Some(None)),
            (Some("names=colon"), Some(Some(Colon))),
            (Some("names=safe"), Some(Some(Safe))),
            (Some("names="), None),
            (Some("names=Safe"), None),
            (Some("names=safe&names=colon"), None),
            (Some("key=x"), None),
        ] {
            assert_eq!(names(query).ok(), expected, "{query:?}");
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
