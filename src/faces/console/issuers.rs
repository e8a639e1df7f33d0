//! The page of issuers, for the platform operator: the identity providers whose tokens are accepted, and a check of each.

use std::sync::Arc;

use askama::Template;
use axum::extract::Path;
use axum::response::Response;
use http::StatusCode;
use serde_json::json;
use zeroize::Zeroizing;

use super::act::{VisitorAct, perform};
use super::moment::Moment;
use super::nav::{Nav, Section};
use super::page_visit::PageVisit;
use super::text::short;
use crate::domain::id::is_name;
use crate::domain::tenant::Action;
use crate::faces::query::params::{PAGE, Params};
use crate::gateway::{FindingGrade, GatewayError, IssuerFinding};
use crate::store::Issuer;

/// Path of the page.
const ISSUERS: &str = "/console/issuers";
/// Memory of the list, in bytes: as loaded, and as text.
const LIST_MEMORY_BYTES: usize = 512 * 1024;
/// Memory of the findings, in bytes.
const FINDINGS_MEMORY_BYTES: usize = 512 * 1024;
/// Longest error in the list, in characters.
const ERROR_CHARS_MAX: usize = 200;

/// Issuer in the list.
struct IssuerLine {
    name: String,
    issuer: String,
    /// Tenant of all its people; empty if assignments decide.
    tenant: String,
    audiences: String,
    fetched: Option<Moment>,
    error: String,
}

#[derive(Template)]
#[template(path = "issuers.html", config = "src/faces/console/askama.toml")]
struct IssuersPage {
    nav: Nav,
    csrf: String,
    issuers: Vec<IssuerLine>,
    /// Link to the next page; `None` if there is none.
    next: Option<String>,
}

/// Finding of a check.
struct FindingLine {
    check: &'static str,
    word: &'static str,
    tone: &'static str,
    says: String,
}

#[derive(Template)]
#[template(path = "issuer_check.html", config = "src/faces/console/askama.toml")]
struct CheckPage {
    nav: Nav,
    name: String,
    findings: Vec<FindingLine>,
}

/// Shows the list.
pub(super) async fn list(visit: PageVisit) -> Response {
    visit.answer_sensitive("issuers.list", Section::Tenants, |visit| Box::pin(issuers(visit))).await
}

async fn issuers(visit: &PageVisit) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ManageTenants)?;
    let page = Params::of(&visit.given(PAGE)?, PAGE)?.page()?;
    let after = page.after(String::new(), |key| is_name(key).then(|| key.to_owned()))?;
    visit.expect(LIST_MEMORY_BYTES).await?;
    let found = visit.gateway().tenants.list_issuers(visit.caller(), &after, page.fetch()).await?;
    let (shown, next) = page.split(&found, |issuer| issuer.name.clone());
    let line = |issuer: &Issuer| IssuerLine {
        name: issuer.name.clone(),
        issuer: issuer.issuer.clone(),
        tenant: issuer.tenant.clone().unwrap_or_default(),
        audiences: issuer.audiences.join(", "),
        fetched: issuer.jwks_fetched_at.map(|at| Moment::new(at, visit.now())),
        error: short(issuer.jwks_error.as_deref().unwrap_or_default(), ERROR_CHARS_MAX),
    };
    let nav = visit.nav(Section::Tenants);
    let page = IssuersPage {
        csrf: nav.csrf.clone(),
        nav,
        issuers: shown.iter().map(line).collect(),
        next: next.map(|cursor| format!("{ISSUERS}?limit={}&cursor={cursor}", page.limit)),
    };
    visit.show(StatusCode::OK, &page).await
}

/// Checks an issuer, and shows what was found. A token of the form gets into no record and onto no page.
pub(super) async fn check(Path(name): Path<String>, visit: PageVisit) -> Response {
    let page = match found(&visit, &name).await {
        Ok(findings) => shown(&visit, name, &findings).await,
        Err(error) => Err(error),
    };
    page.unwrap_or_else(|error| visit.failed(Section::Tenants, &error))
}

async fn found(visit: &PageVisit, name: &str) -> Result<Vec<IssuerFinding>, GatewayError> {
    let token = Some(visit.field("token").trim()).filter(|token| !token.is_empty());
    let token = token.map(|token| Zeroizing::new(token.to_owned()));
    let act = VisitorAct {
        sent: token.as_ref().map(|_| json!({"token": "[redacted]"})),
        ..VisitorAct::new("issuers.check", Action::ManageTenants)
    };
    let (gateway, caller, name) = (Arc::clone(visit.gateway()), Arc::clone(visit.caller()), name.to_owned());
    let work = Box::pin(async move {
        if !is_name(&name) {
            return Err(GatewayError::NotFound("issuer"));
        }
        let token = token.as_ref().map(|token| token.as_str());
        gateway.tenants.check_issuer_now(&caller, &name, token).await
    });
    perform(visit, act, work).await
}

async fn shown(
    visit: &PageVisit,
    name: String,
    findings: &[IssuerFinding],
) -> Result<Response, GatewayError> {
    visit.expect(FINDINGS_MEMORY_BYTES).await?;
    let line = |finding: &IssuerFinding| FindingLine {
        check: finding.check,
        word: finding.grade.as_str(),
        tone: match finding.grade {
            FindingGrade::Good => "good",
            FindingGrade::Odd => "open",
            FindingGrade::Bad => "bad",
        },
        says: finding.says.clone(),
    };
    let page =
        CheckPage { nav: visit.nav(Section::Tenants), name, findings: findings.iter().map(line).collect() };
    visit.show(StatusCode::OK, &page).await
}
