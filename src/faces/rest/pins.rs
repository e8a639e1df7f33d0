//! `/servers/{name}/tools/{tool}/approve|block|diff|override`: what people decide about a tool, and what they look at
//! before.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::error::RestError;
use super::exchange::{Exchange, clip};
use super::fields::{self, Nulls};
use super::params::Params;
use super::route::Answer;
use super::server_tools::{is_tool_name, shown};
use super::{servers, show};
use crate::domain::diff::{Change, Diff};
use crate::domain::overrides::Hints;
use crate::gateway::{GatewayError, OverrideRequest, ToolView};

/// What was decided.
#[derive(Serialize)]
struct Decided<'a> {
    name: &'a str,
    state: &'static str,
    pin: &'a str,
}

#[derive(Serialize)]
struct ShownDiff<'a> {
    name: &'a str,
    state: &'static str,
    pin: &'a str,
    approved_pin: Option<&'a str>,
    drift: Option<&'static str>,
    changes: Vec<ShownChange<'a>>,
    /// There are more changes than are shown.
    truncated: bool,
    /// There is an approved definition to compare with.
    compared: bool,
    definition: &'a RawValue,
    approved_definition: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct ShownChange<'a> {
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    after: Option<&'a RawValue>,
}

/// The server and the tool of the path.
async fn named(exchange: &Exchange) -> Result<(&str, &str), RestError> {
    let (server, tool) = (servers::name(exchange)?, exchange.segment("tool"));
    if !is_tool_name(tool) {
        // the server is looked at all the same: a tool that cannot be must not tell more than one that is not
        exchange.gateway().get_server(exchange.caller(), server).await?;
        return Err(GatewayError::NotFound("tool").into());
    }
    Ok((server, tool))
}

fn decided(tool: &ToolView) -> Answer {
    show::ok(&Decided { name: &tool.name, state: tool.state.as_str(), pin: &tool.pin })
}

fn whole(exchange: &Exchange, tool: &ToolView) -> Answer {
    show::ok(&shown(tool, exchange.caller().settings.unannotated_tools)?)
}

pub(super) async fn approve(exchange: Arc<Exchange>) -> Answer {
    let pin = exchange.fields(&["pin"], Nulls::Absent)?.needed_text("pin")?;
    let (server, tool) = named(&exchange).await?;
    decided(&exchange.gateway().approve_tool(exchange.caller(), server, tool, &pin).await?)
}

pub(super) async fn block(exchange: Arc<Exchange>) -> Answer {
    exchange.no_body()?;
    let (server, tool) = named(&exchange).await?;
    decided(&exchange.gateway().block_tool(exchange.caller(), server, tool).await?)
}

pub(super) async fn unblock(exchange: Arc<Exchange>) -> Answer {
    exchange.no_body()?;
    let (server, tool) = named(&exchange).await?;
    decided(&exchange.gateway().unblock_tool(exchange.caller(), server, tool).await?)
}

pub(super) async fn diff(exchange: Arc<Exchange>, _: Params) -> Answer {
    let (server, tool) = named(&exchange).await?;
    let tool = exchange.gateway().get_tool(exchange.caller(), server, tool).await?;
    show::ok(&shown_diff(&tool, &compared(&tool))?)
}

/// Nothing, where nothing was ever approved, or its text is not kept any more.
fn compared(tool: &ToolView) -> Diff<'_> {
    let approved = tool.approved_definition.as_deref();
    approved.map(|approved| Diff::between(approved, &tool.definition)).unwrap_or_default()
}

fn shown_diff<'a>(tool: &'a ToolView, diff: &'a Diff<'a>) -> Result<ShownDiff<'a>, RestError> {
    let shown = |change: &'a Change<'a>| {
        let (before, after) = (change.before.map(show::raw), change.after.map(show::raw));
        Ok::<_, RestError>(ShownChange {
            path: &change.path,
            before: before.transpose()?,
            after: after.transpose()?,
        })
    };
    Ok(ShownDiff {
        name: &tool.name,
        state: tool.state.as_str(),
        pin: &tool.pin,
        approved_pin: tool.approved_pin.as_deref(),
        drift: tool.drift.map(|(drift, _)| drift.as_str()),
        changes: diff.changes.iter().map(shown).collect::<Result<_, _>>()?,
        truncated: diff.is_cut,
        compared: tool.approved_definition.is_some(),
        definition: show::raw(&tool.definition)?,
        approved_definition: tool.approved_definition.as_deref().map(show::raw).transpose()?,
    })
}

pub(super) async fn set_override(exchange: Arc<Exchange>) -> Answer {
    let mut fields = exchange.fields(&["annotations", "pin", "version"], Nulls::Absent)?;
    let said = fields.object("annotations")?;
    let said = said.ok_or_else(|| GatewayError::invalid("annotations", "annotations is needed"))?;
    let request =
        OverrideRequest { hints: hints(said)?, pin: fields.needed_text("pin")?, version: fields.version()? };
    let (server, tool) = named(&exchange).await?;
    let tool = exchange.gateway().override_tool(exchange.caller(), server, tool, request).await?;
    whole(&exchange, &tool)
}

fn hints(mut said: Map<String, Value>) -> Result<Hints, GatewayError> {
    if let Some(unknown) = said.keys().find(|name| !Hints::NAMES.contains(&name.as_str())) {
        return Err(fields::unknown("annotation", &clip(unknown), &Hints::NAMES));
    }
    let wrong = |name: &str, kind: &str| {
        let name = format!("annotations.{name}");
        let message = format!("{name} must be {kind}");
        GatewayError::invalid(name, message)
    };
    let mut flag = |name: &str| match said.remove(name) {
        None => Ok(None),
        Some(value) => value.as_bool().map(Some).ok_or_else(|| wrong(name, "true or false")),
    };
    let [read_only, destructive, idempotent, open_world, title] = Hints::NAMES;
    Ok(Hints {
        read_only_hint: flag(read_only)?,
        destructive_hint: flag(destructive)?,
        idempotent_hint: flag(idempotent)?,
        open_world_hint: flag(open_world)?,
        title: match said.remove(title) {
            None => None,
            Some(Value::String(text)) => Some(text),
            Some(_) => return Err(wrong(title, "a string")),
        },
    })
}

pub(super) async fn clear_override(exchange: Arc<Exchange>) -> Answer {
    exchange.no_body()?;
    let (server, tool) = named(&exchange).await?;
    let tool = exchange.gateway().clear_override(exchange.caller(), server, tool).await?;
    whole(&exchange, &tool)
}
