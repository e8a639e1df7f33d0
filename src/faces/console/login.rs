//! Login by API key, and logout.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderValue, StatusCode, Uri, header};
use url::form_urlencoded;

use super::gate::{Visit, set_cookie, why};
use super::page_visit::status_of;
use super::{HOME, LOGIN, LOGOUT, PROVIDER, page, record, return_to};
use crate::faces::{Faces, session_cookie};
use crate::gateway::{GatewayError, PresentedCredential};

/// Sentence for a visitor whose form came after the end of the session.
const FORM_LOST: &str = "Your session had ended, so nothing was done. Log in, and send the form again.";

/// Link to the login at an identity provider.
struct ProviderLink {
    /// Name of the issuer.
    name: String,
    /// URL where the login begins.
    href: String,
}

#[derive(Template)]
#[template(path = "login.html", config = "src/faces/console/askama.toml")]
struct LoginPage<'a> {
    /// Reason why the visitor is here again, such as a try that failed; `None` at the first.
    failure: Option<&'a str>,
    /// Identity provider whose login is offered; `None` without one.
    provider: Option<ProviderLink>,
    /// True if a form led here that did nothing: the script keeps what was typed into it.
    is_form_lost: bool,
    /// Page to return to.
    return_to: &'a str,
}

fn form(faces: &Faces, status: StatusCode, failure: Option<&str>, return_to: &str) -> Response {
    let provider = faces.gateway.tenants.offered_login();
    let provider =
        provider.map(|name| ProviderLink { name, href: return_to::with_return(PROVIDER, return_to) });
    let is_form_lost = failure == Some(FORM_LOST);
    page::render(status, &LoginPage { failure, provider, is_form_lost, return_to })
}

/// Returns the page to return to that a query or a form names, or the first page.
fn back(named: &str) -> &str {
    return_to::local(named).unwrap_or(HOME)
}

/// Returns the page to return to that a query names, or the first page.
pub(super) fn back_of(uri: &Uri) -> String {
    back(&param_of(uri, "return_to").unwrap_or_default()).to_owned()
}

/// Returns a parameter of a query; `None` without it.
fn param_of(uri: &Uri, name: &str) -> Option<String> {
    let query = uri.query().unwrap_or_default().as_bytes();
    form_urlencoded::parse(query).find(|(known, _)| known == name).map(|(_, value)| value.into_owned())
}

/// Shows the form. A visitor who is logged in goes on.
pub(super) async fn show(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
    uri: Uri,
) -> Response {
    let back = back_of(&uri);
    match visit.session {
        Some(_) => Redirect::to(&back).into_response(),
        None => {
            let lost = param_of(&uri, return_to::FORM_LOST).map(|_| FORM_LOST);
            form(&faces, StatusCode::OK, lost, &back)
        }
    }
}

/// Exchanges an API key for a session. The session is a new one, whatever cookie the browser had.
pub(super) async fn submit(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
) -> Response {
    let back = back(visit.form.field("return_to"));
    let key = visit.form.field("api_key").trim();
    let tenants = &faces.gateway.tenants;
    let caller = match tenants.authenticate(PresentedCredential::ApiKey(key), None).await {
        Ok(caller) => caller,
        Err(error) => {
            tenants.count_refusal(&error, Some(key).filter(|key| !key.is_empty()), visit.address);
            let (status, _, text) = why(&error);
            let mut response = form(&faces, status, Some(text), back);
            let has_room =
                visit.peer.as_ref().is_none_or(|peer| faces.connections.not_authenticated(&peer.connection));
            if !has_room {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            return response;
        }
    };
    let begin = {
        let (tenants, visit, caller) = (Arc::clone(tenants), Arc::clone(&visit), Arc::clone(&caller));
        async move {
            let key = visit.form.field("api_key").trim();
            let session = tenants.begin_key_session(&caller, key, visit.address).await?;
            end_former(&tenants, &visit).await;
            Ok(session)
        }
    };
    match record::act(&faces, (&visit, &caller), ("console.login", LOGIN), begin).await {
        Ok(session) => {
            let mut response = Redirect::to(back).into_response();
            let cookie = session_cookie::set(session_cookie::SESSION, &session.secret.cookie());
            set_cookie(response.headers_mut(), cookie);
            // whoever logged in before chose that tenant
            set_cookie(response.headers_mut(), session_cookie::unset(session_cookie::TENANT));
            response
        }
        Err(error) => failed(&error, &visit),
    }
}

/// Ends the session that the browser had before.
pub(super) async fn end_former(tenants: &crate::gateway::Tenants, visit: &Visit) {
    let Some(secret) = &visit.secret else { return };
    if let Err(error) = tenants.end_web_session(&secret.cookie()).await {
        tracing::warn!(%error, "the session before a login could not be ended");
    }
}

/// Ends the session of the cookie, and removes the cookie. A person goes on to the provider, where that ends its own session.
pub(super) async fn log_out(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
) -> Response {
    let end = {
        let (tenants, visit) = (Arc::clone(&faces.gateway.tenants), Arc::clone(&visit));
        async move {
            match &visit.secret {
                Some(secret) => tenants.end_web_session(&secret.cookie()).await,
                None => Ok(()),
            }
        }
    };
    let ended = match &visit.session {
        Some(session) => {
            record::act(&faces, (&visit, &session.caller), ("console.logout", LOGOUT), end).await
        }
        None => end.await,
    };
    match ended {
        Ok(()) => {
            let session = visit.session.as_ref();
            let on = session.and_then(|session| faces.gateway.tenants.provider_logout(session));
            let mut response = Redirect::to(on.as_deref().unwrap_or(LOGIN)).into_response();
            set_cookie(response.headers_mut(), session_cookie::unset(session_cookie::SESSION));
            set_cookie(response.headers_mut(), session_cookie::unset(session_cookie::TENANT));
            response
        }
        Err(error) => failed(&error, &visit),
    }
}

/// Returns the page for an act that failed.
pub(super) fn failed(error: &GatewayError, visit: &Visit) -> Response {
    let (status, title) = status_of(error);
    page::message(status, title, &error.to_string(), visit.request_id())
}
