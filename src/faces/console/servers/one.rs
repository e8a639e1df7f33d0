//! The page of one server, with a page of its tools.

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use url::form_urlencoded::Serializer;
use uuid::Uuid;

use super::release::waiting_at;
use super::{facts, field_of, href_of, href_of_tool, offers, path_of, release, state_of, tone, tool};
use crate::domain::era::Era;
use crate::domain::id::{is_name, is_tool_name};
use crate::domain::server_kind::ServerKind;
use crate::domain::server_login::LoginState;
use crate::domain::server_url::masked;
use crate::domain::tenant::Action;
use crate::domain::tool::PinState;
use crate::faces::console::done::{DONE, notice};
use crate::faces::console::moment::Moment;
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::{LongText, short};
use crate::faces::query::cursor::{CursorPage, DEFINITIONS_BYTES_MAX, DEFINITIONS_MEMORY_BYTES, encode};
use crate::faces::query::params::{ParamNames, Params};
use crate::faces::query::server::{connection, is_connected, last_error, wants_login};
use crate::gateway::{GatewayError, ServerView, ToolView, wants_credentials};
use crate::store::ConnectionRow;

/// Parameters of the page.
const PARAMS: ParamNames = &["tool", "state", "cursor", "limit", DONE];
/// Value of `state` for tools that wait for a decision.
pub(super) const WAITING: &str = "waiting";
/// Last parts of the paths to which the forms of the list are sent.
const FORMS: [&str; 2] = ["create", "import"];
/// Longest description in the list, in characters.
const DESCRIPTION_CHARS_MAX: usize = 300;
/// Most logins that are shown.
const CONNECTIONS_MAX: usize = 100;
/// Longest name of a login's holder, in characters.
const HOLDER_CHARS_MAX: usize = 80;

/// Button of an act.
struct ActButton {
    action: String,
    label: &'static str,
}

/// Tool in the list.
struct ToolLine {
    name: String,
    /// Name as a field of a form has it.
    field: String,
    href: String,
    description: String,
    tier: &'static str,
    state: &'static str,
    tone: &'static str,
    /// Change of the hints for the worse, in words; `None` without one.
    drift: Option<&'static str>,
    /// True if an override says something about the tool that counts.
    is_overridden: bool,
    /// True if a person has to look at the definition.
    is_waiting: bool,
    /// Button that blocks the tool, or lifts its block; `None` without the right.
    act: Option<ActButton>,
}

/// Login of the gateway at the server, as it is shown.
struct LoginShown {
    kind: String,
    client_id: String,
    token_endpoint: String,
    scopes: String,
    state: String,
    tone: &'static str,
    error: Option<LongText>,
    connections: Vec<ConnectionLine>,
    /// Number of logins that are not shown.
    left_out: usize,
}

/// Login for which there is a token, or was.
struct ConnectionLine {
    id: Uuid,
    /// Name of the person or key whose login it is.
    holder: String,
    /// True for the gateway's own login.
    is_own: bool,
    /// True if the server is listed with it.
    is_for_listing: bool,
    state: String,
    generation: i64,
    expires: Option<Moment>,
    retry: Option<Moment>,
    error: String,
}

