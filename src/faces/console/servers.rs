//! The pages of upstream servers: the list, one server with its tools, one tool, and what may be done about them.

mod acts;
mod add;
mod change;
mod changes;
mod faults;
mod fields;
mod import;
mod notices;
mod offer_acts;
mod offers;
mod one;
mod overrides;
mod part;
mod question;
mod release;
mod settings;
mod tool;
mod verbs;

pub(super) use self::acts::{on_list, on_named_tool, on_server, on_tool};
pub(super) use self::faults::FormNotice;
pub(super) use self::offer_acts::on_offer;
pub(super) use self::one::show;
pub(super) use self::part::show as show_part;

use std::borrow::Cow;

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use self::add::TypedServer;
use super::done::{DONE, notice};
use super::moment::Moment;
use super::nav::{Nav, Section, href_of_tool};
use super::page_visit::{PageVisit, status_of};
use super::text::short;
use crate::domain::annotations::{Tier, Unannotated};
use crate::domain::id::is_name;
use crate::domain::tenant::Action;
use crate::domain::tool::{Definition, PinState};
use crate::faces::query::params::{ParamNames, Params};
use crate::faces::query::server::{connection, is_connected, last_error};
use crate::gateway::{GatewayError, ServerState, ServerView, ToolView};

/// Parameters of the page.
const PARAMS: ParamNames = &["cursor", "limit", DONE];
/// Memory of the list, in bytes: as loaded, and as text.
const LIST_MEMORY_BYTES: usize = 256 * 1024;
/// Longest error in the list, in characters.
const ERROR_CHARS_MAX: usize = 200;

/// Server in the list.
struct ServerLine {
    name: String,
    href: String,
    kind: String,
    state: &'static str,
    tone: &'static str,
    connection: String,
    is_connected: bool,
    last_ok: Option<Moment>,
    error: Option<String>,
    /// Number of approved tools.
    approved: usize,
    /// Number of tools that wait for a decision: new ones and changed ones.
    waiting: usize,
    /// Number of blocked tools.
    blocked: usize,
}

#[derive(Template)]
#[template(path = "servers.html", config = "src/faces/console/askama.toml")]
struct ServersPage {
    nav: Nav,
    csrf: String,
    /// True if the visitor's role may add servers.
    may_add: bool,
    /// True if the visitor may have definitions approved at once.
    may_approve: bool,
    /// Programs of the deployment that the tenant may run.
    commands: Vec<String>,
    /// Fault of the form that was sent; `None` without one.
    again: Option<FormNotice>,
    /// Content of the form.
    typed: TypedServer,
    /// Fault of the file that was pasted; `None` without one.
    file_fault: Option<String>,
    /// Content of the form that imports a file.
    file: String,
    /// Notice of what the visitor has just done; `None` without one.
    done: Option<String>,
    servers: Vec<ServerLine>,
    /// Link to the next page; `None` if there is none.
    next: Option<String>,
}

impl ServersPage {
    /// Returns whether the fault of the form that was sent is that of a field.
    fn is_faulty(&self, field: &str) -> bool {
        self.again.as_ref().is_some_and(|again| again.is_about(field))
    }
}

/// Returns the path of a server's page.
fn href_of(name: &str) -> String {
    format!("{}/{name}", Section::Servers.href())
}

/// Returns the path of an act on a tool, which the form's field `tool` names: browsers leave a part `..` of a path out.
fn path_of(server: &str, verb: &str) -> String {
    format!("{}/tools/{verb}", href_of(server))
}

/// Returns the name of a tool for a field of a form, percent-encoded: browsers change line ends in fields.
fn field_of(tool: &str) -> String {
    utf8_percent_encode(tool, NON_ALPHANUMERIC).to_string()
}

/// Reads the name of a tool in a field of a form. A text that is none of [`field_of`] is a name that no tool has.
fn tool_of(field: &str) -> String {
    percent_decode_str(field).decode_utf8().map(Cow::into_owned).unwrap_or_default()
}

/// Returns the state of a server in words, and the class by which it stands out.
fn state_of(server: &ServerView) -> (&'static str, &'static str) {
    match (server.enabled, server.quarantined) {
        (false, _) => ("disabled", "held"),
        (true, true) => ("in quarantine", "open"),
        (true, false) => ("enabled", "good"),
    }
}

/// Returns the tier of a tool with its override, and the description that its server gives.
fn facts(tool: &ToolView, unannotated: Unannotated) -> (Tier, String) {
    let overridden = tool.overridden.as_ref();
    let said = overridden.and_then(|overridden| overridden.said.over(&tool.definition, &tool.pin));
    let text = said.as_deref().unwrap_or(&tool.definition);
    match Definition::read(text) {
        Ok(definition) => (definition.annotations.tier(unannotated), definition.description),
        Err(_) => (Tier::Unknown, String::new()),
    }
}

