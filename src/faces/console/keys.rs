//! The pages of API keys: the list with a form for a new one, one key, and a new key with the set-up of clients.

mod acts;
mod one;
mod revocation;
mod setup;

pub(super) use self::acts::{create, on_key};
pub(super) use self::one::show;
pub(super) use self::revocation::show_part;

use askama::Template;
use axum::response::Response;
use chrono::{DateTime, Utc};
use http::StatusCode;
use uuid::Uuid;

use super::moment::Moment;
use super::nav::{Nav, Section};
use super::page_visit::{PageVisit, status_of};
use crate::domain::id::KeyId;
use crate::domain::tenant::{Action, Role};
use crate::faces::query::params::{PAGE, Params};
use crate::gateway::GatewayError;
use crate::store::ApiKey;

/// Memory of the list, in bytes: as loaded, and as text.
const LIST_MEMORY_BYTES: usize = 256 * 1024;
/// Days after which a new key ends, to choose from.
const DAYS: [&str; 5] = ["1", "7", "30", "90", "365"];

/// Key in the list, and at the head of its own page.
struct KeyLine {
    name: String,
    href: String,
    role: &'static str,
    owner: String,
    prefix: String,
    state: String,
    tone: &'static str,
    ends: Option<Moment>,
    last_used: Option<Moment>,
    created: Moment,
    /// True if the visitor's session is one of this key.
    is_own: bool,
}

#[derive(Template)]
#[template(path = "keys.html", config = "src/faces/console/askama.toml")]
struct KeysPage {
    nav: Nav,
    csrf: String,
    /// Text of the form that makes a key: it makes one, however often it is sent.
    once: String,
    keys: Vec<KeyLine>,
    roles: Vec<&'static str>,
    days: [&'static str; 5],
    /// Fault of the form that was sent; `None` without one.
    fault: Option<KeyFault>,
    /// Content of the form.
    typed: TypedKey,
    /// Link to the next page; `None` if there is none.
    next: Option<String>,
}

impl KeysPage {
    /// Returns whether the fault of the form is about a field.
    fn is_faulty(&self, field: &str) -> bool {
        self.fault.as_ref().is_some_and(|fault| fault.field == field)
    }
}

/// Fault of the form that makes a key.
struct KeyFault {
    status: StatusCode,
    /// Name of the field that the fault is about; empty for none.
    field: String,
    says: String,
    /// True if the text alone says what to do.
    says_it_all: bool,
}

/// Content of the form that makes a key, to be shown again.
#[derive(Default)]
struct TypedKey {
    role: String,
    name: String,
    owner: String,
    days: String,
}

impl TypedKey {
    /// Takes the fields of the form that was sent.
    fn of(visit: &PageVisit) -> TypedKey {
        let [role, name, owner, days] =
            ["role", "name", "owner", "expires_in_days"].map(|name| visit.field(name).trim().to_owned());
        TypedKey { role, name, owner, days }
    }

    /// Returns whether a key has the role, the name and the owner that were typed.
    fn is_of(&self, key: &ApiKey) -> bool {
        let name = if self.name.is_empty() { &self.role } else { &self.name };
        (&*self.role, name, &self.owner) == (key.role.as_str(), &key.name, &key.owner)
    }
}

impl KeyFault {
    fn of(error: &GatewayError) -> KeyFault {
        let field = match error {
            GatewayError::Invalid { field: Some(field), .. } => field.clone(),
            _ => String::new(),
        };
        KeyFault { status: status_of(error).0, field, says: error.to_string(), says_it_all: false }
    }

    /// Creates the fault of a form that is fine, and has to be sent once more: the page has a new one-time text.
    fn send_again(says: String) -> KeyFault {
        KeyFault { status: StatusCode::CONFLICT, field: String::new(), says, says_it_all: true }
    }
}

/// Returns the path of a key's page.
pub(super) fn href_of(id: KeyId) -> String {
    format!("{}/{id}", Section::Keys.href())
}

/// Returns the id of a key in a path. A text that cannot be an id is not found.
pub(super) fn id_of(text: &str) -> Result<KeyId, GatewayError> {
    Uuid::try_parse(text).map(KeyId).map_err(|_| GatewayError::NotFound("key"))
}

/// Returns whether a key does not work any more.
fn has_ended(key: &ApiKey, now: DateTime<Utc>) -> bool {
    key.revoked_at.is_some() || key.expires_at.is_some_and(|at| at <= now)
}

/// Shows the list.
pub(super) async fn list(visit: PageVisit) -> Response {
    visit.answer_sensitive("keys.list", Section::Keys, |visit| Box::pin(keys(visit, None))).await
}

/// Shows the list again after a fault of the form, with what was typed.
async fn list_again(visit: PageVisit, fault: KeyFault) -> Response {
    visit.answer_sensitive("keys.list", Section::Keys, move |visit| Box::pin(keys(visit, Some(fault)))).await
}

async fn keys(visit: &PageVisit, fault: Option<KeyFault>) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ManageKeys)?;
    visit.needs_tenant()?;
    let page = Params::of(&visit.given(PAGE)?, PAGE)?.page()?;
    let after = page.after(Uuid::nil(), |key| Uuid::try_parse(key).ok())?;
    visit.expect(LIST_MEMORY_BYTES).await?;
    let found = visit.gateway().tenants.list_keys(visit.caller(), after, page.fetch()).await?;
    let (shown, next) = page.split(&found, |key| key.id.to_string());
    let nav = visit.nav(Section::Keys);
    let roles = Role::ALL.into_iter().filter(|role| *role != Role::Platform).map(Role::as_str);
    let page = KeysPage {
        csrf: nav.csrf.clone(),
        nav,
        once: visit.secret().map(|secret| secret.once_text(Uuid::now_v7())).unwrap_or_default(),
        keys: shown.iter().map(|key| line(visit, key)).collect(),
        roles: roles.collect(),
        days: DAYS,
        typed: fault.as_ref().map(|_| TypedKey::of(visit)).unwrap_or_default(),
        fault,
        next: next.map(|cursor| format!("{}?limit={}&cursor={cursor}", Section::Keys.href(), page.limit)),
    };
    let status = page.fault.as_ref().map_or(StatusCode::OK, |fault| fault.status);
    visit.show(status, &page).await
}

fn line(visit: &PageVisit, key: &ApiKey) -> KeyLine {
    let moment = |at: DateTime<Utc>| Moment::new(at, visit.now());
    let (state, tone) = match (key.revoked_at, has_ended(key, visit.now())) {
        (Some(_), _) => ("revoked".to_owned(), "held"),
        (None, true) => ("expired".to_owned(), "held"),
        (None, false) if key.successor.is_some() => {
            let until = key.expires_at.map(|at| format!(", works until {}", moment(at).exact()));
            (format!("replaced{}", until.unwrap_or_default()), "open")
        }
        (None, false) => ("valid".to_owned(), "good"),
    };
    KeyLine {
        name: key.name.clone(),
        href: href_of(key.id),
        role: key.role.as_str(),
        owner: key.owner.clone(),
        prefix: key.prefix.clone(),
        state,
        tone,
        ends: key.revoked_at.or(key.expires_at).map(moment),
        last_used: key.last_used_at.map(moment),
        created: moment(key.created_at),
        is_own: visit.caller().key == Some(key.id),
    }
}
