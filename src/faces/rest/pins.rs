//! `/servers/{name}/tools/{tool}/approve|block|diff|override`: decisions of people about a tool, and the diff that they
//! review.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::error::RestError;
use super::exchange::Exchange;
use super::fields::clip;
use super::fields::{self, Nulls};
use super::params::Params;
use super::server_tools::shown;
use super::show::RestAnswer;
use super::{servers, show};
use crate::domain::diff::{Diff, TextChange};
use crate::domain::drift::Drift;
use crate::domain::id::is_tool_name;
use crate::domain::overrides::Hints;
use crate::domain::tool::PinState;
use crate::gateway::{GatewayError, OverrideRequest, ToolView};

/// Body of the answer to a decision.
#[derive(Serialize)]
struct Decided<'a> {
    name: &'a str,
    state: PinState,
    pin: &'a str,
}

/// Definition of a tool or offer beside its approved definition, to be shown as a diff.
pub(super) struct Compared<'a, N> {
    /// Members that name the tool or offer.
    pub(super) name: N,
    /// State against the pin.
    pub(super) state: PinState,
    /// Pin of the definition.
    pub(super) pin: &'a str,
    /// Pin of the approved definition.
    pub(super) approved_pin: Option<&'a str>,
    /// Flag of hints that got worse; `None` where there are no hints.
    pub(super) drift: Option<Option<Drift>>,
    /// Definition as the server sent it.
    pub(super) definition: &'a str,
    /// Approved definition, if it is kept.
    pub(super) approved_definition: Option<&'a str>,
}

#[derive(Serialize)]
struct ToolName<'a> {
    name: &'a str,
}

#[derive(Serialize)]
pub(super) struct ShownDiff<'a, N> {
    #[serde(flatten)]
    name: N,
    state: PinState,
    pin: &'a str,
    approved_pin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drift: Option<Option<Drift>>,
    changes: Vec<ShownChange<'a>>,
    /// Whether there are more changes than are shown.
    truncated: bool,
    /// Whether there is an approved definition to compare with.
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

/// Returns the server and the tool in the path.
async fn named(exchange: &Exchange) -> Result<(&str, &str), RestError> {
    let (server, tool) = (servers::name(exchange)?, exchange.segment("tool"));
    if !is_tool_name(tool) {
        // finds the server first all the same: an impossible name must not tell more than a missing one
        exchange.gateway().servers.get_server(exchange.caller(), server).await?;
        return Err(GatewayError::NotFound("tool").into());
    }
    Ok((server, tool))
}

fn decided(tool: &ToolView) -> RestAnswer {
    show::ok(&Decided { name: &tool.name, state: tool.state, pin: &tool.pin })
}

fn whole(exchange: &Exchange, tool: &ToolView) -> RestAnswer {
    show::ok(&shown(tool, exchange.caller().settings.unannotated_tools)?)
}

pub(super) async fn approve(exchange: Arc<Exchange>) -> RestAnswer {
    let pin = exchange.fields(&["pin"], Nulls::Absent).await?.needed_text("pin")?;
    let (server, tool) = named(&exchange).await?;
    decided(&exchange.gateway().servers.approve_tool(exchange.caller(), server, tool, &pin).await?)
}

pub(super) async fn block(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let (server, tool) = named(&exchange).await?;
    decided(&exchange.gateway().servers.block_tool(exchange.caller(), server, tool).await?)
}

pub(super) async fn unblock(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let (server, tool) = named(&exchange).await?;
    decided(&exchange.gateway().servers.unblock_tool(exchange.caller(), server, tool).await?)
}

pub(super) async fn diff(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let (server, tool) = named(&exchange).await?;
    let tool = exchange.gateway().servers.get_tool(exchange.caller(), server, tool).await?;
    let approved = tool.approved_definition.as_deref();
    let compared = Compared {
        name: ToolName { name: &tool.name },
        state: tool.state,
        pin: &tool.pin,
        approved_pin: tool.approved_pin.as_deref(),
        drift: Some(tool.drift.map(|(drift, _)| drift)),
        definition: &tool.definition,
        approved_definition: approved,
    };
    show::ok(&shown_diff(compared, &differences(approved, &tool.definition))?)
}

/// Returns the differences; none if nothing was ever approved, or the approved text is not kept any more.
pub(super) fn differences<'a>(approved: Option<&'a str>, definition: &'a str) -> Diff<'a> {
    approved.map(|approved| Diff::between(approved, definition)).unwrap_or_default()
}

/// Returns the body of a diff.
pub(super) fn shown_diff<'a, N>(
    compared: Compared<'a, N>,
    diff: &'a Diff<'a>,
) -> Result<ShownDiff<'a, N>, RestError> {
    let shown = |change: &'a TextChange<'a>| {
        let (before, after) = (change.before.map(show::raw), change.after.map(show::raw));
        Ok::<_, RestError>(ShownChange {
            path: &change.path,
            before: before.transpose()?,
            after: after.transpose()?,
        })
    };
    Ok(ShownDiff {
        name: compared.name,
        state: compared.state,
        pin: compared.pin,
        approved_pin: compared.approved_pin,
        drift: compared.drift,
        changes: diff.changes.iter().map(shown).collect::<Result<_, _>>()?,
        truncated: diff.is_cut,
        compared: compared.approved_definition.is_some(),
        definition: show::raw(compared.definition)?,
        approved_definition: compared.approved_definition.map(show::raw).transpose()?,
    })
}

pub(super) async fn set_override(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&["annotations", "pin", "version"], Nulls::Absent).await?;
    let said = fields.object("annotations")?;
    let said = said.ok_or_else(|| GatewayError::invalid("annotations", "annotations is needed"))?;
    let request =
        OverrideRequest { hints: hints(said)?, pin: fields.needed_text("pin")?, version: fields.version()? };
    let (server, tool) = named(&exchange).await?;
    let tool = exchange.gateway().servers.override_tool(exchange.caller(), server, tool, request).await?;
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

pub(super) async fn clear_override(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let (server, tool) = named(&exchange).await?;
    let tool = exchange.gateway().servers.clear_override(exchange.caller(), server, tool).await?;
    whole(&exchange, &tool)
}
