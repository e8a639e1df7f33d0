//! The page of a tenant's settings: each with its value and origin, and a form to change them.

mod fields;

use std::sync::Arc;

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value};

use self::fields::{SettingField, own_values};
use super::act::{VisitorAct, perform};
use super::nav::{Nav, Section};
use super::page_visit::PageVisit;
use crate::domain::settings;
use crate::domain::tenant::Action;
use crate::faces::query::params::NONE;
use crate::gateway::GatewayError;

/// Memory of the page, in bytes: as loaded, and as text.
const PAGE_MEMORY_BYTES: usize = 512 * 1024;

#[derive(Template)]
#[template(path = "settings.html", config = "src/faces/console/askama.toml")]
struct SettingsPage {
    nav: Nav,
    csrf: String,
    version: i64,
    /// Values that the tenant sets itself, as JSON: the form tells by them what it changes.
    was: String,
    fields: Vec<SettingField>,
    /// Settings that somebody else changed meanwhile; `None` if nobody did.
    conflict: Option<Vec<String>>,
}

/// Form that somebody else was faster than.
struct LateForm {
    /// Values that the tenant set itself when the form was made.
    was: Map<String, Value>,
    /// Changes that the form asks for.
    patch: Map<String, Value>,
}

/// Shows the page.
pub(super) async fn show(visit: PageVisit) -> Response {
    visit.answer_sensitive("settings.get", Section::Settings, |visit| Box::pin(page(visit, None))).await
}

async fn page(visit: &PageVisit, late: Option<LateForm>) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ManageKeys)?;
    visit.needs_tenant()?;
    visit.given(NONE)?;
    visit.expect(PAGE_MEMORY_BYTES).await?;
    let read = visit.gateway().tenants.read_settings(visit.caller(), None).await?;
    let own = own_values(&read);
    let changed = late.as_ref().map(|late| changed_since(&late.was, &own));
    let patch = late.map(|late| late.patch).unwrap_or_default();
    let nav = visit.nav(Section::Settings);
    let status = if changed.is_some() { StatusCode::CONFLICT } else { StatusCode::OK };
    let page = SettingsPage {
        csrf: nav.csrf.clone(),
        nav,
        version: read.get("version").and_then(Value::as_i64).unwrap_or_default(),
        was: Value::Object(own).to_string(),
        fields: settings::names_of_tenants()
            .filter_map(|name| SettingField::of(name, &read, &patch))
            .collect(),
        conflict: changed,
    };
    visit.show(status, &page).await
}

/// Returns the names of the settings whose own values differ.
fn changed_since(was: &Map<String, Value>, own: &Map<String, Value>) -> Vec<String> {
    let names = settings::names_of_tenants().filter(|name| was.get(*name) != own.get(*name));
    names.map(str::to_owned).collect()
}

/// Changes settings, and shows them as they are then. Where somebody else was faster, nothing is changed, and the page shows the form
/// again, with what they changed.
pub(super) async fn update(visit: PageVisit) -> Response {
    let was = serde_json::from_str::<Map<String, Value>>(visit.field("was")).unwrap_or_default();
    let patch = fields::patch(|name| visit.field(name).to_owned(), &was);
    let asked = patch.as_ref().ok().cloned().unwrap_or_default();
    match changed(&visit, patch).await {
        Err(GatewayError::Conflict(_)) => {
            let late = LateForm { was, patch: asked };
            visit
                .answer_sensitive("settings.get", Section::Settings, |visit| {
                    Box::pin(page(visit, Some(late)))
                })
                .await
        }
        done => visit.answer_act(Section::Settings, Section::Settings.href(), done),
    }
}

async fn changed(
    visit: &PageVisit,
    patch: Result<Map<String, Value>, GatewayError>,
) -> Result<(), GatewayError> {
    let version = visit.field("version").parse::<i64>();
    let version =
        version.map_err(|_| GatewayError::invalid("version", "the form has no version: load its page again"));
    let mut act = VisitorAct::new("settings.update", Action::ManageKeys);
    if let (Ok(patch), Ok(version)) = (&patch, &version) {
        let mut sent = patch.clone();
        sent.insert("version".to_owned(), Value::from(*version));
        act.sent = Some(Value::Object(sent));
    }
    let (gateway, caller) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()));
    let work = async move {
        let (patch, version) = (patch?, version?);
        gateway.tenants.patch_settings(&caller, None, &patch, Some(version)).await.map(drop)
    };
    perform(visit, act, work).await
}
