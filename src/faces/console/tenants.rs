//! The page of tenants: the platform operator chooses the one to act in, as `X-Tenant` does over REST.

use std::sync::Arc;

use askama::Template;
use axum::extract::Path;
use axum::response::{IntoResponse, Redirect, Response};
use http::{HeaderValue, StatusCode};

use super::act::{VisitorAct, perform};
use super::gate::set_cookie;
use super::moment::Moment;
use super::nav::{Nav, Section};
use super::page_visit::PageVisit;
use super::{HOME, TENANTS};
use crate::domain::id::{TenantId, is_name};
use crate::domain::tenant::Action;
use crate::faces::query::params::{PAGE, Params};
use crate::faces::session_cookie;
use crate::gateway::GatewayError;

/// Memory of the list, in bytes: as loaded, and as text.
const LIST_MEMORY_BYTES: usize = 64 * 1024;

/// Tenant in the list.
struct TenantLine {
    name: String,
    created: Moment,
    is_suspended: bool,
    /// True if the visitor acts in this tenant.
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "tenants.html", config = "src/faces/console/askama.toml")]
struct TenantsPage {
    nav: Nav,
    csrf: String,
    tenants: Vec<TenantLine>,
    /// True if the visitor acts in a tenant.
    is_in_one: bool,
    /// Link to the next page; `None` if there is none.
    next: Option<String>,
}

/// Shows the list.
pub(super) async fn list(visit: PageVisit) -> Response {
    visit.answer_sensitive("tenants.list", Section::Tenants, |visit| Box::pin(tenants(visit))).await
}

async fn tenants(visit: &PageVisit) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ManageTenants)?;
    let page = Params::of(&visit.given(PAGE)?, PAGE)?.page()?;
    let after = page.after(String::new(), |key| is_name(key).then(|| key.to_owned()))?;
    visit.expect(LIST_MEMORY_BYTES).await?;
    let found = visit.gateway().tenants.list_tenants(visit.caller(), &after, page.fetch()).await?;
    let (shown, next) = page.split(&found, |tenant| tenant.name.clone());
    let nav = visit.nav(Section::Tenants);
    let tenants = shown.iter().map(|tenant| TenantLine {
        name: tenant.name.clone(),
        created: Moment::new(tenant.created_at, visit.now()),
        is_suspended: tenant.suspended_at.is_some(),
        is_chosen: tenant.tenant_id() == visit.caller().tenant_id(),
    });
    let page = TenantsPage {
        csrf: nav.csrf.clone(),
        nav,
        tenants: tenants.collect(),
        is_in_one: visit.caller().tenant_id() != TenantId::PLATFORM,
        next: next.map(|cursor| format!("{TENANTS}?limit={}&cursor={cursor}", page.limit)),
    };
    visit.show(StatusCode::OK, &page).await
}

/// Has the platform operator act in a tenant from now on.
pub(super) async fn enter(Path(name): Path<String>, visit: PageVisit) -> Response {
    match entered(&visit, &name).await {
        Ok(()) => lead_on(HOME, session_cookie::set(session_cookie::TENANT, &name)),
        Err(error) => visit.failed(Section::Tenants, &error),
    }
}

async fn entered(visit: &PageVisit, name: &str) -> Result<(), GatewayError> {
    let act = VisitorAct::new("console.enter_tenant", Action::ManageTenants);
    let (gateway, caller, name) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()), name.to_owned());
    let work = async move {
        if !is_name(&name) {
            return Err(GatewayError::NotFound("tenant"));
        }
        gateway.tenants.get_tenant(&caller, &name).await.map(drop)
    };
    perform(visit, act, work).await
}

/// Has the platform operator act in no tenant any more.
pub(super) async fn leave(visit: PageVisit) -> Response {
    let act = VisitorAct::new("console.leave_tenant", Action::ManageTenants);
    match perform(&visit, act, async { Ok(()) }).await {
        Ok(()) => lead_on(TENANTS, session_cookie::unset(session_cookie::TENANT)),
        Err(error) => visit.failed(Section::Tenants, &error),
    }
}

fn lead_on(to: &str, cookie: Option<HeaderValue>) -> Response {
    let mut response = Redirect::to(to).into_response();
    set_cookie(response.headers_mut(), cookie);
    response
}
