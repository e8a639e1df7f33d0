//! The console: pages for people in a browser, below `/console`, over the same use cases as REST; and below `/oauth` what identity
//! providers ask for.
//!
//! A gate of its own checks host, origin, session and, for every change, the hidden text of the session's forms, before anything is
//! routed. Pages work without a script, load nothing from elsewhere, and are written by templates, which escape every value. The one script
//! asks for pages again when their content has changed.

mod act;
mod activity;
pub(in crate::faces) mod assets;
mod connect;
mod done;
mod filter_field;
mod form;
mod gate;
mod home;
mod issuers;
mod keys;
mod live;
mod login;
mod marked;
mod moment;
mod nav;
mod oauth;
mod overview;
mod page;
mod page_visit;
mod people;
mod permissions;
mod policy;
mod provider;
mod question;
mod record;
mod return_to;
mod servers;
mod settings;
mod tenants;
mod text;
mod trial;
mod was;

use std::sync::Arc;

use axum::middleware;
use axum::response::{IntoResponse, Redirect};
use axum::routing::{get, post};
use axum::{Extension, Router};
use http::{Method, StatusCode, Uri};

use self::gate::Visit;
use super::Faces;

/// Path of the console's first page.
const HOME: &str = "/console";
/// Path of the pages of logins at servers.
const CONNECT: &str = "/connect";
/// Path of the login.
const LOGIN: &str = "/console/login";
/// Path where a login at an identity provider begins.
const PROVIDER: &str = "/console/login/provider";
/// Path of the choice among several tenants.
const CHOICE: &str = "/console/login/tenant";
/// Path that a provider sends the browser back to.
const CALLBACK: &str = "/oauth/callback";
/// Path of the gateway's metadata as a client.
const CLIENT: &str = "/oauth/client.json";
/// Path of a provider's notices of logouts.
const NOTICE: &str = "/oauth/backchannel-logout";
/// Path of the platform operator's list of tenants.
const TENANTS: &str = "/console/tenants";
/// Path of the stream of hints to open pages.
const EVENTS: &str = "/console/events";
/// Path where browsers look for an icon.
const ICON: &str = "/favicon.ico";
/// Path of the end of a session.
const LOGOUT: &str = "/console/logout";

/// Creates the router of the console; an empty one where it is not served.
pub(super) fn router(faces: &Arc<Faces>) -> Router<Arc<Faces>> {
    if !faces.options.console_enabled {
        return Router::new();
    }
    Router::new()
        .route(HOME, get(home::show))
        .route("/console/", get(async || Redirect::to(HOME)))
        .route(LOGIN, get(login::show).post(login::submit))
        .route(LOGOUT, post(login::log_out))
        .route(PROVIDER, get(provider::begin))
        .route(CHOICE, post(provider::choose))
        .route(CALLBACK, get(provider::complete))
        .route("/oauth/callback/{server}", get(provider::complete_at_server))
        .route("/oauth/client/{file}", get(oauth::client_of))
        .route("/connect/{flow}", get(connect::show).post(connect::depart))
        .route(CLIENT, get(oauth::client))
        .route(NOTICE, post(oauth::notice))
        .route("/console/sessions/{id}/end", post(home::end_session))
        .route("/console/activity", get(activity::list))
        .route("/console/activity/export", get(activity::export))
        .route("/console/activity/{id}", get(activity::detail::show))
        .route("/console/permissions", get(permissions::list))
        .route("/console/consent/{id}/decision", post(permissions::decide))
        .route("/console/consent/grants/{id}/revoke", post(permissions::revoke))
        .route("/console/policy", get(policy::show))
        .route("/console/policy/{verb}", post(policy::on_policy))
        .route(EVENTS, get(live::events))
        .route("/console/servers", get(servers::list))
        .route("/console/servers/{name}", get(servers::show).post(servers::on_list))
        .route("/console/servers/{name}/{verb}", get(servers::show_part).post(servers::on_server))
        .route("/console/servers/{name}/offers/{verb}", post(servers::on_offer))
        .route("/console/servers/{name}/tools/{verb}", post(servers::on_named_tool))
        .route("/console/servers/{name}/tools/{tool}/{verb}", post(servers::on_tool))
        .route("/console/try", get(trial::show))
        .route("/console/tools/{verb}", post(trial::on_tools))
        .route("/console/keys", get(keys::list))
        .route("/console/keys/create", post(keys::create))
        .route("/console/keys/{id}", get(keys::show))
        .route("/console/keys/{id}/{verb}", get(keys::show_part).post(keys::on_key))
        .route("/console/keys/{id}/settings", get(settings::show_of_key))
        .route("/console/keys/{id}/settings/update", post(settings::update_of_key))
        .route("/console/people", get(people::list))
        .route("/console/people/rules", get(people::rules))
        .route("/console/identities/block", get(people::to_list).post(people::block_subject))
        .route("/console/identities/{id}/{verb}", post(people::on_person))
        .route("/console/settings", get(settings::show))
        .route("/console/settings/update", post(settings::update))
        .route(TENANTS, get(tenants::list))
        .route("/console/tenants/{name}", get(tenants::show).post(tenants::on_list))
        .route("/console/tenants/{name}/{verb}", get(tenants::show_part).post(tenants::on_tenant))
        .route("/console/issuers", get(issuers::list))
        .route("/console/issuers/{name}/check", post(issuers::check))
        .route("/console/static/{name}", get(assets::serve))
        .route("/console/{*rest}", get(missing).post(missing))
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(Arc::clone(faces), gate::gate))
        // beyond the gate: the icon is open to everybody
        .route(ICON, get(assets::serve_icon))
}

async fn missing(Extension(visit): Extension<Arc<Visit>>) -> axum::response::Response {
    page::message(
        StatusCode::NOT_FOUND,
        "Nothing here",
        "There is no page at this address.",
        visit.request_id(),
    )
}

/// Leads a visitor who opens the path of an act, such as by the way back from a login, to the page above it. Other methods are refused.
async fn wrong_method(method: Method, uri: Uri) -> axum::response::Response {
    match uri.path().rsplit_once('/') {
        Some((page, _)) if method == Method::GET && page.starts_with(HOME) => {
            Redirect::to(page).into_response()
        }
        _ => StatusCode::METHOD_NOT_ALLOWED.into_response(),
    }
}