#[derive(Template)]
#[template(path = "server.html", config = "src/faces/console/askama.toml")]
struct ServerPage {
    nav: Nav,
    csrf: String,
    /// Notice of what the visitor has just done; `None` without one.
    done: Option<String>,
    name: String,
    kind: String,
    /// Address or program of the server, without secrets, after the word for it; `None` without one.
    place: Option<(&'static str, String)>,
    state: &'static str,
    tone: &'static str,
    connection: String,
    /// True if the server is connected, and wants no login of people.
    is_connected: bool,
    era: Option<String>,
    last_ok: Option<Moment>,
    created: Moment,
    /// Owner of the key of who added the server, or moved it last; `None` if that is not known.
    adder: Option<String>,
    auto_approve: bool,
    error: Option<LongText>,
    /// Next step after the error; empty without an error, and for a visitor who changes no server.
    next_step: &'static str,
    buttons: Vec<ActButton>,
    is_quarantined: bool,
    /// True if a release approves the definitions that wait.
    release_approves: bool,
    /// True if the visitor may release the server.
    may_approve: bool,
    /// Login of the gateway at the server; `None` without one.
    login: Option<LoginShown>,
    /// Names of the headers, whose values are never shown.
    headers: String,
    /// Path of the page, below which the pages beside it are.
    href: String,
    /// True if the visitor's role may change the server.
    may_change: bool,
    /// True if the visitor may have the server listed now.
    may_list: bool,
    /// True for a program.
    is_program: bool,
    /// Address of this page of tools.
    here: String,
    /// Cursor of this page of tools; empty for the first page.
    cursor: String,
    /// True if the page lists the tools that wait for a decision alone.
    is_waiting: bool,
    /// Number of tools that wait for a decision, as far as it is known.
    waiting: usize,
    /// Number of prompts, resources and templates that do.
    waiting_offers: usize,
    /// Link to the server's prompts and resources.
    offers_href: String,
    tools: Vec<ToolLine>,
    /// Link to the next page of tools; `None` if there is none.
    next: Option<String>,
}

/// Shows the page of a server, or of the tool that the address names. The path of a form of the list leads to the list, unless a server
/// has that name.
pub(in crate::faces::console) async fn show(Path(name): Path<String>, visit: PageVisit) -> Response {
    let page = match server(&visit, &name).await {
        Err(GatewayError::NotFound("server")) if FORMS.contains(&name.as_str()) => {
            return Redirect::to(Section::Servers.href()).into_response();
        }
        page => page,
    };
    let known = Some(name.as_str()).filter(|name| is_name(name));
    visit.answer_read(("servers.inspect", known), Section::Servers, page)
}

async fn server(visit: &PageVisit, name: &str) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::SeeServers)?;
    visit.needs_tenant()?;
    if !is_name(name) {
        return Err(GatewayError::NotFound("server"));
    }
    let params = Params::of(&visit.given(PARAMS)?, PARAMS)?;
    let mut page = params.page()?;
    let after = page.after(String::new(), |key| is_tool_name(key).then(|| key.to_owned()))?;
    visit.expect(DEFINITIONS_MEMORY_BYTES).await?;
    let servers = &visit.gateway().servers;
    let server = servers.get_server(visit.caller(), name).await?;
    if let Some(tool) = params.text("tool") {
        return tool::show(visit, (name, tool), notice(visit, &params), None).await;
    }
    let bounds = (page.fetch(), DEFINITIONS_BYTES_MAX);
    let is_waiting = params.one_of("state", &[WAITING])?.is_some();
    let tools = servers.list_server_tools(visit.caller(), name, (&after, is_waiting), bounds).await?;
    let approved = |tool: &ToolView| tool.approved_definition.as_ref().map_or(0, String::len);
    page.fit(tools.iter().map(|tool| tool.definition.len() + approved(tool)));
    let connections = match server.oauth {
        Some(_) => visit.gateway().connect.list(visit.caller(), name).await?,
        None => Vec::new(),
    };
    let login = login(visit, &server, &connections);
    let shown = described(visit, (&server, login), (&page, is_waiting), &tools);
    visit.show(StatusCode::OK, &ServerPage { done: notice(visit, &params), ..shown }).await
}

/// Returns the address of a page of a server's tools, or of those that wait for a decision. `cursor` is empty for the first page.
pub(super) fn href_of_page(server: &str, is_waiting: bool, cursor: &str) -> String {
    let given = [("state", if is_waiting { WAITING } else { "" }), ("cursor", cursor)];
    let mut query = Serializer::new(String::new());
    query.extend_pairs(given.into_iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        none if none.is_empty() => href_of(server),
        query => format!("{}?{query}", href_of(server)),
    }
}

