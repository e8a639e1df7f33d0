//! The page of one tenant: its quotas and their use, and the acts on it; and the question whether to suspend it.

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;

use super::href_of;
use crate::domain::id::is_name;
use crate::domain::tenant::Action;
use crate::faces::console::moment::Moment;
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::question::{ActQuestion, QuestionPage};
use crate::faces::query::params::NONE;
use crate::gateway::{GatewayError, QuotaView};
use crate::store::Tenant;

/// Quota with its field.
struct QuotaLine {
    name: &'static str,
    value: i64,
    origin: &'static str,
    used: i64,
    /// Value that the operator set; empty for the deployment's.
    own: String,
}

#[derive(Template)]
#[template(path = "tenant.html", config = "src/faces/console/askama.toml")]
struct TenantPage {
    nav: Nav,
    csrf: String,
    name: String,
    id: String,
    href: String,
    created: Moment,
    suspended: Option<Moment>,
    quotas: Vec<QuotaLine>,
}

/// Shows the page.
pub(in crate::faces::console) async fn show(Path(name): Path<String>, visit: PageVisit) -> Response {
    visit
        .answer_sensitive("tenants.get", Section::Tenants, move |visit| {
            Box::pin(async move { tenant(visit, &name).await })
        })
        .await
}

/// Shows the question whether to suspend the tenant.
pub(in crate::faces::console) async fn show_part(
    Path((name, part)): Path<(String, String)>,
    visit: PageVisit,
) -> Response {
    if part != "suspend" {
        return visit.failed(Section::Tenants, &GatewayError::NotFound("page"));
    }
    visit
        .answer_sensitive("tenants.get", Section::Tenants, move |visit| {
            Box::pin(async move { suspension(visit, &name).await })
        })
        .await
}

async fn suspension(visit: &PageVisit, name: &str) -> Result<Response, GatewayError> {
    let tenant = found(visit, name).await?;
    let question = ActQuestion {
        act: format!("Suspend {}", tenant.name),
        says: "Nothing is served to it, within a second on every replica: its keys, sessions and people are refused, and its streams \
               end. Nothing is deleted, and you can end the suspension."
            .into(),
        keep: "Leave it as it is",
        verb: "suspend",
    };
    let href = href_of(&tenant.name);
    let page = QuestionPage::new(visit, Section::Tenants, (tenant.name, href), question);
    visit.show(StatusCode::OK, &page).await
}

/// Returns the tenant of a page.
async fn found(visit: &PageVisit, name: &str) -> Result<Tenant, GatewayError> {
    visit.caller().authorise(Action::ManageTenants)?;
    visit.given(NONE)?;
    if !is_name(name) {
        return Err(GatewayError::NotFound("tenant"));
    }
    visit.gateway().tenants.get_tenant(visit.caller(), name).await
}

async fn tenant(visit: &PageVisit, name: &str) -> Result<Response, GatewayError> {
    let tenant = found(visit, name).await?;
    let view = visit.gateway().tenants.tenant_quotas(visit.caller(), &tenant).await?;
    let streams = i64::try_from(visit.streams_of(tenant.tenant_id())).unwrap_or(i64::MAX);
    let nav = visit.nav(Section::Tenants);
    let page = TenantPage {
        csrf: nav.csrf.clone(),
        nav,
        id: tenant.id.to_string(),
        href: href_of(&tenant.name),
        created: Moment::new(tenant.created_at, visit.now()),
        suspended: tenant.suspended_at.map(|at| Moment::new(at, visit.now())),
        quotas: lines(&view, streams),
        name: tenant.name,
    };
    visit.show(StatusCode::OK, &page).await
}

fn lines(QuotaView { own, quotas, usage }: &QuotaView, streams: i64) -> Vec<QuotaLine> {
    let line = |name, own: Option<i64>, value, used| QuotaLine {
        name,
        value,
        origin: if own.is_some() { "tenant" } else { "deployment" },
        used,
        own: own.map(|own| own.to_string()).unwrap_or_default(),
    };
    vec![
        line("servers", own.servers, quotas.servers, usage.servers),
        line("tools", own.tools, quotas.tools, usage.tools),
        line("definition_bytes", own.definition_bytes, quotas.definition_bytes, usage.definition_bytes),
        line("keys", own.keys, quotas.keys, usage.keys),
        line("streams", own.streams, quotas.streams, streams),
    ]
}
