//! The page of a tenant's settings: each with its value and origin, and a form to change them.

mod fields;

use std::sync::Arc;

use askama::Template;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::fields::{SettingFaults, SettingField, TypedSettings, own_values};
use super::act::{VisitorAct, perform};
use super::done::{DONE, changed_notice, notice, with_notice};
use super::nav::{Nav, Section};
use super::page_visit::PageVisit;
use super::was::{differing, was};
use crate::domain::settings;
use crate::domain::tenant::Action;
use crate::faces::query::params::{ParamNames, Params};
use crate::gateway::GatewayError;

/// Parameters of the page.
const PARAMS: ParamNames = &[DONE];
/// Setting with a list of tools.
const ALLOWED_TOOLS: &str = "allowed_tools";
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
    /// Settings that were changed since the form was made; `None` if it was in time.
    conflict: Option<Vec<String>>,
    /// Reason why the form was not accepted, beside those of its fields; `None` without one.
    failure: Option<String>,
    /// Names of the settings whose values were not accepted, in the order of the page.
    faulty: Vec<&'static str>,
    /// Notice of what the visitor has just done; `None` without one.
    done: Option<String>,
}

/// Form that changed nothing, to be shown again.
enum FormAgain {
    /// Settings were changed since the form was made.
    Late {
        /// Values that the tenant set itself when the form was made.
        was: Map<String, Value>,
        /// Changes that the form asks for.
        patch: Map<String, Value>,
    },
    /// The form was not accepted.
    Faulty {
        /// Values that the tenant set itself when the form was made.
        was: Map<String, Value>,
        /// Version that the form was made for; `None` if it names none.
        version: Option<i64>,
        /// Values that were not accepted.
        faults: SettingFaults,
        /// Reason, where it is no value of a setting.
        message: String,
    },
}

/// Shows the page.
pub(super) async fn show(visit: PageVisit) -> Response {
    visit.answer_sensitive("settings.get", Section::Settings, |visit| Box::pin(page(visit, None))).await
}

async fn page(visit: &PageVisit, again: Option<FormAgain>) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ManageKeys)?;
    visit.needs_tenant()?;
    let params = Params::of(&visit.given(PARAMS)?, PARAMS)?;
    visit.expect(PAGE_MEMORY_BYTES).await?;
    let read = visit.gateway().tenants.read_settings(visit.caller(), None).await?;
    let nav = visit.nav(Section::Settings);
    let mut page = SettingsPage {
        csrf: nav.csrf.clone(),
        nav,
        version: read.get("version").and_then(Value::as_i64).unwrap_or_default(),
        was: String::new(),
        fields: Vec::new(),
        conflict: None,
        failure: None,
        faulty: Vec::new(),
        done: notice(visit, &params),
    };
    let mut was = own_values(&read);
    let warning = tools_warning(visit, &was).await?;
    let mut faults = SettingFaults::new();
    let (typed, status) = match again {
        None => (TypedSettings::new(), StatusCode::OK),
        Some(FormAgain::Late { was: before, patch }) => {
            page.conflict = Some(differing(settings::names_of_tenants(), &before, &was));
            (fields::typed_of(&patch), StatusCode::CONFLICT)
        }
        Some(FormAgain::Faulty { was: before, version, faults: found, message }) => {
            // whoever changes settings meanwhile is noticed when the form is sent again
            if let Some(version) = version {
                (page.version, was) = (version, before);
            }
            page.failure = found.is_empty().then_some(message);
            faults = found;
            (fields::typed(|name| visit.field(name).to_owned()), StatusCode::BAD_REQUEST)
        }
    };
    page.was = Value::Object(was).to_string();
    page.fields =
        settings::names_of_tenants().filter_map(|name| SettingField::of(name, &read, &typed)).collect();
    for field in &mut page.fields {
        field.fault = faults.remove(field.name);
        page.faulty.extend(field.fault.is_some().then_some(field.name));
    }
    if let Some(field) = page.fields.iter_mut().find(|field| field.name == ALLOWED_TOOLS) {
        field.warning = warning;
    }
    visit.show(status, &page).await
}

/// Returns a warning about the tools that these values allow; `None` if they allow one, or say nothing about it.
///
/// # Errors
/// Error of the use case.
async fn tools_warning(
    visit: &PageVisit,
    values: &Map<String, Value>,
) -> Result<Option<String>, GatewayError> {
    let globs = values.get(ALLOWED_TOOLS).and_then(|value| Vec::<String>::deserialize(value).ok());
    match globs {
        Some(globs) => visit.gateway().tenants.lint_allowed_tools(visit.caller(), &globs).await,
        None => Ok(None),
    }
}

/// Returns the address of the page with the notice of a form that asked for these changes.
async fn href_after(visit: &PageVisit, patch: &Map<String, Value>) -> String {
    let names: Vec<&str> = settings::names_of_tenants().filter(|name| patch.contains_key(*name)).collect();
    let mut notice = changed_notice(&names);
    if let Ok(Some(warning)) = tools_warning(visit, patch).await {
        notice.push_str(&format!(" But {warning}"));
    }
    with_notice(visit, Section::Settings.href(), &notice)
}

/// Changes settings, and shows them as they are then. Where somebody else was faster, or a value is not accepted, nothing is changed, and
/// the page shows the form again, with what was typed.
pub(super) async fn update(visit: PageVisit) -> Response {
    let was = was(&visit);
    let patch = fields::patch(|name| visit.field(name).to_owned(), &was);
    let asked = patch.as_ref().ok().cloned().unwrap_or_default();
    let faults = patch.as_ref().err().cloned().unwrap_or_default();
    match changed(&visit, patch).await {
        Err(GatewayError::Conflict(_)) => show_again(visit, FormAgain::Late { was, patch: asked }).await,
        Err(GatewayError::Invalid { message, .. }) => {
            let version = visit.field("version").parse().ok();
            show_again(visit, FormAgain::Faulty { was, version, faults, message }).await
        }
        Ok(()) => Redirect::to(&href_after(&visit, &asked).await).into_response(),
        Err(error) => visit.failed(Section::Settings, &error),
    }
}

async fn show_again(visit: PageVisit, again: FormAgain) -> Response {
    visit
        .answer_sensitive("settings.get", Section::Settings, |visit| Box::pin(page(visit, Some(again))))
        .await
}

async fn changed(
    visit: &PageVisit,
    patch: Result<Map<String, Value>, SettingFaults>,
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
    // the record tells the first fault, as that of REST does
    let patch = patch.map_err(|faults| {
        let (name, message) = faults.into_iter().next().unwrap_or_default();
        GatewayError::invalid(name, message)
    });
    let (gateway, caller) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()));
    let work = async move {
        let (patch, version) = (patch?, version?);
        gateway.tenants.patch_settings(&caller, None, &patch, Some(version)).await.map(drop)
    };
    perform(visit, act, work).await
}
