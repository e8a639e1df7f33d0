//! Pages about one server beside the main one: its log, its prompts and resources, and the questions whether to remove it or its login.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;

use super::question::{ask, server};
use super::{href_of, offers, release, settings};
use crate::domain::id::is_name;
use crate::domain::tenant::Action;
use crate::faces::console::moment::Moment;
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::question::ActQuestion;
use crate::faces::query::params::{NONE, ParamNames, Params};
use crate::gateway::GatewayError;

/// Parameters of the log.
const LOG_PARAMS: ParamNames = &["limit"];
/// Lines of the log that are shown, and the most that can be.
const LINES: usize = 100;
const LINES_MAX: usize = 500;
/// Memory of a line of the log, in bytes: as loaded, and as text.
const LINE_MEMORY_BYTES: usize = 8 * 1024;

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
            let page = settings::show(&visit, &name, None).await;
            visit.answer_read(("servers.inspect", known.as_deref()), Section::Servers, page)
        }
        "remove" => {
            let page = remove(&visit, &name).await;
            visit.answer_read(("servers.inspect", known.as_deref()), Section::Servers, page)
        }
        "offers" => {
            let page = offers::show(&visit, &name).await;
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
