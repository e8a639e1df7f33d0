//! Logins of people at servers behind the gateway: the page that says where they lead, and the browser's return.

use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use uuid::Uuid;

use super::gate::{Visit, set_cookie, to_login};
use super::login::failed;
use super::{CALLBACK, page, record};
use crate::faces::{Faces, session_cookie};
use crate::gateway::{ConnectEnd, ConnectFault, GatewayError, LoginAnswer};

#[derive(Template)]
#[template(path = "connect.html", config = "src/faces/console/askama.toml")]
struct ConnectTemplate<'a> {
    flow: Uuid,
    csrf: &'a str,
    server: &'a str,
    place: &'a str,
    host: &'a str,
    scopes: &'a [String],
    may_list: bool,
}

#[derive(Template)]
#[template(path = "leave.html", config = "src/faces/console/askama.toml")]
struct LeaveTemplate<'a> {
    url: &'a str,
}

/// Shows where a login leads.
pub(super) async fn show(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
    Path(flow): Path<String>,
) -> Response {
    let Some(session) = &visit.session else { return to_login() };
    let Ok(flow) = Uuid::try_parse(&flow) else { return not_yours(&visit) };
    match faces.gateway.connect.page(&session.caller, flow).await {
        Ok(found) => {
            let template = ConnectTemplate {
                flow,
                csrf: &visit.form_token(),
                server: &found.server,
                place: &found.place,
                host: &found.host,
                scopes: &found.scopes,
                may_list: found.may_list,
            };
            page::render(StatusCode::OK, &template)
        }
        Err(error) => unless_yours(&error, &visit),
    }
}

/// Sends the browser to the authorization server.
pub(super) async fn depart(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
    headers: HeaderMap,
    Path(flow): Path<String>,
) -> Response {
    let Some(session) = &visit.session else { return to_login() };
    let cookie = session_cookie::value(&headers, session_cookie::FLOW).ok().flatten().map(str::to_owned);
    let Ok(flow) = Uuid::try_parse(&flow) else { return not_yours(&visit) };
    let leave = {
        let (gateway, caller) = (Arc::clone(&faces.gateway), Arc::clone(&session.caller));
        let for_listing = visit.form.field("for_listing") == "true";
        async move { gateway.connect.depart(&caller, flow, (cookie.as_deref(), for_listing)).await }
    };
    let path = format!("/connect/{flow}");
    match record::act(&faces, (&visit, &session.caller), ("servers.connect", &path), leave).await {
        Ok(departure) => {
            // a page that leads on: a redirect of the form would have to be allowed for wherever the login service leads on to
            let mut response = page::render(StatusCode::OK, &LeaveTemplate { url: &departure.url });
            let refresh = HeaderValue::try_from(format!("0;url={}", departure.url));
            response.headers_mut().extend(refresh.ok().map(|refresh| (header::REFRESH, refresh)));
            let cookie =
                session_cookie::set_for(session_cookie::FLOW, &departure.browser.cookie(), departure.keep);
            set_cookie(response.headers_mut(), cookie);
            response
        }
        Err(error) => unless_yours(&error, &visit),
    }
}

/// Takes the answer of the authorization server of the login at the server `at`.
pub(super) async fn complete(
    faces: &Arc<Faces>,
    visit: &Arc<Visit>,
    browser: Option<&str>,
    (answer, at): (LoginAnswer<'_>, Uuid),
) -> Response {
    let caller = visit.session.as_ref().map(|session| Arc::clone(&session.caller));
    let arrived = faces.gateway.connect.arrive((answer, at), browser, caller.as_deref()).await;
    let arrival = match arrived {
        Ok(arrival) => arrival,
        Err(fault) => return refused(&fault, visit),
    };
    // the claim of a program's login is recorded, by whoever begins it
    let recorded_for = caller.filter(|_| arrival.is_of_page());
    let connect = Arc::clone(&faces.gateway.connect);
    let end = match recorded_for {
        None => faces.gateway.log.outlive(async move { connect.complete(arrival).await }).await,
        Some(caller) => {
            let work = async move { connect.complete(arrival).await.map_err(GatewayError::from) };
            let act = ("servers.connected", CALLBACK);
            record::act(faces, (visit, &caller), act, work).await.map_err(ConnectFault::from)
        }
    };
    ended(faces, visit, end).await
}

async fn ended(faces: &Arc<Faces>, visit: &Arc<Visit>, end: Result<ConnectEnd, ConnectFault>) -> Response {
    match end {
        Ok(ConnectEnd::Program(url)) => Redirect::to(&url).into_response(),
        Ok(ConnectEnd::Stored(stored)) => {
            if let Some(session) = visit.session.as_ref().filter(|_| stored.for_listing) {
                faces.gateway.servers.list_after_login(&session.caller, &stored.server).await;
            }
            let text = format!(
                "You are logged in at the server '{}'. Go back to your tool and try again; you can close this page.",
                stored.server
            );
            page::message(StatusCode::OK, "Logged in", &text, visit.request_id())
        }
        Err(fault) => refused(&fault, visit),
    }
}

/// Returns the page for a login that came to nothing. It repeats nothing of what the authorization server said.
pub(super) fn refused(fault: &ConnectFault, visit: &Visit) -> Response {
    let (status, title, text) = match fault {
        ConnectFault::Foreign => (
            StatusCode::BAD_REQUEST,
            "Login not completed",
            "This login does not belong to a request of this browser; start again from your tool",
        ),
        ConnectFault::Declined => (
            StatusCode::FORBIDDEN,
            "Login not completed",
            "The login service did not log you in. Start again from your tool, or ask whoever runs that service.",
        ),
        ConnectFault::Provider => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Not available now",
            "The login service did not answer as it should. Start again from your tool in a while.",
        ),
        ConnectFault::Changed(refusal) => {
            let text = refusal.message.as_str();
            return page::message(
                StatusCode::SERVICE_UNAVAILABLE,
                "Login not completed",
                text,
                visit.request_id(),
            );
        }
        ConnectFault::Unavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Not available now",
            "Logins cannot be completed now. Start again from your tool shortly.",
        ),
    };
    page::message(status, title, text, visit.request_id())
}

/// Returns the page for a failure. A login of somebody else is like one that is not there.
fn unless_yours(error: &GatewayError, visit: &Visit) -> Response {
    match error {
        GatewayError::NotFound(_) => not_yours(visit),
        error => failed(error, visit),
    }
}

fn not_yours(visit: &Visit) -> Response {
    let text = "This login is not of your account here, or its time is over: start again from your tool.";
    page::message(StatusCode::FORBIDDEN, "Not allowed", text, visit.request_id())
}
