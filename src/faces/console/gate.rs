//! The gate of the console: host, origin, session and the text of its forms, before anything is routed.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};

use super::form::{FORM_BYTES_MAX, Form, POLICY_FORM_BYTES_MAX};
use super::{CALLBACK, CHOICE, CLIENT, EVENTS, LOGIN, LOGOUT, NOTICE, PROVIDER, page, return_to};
use crate::domain::id::{TenantId, is_name};
use crate::domain::reason::Language;
use crate::domain::tenant::Role;
use crate::domain::web_session::CookieSecret;
use crate::faces::auth::{HeaderFault, single};
use crate::faces::hosts::{HasOwnPages, check_host, check_origin, host, is_own_origin};
use crate::faces::listener::Peer;
use crate::faces::{Faces, client, request, session_cookie, wire};
use crate::gateway::{AuthError, Client, ConsoleSession, SUSPENDED};
use crate::store::SessionTouch;

/// Header of requests that a page makes by itself: they do not lengthen the session.
const BY_ITSELF: &str = "x-console-refresh";
/// Prefix of the files that pages load, which are open to everybody.
const STATIC: &str = "/console/static/";
/// Prefix of the acts on policies.
const POLICY_ACTS: &str = "/console/policy/";
/// Paths that need no session.
const OPEN: [&str; 7] = [LOGIN, LOGOUT, PROVIDER, CHOICE, CALLBACK, CLIENT, NOTICE];
/// Paths below which nothing needs a session.
const OPEN_BELOW: [&str; 2] = ["/oauth/callback/", "/oauth/client/"];
/// Paths of changes that no form of a session makes.
const WITHOUT_FORM: [&str; 3] = [LOGIN, CHOICE, NOTICE];

/// Facts about a request that passed the gate.
pub(super) struct Visit {
    /// Session of the visitor; `None` for one who is not logged in.
    pub(super) session: Option<ConsoleSession>,
    /// Secret of the cookie, whether or not a session has it.
    pub(super) secret: Option<CookieSecret>,
    /// Fields of the form; empty without one.
    pub(super) form: Form,
    /// Connection of the request; `None` without one.
    pub(super) peer: Option<Peer>,
    /// Address of the visitor; `None` without a connection.
    pub(super) address: Option<IpAddr>,
    /// Program of the visitor, as it names itself.
    pub(super) client: Client,
    /// Language that the visitor asks for; `None` if there are no texts in any.
    pub(super) language: Option<Language>,
    request_id: String,
}

impl Visit {
    /// Returns the id of the request.
    pub(super) fn request_id(&self) -> Option<&str> {
        Some(&self.request_id)
    }

    /// Returns the hidden text of the session's forms; empty without a session. It ends with the tenant that the platform
    /// operator has chosen, so that a form of one tenant does nothing in another.
    pub(super) fn form_token(&self) -> String {
        let token = self.secret.as_ref().map(CookieSecret::form_token).unwrap_or_default();
        let mark = session_cookie::TENANT_MARK;
        match chosen_tenant(self.session.as_ref()) {
            "" => token,
            tenant => format!("{token}{mark}{tenant}"),
        }
    }
}

/// Response of the gate in the place of the route's.
struct Refusal(Box<Response>);

impl From<Response> for Refusal {
    fn from(response: Response) -> Refusal {
        Refusal(Box::new(response))
    }
}

