//! Acts on servers and their tools.

use std::sync::Arc;

use axum::extract::Path;
use axum::response::Response;
use uuid::Uuid;

use super::faults::can_be_mended;
use super::fields::recorded;
use super::one::{WAITING, href_of_page};
use super::verbs::{ServerVerb, ToolVerb};
use super::{
    add, add_again, change, href_of, href_of_tool, import, needs_name, notices, overrides, settings, tool,
    tool_of,
};
use crate::domain::id::{is_name, is_tool_name};
use crate::domain::overrides::Hints;
use crate::faces::console::act::{VisitorAct, perform};
use crate::faces::console::done::{changed_notice, with_notice};
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::query::cursor::DEFINITIONS_MEMORY_BYTES;
use crate::gateway::{GatewayError, OverrideRequest, Reconnect, ServerChange};

/// Adds servers, and shows the one that was added, or what came of the file.
pub(in crate::faces::console) async fn on_list(Path(verb): Path<String>, visit: PageVisit) -> Response {
    match verb.as_str() {
        "create" => match add::made(&visit).await {
            Ok(server) => {
                let to = with_notice(&visit, &href_of(&server.name), &notices::of_addition(&server));
                visit.answer_act(Section::Servers, &to, Ok(()))
            }
            Err(error) if can_be_mended(&error) => {
                let page = add_again(&visit, &error).await;
                page.unwrap_or_else(|_| visit.failed(Section::Servers, &error))
            }
            Err(error) => visit.failed(Section::Servers, &error),
        },
        "import" => import::run(visit).await,
        _ => visit.failed(Section::Servers, &GatewayError::NotFound("page")),
    }
}

/// Does something about a server, and shows it.
pub(in crate::faces::console) async fn on_server(
    Path((name, verb)): Path<(String, String)>,
    visit: PageVisit,
) -> Response {
    let done = act_on_server(&visit, &name, &verb).await;
    if let Err(error) = &done
        && verb == "update"
        && can_be_mended(error)
    {
        let page = settings::show(&visit, &name, Some(error)).await;
        return page.unwrap_or_else(|_| visit.failed(Section::Servers, error));
    }
    let to = match verb.as_str() {
        "remove" => Section::Servers.href().to_owned(),
        _ => href_of(&name),
    };
    match done {
        Ok(notice) => visit.answer_act(Section::Servers, &with_notice(&visit, &to, &notice), Ok(())),
        Err(error) => failed(&visit, &name, None, &error),
    }
}

/// Returns the page for a failure of an act, with a link to what the act was about, as far as it is there.
fn failed(visit: &PageVisit, server: &str, tool: Option<&str>, error: &GatewayError) -> Response {
    let tool = tool.filter(|tool| is_tool_name(tool) && !matches!(error, GatewayError::NotFound(_)));
    let (href, words) = match (error, tool) {
        (GatewayError::NotFound("server" | "page"), _) => return visit.failed(Section::Servers, error),
        _ if !is_name(server) => return visit.failed(Section::Servers, error),
        (_, Some(tool)) => (href_of_tool(server, tool), format!("The tool {}", notices::short_name(tool))),
        (_, None) => (href_of(server), format!("The server {server}")),
    };
    visit.failed_about(Section::Servers, error, (&href, &words))
}

/// Does something about a server, and returns the notice of it.
async fn act_on_server(visit: &PageVisit, name: &str, verb: &str) -> Result<String, GatewayError> {
    let verb = ServerVerb::parse(verb).ok_or(GatewayError::NotFound("page"))?;
    let mut act = VisitorAct { server: known(name), ..verb.act() };
    let (mut change, mut changed) = (Ok(None), None);
    if verb == ServerVerb::Update {
        let asked = change::asked(visit);
        act = recorded(act, asked.body());
        changed = Some(changed_notice(&asked.names()));
        change = asked.change();
    }
    let connection = visit.field("connection").to_owned();
    if verb == ServerVerb::Disconnect {
        act.fields = vec![("connection", connection.clone())];
    }
    let (gateway, caller, of) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()), name);
    let name = name.to_owned();
    // boxed: the future of a listing is large
    let work = Box::pin(async move {
        needs_name(&name)?;
        let servers = &gateway.servers;
        let switched = |enabled| ServerChange { enabled: Some(enabled), ..ServerChange::default() };
        let done = match verb {
            ServerVerb::Enable => Box::pin(servers.update_server(&caller, &name, switched(true))).await,
            ServerVerb::Disable => Box::pin(servers.update_server(&caller, &name, switched(false))).await,
            ServerVerb::Quarantine => servers.quarantine(&caller, &name).await,
            ServerVerb::Unquarantine => servers.release(&caller, &name).await,
            ServerVerb::Refresh => servers.refresh_server(&caller, &name, Reconnect::No).await,
            ServerVerb::Restart => servers.refresh_server(&caller, &name, Reconnect::Yes).await,
            ServerVerb::Update => match change? {
                Some(change) => Box::pin(servers.update_server(&caller, &name, change)).await,
                None => servers.get_server(&caller, &name).await,
            },
            ServerVerb::Remove => return servers.remove_server(&caller, &name).await.map(|()| None),
            ServerVerb::RemoveOauth => return servers.remove_oauth(&caller, &name).await.map(|()| None),
            ServerVerb::Disconnect => {
                let id = Uuid::try_parse(&connection).map_err(|_| GatewayError::NotFound("connection"))?;
                return gateway.connect.disconnect(&caller, &name, id).await.map(|()| None);
            }
        };
        done.map(Some)
    });
    let after = perform(visit, act, work).await?;
    let notice = notices::of_server(visit, verb, of, after.as_ref());
    Ok(format!("{}{notice}", changed.unwrap_or_default()))
}

