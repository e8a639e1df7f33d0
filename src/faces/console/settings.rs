//! The pages of the settings of a tenant, and of a key: each with its value and origin, and a form to change them.

mod fields;

use std::sync::Arc;

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::fields::{SettingFaults, SettingField, TypedSettings, own_values};
use super::act::{VisitorAct, perform};
use super::done::{DONE, changed_notice, notice, with_notice};
use super::keys;
use super::nav::{Nav, Section};
use super::page_visit::PageVisit;
use super::was::{differing, was};
use crate::domain::id::KeyId;
use crate::domain::settings::{self, Scope};
use crate::domain::tenant::Action;
use crate::faces::query::params::{ParamNames, Params};
use crate::gateway::GatewayError;

/// Parameters of the page.
const PARAMS: ParamNames = &[DONE];
/// Setting with a list of tools.
const ALLOWED_TOOLS: &str = "allowed_tools";
/// Memory of the page, in bytes: as loaded, and as text.
const PAGE_MEMORY_BYTES: usize = 512 * 1024;

/// Tenant or key whose settings a page is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SettingsOf {
    /// The visitor's tenant.
    Tenant,
    /// A key.
    Key(KeyId),
}

impl SettingsOf {
    fn key(self) -> Option<KeyId> {
        match self {
            SettingsOf::Tenant => None,
            SettingsOf::Key(id) => Some(id),
        }
    }

    fn scope(self) -> Scope {
        if self.key().is_some() { Scope::Key } else { Scope::Tenant }
    }

    /// Returns the word for values that are set here.
    fn origin(self) -> &'static str {
        if self.key().is_some() { "key" } else { "tenant" }
    }

    fn section(self) -> Section {
        if self.key().is_some() { Section::Keys } else { Section::Settings }
    }

    /// Returns the names of a read and of a change in the activity log.
    fn acts(self) -> (&'static str, &'static str) {
        match self {
            SettingsOf::Tenant => ("settings.get", "settings.update"),
            SettingsOf::Key(_) => ("keys.get_settings", "keys.settings"),
        }
    }

    fn href(self) -> String {
        match self {
            SettingsOf::Tenant => Section::Settings.href().to_owned(),
            SettingsOf::Key(id) => format!("{}/settings", keys::href_of(id)),
        }
    }
}

/// Key whose settings are shown.
struct KeyShown {
    name: String,
    href: String,
}

#[derive(Template)]
#[template(path = "settings.html", config = "src/faces/console/askama.toml")]
struct SettingsPage {
    nav: Nav,
    csrf: String,
    /// Path of the page.
    href: String,
    /// Key whose settings the page is about; `None` for those of the tenant.
    key: Option<KeyShown>,
    version: i64,
    /// Values that are set already, as JSON: the form tells by them what it changes.
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
        /// Values that were set when the form was made.
        was: Map<String, Value>,
        /// Changes that the form asks for.
        patch: Map<String, Value>,
    },
    /// The form was not accepted.
    Faulty {
        /// Values that were set when the form was made.
        was: Map<String, Value>,
        /// Version that the form was made for; `None` if it names none.
        version: Option<i64>,
        /// Values that were not accepted.
        faults: SettingFaults,
        /// Reason, where it is no value of a setting.
        message: String,
    },
}

/// Shows the page of the tenant's settings.
pub(super) async fn show(visit: PageVisit) -> Response {
    shown(visit, SettingsOf::Tenant, None).await
}

/// Shows the page of a key's settings.
pub(super) async fn show_of_key(Path(id): Path<String>, visit: PageVisit) -> Response {
    match keys::id_of(&id) {
        Ok(id) => shown(visit, SettingsOf::Key(id), None).await,
        Err(error) => visit.failed(Section::Keys, &error),
    }
}

async fn shown(visit: PageVisit, whose: SettingsOf, again: Option<FormAgain>) -> Response {
    let (read, _) = whose.acts();
    visit.answer_sensitive(read, whose.section(), move |visit| Box::pin(page(visit, whose, again))).await
}