/// Returns the era of MCP that a server speaks, as its revisions; an era of a later release stays a word.
fn era_shown(era: Option<Era>, word: &str) -> String {
    match era {
        Some(Era::Modern) => "MCP 2026-07-28".to_owned(),
        Some(Era::Handshake) => "MCP before 2026-07-28".to_owned(),
        None => word.to_owned(),
    }
}

/// Returns the login of the gateway at a server; `None` without one.
fn login(visit: &PageVisit, server: &ServerView, connections: &[ConnectionRow]) -> Option<LoginShown> {
    let oauth = server.oauth.as_ref()?;
    let line = |row: &ConnectionRow| ConnectionLine {
        id: row.connection_id,
        holder: holder_of(row),
        is_own: row.principal_id.is_none(),
        is_for_listing: row.is_for_listing,
        state: row.state.clone(),
        generation: row.generation,
        expires: row.expires_at.map(|at| Moment::new(at, visit.now())),
        retry: row.retry_at.map(|at| Moment::new(at, visit.now())),
        error: short(row.last_error.as_deref().unwrap_or_default(), DESCRIPTION_CHARS_MAX),
    };
    Some(LoginShown {
        kind: oauth.kind.clone(),
        client_id: oauth.client_id.clone(),
        token_endpoint: masked(&oauth.token_endpoint).into_owned(),
        scopes: oauth.scopes.join(" "),
        state: oauth.state.clone(),
        tone: match LoginState::parse(&oauth.state) {
            Some(LoginState::Connected) => "good",
            Some(LoginState::LoginRequired) => "bad",
            _ => "open",
        },
        error: oauth.last_error.as_deref().map(LongText::of),
        connections: connections.iter().take(CONNECTIONS_MAX).map(line).collect(),
        left_out: connections.len().saturating_sub(CONNECTIONS_MAX),
    })
}

/// Returns the name of whoever's login a connection is.
fn holder_of(row: &ConnectionRow) -> String {
    let Some(principal) = row.principal_id else { return "the gateway".to_owned() };
    let names = [&row.key_name, &row.owner].into_iter().flatten();
    match names.map(|name| name.trim()).find(|name| !name.is_empty()) {
        Some(name) => short(name, HOLDER_CHARS_MAX),
        None => format!("a person ({principal})"),
    }
}

fn described(
    visit: &PageVisit,
    (server, login): (&ServerView, Option<LoginShown>),
    (page, is_waiting): (&CursorPage, bool),
    tools: &[ToolView],
) -> ServerPage {
    let (shown, next) = page.split(tools, |tool| tool.name.clone());
    let (state, tone) = state_of(server);
    let nav = visit.nav(Section::Servers);
    let href = href_of(&server.name);
    let cursor = page.after.as_deref().map(encode).unwrap_or_default();
    let role = visit.caller().role;
    let may_approve = visit.gateway().servers.may_approve(visit.caller(), server);
    ServerPage {
        csrf: nav.csrf.clone(),
        nav,
        done: None,
        name: server.name.clone(),
        kind: server.kind.as_str().to_owned(),
        place: place(server),
        state,
        tone,
        connection: connection(server).to_owned(),
        is_connected: is_connected(server),
        era: server.era.as_ref().map(|era| era_shown(era.known(), era.as_str())),
        last_ok: server.last_ok_at.map(|at| Moment::new(at, visit.now())),
        created: Moment::new(server.created_at, visit.now()),
        adder: server
            .adder()
            .and_then(|_| server.adder_owner.as_deref().map(|owner| short(owner, HOLDER_CHARS_MAX))),
        auto_approve: server.auto_approve,
        is_quarantined: server.quarantined,
        release_approves: release::approves_all(server),
        may_approve,
        next_step: next_step(visit, server),
        error: last_error(server).map(|error| LongText::of(&error)),
        buttons: buttons(visit, server),
        login,
        headers: if server.web_page.is_some() { String::new() } else { server.header_names.join(", ") },
        may_change: role.may(Action::ChangeServers),
        may_list: role.may(Action::ChangeServers) && server.enabled,
        is_program: server.kind == ServerKind::Stdio,
        here: href_of_page(&server.name, is_waiting, &cursor),
        cursor,
        is_waiting,
        waiting: waiting_at(visit, &server.name).unwrap_or_default(),
        waiting_offers: offers::waiting_at(visit, &server.name),
        offers_href: offers::href_of_offers(&server.name),
        tools: shown.iter().map(|tool| line(visit, (&server.name, may_approve), tool)).collect(),
        next: next.map(|cursor| {
            let state = if is_waiting { "state=waiting&" } else { "" };
            format!("{href}?{state}limit={}&cursor={cursor}", page.limit)
        }),
        href,
    }
}

