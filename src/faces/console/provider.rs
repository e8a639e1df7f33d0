//! Login at an identity provider: its begin, its return, and the choice among several tenants.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use url::form_urlencoded;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::connect;
use super::gate::{Visit, set_cookie, why};
use super::login::{back_of, end_former, failed};
use super::{CALLBACK, CHOICE, page, record};
use crate::faces::{Faces, session_cookie};
use crate::gateway::{AuthError, ConnectFault, LoginAnswer, LoginEnd, LoginFault, PersonLogin};

#[derive(Template)]
#[template(path = "choose.html", config = "src/faces/console/askama.toml")]
struct ChoosePage<'a> {
    state: &'a str,
    tenants: &'a [String],
}

/// Sends the browser to the provider.
pub(super) async fn begin(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let cookie = match session_cookie::value(&headers, session_cookie::FLOW) {
        Ok(cookie) => cookie,
        Err(_) => return refused(&LoginFault::Foreign, &visit),
    };
    match faces.gateway.tenants.begin_login((cookie, visit.address), &back_of(&uri)).await {
        Ok(begun) => {
            let mut response = Redirect::to(&begun.url).into_response();
            let cookie = session_cookie::set_for(session_cookie::FLOW, &begun.browser.cookie(), begun.keep);
            set_cookie(response.headers_mut(), cookie);
            response
        }
        Err(fault) => refused(&fault, &visit),
    }
}

/// Takes the provider's answer.
pub(super) async fn complete(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    // a look at the address must not use the code up
    if method != Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let end = match parameters(&uri).zip(session_cookie::value(&headers, session_cookie::FLOW).ok()) {
        None => Err(LoginFault::Foreign),
        Some((parameters, cookie)) => {
            faces.gateway.tenants.complete_login(cookie, answer_of(&parameters)).await
        }
    };
    let mut response = finish(&faces, &visit, end, CALLBACK).await;
    // the address of this page has the code; without any referrer, a form of it would have no `Origin` either
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("strict-origin"));
    response
}

/// Takes the answer of the authorization server of a login at a server.
pub(super) async fn complete_at_server(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
    Path(server): Path<String>,
    method: Method,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    // a look at the address must not use the code up
    if method != Method::GET {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let cookie = session_cookie::value(&headers, session_cookie::FLOW).ok();
    let given = parameters(&uri).zip(cookie).zip(Uuid::try_parse(&server).ok());
    let Some(((parameters, cookie), server)) = given else {
        return connect::refused(&ConnectFault::Foreign, &visit);
    };
    let mut response = connect::complete(&faces, &visit, cookie, (answer_of(&parameters), server)).await;
    // the address of this page has the code
    response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    response
}

fn answer_of(parameters: &HashMap<String, Zeroizing<String>>) -> LoginAnswer<'_> {
    let text = |name: &str| parameters.get(name).map(|value| value.as_str());
    LoginAnswer {
        state: text("state"),
        code: text("code"),
        iss: text("iss"),
        is_error: parameters.contains_key("error"),
    }
}

/// Returns the parameters of the answer; `None` if one is repeated.
fn parameters(uri: &Uri) -> Option<HashMap<String, Zeroizing<String>>> {
    let mut all = HashMap::new();
    for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
        if all.insert(name.into_owned(), Zeroizing::new(value.into_owned())).is_some() {
            return None;
        }
    }
    Some(all)
}

/// Takes the tenant that a person of several chose.
pub(super) async fn choose(
    State(faces): State<Arc<Faces>>,
    Extension(visit): Extension<Arc<Visit>>,
    headers: HeaderMap,
) -> Response {
    let end = match session_cookie::value(&headers, session_cookie::FLOW) {
        Ok(cookie) => {
            let (state, tenant) = (visit.form.field("state"), visit.form.field("tenant"));
            faces.gateway.tenants.choose_tenant(cookie, state, tenant).await
        }
        Err(_) => Err(LoginFault::Foreign),
    };
    finish(&faces, &visit, end, CHOICE).await
}

async fn finish(
    faces: &Arc<Faces>,
    visit: &Arc<Visit>,
    end: Result<LoginEnd, LoginFault>,
    path: &str,
) -> Response {
    match end {
        Ok(LoginEnd::Person(login)) => begin_session(faces, visit, *login, path).await,
        Ok(LoginEnd::Choose { state, tenants }) => {
            page::render(StatusCode::OK, &ChoosePage { state: &state.cookie(), tenants: &tenants })
        }
        Err(fault) => {
            if let LoginFault::Refused(error) = &fault {
                faces.gateway.tenants.count_refusal(error, None, visit.address);
            }
            refused(&fault, visit)
        }
    }
}

/// Begins the session of a person who logged in. The session is a new one, whatever cookie the browser had.
async fn begin_session(faces: &Arc<Faces>, visit: &Arc<Visit>, login: PersonLogin, path: &str) -> Response {
    let (caller, back) = (Arc::clone(&login.caller), login.return_to.clone());
    let begin = {
        let (tenants, visit) = (Arc::clone(&faces.gateway.tenants), Arc::clone(visit));
        async move {
            let session = tenants.begin_person_session(&login, visit.address).await?;
            end_former(&tenants, &visit).await;
            Ok(session)
        }
    };
    match record::act(faces, (visit, &caller), ("console.login", path), begin).await {
        Ok(session) => {
            let mut response = Redirect::to(&back).into_response();
            let cookie = session_cookie::set(session_cookie::SESSION, &session.secret.cookie());
            set_cookie(response.headers_mut(), cookie);
            response
        }
        Err(error) => failed(&error, visit),
    }
}

/// Returns the page for a login that came to nothing. It repeats nothing of what the provider said.
fn refused(fault: &LoginFault, visit: &Visit) -> Response {
    let (status, title, text) = match fault {
        LoginFault::NotOffered => {
            (StatusCode::NOT_FOUND, "Nothing here", "No identity provider is set up for logins here.")
        }
        LoginFault::Foreign => (
            StatusCode::BAD_REQUEST,
            "Login not completed",
            "This login does not belong to a request of this browser; start again from the console.",
        ),
        LoginFault::Declined => (
            StatusCode::FORBIDDEN,
            "Login not completed",
            "The identity provider did not log you in. Try again, or ask whoever runs it.",
        ),
        LoginFault::Provider => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Not available now",
            "The identity provider did not answer as it should. API keys work; try again shortly.",
        ),
        LoginFault::Unavailable => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Not available now",
            "Logins cannot be checked now. Try again shortly.",
        ),
        LoginFault::Refused(
            AuthError::TokenUnverifiable
            | AuthError::TokenExpired
            | AuthError::TokenAudience
            | AuthError::Unauthenticated,
        ) => (
            StatusCode::UNAUTHORIZED,
            "Login not completed",
            "What the identity provider said about you is not valid here. Log in once more.",
        ),
        LoginFault::Refused(error) => why(error),
    };
    page::message(status, title, text, visit.request_id())
}