/// Returns the server for the record of an act; `None` for a text that no server is named by.
fn known(name: &str) -> Option<String> {
    is_name(name).then(|| name.to_owned())
}

/// Does something about the tool that the form names, and shows it, or the list that the form is of.
pub(in crate::faces::console) async fn on_named_tool(
    Path((name, verb)): Path<(String, String)>,
    visit: PageVisit,
) -> Response {
    let tool = tool_of(visit.field("tool"));
    on_tool(Path((name, tool, verb)), visit).await
}

/// Does something about a tool, and shows it, or the list that the form is of.
pub(in crate::faces::console) async fn on_tool(
    Path((name, tool, verb)): Path<(String, String, String)>,
    visit: PageVisit,
) -> Response {
    match act_on_tool(&visit, (&name, &tool), &verb).await {
        Ok(notice) => {
            let (to, row) = match visit.field("from") {
                "list" => {
                    let is_waiting = visit.field("state") == WAITING;
                    // where the button was, unless the tool leaves the list
                    let row = visit.field("row").parse::<u8>().ok().filter(|_| !is_waiting);
                    let page = href_of_page(&name, is_waiting, visit.field("cursor"));
                    (page, row.map(|row| format!("#t-{row}")).unwrap_or_default())
                }
                _ => (href_of_tool(&name, &tool), String::new()),
            };
            let to = format!("{}{row}", with_notice(&visit, &to, &notice));
            visit.answer_act(Section::Servers, &to, Ok(()))
        }
        Err(error) => {
            let error = overrides::in_words_of_form(error);
            if ToolVerb::parse(&verb) == Some(ToolVerb::Override)
                && can_be_mended(&error)
                && let Ok(page) = override_again(&visit, (&name, &tool), &error).await
            {
                return page;
            }
            failed(&visit, &name, Some(&tool), &error)
        }
    }
}

/// Shows the page of a tool again after a fault of its override, with what was typed.
async fn override_again(
    visit: &PageVisit,
    tool: (&str, &str),
    error: &GatewayError,
) -> Result<Response, GatewayError> {
    visit.expect(DEFINITIONS_MEMORY_BYTES).await?;
    tool::show(visit, tool, None, Some(error)).await
}

/// Does something about a tool, and returns the notice of it.
async fn act_on_tool(
    visit: &PageVisit,
    (name, tool): (&str, &str),
    verb: &str,
) -> Result<String, GatewayError> {
    let verb = ToolVerb::parse(verb).ok_or(GatewayError::NotFound("page"))?;
    let pin = visit.field("pin").to_owned();
    let fields = if verb == ToolVerb::Approve { vec![("pin", pin.clone())] } else { Vec::new() };
    let mut act = VisitorAct { server: known(name), tool: Some(tool.to_owned()), fields, ..verb.act() };
    let mut hints = Ok(OverrideRequest { pin: pin.clone(), hints: Hints::default(), version: None });
    if verb == ToolVerb::Override {
        let asked = overrides::asked(visit);
        act = recorded(act, asked.body());
        hints = asked.request();
    }
    let (gateway, caller) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()));
    let (name, tool) = (name.to_owned(), tool.to_owned());
    let work = async move {
        needs_name(&name)?;
        let servers = &gateway.servers;
        if !is_tool_name(&tool) {
            // finds the server first all the same: an impossible name must not tell more than a missing one
            servers.get_server(&caller, &name).await?;
            return Err(GatewayError::NotFound("tool"));
        }
        match verb {
            ToolVerb::Approve => servers.approve_tool(&caller, &name, &tool, &pin).await,
            ToolVerb::Block => servers.block_tool(&caller, &name, &tool).await,
            ToolVerb::Unblock => servers.unblock_tool(&caller, &name, &tool).await,
            ToolVerb::Override => servers.override_tool(&caller, &name, &tool, hints?).await,
            ToolVerb::ClearOverride => servers.clear_override(&caller, &name, &tool).await,
        }
    };
    Ok(notices::of_tool(visit, verb, &perform(visit, act, work).await?))
}
