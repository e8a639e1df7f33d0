//! The REST face: `/api/v1`, JSON in and out, one file per resource.
//!
//! The table below names for each route the action that a role must allow, the parameters and the handler. The gate has
//! checked host and key before anything here runs.

mod activity;
mod call;
mod consent;
mod cursor;
mod document;
mod error;
mod events;
mod exchange;
mod fields;
mod identity;
pub(super) mod inward;
mod issuers;
mod keys;
mod offer_pins;
mod page_report;
mod pages;
mod pins;
mod place;
mod policy;
mod record;
mod reload;
mod route;
mod search;
mod server_logs;
mod server_oauth;
mod server_offers;
mod server_tools;
mod servers;
mod settings;
mod show;
mod shown_oauth;
mod span;
mod status;
mod tenants;
mod webhook;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::routing::{MethodFilter, MethodRouter};

pub use self::place::Places;

use self::params::{NONE, PAGE};
use self::route::Who::{Anyone, May};
use super::Faces;
use super::query::params;
use super::request::RequestId;
use super::wire;
use crate::domain::activity::RecordKind;
use crate::domain::tenant::Action::{
    Approve, ChangeServers, DecideConsent, ManageKeys, ManageTenants, ReadOwnActivity, SeeOwnConsent,
    SeePolicies, SeeServers, UseTools,
};

macro_rules! routes {
    ($($method:ident $path:literal => $kind:ident($($part:expr),+);)+) => {
        /// Every route, as method and path below `/api/v1`.
        pub const ROUTES: &[(&str, &str)] = &[$((stringify!($method), $path)),+];

        /// Every route with its kind and the arguments of its row in the table, for tests.
        #[cfg(test)]
        const ROWS: &[(&str, &str, &str, &str)] =
            &[$((stringify!($method), $path, stringify!($kind), stringify!($($part),+))),+];

        fn table() -> Vec<(&'static str, MethodRouter<Arc<Faces>>)> {
            vec![$(($path, route::$kind(MethodFilter::$method, $($part),+))),+]
        }
    };
}

