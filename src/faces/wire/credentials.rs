//! Bodies about servers as they may be recorded: without their credentials.

use std::borrow::Cow;

use crate::domain::json;
use crate::domain::server_url::masked;

/// Members of bodies about servers that hold no credential.
const RECORDED: [&str; 17] = [
    "name",
    "kind",
    "command",
    "enabled",
    "auto_approve",
    "keep_credentials",
    "limits",
    "relay",
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

/// Returns the body of an act on a server as it may be recorded: names of headers without values, URLs and URIs without user
/// and query. Unknown members are masked, since they may be credentials in the wrong place.
pub fn without_credentials(body: &str) -> String {
    members(body, |name, value| match name {
        "url" | "uri" => Cow::Owned(url(value)),
        "headers" => Cow::Owned(members(value, |_, _| Cow::Borrowed(MASKED))),
        name if RECORDED.contains(&name) => Cow::Borrowed(value),
        _ => Cow::Borrowed(MASKED),
    })
}

/// Returns a URL or URI, raw JSON, with user and query masked; what is no text is masked whole.
fn url(value: &str) -> String {
    let Ok(url) = serde_json::from_str::<String>(value) else { return MASKED.to_owned() };
    let mut out = String::new();
    json::escape_into(&mut out, &masked(&url));
    out
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
