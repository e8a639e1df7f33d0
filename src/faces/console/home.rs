//! The first page: an overview of the tenant, who the visitor is, and the visitor's sessions.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use chrono::{DateTime, Utc};
use http::StatusCode;
use uuid::Uuid;

use super::gate::{Visit, to_login};
use super::login::failed;
use super::nav::{Nav, Section};
use super::overview::Overview;
use super::{HOME, page, record};
use crate::domain::web_session::SessionKind;
use crate::faces::Faces;
use crate::gateway::{ConsoleSession, GatewayError, SessionView};

mod filters {
    use std::fmt::Display;

    use askama::Values;
    use chrono::{DateTime, Utc};

    /// Writes a time to the minute.
    #[askama::filter_fn]
    pub(super) fn time(at: &DateTime<Utc>, _: &dyn Values) -> askama::Result<impl Display> {
        Ok(at.format("%Y-%m-%d %H:%M UTC"))
    }
}

#[derive(Template)]
#[template(path = "home.html", config = "src/faces/console/askama.toml")]
struct HomePage<'a> {
    nav: Nav,
    /// Overview of the tenant; `None` for the platform operator.
    overview: Option<Overview>,
    owner: &'a str,
    role: &'static str,
    tenant: &'a str,
    how: String,
    until: DateTime<Utc>,
    csrf: String,
    /// Session of the page itself.
    own: Uuid,
    sessions: Vec<SessionView>,
}

/// Shows the page.
pub(super) async fn show(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
) -> Response {
    let Some(session) = &visit.session else { return to_login() };
    let caller = &session.caller;
    let attempt = record::attempt(&visit, caller);
    let now = attempt.started_at;
    let sessions = match faces.gateway.tenants.web_sessions_of(caller).await {
        Ok(sessions) => sessions,
        Err(error) => return failed(&error, &visit),
    };
    let waiting = faces.gateway.consent.count_waiting(caller).await.ok();
    let page = HomePage {
        nav: Nav::of(caller, visit.form_token(), Section::Overview, waiting),
        overview: Overview::of(&faces.gateway, (caller, attempt.language()), now, waiting).await,
        owner: &caller.owner,
        role: caller.role.as_str(),
        tenant: caller.tenant_name(),
        how: how(session),
        until: session.expires_at,
        csrf: visit.form_token(),
        own: session.id,
        sessions,
    };
    page::render(StatusCode::OK, &page)
}

/// Returns how the visitor logged in.
fn how(session: &ConsoleSession) -> String {
    let name = session.caller.key_name.as_deref();
    match (session.kind, name) {
        (SessionKind::ApiKey, Some(name)) => format!("with the API key '{name}'"),
        (SessionKind::ApiKey, None) => "with an API key".to_owned(),
        (SessionKind::BootstrapKey, _) => "with the platform operator's key".to_owned(),
        (SessionKind::Person, _) => {
            let issuer = session.provider.as_ref().map_or("", |provider| &provider.issuer);
            format!("at the identity provider '{issuer}'")
        }
    }
}

/// Ends a session of the visitor.
pub(super) async fn end_session(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
    Path(id): Path<String>,
) -> Response {
    let Some(session) = &visit.session else { return to_login() };
    let Ok(id) = Uuid::try_parse(&id) else { return failed(&GatewayError::NotFound("session"), &visit) };
    let end = {
        let (tenants, caller) = (Arc::clone(&faces.gateway.tenants), Arc::clone(&session.caller));
        async move { tenants.end_web_session_of(&caller, id).await }
    };
    let path = format!("/console/sessions/{id}/end");
    match record::act(&faces, (&visit, &session.caller), ("console.end_session", &path), end).await {
        Ok(()) => Redirect::to(HOME).into_response(),
        Err(error) => failed(&error, &visit),
    }
}
