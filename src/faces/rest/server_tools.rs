//! `/servers/{name}/tools`: definitions as discovered, and what was decided about them.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::cursor::{self, DEFINITIONS_BYTES_MAX, DEFINITIONS_MEMORY_BYTES};
use super::error::RestError;
use super::exchange::Exchange;
use super::params::Params;
use super::servers;
use super::show;
use super::show::RestAnswer;
use crate::domain::annotations::{Tier, Unannotated};
use crate::domain::drift::Drift;
use crate::domain::id::is_tool_name;
use crate::domain::operation::Variant;
use crate::domain::overrides::Hints;
use crate::domain::publish::Published;
use crate::domain::tool::{Definition, PinState};
use crate::gateway::{OverrideView, ToolView};

/// Tool with its state. The server's own JSON texts stand in it byte for byte.
#[derive(Serialize)]
pub(super) struct Shown<'a> {
    name: &'a str,
    safe_name: Option<&'a str>,
    state: PinState,
    pin: &'a str,
    approved_pin: Option<&'a str>,
    tier: Tier,
    call_with: Variant,
    /// Annotations in force: those of the override, else the server's.
    annotations: Box<RawValue>,
    #[serde(rename = "override")]
    overridden: Option<ShownOverride<'a>>,
    drift: Option<Drift>,
    drifted_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_by: Option<Uuid>,
    /// Definition as the server sent it.
    definition: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    approved_definition: Option<&'a RawValue>,
    /// Reason why no list of `/mcp/direct` has the tool, or not that of every client; `None` if all have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_listed: Option<&'static str>,
}

#[derive(Serialize)]
struct ShownOverride<'a> {
    annotations: &'a Hints,
    pin: &'a str,
    /// Whether the override holds for the current definition.
    applies: bool,
    version: i64,
    set_by: Option<Uuid>,
    set_at: String,
}

fn shown_override(overridden: &OverrideView, applies: bool) -> ShownOverride<'_> {
    ShownOverride {
        annotations: &overridden.said.hints,
        pin: &overridden.said.pin,
        applies,
        version: overridden.version,
        set_by: overridden.by,
        set_at: show::time(overridden.at),
    }
}

pub(super) fn shown(tool: &ToolView, unannotated: Unannotated) -> Result<Shown<'_>, RestError> {
    let overridden = tool.overridden.as_ref();
    let said = overridden.and_then(|overridden| overridden.said.over(&tool.definition, &tool.pin));
    let text = said.as_deref().unwrap_or(&tool.definition);
    let definition = Definition::read(text).map_err(RestError::unshowable)?;
    let tier = definition.annotations.tier(unannotated);
    let approved = tool.approved_definition.as_deref().filter(|approved| *approved != tool.definition);
    Ok(Shown {
        name: &tool.name,
        safe_name: tool.safe_name.as_deref(),
        state: tool.state,
        pin: &tool.pin,
        approved_pin: tool.approved_pin.as_deref(),
        tier,
        call_with: tier.call_with(),
        annotations: show::raw(definition.annotations_raw.unwrap_or("{}"))?.to_owned(),
        overridden: overridden
            .map(|overridden| shown_override(overridden, overridden.said.holds_wholly(&tool.pin))),
        drift: tool.drift.map(|(drift, _)| drift),
        drifted_at: tool.drift.map(|(_, at)| show::time(at)),
        blocked_by: tool.blocked_by,
        definition: show::raw(&tool.definition)?,
        approved_definition: approved.map(show::raw).transpose()?,
        not_listed: Published::of(text).not_listed().map(|why| why.0),
    })
}

pub(super) async fn list(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let mut page = params.page()?;
    let after = page.after(String::new(), |key| is_tool_name(key).then(|| key.to_owned()))?;
    let name = servers::name(&exchange)?;
    exchange.expect_answer(DEFINITIONS_MEMORY_BYTES).await?;
    let bounds = (page.fetch(), DEFINITIONS_BYTES_MAX);
    let tools = exchange
        .gateway()
        .servers
        .list_server_tools(exchange.caller(), name, (&after, false), bounds)
        .await?;
    let approved = |tool: &ToolView| tool.approved_definition.as_ref().map_or(0, String::len);
    page.fit(tools.iter().map(|tool| tool.definition.len() + approved(tool)));
    let unannotated = exchange.caller().settings.unannotated_tools;
    cursor::list(&tools, &page, |tool| tool.name.clone(), |tool| shown(tool, unannotated))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::id::ServerId;
    use crate::domain::tool::PinState;

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
            blocked_by: None,
            drift: None,
            overridden: None,
            changed_at: None,
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
            r#"{"name":"t","safe_name":null,"state":"changed","pin":"v1:b","approved_pin":"v1:a","tier":"read","call_with":"call_tool_read","annotations":{ "readOnlyHint":true,"vendor":18446744073709551616 },"override":null,"drift":null,"drifted_at":null,"#,
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
        insta::assert_json_snapshot!(trusting, @r#"
        {
          "annotations": {},
          "approved_pin": "v1:a",
          "call_with": "call_tool_write",
          "definition": {
            "annotations": 7,
            "name": "t"
          },
          "drift": null,
          "drifted_at": null,
          "name": "t",
          "not_listed": "its inputSchema is not a JSON schema of type object",
          "override": null,
          "pin": "v1:b",
          "safe_name": null,
          "state": "changed",
          "tier": "unknown"
        }
        "#);
        assert_eq!(of(Unannotated::Distrust)["tier"], "destructive");
    }
}
