//! Questions about one server, and the server for those who may change it.

use axum::response::Response;
use http::StatusCode;

use super::{href_of, needs_name};
use crate::domain::tenant::Action;
use crate::faces::console::nav::Section;
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::question::{ActQuestion, QuestionPage};
use crate::gateway::{GatewayError, ServerView};

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
