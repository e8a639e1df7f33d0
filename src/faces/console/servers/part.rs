//! Pages about one server beside the main one: its settings, its log, and the question whether to remove it.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;

use super::{commands, href_of, needs_name};
use crate::domain::id::is_name;
use crate::domain::server_kind::ServerKind;
use crate::domain::server_url::masked;
use crate::domain::tenant::Action;
use crate::faces::console::moment::Moment;
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::query::params::{NONE, ParamNames, Params};
use crate::gateway::{GatewayError, OWN_LIMITS, ServerView};

/// Memory of the settings, in bytes: as loaded, and as text.
const SETTINGS_MEMORY_BYTES: usize = 64 * 1024;
/// Parameters of the log.
const LOG_PARAMS: ParamNames = &["limit"];
/// Lines of the log that are shown, and the most that can be.
const LINES: usize = 100;
const LINES_MAX: usize = 500;
/// Memory of a line of the log, in bytes: as loaded, and as text.
const LINE_MEMORY_BYTES: usize = 8 * 1024;

/// Limit that a server may set for itself.
struct LimitField {
    name: &'static str,
    value: String,
    max: u64,
}

#[derive(Template)]
#[template(path = "server_settings.html", config = "src/faces/console/askama.toml")]
struct SettingsPage {
    nav: Nav,
    csrf: String,
    name: String,
    href: String,
    version: i64,
    is_http: bool,
    /// Address without secrets; `None` without an address.
    url: Option<String>,
    /// Program of the server; `None` for servers of another kind.
    command: Option<String>,
    /// Programs to choose from in its place.
    commands: Vec<String>,
    /// Names of the headers, whose values are never shown.
    header_names: Vec<String>,
    /// True if the visitor may keep the headers at another address.
    may_keep: bool,
    auto_approve: bool,
    limits: Vec<LimitField>,
}

#[derive(Template)]
#[template(path = "server_remove.html", config = "src/faces/console/askama.toml")]
struct RemovePage {
    nav: Nav,
    csrf: String,
    name: String,
    href: String,
}

/// Line of a server's log.
struct ShownLine {
    at: Moment,
    source: String,
    line: String,
}

#[derive(Template)]
#[template(path = "server_logs.html", config = "src/faces/console/askama.toml")]
struct LogsPage {
    nav: Nav,
    name: String,
    href: String,
    is_program: bool,
    lines: Vec<ShownLine>,
}

/// Shows a page about a server.
pub(in crate::faces::console) async fn show(
    Path((name, part)): Path<(String, String)>,
    visit: PageVisit,
) -> Response {
    let known = is_name(&name).then(|| name.clone());
    match part.as_str() {
        "settings" => {
            let page = settings(&visit, &name).await;
            visit.answer_read(("servers.inspect", known.as_deref()), Section::Servers, page)
        }
        "remove" => {
            let page = remove(&visit, &name).await;
            visit.answer_read(("servers.inspect", known.as_deref()), Section::Servers, page)
        }
        "logs" => {
            visit
                .answer_sensitive_of(("servers.logs", known), Section::Servers, move |visit| {
                    Box::pin(async move { logs(visit, &name).await })
                })
                .await
        }
        _ => visit.failed(Section::Servers, &GatewayError::NotFound("page")),
    }
}

/// Returns the server of a page for those who may change it.
async fn server(visit: &PageVisit, name: &str) -> Result<ServerView, GatewayError> {
    visit.caller().authorise(Action::ChangeServers)?;
    visit.needs_tenant()?;
    needs_name(name)?;
    visit.gateway().servers.get_server(visit.caller(), name).await
}

async fn settings(visit: &PageVisit, name: &str) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ChangeServers)?;
    visit.given(NONE)?;
    visit.expect(SETTINGS_MEMORY_BYTES).await?;
    let server = server(visit, name).await?;
    let limit = |(name, max): (&'static str, u64)| LimitField {
        name,
        value: server.limits.get(name).map(ToString::to_string).unwrap_or_default(),
        max,
    };
    let mut commands = if server.command.is_some() { commands(visit) } else { Vec::new() };
    commands.retain(|name| Some(name) != server.command.as_ref());
    let is_http = server.kind == ServerKind::Http;
    let nav = visit.nav(Section::Servers);
    let page = SettingsPage {
        csrf: nav.csrf.clone(),
        nav,
        name: server.name.clone(),
        href: href_of(&server.name),
        version: server.version,
        is_http,
        url: server.url.as_deref().map(|url| masked(url).into_owned()),
        command: server.command.clone(),
        commands,
        header_names: if is_http { server.header_names.clone() } else { Vec::new() },
        may_keep: visit.caller().role.may(Action::ManageKeys),
        auto_approve: server.auto_approve,
        limits: OWN_LIMITS.into_iter().map(limit).collect(),
    };
    visit.show(StatusCode::OK, &page).await
}

async fn remove(visit: &PageVisit, name: &str) -> Result<Response, GatewayError> {
    visit.given(NONE)?;
    let server = server(visit, name).await?;
    let nav = visit.nav(Section::Servers);
    let page = RemovePage { csrf: nav.csrf.clone(), nav, href: href_of(&server.name), name: server.name };
    visit.show(StatusCode::OK, &page).await
}

async fn logs(visit: &PageVisit, name: &str) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ChangeServers)?;
    let limit = Params::of(&visit.given(LOG_PARAMS)?, LOG_PARAMS)?.count("limit", LINES, LINES_MAX)?;
    visit.expect(limit * LINE_MEMORY_BYTES).await?;
    let server = server(visit, name).await?;
    let log = visit.gateway().servers.server_log(visit.caller(), name, None, limit).await?;
    let line = |line: &crate::store::StoredLogLine| ShownLine {
        at: Moment::new(line.at, visit.now()),
        source: line.source.clone(),
        line: line.line.clone(),
    };
    let page = LogsPage {
        nav: visit.nav(Section::Servers),
        href: href_of(&server.name),
        is_program: server.command.is_some(),
        name: server.name,
        lines: log.lines.iter().map(line).collect(),
    };
    visit.show(StatusCode::OK, &page).await
}
