//! Bodies about servers as they may be recorded: without their credentials.

use std::borrow::Cow;

use crate::domain::json;
use crate::domain::server_url::{masked, masked_after_host};

/// Members of bodies about servers that hold no credential.
const RECORDED: [&str; 27] = [
    "name",
    "kind",
    "command",
    "enabled",
    "auto_approve",
    "keep_credentials",
    "limits",
    "relay",
    "sources",
    "disclosure",
    "execute",
    "require_wam_policy",
    "methods",
    "cookies",
    "direct",
    "client_id",
    "client_auth",
    "scopes",
    "version",
    "pin",
    "annotations",
    // of management tools
    "operation",
    "tool",
    "prompt",
    "list",
    "limit",
    "cursor",
];
/// Text in place of a masked value.
const MASKED: &str = r#""[redacted]""#;

/// Returns the body of an act on a server as it may be recorded: names of headers and fields without values, URLs and URIs
/// without user and query. Unknown members are masked, since they may be credentials in the wrong place.
pub fn without_credentials(body: &str) -> String {
    members(body, |name, value| match name {
        "url" | "uri" | "issuer" | "token_endpoint" | "resource" => Cow::Owned(url(value, masked)),
        "pages" => Cow::Owned(urls(value)),
        "headers" | "field_secrets" => Cow::Owned(members(value, |_, _| Cow::Borrowed(MASKED))),
        name if RECORDED.contains(&name) => Cow::Borrowed(value),
        _ => Cow::Borrowed(MASKED),
    })
}

/// Returns the body of an act on a webhook as it may be recorded: the URL without what follows the host, since receivers of
/// chats have their secret in the path, and no other value.
pub fn without_webhook_secrets(body: &str) -> String {
    members(body, |name, value| match name {
        "url" => Cow::Owned(url(value, masked_after_host)),
        _ => Cow::Borrowed(MASKED),
    })
}

/// Returns a URL or URI, raw JSON, as `mask` has it; what is no text is masked whole.
fn url(value: &str, mask: fn(&str) -> Cow<'_, str>) -> String {
    let Ok(url) = serde_json::from_str::<String>(value) else { return MASKED.to_owned() };
    let mut out = String::new();
    json::escape_into(&mut out, &mask(&url));
    out
}

/// Returns a list of URLs, raw JSON, each as [`url()`] does; what is no such list is masked whole.
fn urls(value: &str) -> String {
    let Ok(all) = serde_json::from_str::<Vec<String>>(value) else { return MASKED.to_owned() };
    let masked: Vec<_> = all.iter().map(|url| masked(url)).collect();
    serde_json::to_string(&masked).unwrap_or_else(|_| MASKED.to_owned())
}

/// Returns the object `text` with its values replaced. A text that is no object is masked.
fn members<'a>(text: &'a str, value: impl Fn(&str, &'a str) -> Cow<'a, str>) -> String {
    let Ok(members) = json::top_level_members(text) else { return MASKED.to_owned() };
    let mut out = String::from("{");
    for member in &members {
        if out.len() > 1 {
            out.push(',');
        }
        json::escape_into(&mut out, &member.name);
        out.push(':');
        out.push_str(&value(&member.name, member.value));
    }
    out.push('}');
    out
}