/// Returns the class of a tool's state, by which it stands out.
fn tone(state: PinState) -> &'static str {
    match state {
        PinState::Approved => "good",
        PinState::Pending | PinState::Changed => "open",
        PinState::Blocked => "held",
    }
}

/// Shows the list.
pub(super) async fn list(visit: PageVisit) -> Response {
    let page = servers(&visit).await;
    visit.answer_read(("servers.list", None), Section::Servers, page)
}

async fn servers(visit: &PageVisit) -> Result<Response, GatewayError> {
    let page = listed(visit).await?;
    visit.show(StatusCode::OK, &page).await
}

/// Returns the page with the servers that the address asks for, and empty forms.
async fn listed(visit: &PageVisit) -> Result<ServersPage, GatewayError> {
    visit.caller().authorise(Action::SeeServers)?;
    visit.needs_tenant()?;
    let params = Params::of(&visit.given(PARAMS)?, PARAMS)?;
    let page = params.page()?;
    let after = page.after(String::new(), |key| is_name(key).then(|| key.to_owned()))?;
    visit.expect(LIST_MEMORY_BYTES).await?;
    let found = visit.gateway().servers.list_servers(visit.caller(), &after, page.fetch()).await?;
    let (shown, next) = page.split(&found, |server| server.name.clone());
    let states = visit.caller().catalogue().map(|catalogue| catalogue.states());
    let line = |server: &ServerView| {
        let state = states.as_ref().and_then(|states| states.get(&server.name));
        line(visit, server, state)
    };
    Ok(ServersPage {
        servers: shown.iter().map(line).collect(),
        next: next.map(|cursor| format!("{}?limit={}&cursor={cursor}", Section::Servers.href(), page.limit)),
        done: notice(visit, &params),
        ..forms(visit)
    })
}

/// Returns the page with its forms, which are empty, and no server.
fn forms(visit: &PageVisit) -> ServersPage {
    let (nav, role) = (visit.nav(Section::Servers), visit.caller().role);
    ServersPage {
        csrf: nav.csrf.clone(),
        nav,
        may_add: role.may(Action::ChangeServers),
        may_approve: role.may(Action::ManageKeys),
        commands: commands(visit),
        again: None,
        typed: TypedServer::default(),
        file_fault: None,
        file: String::new(),
        done: None,
        servers: Vec::new(),
        next: None,
    }
}

/// Shows the page again after a fault, with what was typed in the form that adds a server.
async fn add_again(visit: &PageVisit, error: &GatewayError) -> Result<Response, GatewayError> {
    let again = Some(FormNotice::of(visit, error).with(visit, &add::faults(visit).await));
    let typed = TypedServer::of(visit);
    let page = ServersPage { again, typed, ..listed(visit).await? };
    visit.show(status_of(error).0, &page).await
}

/// Shows the page again after a fault of a pasted file, with the file.
async fn import_again(visit: &PageVisit, error: &GatewayError) -> Result<Response, GatewayError> {
    let (file_fault, file) = (Some(error.to_string()), visit.field("file").replace("\r\n", "\n"));
    let page = ServersPage { file_fault, file, ..listed(visit).await? };
    visit.show(status_of(error).0, &page).await
}

/// Refuses a text that no server is named by.
fn needs_name(name: &str) -> Result<(), GatewayError> {
    if is_name(name) { Ok(()) } else { Err(GatewayError::NotFound("server")) }
}

/// Returns the names of the programs that the tenant may run as servers.
fn commands(visit: &PageVisit) -> Vec<String> {
    let commands = &visit.gateway().options.commands;
    if commands.are_off() { Vec::new() } else { commands.names_for(visit.caller().tenant_name()) }
}

fn line(visit: &PageVisit, server: &ServerView, tools: Option<&ServerState>) -> ServerLine {
    let (state, tone) = state_of(server);
    ServerLine {
        name: server.name.clone(),
        href: href_of(&server.name),
        kind: server.kind.as_str().to_owned(),
        state,
        tone,
        connection: connection(server).to_owned(),
        is_connected: is_connected(server),
        last_ok: server.last_ok_at.map(|at| Moment::new(at, visit.now())),
        error: last_error(server).map(|error| short(&error, ERROR_CHARS_MAX)),
        approved: tools.map_or(0, |tools| tools.approved),
        waiting: tools.map_or(0, |tools| tools.pending + tools.changed),
        blocked: tools.map_or(0, |tools| tools.blocked),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tools_stay_names() {
        for name in ["..", "a/b?c#é", "a\r\nb", "%2e", "\u{202e}"] {
            let field = field_of(name);
            assert!(field.chars().all(|c| c == '%' || c.is_ascii_alphanumeric()), "{field}");
            assert_eq!(tool_of(&field), name);
        }
        assert_eq!(tool_of("%ff"), "");
        assert_eq!(path_of("up", "block"), "/console/servers/up/tools/block");
        assert_eq!(href_of_tool("up", "a/b?c&d"), "/console/servers/up?tool=a%2Fb%3Fc%26d");
    }
}
