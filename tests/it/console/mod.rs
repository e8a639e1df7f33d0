//! The console, as a browser meets it.

mod activity;
mod browser;
mod doors;
mod ends;
mod forms;
mod kept;
mod keys;
mod live;
mod login;
mod logout;
mod markup;
mod overview;
mod people;
mod permissions;
mod pictures;
mod policy;
mod policy_replay;
mod provider;
mod real_provider;
mod remembered;
mod requests;
mod server_changes;
mod server_forms;
mod server_holders;
mod server_offers;
mod servers;
mod settings;
mod story;
mod tenants;
mod times;
mod trial;
mod turn_ends;
mod widths;

use crate::support::{Api, Gateway, Idp, Stage, Tenant, Visitor};

/// Public URL of the gateway in tests with a provider.
pub const GATEWAY: &str = "https://gw.example";
/// Client id of the gateway, the URL of its own metadata.
const CLIENT: &str = "https://gw.example/oauth/client.json";
/// Settings of these tests.
const SETTINGS: [(&str, &str); 2] =
    [("MCPPROXY__SERVER__PUBLIC_URL", GATEWAY), ("MCPPROXY__CONSOLE__ISSUER", "corp")];

/// A gateway, a tenant whose people are agents, and their provider, whose login the console offers.
async fn scene_with(settings: &[(&str, &str)]) -> (Stage, Tenant, Idp) {
    let stage = Stage::with(&[&SETTINGS[..], settings].concat()).await;
    let tenant = stage.tenant("acme").await;
    let idp = Idp::start().await;
    crate::logins::register(&stage, &idp, "corp", "acme").await;
    crate::logins::set_rules(&tenant, serde_json::json!([{"role": "agent"}])).await;
    (stage, tenant, idp)
}

/// A scene with no other settings.
pub async fn scene() -> (Stage, Tenant, Idp) {
    scene_with(&[]).await
}

/// A visitor who comes by the public URL, and has logged in with this caller's key.
async fn visitor_with(gateway: &Gateway, api: &Api) -> Visitor {
    let visitor = visitor(gateway);
    visitor.log_in(api.key.as_deref().unwrap()).await.expect(303);
    visitor
}

/// A visitor who comes by the public URL.
pub fn visitor(gateway: &Gateway) -> Visitor {
    Visitor::by(gateway, GATEWAY)
}