async fn page(
    visit: &PageVisit,
    whose: SettingsOf,
    again: Option<FormAgain>,
) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ManageKeys)?;
    visit.needs_tenant()?;
    let params = Params::of(&visit.given(PARAMS)?, PARAMS)?;
    visit.expect(PAGE_MEMORY_BYTES).await?;
    let tenants = &visit.gateway().tenants;
    let (read, own) = tenants.read_settings_and_own(visit.caller(), whose.key()).await?;
    let key = match whose.key() {
        Some(id) => Some(tenants.get_key(visit.caller(), id).await?),
        None => None,
    };
    let nav = visit.nav(whose.section());
    let mut page = SettingsPage {
        csrf: nav.csrf.clone(),
        nav,
        href: whose.href(),
        key: key.map(|key| KeyShown { href: keys::href_of(key.id), name: key.name }),
        version: read.get("version").and_then(Value::as_i64).unwrap_or_default(),
        was: String::new(),
        fields: Vec::new(),
        conflict: None,
        failure: None,
        faulty: Vec::new(),
        done: notice(visit, &params),
    };
    let own = own_values(whose, &own);
    let mut was = own.clone();
    let warning = tools_warning(visit, whose, &was).await?;
    let mut faults = SettingFaults::new();
    let (typed, status) = match again {
        None => (TypedSettings::new(), StatusCode::OK),
        Some(FormAgain::Late { was: before, patch }) => {
            page.conflict = Some(differing(settings::names(whose.scope()), &before, &was));
            (fields::typed_of(whose, &patch), StatusCode::CONFLICT)
        }
        Some(FormAgain::Faulty { was: before, version, faults: found, message }) => {
            // whoever changes settings meanwhile is noticed when the form is sent again
            if let Some(version) = version {
                (page.version, was) = (version, before);
            }
            page.failure = found.is_empty().then_some(message);
            faults = found;
            (fields::typed(whose, |name| visit.field(name).to_owned()), StatusCode::BAD_REQUEST)
        }
    };
    page.was = Value::Object(was).to_string();
    page.fields = settings::names(whose.scope())
        .filter_map(|name| SettingField::of(whose, name, (&read, &own), &typed))
        .collect();
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
    whose: SettingsOf,
    values: &Map<String, Value>,
) -> Result<Option<String>, GatewayError> {
    let globs = values.get(ALLOWED_TOOLS).and_then(|value| Vec::<String>::deserialize(value).ok());
    match globs {
        Some(globs) => visit.gateway().tenants.lint_allowed_tools(visit.caller(), whose.key(), &globs).await,
        None => Ok(None),
    }
}

/// Returns those of these settings that are set and do not count, since an outer value is narrower; none if they cannot be read now.
async fn idle_names<'a>(visit: &PageVisit, whose: SettingsOf, names: &[&'a str]) -> Vec<&'a str> {
    let read = visit.gateway().tenants.read_settings_and_own(visit.caller(), whose.key()).await;
    let Ok((read, own)) = read else { return Vec::new() };
    let own = own_values(whose, &own);
    let is_idle =
        |name: &&&str| own.contains_key(**name) && fields::origin_of(&read, name) != Some(whose.origin());
    names.iter().filter(is_idle).copied().collect()
}

/// Returns the address of the page with the notice of a form that asked for these changes.
async fn href_after(visit: &PageVisit, whose: SettingsOf, patch: &Map<String, Value>) -> String {
    let names: Vec<&str> = settings::names(whose.scope()).filter(|name| patch.contains_key(*name)).collect();
    let mut notice = changed_notice(&names);
    let idle = idle_names(visit, whose, &names).await;
    if !idle.is_empty() {
        notice.push_str(&format!(
            " But what does not count, since an outer value is narrower: {}.",
            idle.join(", ")
        ));
    }
    if let Ok(Some(warning)) = tools_warning(visit, whose, patch).await {
        notice.push_str(&format!(" But {warning}"));
    }
    with_notice(visit, &whose.href(), &notice)
}

/// Changes settings of the tenant, and shows them as they are then. Where somebody else was faster, or a value is not accepted, nothing is
/// changed, and the page shows the form again, with what was typed.
pub(super) async fn update(visit: PageVisit) -> Response {
    updated(visit, SettingsOf::Tenant).await
}

/// Changes settings of a key as [`update`] does those of the tenant.
pub(super) async fn update_of_key(Path(id): Path<String>, visit: PageVisit) -> Response {
    match keys::id_of(&id) {
        Ok(id) => updated(visit, SettingsOf::Key(id)).await,
        Err(error) => visit.failed(Section::Keys, &error),
    }
}

async fn updated(visit: PageVisit, whose: SettingsOf) -> Response {
    let was = was(&visit);
    let patch = fields::patch(whose, |name| visit.field(name).to_owned(), &was);
    let asked = patch.as_ref().ok().cloned().unwrap_or_default();
    let faults = patch.as_ref().err().cloned().unwrap_or_default();
    match changed(&visit, whose, patch).await {
        Err(GatewayError::Conflict(_)) => {
            shown(visit, whose, Some(FormAgain::Late { was, patch: asked })).await
        }
        Err(GatewayError::Invalid { message, .. }) => {
            let version = visit.field("version").parse().ok();
            shown(visit, whose, Some(FormAgain::Faulty { was, version, faults, message })).await
        }
        Ok(()) => Redirect::to(&href_after(&visit, whose, &asked).await).into_response(),
        Err(error) => visit.failed(whose.section(), &error),
    }
}

async fn changed(
    visit: &PageVisit,
    whose: SettingsOf,
    patch: Result<Map<String, Value>, SettingFaults>,
) -> Result<(), GatewayError> {
    let version = visit.field("version").parse::<i64>();
    let version =
        version.map_err(|_| GatewayError::invalid("version", "the form has no version: load its page again"));
    let (_, what) = whose.acts();
    let mut act = VisitorAct::new(what, Action::ManageKeys);
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
        gateway.tenants.patch_settings(&caller, whose.key(), &patch, Some(version)).await.map(drop)
    };
    perform(visit, act, work).await
}