/// Admits or refuses a request, and puts its [`Visit`] among its extensions.
pub(super) async fn gate(State(faces): State<Arc<Faces>>, request: Request, next: Next) -> Response {
    let id = request::usable_id(request.headers()).unwrap_or_else(|| uuid::Uuid::now_v7().to_string());
    let (mut response, provider) = match admit(&faces, request, &id).await {
        Ok((request, visit)) => (next.run(request).await, provider_of(&visit)),
        Err(Refusal(response)) => (*response, None),
    };
    let headers = response.headers_mut();
    page::guard(headers, provider.as_deref());
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(request::ID, id);
    }
    if faces.gateway.life.is_leaving() {
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Returns the origin at which the provider of a visitor ends its own session; `None` without one.
fn provider_of(visit: &Visit) -> Option<String> {
    let provider = visit.session.as_ref()?.provider.as_ref()?;
    let url = url::Url::parse(provider.logout_url.as_deref()?).ok()?;
    Some(url.origin().ascii_serialization()).filter(|origin| origin != "null")
}

async fn admit(faces: &Arc<Faces>, request: Request, id: &str) -> Result<(Request, Arc<Visit>), Refusal> {
    let (parts, body) = request.into_parts();
    let request = Request::from_parts(parts.clone(), axum::body::Body::empty());
    let (headers, path) = (&parts.headers, parts.uri.path());
    let forbidden = |text: &str| page::message(StatusCode::FORBIDDEN, "Not allowed", text, Some(id));
    let faulty = |fault: HeaderFault| {
        let text = format!("{}: {}.", fault.name, fault.message);
        page::message(StatusCode::BAD_REQUEST, "Request not understood", &text, Some(id))
    };
    let host = host(&request).map_err(faulty)?;
    check_host(faces, host).map_err(forbidden)?;
    check_origin(faces, headers, host, HasOwnPages::Yes).map_err(forbidden)?;
    let is_change = parts.method != Method::GET && parts.method != Method::HEAD;
    // a provider's notice comes from no browser
    if is_change && path != NOTICE {
        let origin = single(headers, "Origin").map_err(faulty)?;
        let origin = origin.and_then(|origin| origin.to_str().ok()).unwrap_or_default();
        if !is_own_origin(faces, origin, host) {
            return Err(forbidden("This request does not come from a page of this console.").into());
        }
    }
    let peer = parts.extensions.get::<Peer>().cloned();
    let address =
        peer.as_ref().map(|peer| client::ClientAddress::of(peer.address, headers, &faces.connections).0);
    let cookie = session_cookie::value(headers, session_cookie::SESSION).map_err(faulty)?;
    let tenant = session_cookie::value(headers, session_cookie::TENANT).map_err(faulty)?;
    let is_static = path.starts_with(STATIC);
    let is_open = is_static || OPEN.contains(&path) || OPEN_BELOW.iter().any(|open| path.starts_with(open));
    let session = match cookie.filter(|_| !is_static) {
        None => None,
        Some(cookie) => match session_of(faces, cookie, tenant, touch_of(path, headers)).await {
            Ok(session) => Some(session),
            Err(AuthError::Unauthenticated | AuthError::TokenExpired) => None,
            Err(_) if is_open => None,
            Err(error) => {
                faces.gateway.tenants.count_refusal(&error, Some(cookie), address);
                return Err(refused(&error, id).into());
            }
        },
    };
    let form = match is_change {
        false => Form::default(),
        true => match Form::read(headers, body, form_bytes_max(path, session.as_ref())).await {
            Ok(form) => form,
            // one of a session that has ended leads to the login, however long it is
            Err(_) if session.is_none() && !is_open => Form::default(),
            Err(fault) => {
                return Err(page::message(fault.status, "Form not read", fault.text, Some(id)).into());
            }
        },
    };
    let secret = cookie.and_then(CookieSecret::read);
    if session.is_none() && !is_open {
        let place = parts.uri.path_and_query().map_or(path, |place| place.as_str());
        let to = match is_change {
            true => return_to::login_after_form(page_of_form(faces, headers, host).as_deref()),
            false => return_to::login_for(place),
        };
        return Err(Redirect::to(&to).into_response().into());
    }
    let text = form.field("csrf");
    let (token, of_tenant) = text.split_once(session_cookie::TENANT_MARK).unwrap_or((text, ""));
    // a logout is one wherever its form was made
    let is_here = path == LOGOUT || of_tenant == chosen_tenant(session.as_ref());
    let is_form = |secret: &CookieSecret| secret.is_form_token(token) && is_here;
    if is_change && !WITHOUT_FORM.contains(&path) && !secret.as_ref().is_some_and(is_form) {
        return Err(page::form_lost(page_of_form(faces, headers, host).as_deref(), id).into());
    }
    if let (Some(session), Some(peer)) = (&session, &peer)
        && !faces.connections.authenticated(&peer.connection, &session.caller)
    {
        let text = "Too many connections of your key or its tenant are open: try again shortly.";
        return Err(page::message(StatusCode::SERVICE_UNAVAILABLE, "Too busy", text, Some(id)).into());
    }
    let (client, language) = (wire::headers::client(headers), wire::headers::language(headers));
    let request_id = id.to_owned();
    let mut request = request;
    let visit = Arc::new(Visit { session, secret, form, peer, address, client, language, request_id });
    request.extensions_mut().insert(Arc::clone(&visit));
    Ok((request, visit))
}

/// Returns path and query of the page that a form was on, as the browser names it; `None` if that is no page of this gateway.
fn page_of_form(faces: &Faces, headers: &HeaderMap, host: Option<&str>) -> Option<String> {
    let named = single(headers, "Referer").ok()??;
    let page = url::Url::parse(named.to_str().ok()?).ok()?;
    let is_own = is_own_origin(faces, &page.origin().ascii_serialization(), host);
    let query = page.query().map(|query| format!("?{query}")).unwrap_or_default();
    is_own.then(|| format!("{}{query}", page.path()))
}

/// Returns the largest form that a path takes, in bytes. Rules of policies are long, and come from people who are logged in.
fn form_bytes_max(path: &str, session: Option<&ConsoleSession>) -> usize {
    match session.is_some() && path.starts_with(POLICY_ACTS) {
        true => POLICY_FORM_BYTES_MAX,
        false => FORM_BYTES_MAX,
    }
}

/// Returns the name of the tenant that the platform operator has chosen; empty for none, and for others.
fn chosen_tenant(session: Option<&ConsoleSession>) -> &str {
    let caller = session.map(|session| &session.caller);
    let caller =
        caller.filter(|caller| caller.role == Role::Platform && caller.tenant_id() != TenantId::PLATFORM);
    caller.map_or("", |caller| caller.tenant_name())
}

/// Returns whether a request is a use of its session, or one that a page makes by itself.
fn touch_of(path: &str, headers: &HeaderMap) -> SessionTouch {
    match path == EVENTS || headers.contains_key(BY_ITSELF) {
        true => SessionTouch::Look,
        false => SessionTouch::Use,
    }
}

/// Returns the session of a cookie. The platform operator acts in the tenant of this name if there is one, and
/// otherwise in none.
async fn session_of(
    faces: &Faces,
    cookie: &str,
    tenant: Option<&str>,
    touch: SessionTouch,
) -> Result<ConsoleSession, AuthError> {
    let tenants = &faces.gateway.tenants;
    let tenant = tenant.filter(|name| is_name(name));
    match tenants.web_session(cookie, tenant, touch).await {
        Err(AuthError::NoSuchTenant) if tenant.is_some() => tenants.web_session(cookie, None, touch).await,
        found => found,
    }
}

/// Returns the page for a session whose holder is not let in now.
pub(super) fn refused(error: &AuthError, id: &str) -> Response {
    let (status, title, text) = why(error);
    page::not_let_in(status, title, text, Some(id))
}

/// Returns status, title and text for a credential that was not accepted.
pub(super) fn why(error: &AuthError) -> (StatusCode, &'static str, &'static str) {
    match error {
        AuthError::Suspended => (StatusCode::FORBIDDEN, "Not allowed", SUSPENDED),
        AuthError::Blocked(_) => (StatusCode::FORBIDDEN, "Not allowed", "This account is blocked here."),
        AuthError::NoRule(_) => (
            StatusCode::FORBIDDEN,
            "Not allowed",
            "This account is known, but no rule gives it access here; ask whoever runs this gateway.",
        ),
        AuthError::Unavailable | AuthError::KeysUnavailable | AuthError::LoginsBusy => (
            StatusCode::SERVICE_UNAVAILABLE,
            "Not available now",
            "Logins cannot be checked now. Try again shortly.",
        ),
        AuthError::Unauthenticated
        | AuthError::NoSuchTenant
        | AuthError::TokenUnverifiable
        | AuthError::TokenExpired
        | AuthError::TokenAudience
        | AuthError::SeveralTenants => (
            StatusCode::UNAUTHORIZED,
            "Log in",
            "This API key is not valid here. Check it, or ask your administrator for another.",
        ),
    }
}

/// Returns the response to a visitor who is not logged in.
pub(super) fn to_login() -> Response {
    Redirect::to(LOGIN).into_response()
}

/// Adds a `Set-Cookie`.
pub(super) fn set_cookie(headers: &mut HeaderMap, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        headers.append(header::SET_COOKIE, cookie);
    }
}
