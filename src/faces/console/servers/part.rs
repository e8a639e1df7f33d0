//! Pages about one server beside the main one: its settings, its log, and the questions whether to remove it or its login.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;

use super::fields::{FormNotice, shown_url};
use super::{commands, href_of, needs_name, release};
use crate::domain::id::is_name;
use crate::domain::server_kind::ServerKind;
use crate::domain::server_url::masked;
use crate::domain::tenant::Action;
use crate::faces::console::moment::Moment;
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::{PageVisit, status_of};
use crate::faces::console::question::{ActQuestion, QuestionPage};
use crate::faces::console::text::size;
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
    /// Value that holds now, if the form has another one.
    now: Option<String>,
    /// Meaning of the limit, with its unit and its highest value.
    about: String,
}

/// Content of the form beside the limits; empty unless it is shown again.
#[derive(Default)]
struct TypedChange {
    /// Address; empty if it holds a secret.
    url: String,
    credentials: String,
    command: String,
    auto_approve: String,
}

impl TypedChange {
    fn of(visit: &PageVisit) -> TypedChange {
        let field = |name| visit.field(name).to_owned();
        TypedChange {
            url: shown_url(visit),
            credentials: field("credentials"),
            command: field("command"),
            auto_approve: field("auto_approve"),
        }
    }
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
    /// Fault of the form that was sent; `None` without one.
    again: Option<FormNotice>,
    typed: TypedChange,
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
            let page = settings(&visit, &name, None).await;
            visit.answer_read(("servers.inspect", known.as_deref()), Section::Servers, page)
        }
        "remove" => {
            let page = remove(&visit, &name).await;
            visit.answer_read(("servers.inspect", known.as_deref()), Section::Servers, page)
        }
        "release" => {
            let page = release::ask(&visit, &name).await;
            visit.answer_read(("servers.inspect", known.as_deref()), Section::Servers, page)
        }
        "remove_oauth" => {
            let page = remove_oauth(&visit, &name).await;
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
///
/// # Errors
/// Error of the role, or of the read.
pub(super) async fn server(visit: &PageVisit, name: &str) -> Result<ServerView, GatewayError> {
    visit.caller().authorise(Action::ChangeServers)?;
    visit.needs_tenant()?;
    needs_name(name)?;
    visit.gateway().servers.get_server(visit.caller(), name).await
}

/// Shows the settings again, with what was typed, after a fault.
///
/// # Errors
/// Error of the role, or of the read.
pub(super) async fn settings_again(
    visit: &PageVisit,
    name: &str,
    error: &GatewayError,
) -> Result<Response, GatewayError> {
    settings(visit, name, Some(error)).await
}

async fn settings(
    visit: &PageVisit,
    name: &str,
    fault: Option<&GatewayError>,
) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ChangeServers)?;
    visit.given(NONE)?;
    visit.expect(SETTINGS_MEMORY_BYTES).await?;
    let server = server(visit, name).await?;
    let limit = |(name, max): (&'static str, u64)| {
        let own = server.limits.get(name).map(ToString::to_string).unwrap_or_default();
        let value = match fault {
            Some(_) => visit.field(&format!("limits.{name}")).trim().to_owned(),
            None => own.clone(),
        };
        LimitField { name, now: (value != own).then(|| sized(name, own)), value, about: about(name, max) }
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
        again: fault.map(|error| FormNotice::of(visit, error)),
        typed: fault.map(|_| TypedChange::of(visit)).unwrap_or_default(),
    };
    let status = fault.map_or(StatusCode::OK, |error| status_of(error).0);
    visit.show(status, &page).await
}

/// Returns what a limit bounds, with its highest value.
fn about(name: &str, max: u64) -> String {
    let bounds = match name {
        "concurrency" => "calls at the server at once",
        "queue" => "calls that wait for their turn",
        "queue_wait_s" => "seconds that a call waits for its turn",
        "call_timeout_s" => "seconds that one call may take",
        "response_bytes_max" => "bytes of one answer of the server",
        _ => "",
    };
    format!("{bounds}, at most {}", sized(name, max.to_string()))
}

/// Adds the size for reading to a number of bytes.
fn sized(name: &str, number: String) -> String {
    let bytes = number.parse::<u64>().ok().filter(|_| name == "response_bytes_max");
    match bytes.map(size) {
        Some(size) if !size.is_empty() => format!("{number} ({size})"),
        _ => number,
    }
}

async fn remove(visit: &PageVisit, name: &str) -> Result<Response, GatewayError> {
    visit.given(NONE)?;
    let server = server(visit, name).await?;
    let question = ActQuestion {
        act: format!("Remove {}", server.name),
        says: "Its tools leave every list, and its headers, approvals, overrides and log are deleted. Its activity records stay. \
               This cannot be undone: to switch the server off for a while, disable it."
            .into(),
        keep: "Keep it",
        verb: "remove",
    };
    ask(visit, server.name, question).await
}

async fn remove_oauth(visit: &PageVisit, name: &str) -> Result<Response, GatewayError> {
    visit.given(NONE)?;
    let server = server(visit, name).await?;
    if server.oauth.is_none() {
        return Err(GatewayError::NotFound("login"));
    }
    let question = ActQuestion {
        act: format!("Remove the login at {}", server.name),
        says: "The client secret and all tokens are deleted, those of people as well. Calls go without a login from then on, \
               and the server may refuse them. This cannot be undone."
            .into(),
        keep: "Keep it",
        verb: "remove_oauth",
    };
    ask(visit, server.name, question).await
}

/// Shows a question about a server.
///
/// # Errors
/// `overloaded` if there is no memory for the page.
pub(super) async fn ask(
    visit: &PageVisit,
    name: String,
    question: ActQuestion,
) -> Result<Response, GatewayError> {
    let href = href_of(&name);
    let page = QuestionPage::new(visit, Section::Servers, (name, href), question);
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