routes! {
    GET "/tenants" => sensitive("tenants.list", May(ManageTenants), PAGE, tenants::list);
    POST "/tenants" => act("tenants.create", May(ManageTenants), tenants::create);
    GET "/tenants/{name}" => sensitive("tenants.get", May(ManageTenants), NONE, tenants::get);
    PATCH "/tenants/{name}" => act("tenants.update", May(ManageTenants), tenants::update);
    POST "/tenants/{name}/suspend" => act("tenants.suspend", May(ManageTenants), tenants::suspend);
    POST "/tenants/{name}/resume" => act("tenants.resume", May(ManageTenants), tenants::resume);
    DELETE "/tenants/{name}" => act("tenants.delete", May(ManageTenants), tenants::delete);
    POST "/reload" => act("settings.reload", May(ManageTenants), reload::post);

    GET "/keys" => sensitive("keys.list", May(ManageKeys), PAGE, keys::list);
    POST "/keys" => act("keys.create", May(ManageKeys), keys::create);
    GET "/keys/{id}" => sensitive("keys.get", May(ManageKeys), NONE, keys::get);
    PATCH "/keys/{id}" => act("keys.update", May(ManageKeys), keys::update);
    DELETE "/keys/{id}" => act("keys.revoke", May(ManageKeys), keys::revoke);
    POST "/keys/{id}/rotate" => act("keys.rotate", May(ManageKeys), keys::rotate);
    GET "/keys/{id}/settings" => sensitive("keys.get_settings", May(ManageKeys), NONE, settings::of_key);
    PATCH "/keys/{id}/settings" => act("keys.settings", May(ManageKeys), settings::patch_key);
    GET "/settings" => sensitive("settings.get", May(ManageKeys), NONE, settings::of_tenant);
    PATCH "/settings" => act("settings.update", May(ManageKeys), settings::patch_tenant);

    GET "/issuers" => sensitive("issuers.list", May(ManageTenants), PAGE, issuers::list);
    POST "/issuers" => act("issuers.create", May(ManageTenants), issuers::create);
    GET "/issuers/{name}" => sensitive("issuers.get", May(ManageTenants), NONE, issuers::get);
    PATCH "/issuers/{name}" => act("issuers.update", May(ManageTenants), issuers::update);
    DELETE "/issuers/{name}" => act("issuers.remove", May(ManageTenants), issuers::remove);
    POST "/issuers/{name}/check" => act("issuers.check", May(ManageTenants), issuers::check);
    GET "/issuers/{name}/tenants" => sensitive("issuers.get_tenants", May(ManageTenants), NONE, issuers::tenants);
    PUT "/issuers/{name}/tenants" => act("issuers.tenants", May(ManageTenants), issuers::put_tenants);
    GET "/identity/rules" => sensitive("identity.get_rules", May(ManageKeys), NONE, identity::rules);
    PUT "/identity/rules" => act("identity.rules", May(ManageKeys), identity::put_rules);
    GET "/identities" => sensitive("identities.list", May(ManageKeys), PAGE, identity::list);
    POST "/identities/block" => act("identities.block_subject", May(ManageKeys), identity::block_subject);
    POST "/identities/{id}/block" => act("identities.block", May(ManageKeys), identity::block);
    POST "/identities/{id}/unblock" => act("identities.unblock", May(ManageKeys), identity::unblock);

    GET "/policy" => read("policy.get", May(SeePolicies), NONE, policy::of_tenant);
    PUT "/policy" => act("policy.update", May(ManageKeys), policy::put_tenant);
    GET "/policy/versions" => read("policy.versions", May(SeePolicies), policy::VERSIONS, policy::versions);
    POST "/policy/explain" => question("policy.explain", May(SeePolicies), policy::explain);
    GET "/keys/{id}/policy" => read("policy.get_key", May(SeePolicies), NONE, policy::of_key);
    PUT "/keys/{id}/policy" => act("policy.update_key", May(ManageKeys), policy::put_key);

    GET "/consent" => read("consent.list", May(SeeOwnConsent), consent::PARAMS, consent::list);
    GET "/consent/stream" => read("consent.stream", May(SeeOwnConsent), NONE, consent::stream::get);
    GET "/consent/grants" => read("consent.grants", May(SeeOwnConsent), PAGE, consent::grants);
    DELETE "/consent/grants/{id}" => act("consent.revoke", May(SeeOwnConsent), consent::revoke);
    GET "/consent/webhook" => sensitive("consent.get_webhook", May(ManageKeys), NONE, webhook::get);
    PUT "/consent/webhook" => act("consent.set_webhook", May(ManageKeys), webhook::put);
    DELETE "/consent/webhook" => act("consent.remove_webhook", May(ManageKeys), webhook::remove);
    POST "/consent/webhook/test" => act("consent.test_webhook", May(ManageKeys), webhook::test);
    GET "/consent/{id}" => read("consent.get", May(SeeOwnConsent), NONE, consent::get);
    POST "/consent/{id}/decision" => act("consent.decide", May(DecideConsent), consent::decide);

    GET "/servers" => read("servers.list", May(SeeServers), PAGE, servers::list);
    POST "/servers" => act("servers.create", May(ChangeServers), servers::create);
    GET "/servers/{name}" => read("servers.inspect", May(SeeServers), NONE, servers::get);
    PATCH "/servers/{name}" => act("servers.update", May(ChangeServers), servers::update);
    DELETE "/servers/{name}" => act("servers.remove", May(ChangeServers), servers::remove);
    POST "/servers/{name}/enable" => act("servers.enable", May(ChangeServers), servers::enable);
    POST "/servers/{name}/disable" => act("servers.disable", May(ChangeServers), servers::disable);
    POST "/servers/{name}/quarantine" => act("servers.quarantine", May(ChangeServers), servers::quarantine);
    POST "/servers/{name}/unquarantine" => act("servers.unquarantine", May(Approve), servers::unquarantine);
    POST "/servers/{name}/refresh" => act("servers.refresh", May(ChangeServers), servers::refresh);
    POST "/servers/{name}/restart" => act("servers.restart", May(ChangeServers), servers::restart);
    GET "/servers/{name}/logs" => sensitive("servers.logs", May(ChangeServers), server_logs::PARAMS, server_logs::get);
    GET "/servers/{name}/page-report" => read("servers.page_report", May(SeeServers), NONE, page_report::get);
    PUT "/servers/{name}/oauth" => act("servers.set_oauth", May(ChangeServers), server_oauth::put);
    DELETE "/servers/{name}/oauth" => act("servers.remove_oauth", May(ChangeServers), server_oauth::remove);
    GET "/servers/{name}/connections" => read("servers.connections", May(SeeServers), NONE, server_oauth::connections);
    POST "/servers/{name}/connections" => act("servers.connect", May(UseTools), server_oauth::begin);
    POST "/servers/{name}/connections/claim" => act("servers.connected", May(UseTools), server_oauth::claim);
    DELETE "/servers/{name}/connections/{id}" => act("servers.disconnect", May(ChangeServers), server_oauth::remove_connection);
    GET "/servers/{name}/tools" => read("tools.list", May(SeeServers), PAGE, server_tools::list);
    GET "/servers/{name}/prompts" => read("prompts.list", May(SeeServers), PAGE, server_offers::prompts);
    GET "/servers/{name}/resources" => read("resources.list", May(SeeServers), PAGE, server_offers::resources);
    POST "/servers/{name}/prompts/{prompt}/approve" => act("prompts.approve", May(Approve), offer_pins::approve_prompt);
    POST "/servers/{name}/prompts/{prompt}/block" => act("prompts.block", May(ChangeServers), offer_pins::block_prompt);
    DELETE "/servers/{name}/prompts/{prompt}/block" => act("prompts.unblock", May(Approve), offer_pins::unblock_prompt);
    GET "/servers/{name}/prompts/{prompt}/diff" => read("prompts.diff", May(SeeServers), NONE, offer_pins::diff_prompt);
    POST "/servers/{name}/resources/approve" => act("resources.approve", May(Approve), offer_pins::approve_resource);
    POST "/servers/{name}/resources/block" => act("resources.block", May(ChangeServers), offer_pins::block_resource);
    POST "/servers/{name}/resources/unblock" => act("resources.unblock", May(Approve), offer_pins::unblock_resource);
    GET "/servers/{name}/resources/diff" => read("resources.diff", May(SeeServers), offer_pins::RESOURCE, offer_pins::diff_resource);
    POST "/servers/{name}/tools/{tool}/approve" => act("tools.approve", May(Approve), pins::approve);
    POST "/servers/{name}/tools/{tool}/block" => act("tools.block", May(ChangeServers), pins::block);
    DELETE "/servers/{name}/tools/{tool}/block" => act("tools.unblock", May(Approve), pins::unblock);
    GET "/servers/{name}/tools/{tool}/diff" => read("tools.diff", May(SeeServers), NONE, pins::diff);
    PUT "/servers/{name}/tools/{tool}/override" => act("tools.override", May(Approve), pins::set_override);
    DELETE "/servers/{name}/tools/{tool}/override" => act("tools.clear_override", May(Approve), pins::clear_override);

    GET "/tools" => attempt(RecordKind::Search, May(UseTools), search::PARAMS, search::find);
    POST "/tools/call" => attempt(RecordKind::ToolCall, May(UseTools), NONE, call::run);

    GET "/activity" => read("activity.list", May(ReadOwnActivity), activity::PARAMS, activity::list);
    GET "/activity/export" => sensitive("activity.export", May(ReadOwnActivity), activity::export::PARAMS, activity::export::get);
    GET "/activity/summary" => read("activity.summary", May(ReadOwnActivity), activity::summary::PARAMS, activity::summary::get);
    GET "/activity/stream" => read("activity.stream", May(ReadOwnActivity), activity::stream::PARAMS, activity::stream::get);
    GET "/activity/{id}" => read("activity.get", May(ReadOwnActivity), NONE, activity::get);
    GET "/activity/{id}/provenance" => read("activity.provenance", May(ReadOwnActivity), NONE, activity::provenance::get);
    GET "/events" => read("events.stream", May(SeeServers), NONE, events::get);
    GET "/status" => read("status.get", Anyone, NONE, status::get);
    GET "/openapi.json" => read("openapi.get", Anyone, NONE, document::get);
}

/// Creates the router of [`ROUTES`], with JSON answers for every other path and method.
pub fn router() -> Router<Arc<Faces>> {
    assemble(table())
}

fn assemble<S: Clone + Send + Sync + 'static>(
    routes: impl IntoIterator<Item = (&'static str, MethodRouter<S>)>,
) -> Router<S> {
    let start = Router::new();
    routes
        .into_iter()
        .fold(start, |router, (path, handler)| router.route(path, handler))
        // for the routes above it only, so it comes after them; axum adds `Allow`
        .method_not_allowed_fallback(async |request: Request| error::wrong_method(request_id(&request)))
        .fallback(async |request: Request| wire::error::not_found(request_id(&request)))
}

fn request_id(request: &Request) -> Option<&str> {
    request.extensions().get::<RequestId>().map(|id| id.0.as_str())
}
