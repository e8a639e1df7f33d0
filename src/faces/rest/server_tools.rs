//! `/servers/{name}/tools`: definitions as discovered, and their approval.

use std::sync::Arc;

use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::cursor;
use super::error::RestError;
use super::exchange::Exchange;
use super::fields::Nulls;
use super::params::Params;
use super::route::Answer;
use super::servers;
use super::show;
use crate::domain::annotations::Unannotated;
use crate::domain::id::TOOL_NAME_BYTES_MAX;
use crate::domain::publish::Published;
use crate::domain::tool::{Definition, PinState};
use crate::gateway::{GatewayError, ToolView};

/// A tool; the JSON texts of the server's own stand in it byte for byte.
#[derive(Serialize)]
struct Shown<'a> {
    name: &'a str,
    safe_name: Option<&'a str>,
    state: &'static str,
    pin: &'a str,
    approved_pin: Option<&'a str>,
    tier: &'static str,
    call_with: &'static str,
    annotations: &'a RawValue,
    definition: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    approved_definition: Option<&'a RawValue>,
    /// Why `/mcp/direct` has it in no list, or not in every client's.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_listed: Option<&'static str>,
}

fn shown(tool: &ToolView, unannotated: Unannotated) -> Result<Shown<'_>, RestError> {
    let definition = Definition::read(&tool.definition).map_err(RestError::unshowable)?;
    let tier = definition.annotations.tier(unannotated);
    let approved = tool.approved_definition.as_deref().filter(|approved| *approved != tool.definition);
    Ok(Shown {
        name: &tool.name,
        safe_name: tool.safe_name.as_deref(),
        state: tool.state.as_str(),
        pin: &tool.pin,
        approved_pin: tool.approved_pin.as_deref(),
        tier: tier.as_str(),
        call_with: tier.call_with().as_str(),
        annotations: show::raw(definition.annotations_raw.unwrap_or("{}"))?,
        definition: show::raw(&tool.definition)?,
        approved_definition: approved.map(show::raw).transpose()?,
        not_listed: Published::of(&tool.definition).not_listed().map(|why| why.0),
    })
}

fn is_tool_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= TOOL_NAME_BYTES_MAX && !text.contains('\0')
}

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> Answer {
    let page = params.page()?;
    let after = page.after(String::new(), |key| is_tool_name(key).then(|| key.to_owned()))?;
    let name = servers::name(&exchange)?;
    let tools = exchange.gateway().list_server_tools(exchange.caller(), name, &after, page.fetch()).await?;
    let unannotated = exchange.caller().settings.unannotated_tools;
    cursor::list(&tools, &page, |tool| tool.name.clone(), |tool| shown(tool, unannotated))
}

pub(super) async fn approve(exchange: Arc<Exchange>) -> Answer {
    let pin = exchange.fields(&["pin"], Nulls::Absent)?.needed_text("pin")?;
    let server = servers::name(&exchange)?;
    let tool = exchange.segment("tool");
    if !is_tool_name(tool) {
        // the server is looked at all the same: a tool that cannot be must not tell more than one that is not
        exchange.gateway().get_server(exchange.caller(), server).await?;
        return Err(GatewayError::NotFound("tool").into());
    }
    exchange.gateway().approve_tool(exchange.caller(), server, tool, &pin).await?;
    show::ok(&json!({"name": tool, "state": PinState::Approved.as_str(), "pin": pin}))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::id::ServerId;

    fn tool(definition: &str, approved: Option<&str>) -> ToolView {
        ToolView {
            server: ServerId(Uuid::nil()),
            name: "t".into(),
            definition: definition.into(),
            pin: "v1:b".into(),
            state: PinState::Changed,
            approved_pin: Some("v1:a".into()),
            approved_definition: approved.map(str::to_owned),
            safe_name: None,
        }
    }

    #[test]
    fn definitions_stay_byte_for_byte() {
        let now = r#"{"name":"t", "x":1e400,"annotations":{ "readOnlyHint":true,"vendor":18446744073709551616 },"inputSchema":{"type":"object"}}"#;
        let before = r#"{ "name":"t"}"#;
        let tool = tool(now, Some(before));
        let text = serde_json::to_string(&shown(&tool, Unannotated::Trust).unwrap()).unwrap();
        let expected = format!(
            "{}{}{}",
            r#"{"name":"t","safe_name":null,"state":"changed","pin":"v1:b","approved_pin":"v1:a","tier":"read","call_with":"call_tool_read","annotations":{ "readOnlyHint":true,"vendor":18446744073709551616 },"#,
            format_args!(r#""definition":{now},"#),
            format_args!(r#""approved_definition":{before}}}"#),
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn nothing_is_said_twice_and_annotations_are_always_an_object() {
        let plain = r#"{"name":"t","annotations":7}"#;
        let tool = tool(plain, Some(plain));
        let of = |trust| serde_json::to_value(shown(&tool, trust).unwrap()).unwrap();
        let trusting = of(Unannotated::Trust);
        assert_eq!(trusting.get("approved_definition"), None);
        assert_eq!(trusting["not_listed"], "its inputSchema is not a JSON schema of type object");
        assert_eq!(trusting["annotations"], json!({}));
        assert_eq!(
            (&trusting["tier"], &trusting["call_with"]),
            (&json!("unknown"), &json!("call_tool_write"))
        );
        assert_eq!(of(Unannotated::Distrust)["tier"], "destructive");
    }

    #[test]
    fn names_that_cannot_be() {
        assert!(is_tool_name("a/b:c"));
        for bad in ["", "a\0", "x".repeat(TOOL_NAME_BYTES_MAX + 1).as_str()] {
            assert!(!is_tool_name(bad), "{bad:?}");
        }
    }
}
