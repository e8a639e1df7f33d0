//! The pages of tenants: the platform operator chooses the one to act in, as `X-Tenant` does over REST, and sets quotas.

mod acts;
mod one;

pub(super) use self::acts::{on_list, on_tenant};
pub(super) use self::one::{show, show_part};

use askama::Template;
use axum::response::Response;
use http::StatusCode;

use super::TENANTS;
use super::moment::Moment;
use super::nav::{Nav, Section};
use super::page_visit::PageVisit;
use crate::domain::id::{TenantId, is_name};
use crate::domain::tenant::Action;
use crate::faces::query::params::{PAGE, Params};
use crate::gateway::{GatewayError, Readiness};

/// Memory of the list, in bytes: as loaded, and as text.
const LIST_MEMORY_BYTES: usize = 64 * 1024;

/// Tenant in the list.
struct TenantLine {
    name: String,
    href: String,
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
    replica: String,
    version: &'static str,
    /// True if the replica serves requests.
    is_ready: bool,
}

/// Returns the path of a tenant's page.
fn href_of(name: &str) -> String {
    format!("{TENANTS}/{name}")
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
        href: href_of(&tenant.name),
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
        replica: visit.gateway().options.replica.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        is_ready: matches!(visit.gateway().upkeep.readiness(), Readiness::Ready | Readiness::Degraded),
    };
    visit.show(StatusCode::OK, &page).await
}
