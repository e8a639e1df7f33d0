//! The page of one tool: its definition, what changed since it was approved, and the decisions about it.

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::changes::DefinitionChanges;
use super::overrides::OverrideForm;
use super::release::waiting_at;
use super::{facts, field_of, href_of, href_of_tool, path_of, tone};
use crate::domain::annotations::{Tier, Unannotated};
use crate::domain::id::is_tool_name;
use crate::domain::tenant::Action;
use crate::domain::tool::PinState;
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::{PageVisit, status_of};
use crate::faces::console::text::{LongText, indented};
use crate::faces::console::trial;
use crate::gateway::{GatewayError, ToolView};

#[derive(Template)]
#[template(path = "tool.html", config = "src/faces/console/askama.toml")]
struct ToolPage {
    nav: Nav,
    csrf: String,
    /// Notice of what the visitor has just done; `None` without one.
    done: Option<String>,
    /// Link to the page.
    href: String,
    server: String,
    /// Path of the server's page.
    server_href: String,
    name: String,
    /// Name as a field of a form has it.
    field: String,
    tier: &'static str,
    /// Source of the tier.
    tier_from: &'static str,
    state: &'static str,
    tone: &'static str,
    description: LongText,
    drift: Option<&'static str>,
    /// Annotations that a person has set in place of the server's, as JSON; `None` without any.
    overridden: Option<String>,
    /// Remark that the override, or a part of it, counts no more, and what to do; `None` if all of it counts.
    lapsed: Option<&'static str>,
    pin: String,
    approved_pin: Option<String>,
    changes: DefinitionChanges,
    definition: LongText,
    /// Path of the form that approves the definition; `None` without the right, if there is nothing to approve, and
    /// for a definition that is not shown whole.
    approve: Option<String>,
    /// True if the visitor's role approves definitions, and not those of this server: the same person added it, or moved it last.
    is_others_to_approve: bool,
    /// True if the visitor's role lifts blocks, and not those of this server.
    is_others_to_unblock: bool,
    /// Path of the form that blocks the tool; `None` without the right, and for a blocked one.
    block: Option<String>,
    /// Path of the form that lifts the block; `None` without the right, and without a block.
    unblock: Option<String>,
    /// Form of an override; `None` without the right.
    override_form: Option<OverrideForm>,
    /// Path of the form that sets an override.
    set_override: String,
    /// Path of the form that removes the override.
    clear_override: String,
    /// Link to a try of the tool; `None` for visitors who cannot call it.
    trial: Option<String>,
    is_waiting: bool,
    /// True if the page compares the definition with the approved one: where it waits, and where it is blocked and differs.
    is_compared: bool,
    /// Number of other tools of the server that wait for a decision.
    others_waiting: usize,
}

/// Shows the page of a tool of a server. `done`: notice of what the visitor has just done; `fault`: that of the form of an override, which is
/// shown again with what was typed.
///
/// # Errors
/// [`GatewayError::NotFound`] without such a tool; otherwise that of the use case.
pub(super) async fn show(
    visit: &PageVisit,
    (server, name): (&str, &str),
    done: Option<String>,
    fault: Option<&GatewayError>,
) -> Result<Response, GatewayError> {
    if !is_tool_name(name) {
        return Err(GatewayError::NotFound("tool"));
    }
    let tool = visit.gateway().servers.get_tool(visit.caller(), server, name).await?;
    let of = visit.gateway().servers.get_server(visit.caller(), server).await?;
    let may_approve = visit.gateway().servers.may_approve(visit.caller(), &of);
    let override_form = may_approve.then(|| OverrideForm::of(visit, &tool, fault));
    let shown = described(visit, (server, may_approve), &tool);
    let status = fault.map_or(StatusCode::OK, |error| status_of(error).0);
    visit.show(status, &ToolPage { done, override_form, ..shown }).await
}

fn described(visit: &PageVisit, (server, may_approve): (&str, bool), tool: &ToolView) -> ToolPage {
    let role = visit.caller().role;
    let (tier, description) = facts(tool, visit.caller().settings.unannotated_tools);
    let definition = LongText::of(&indented(&tool.definition));
    let is_waiting = matches!(tool.state, PinState::Pending | PinState::Changed);
    let is_blocked = tool.state == PinState::Blocked;
    let path = |verb: &str, fits: bool| fits.then(|| path_of(server, verb));
    let nav = visit.nav(Section::Servers);
    let canonical = format!("{server}:{}", tool.name);
    let may_try = Section::Try.is_open_to(visit.caller())
        && visit.gateway().calls.callable_tool(visit.caller(), &canonical).is_some();
    ToolPage {
        csrf: nav.csrf.clone(),
        nav,
        done: None,
        href: href_of_tool(server, &tool.name),
        server: server.to_owned(),
        server_href: href_of(server),
        name: tool.name.clone(),
        field: field_of(&tool.name),
        tier: tier.as_str(),
        tier_from: tier_from(tool, visit.caller().settings.unannotated_tools),
        state: tool.state.as_str(),
        tone: tone(tool.state),
        description: LongText::of(&description),
        drift: tool.drift.map(|(drift, _)| drift.sentence()),
        overridden: tool.overridden.as_ref().map(|overridden| overridden.said.hints.text()),
        lapsed: lapsed(tool),
        pin: tool.pin.clone(),
        approved_pin: tool.approved_pin.clone(),
        changes: DefinitionChanges::between(tool.approved_definition.as_deref(), &tool.definition),
        approve: path("approve", is_waiting && definition.left_out.is_none() && may_approve),
        is_others_to_approve: is_waiting && role.may(Action::Approve) && !may_approve,
        is_others_to_unblock: is_blocked && role.may(Action::Approve) && !may_approve,
        block: path("block", !is_blocked && role.may(Action::ChangeServers)),
        unblock: path("unblock", is_blocked && may_approve),
        override_form: None,
        set_override: path_of(server, "override"),
        clear_override: path_of(server, "clear_override"),
        trial: may_try.then(|| trial::href_of(&canonical)),
        definition,
        is_waiting,
        is_compared: is_waiting || (is_blocked && tool.approved_pin.as_ref() != Some(&tool.pin)),
        others_waiting: waiting_at(visit, server).unwrap_or_default().saturating_sub(usize::from(is_waiting)),
    }
}

/// Returns what no longer counts of a tool's override, since its definition is another one by now; `None` if all counts.
fn lapsed(tool: &ToolView) -> Option<&'static str> {
    let said = &tool.overridden.as_ref()?.said;
    match (said.holds_wholly(&tool.pin), said.over(&tool.definition, &tool.pin)) {
        (true, _) => None,
        (false, Some(_)) => Some(
            "The definition has changed since then: what makes the tool look more harmless counts no more. Set it again to have it back.",
        ),
        (false, None) => {
            Some("The definition has changed since then: this counts no more. Set it again to have it back.")
        }
    }
}

/// Returns the source of a tool's tier: its annotations with the override, or the setting for tools without them.
fn tier_from(tool: &ToolView, unannotated: Unannotated) -> &'static str {
    let [said, counted] = [Unannotated::Trust, unannotated].map(|unannotated| facts(tool, unannotated).0);
    match said {
        _ if said != counted => {
            "its server and overrides do not say all of what it may do, and the setting unannotated_tools is distrust"
        }
        Tier::Unknown => "neither its server nor an override says what it may do",
        _ => "what its server, or an override, says that it may do",
    }
}
