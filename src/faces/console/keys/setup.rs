//! The page of a new key, with the set-up of clients that use it.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use serde_json::Value;

use super::href_of;
use crate::domain::annotations::lacks_for_reads;
use crate::domain::id::KeyId;
use crate::domain::known_client::KnownClient;
use crate::domain::tenant::Action;
use crate::faces::console::HOME;
use crate::faces::console::moment::Moment;
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::PageVisit;
use crate::gateway::{GatewayError, KeyCreated, KeyRotated};

/// Memory of the page, in bytes. It is taken before a key is made, so that no key is made that cannot be shown.
pub(super) const NEW_KEY_MEMORY_BYTES: usize = 64 * 1024;
/// Name of the gateway in a client.
const NAME: &str = "mcpproxy";

/// Set-up of a client.
struct ClientSetup {
    title: &'static str,
    /// Place of the client's file.
    file: &'static str,
    /// Text of a new file with the gateway alone.
    text: String,
    /// Link that has the client install the gateway; `None` for a client without such links.
    link: Option<String>,
}

/// Key that a new one replaces.
struct ReplacedKey {
    href: String,
    /// End of the key, in UTC.
    ends: String,
    /// Number of decisions for other keys that end with it.
    grants_ended: i64,
}

#[derive(Template)]
#[template(path = "new_key.html", config = "src/faces/console/askama.toml")]
struct NewKeyPage<'a> {
    nav: Nav,
    name: &'a str,
    owner: &'a str,
    role: &'static str,
    secret: &'a str,
    /// Page of the key.
    href: String,
    replaced: Option<ReplacedKey>,
    /// URL of the gateway for clients.
    url: &'a str,
    /// URL of the console, for a key that calls no tools.
    console: String,
    /// Set-ups of clients; none for a role that has no tools.
    setups: Vec<ClientSetup>,
    /// Settings of the key with which a client may approve reads by itself; `None` if it has them.
    missing: Option<&'static str>,
    id: KeyId,
}

/// Returns the page that shows a new key, and the page of the key that it replaces, with what becomes of that.
///
/// # Errors
/// Error of [`PageVisit::show`]. The key exists all the same.
pub(super) async fn new_key(
    visit: &PageVisit,
    created: &KeyCreated,
    replaced: Option<(String, &KeyRotated)>,
) -> Result<Response, GatewayError> {
    let (key, secret, url) = (&created.key, created.secret.as_str(), format!("{}/mcp", visit.base_url()));
    let setups = match key.role.may(Action::UseTools) {
        true => KnownClient::WITH_FILE.map(|client| setup(client, &url, secret)).into(),
        false => Vec::new(),
    };
    let page = NewKeyPage {
        nav: visit.nav(Section::Keys),
        name: &key.name,
        owner: &key.owner,
        role: key.role.as_str(),
        secret,
        href: href_of(key.id),
        replaced: replaced.map(|(href, rotated)| ReplacedKey {
            href,
            ends: Moment::new(rotated.ends_at, visit.now()).exact(),
            grants_ended: rotated.grants_ended,
        }),
        url: &url,
        console: format!("{}{HOME}", visit.base_url()),
        missing: missing(visit, key.id).await,
        id: key.id,
        setups,
    };
    visit.show(StatusCode::CREATED, &page).await
}

/// Returns the settings that a key lacks for a client that approves reads by itself, as arguments of `--set`; `None` if it has them. What
/// cannot be read is missing.
async fn missing(visit: &PageVisit, id: KeyId) -> Option<&'static str> {
    let read = visit.gateway().tenants.read_settings(visit.caller(), Some(id)).await.unwrap_or_default();
    let value = |name: &str| read.get(name).and_then(|member| member.get("value"));
    let is_strict = value("strict_server_validation").and_then(Value::as_bool) != Some(false);
    lacks_for_reads(is_strict, value("unannotated_tools").and_then(Value::as_str).unwrap_or_default())
}

fn setup(client: KnownClient, url: &str, secret: &str) -> ClientSetup {
    ClientSetup {
        title: client.title(),
        file: client.usual_file(),
        text: client.new_file(NAME, url, secret),
        link: client.link(NAME, url, secret),
    }
}