/// Returns what to do after the last error of a server; empty without an error, and for a visitor who changes no server.
fn next_step(visit: &PageVisit, server: &ServerView) -> &'static str {
    if last_error(server).is_none() || !visit.caller().role.may(Action::ChangeServers) {
        return "";
    }
    match server.kind {
        _ if wants_login(server) && server.oauth.is_some() => {
            "Somebody has to log in at the server: see its login below."
        }
        ServerKind::Http if last_error(server).is_some_and(|error| wants_credentials(&error)) => {
            "Give its headers at Settings, most often Authorization; all present ones are replaced. Then press Connect again."
        }
        ServerKind::Http => {
            "Look whether the server runs, and whether the address is right and can be reached from the gateway. Change it at \
             Settings, then press Connect again."
        }
        ServerKind::Stdio => "Look at the log for what the program says, then press Connect again.",
        ServerKind::Unknown(_) => "Look at the log, then press Connect again.",
        ServerKind::WebPage => {
            "Look whether the pages can be reached from the gateway, then press Connect again."
        }
    }
}

/// Returns the address or the program of a server, after the word for it.
fn place(server: &ServerView) -> Option<(&'static str, String)> {
    let address = server.url.as_deref().map(|url| ("Address", masked(url).into_owned()));
    address.or_else(|| server.command.clone().map(|command| ("Program", command)))
}

/// Returns the acts that fit the state of a server and the role of the visitor.
fn buttons(visit: &PageVisit, server: &ServerView) -> Vec<ActButton> {
    let role = visit.caller().role;
    let changes = role.may(Action::ChangeServers);
    let acts = [
        ("enable", "Enable", changes && !server.enabled),
        ("disable", "Disable", changes && server.enabled),
        ("quarantine", "Quarantine", changes && !server.quarantined),
        ("refresh", "List its tools now", changes && server.enabled),
        ("restart", "Connect again", changes && server.enabled),
    ];
    let fitting = acts.into_iter().filter(|(_, _, fits)| *fits);
    let here = href_of(&server.name);
    fitting.map(|(verb, label, _)| ActButton { action: format!("{here}/{verb}"), label }).collect()
}

fn line(visit: &PageVisit, (server, may_approve): (&str, bool), tool: &ToolView) -> ToolLine {
    let (tier, description) = facts(tool, visit.caller().settings.unannotated_tools);
    let role = visit.caller().role;
    let act = match tool.state {
        PinState::Blocked => may_approve.then_some(("unblock", "Unblock")),
        _ => role.may(Action::ChangeServers).then_some(("block", "Block")),
    };
    ToolLine {
        name: tool.name.clone(),
        field: field_of(&tool.name),
        href: href_of_tool(server, &tool.name),
        description: short(&description, DESCRIPTION_CHARS_MAX),
        tier: tier.as_str(),
        state: tool.state.as_str(),
        tone: tone(tool.state),
        drift: tool.drift.map(|(drift, _)| drift.sentence()),
        is_overridden: tool
            .overridden
            .as_ref()
            .is_some_and(|overridden| overridden.said.over(&tool.definition, &tool.pin).is_some()),
        is_waiting: matches!(tool.state, PinState::Pending | PinState::Changed),
        act: act.map(|(verb, label)| ActButton { action: path_of(server, verb), label }),
    }
}
