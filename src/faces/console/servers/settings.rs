//! The page of a server's settings: the form that changes them, as it is and after a fault or a conflict.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};

use super::faults::FormNotice;
use super::fields::{self, APPROVAL, name_of_limit, shown_url};
use super::{change, commands, href_of, question, state_of};
use crate::domain::server_kind::ServerKind;
use crate::domain::server_url::masked;
use crate::domain::tenant::Action;
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::{PageVisit, status_of};
use crate::faces::console::text::size;
use crate::faces::console::was::{FormValues, differing, word};
use crate::faces::query::params::NONE;
use crate::gateway::{GatewayError, OWN_LIMITS, ServerView};

/// Memory of the settings, in bytes: as loaded, and as text.
const SETTINGS_MEMORY_BYTES: usize = 64 * 1024;

/// Limit that a server may set for itself.
struct LimitField {
    name: &'static str,
    value: String,
    /// Value that holds now, if the form has another one.
    now: Option<String>,
    /// Meaning of the limit, with its unit and its highest value.
    about: String,
    /// True if the value was not accepted.
    is_faulty: bool,
    /// Value of the deployment, which an empty field leaves, and a larger one does not widen.
    default: String,
    /// True if the value that is set is larger than that, and does not count.
    is_idle: bool,
}

/// Content of the form beside the limits; empty unless it is shown again.
#[derive(Default)]
struct TypedChange {
    /// Address; empty if it holds a secret.
    url: String,
    credentials: String,
    command: String,
    auto_approve: String,
}

impl TypedChange {
    fn of(visit: &PageVisit) -> TypedChange {
        let field = |name| visit.field(name).to_owned();
        TypedChange {
            url: shown_url(visit),
            credentials: field("credentials"),
            command: field("command"),
            auto_approve: field("auto_approve"),
        }
    }
}

#[derive(Template)]
#[template(path = "server_settings.html", config = "src/faces/console/askama.toml")]
struct SettingsPage {
    nav: Nav,
    csrf: String,
    name: String,
    href: String,
    version: i64,
    /// Values that the form is made from, as JSON: it tells by them what it changes.
    was: String,
    is_http: bool,
    /// Address without secrets; `None` without an address.
    url: Option<String>,
    /// Program of the server; `None` for servers of another kind.
    command: Option<String>,
    /// Programs to choose from in its place.
    commands: Vec<String>,
    /// Names of the headers, whose values are never shown.
    header_names: Vec<String>,
    /// True if the visitor may keep the headers at another address.
    may_keep: bool,
    auto_approve: bool,
    limits: Vec<LimitField>,
    /// Fault of the form that was sent; `None` without one.
    again: Option<FormNotice>,
    typed: TypedChange,
}

impl SettingsPage {
    /// Returns whether the fault of the form that was sent is that of a field.
    fn is_faulty(&self, field: &str) -> bool {
        self.again.as_ref().is_some_and(|again| again.is_about(field))
    }
}

/// Returns the values that the form of a server is made from, by the names that a conflict says.
fn values_of(server: &ServerView) -> Map<String, Value> {
    let values = [
        ("address", server.url.as_deref().map(|url| Value::from(masked(url)))),
        ("program", server.command.as_deref().map(Value::from)),
        ("headers", Some(Value::from(server.header_names.clone()))),
        (APPROVAL, Some(Value::from(server.auto_approve))),
        ("state", Some(Value::from(state_of(server).0))),
    ];
    let values = values.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let limits = server.limits.iter().map(|(name, value)| (name_of_limit(name), value.clone()));
    values.chain(limits).collect()
}

/// Shows the settings, or shows them again, with what was typed, after a fault.
///
/// # Errors
/// Error of the role, or of the read.
pub(super) async fn show(
    visit: &PageVisit,
    name: &str,
    fault: Option<&GatewayError>,
) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ChangeServers)?;
    visit.given(NONE)?;
    visit.expect(SETTINGS_MEMORY_BYTES).await?;
    let server = question::server(visit, name).await?;
    let values = FormValues::of(visit, values_of(&server), fault);
    let made_from = values.made_from();
    let again = fault.map(|error| match values.is_late {
        true => FormNotice::late(visit, "The server", changed_by_others(&values)),
        false => FormNotice::of(visit, error).with(visit, &change::faults(visit)),
    });
    let limit = |(name, max): (&'static str, u64)| {
        let field = name_of_limit(name);
        let (own, value) = (word(&values.now, &field), values.field(&field));
        let is_shown = fault.is_some() && !values.is_late;
        let is_faulty = is_shown && !value.is_empty() && fields::limit(&value, max).is_none();
        let default = visit.gateway().servers.default_limit(name);
        LimitField {
            name,
            is_idle: own.parse::<u64>().is_ok_and(|own| own > default),
            now: (value != own).then(|| sized(name, own)),
            value,
            about: about(name, max),
            is_faulty,
            default: sized(name, default.to_string()),
        }
    };
    let mut commands = if server.command.is_some() { commands(visit) } else { Vec::new() };
    commands.retain(|name| Some(name) != server.command.as_ref());
    let is_http = server.kind == ServerKind::Http;
    let nav = visit.nav(Section::Servers);
    let page = SettingsPage {
        csrf: nav.csrf.clone(),
        nav,
        name: server.name.clone(),
        href: href_of(&server.name),
        version: values.version.unwrap_or(server.version),
        auto_approve: made_from.get(APPROVAL).and_then(Value::as_bool).unwrap_or(server.auto_approve),
        was: Value::Object(made_from.clone()).to_string(),
        is_http,
        url: server.url.as_deref().map(|url| masked(url).into_owned()),
        command: server.command.clone(),
        commands,
        header_names: if is_http { server.header_names.clone() } else { Vec::new() },
        may_keep: visit.caller().role.may(Action::ManageKeys),
        limits: OWN_LIMITS.into_iter().map(limit).collect(),
        again,
        typed: fault.map(|_| TypedChange::of(visit)).unwrap_or_default(),
    };
    let status = fault.map_or(StatusCode::OK, |error| status_of(error).0);
    visit.show(status, &page).await
}

/// Returns the names of the values that somebody else changed.
fn changed_by_others(FormValues { before, now: own, .. }: &FormValues<'_>) -> Vec<String> {
    let gone = before.keys().filter(|name| !own.contains_key(*name));
    // a form says which values it was made from, and no other name is repeated
    let limits: Vec<String> = OWN_LIMITS.iter().map(|(name, _)| name_of_limit(name)).collect();
    let gone = gone.filter(|name| limits.contains(name));
    differing(own.keys().chain(gone).map(String::as_str), before, own)
}

/// Returns what a limit bounds, with its highest value.
fn about(name: &str, max: u64) -> String {
    let bounds = match name {
        "concurrency" => "calls at the server at once",
        "queue" => "calls that wait for their turn",
        "queue_wait_s" => "seconds that a call waits for its turn",
        "call_timeout_s" => "seconds that one call may take",
        "response_bytes_max" => "bytes of one answer of the server",
        _ => "",
    };
    format!("{bounds}, at most {}", sized(name, max.to_string()))
}

/// Adds the size for reading to a number of bytes.
fn sized(name: &str, number: String) -> String {
    let bytes = number.parse::<u64>().ok().filter(|_| name == "response_bytes_max");
    match bytes.map(size) {
        Some(size) if !size.is_empty() => format!("{number} ({size})"),
        _ => number,
    }
}
