//! The pages of people who log in at identity providers: the list, blocks, and the rules that give roles.

use std::sync::Arc;

use askama::Template;
use axum::extract::Path;
use axum::response::{Redirect, Response};
use http::StatusCode;
use uuid::Uuid;

use super::act::{VisitorAct, perform};
use super::moment::Moment;
use super::nav::{Nav, Section};
use super::page_visit::{PageVisit, status_of};
use super::servers::FormNotice;
use super::text::{LongText, indented, short};
use crate::domain::id::{IdentityId, KeyId};
use crate::domain::tenant::Action;
use crate::faces::query::params::{NONE, PAGE, Params};
use crate::gateway::GatewayError;
use crate::store::Identity;

/// Memory of the list, in bytes: as loaded, and as text.
const LIST_MEMORY_BYTES: usize = 256 * 1024;
/// Memory of the page with the largest rules, in bytes: as loaded, and as text.
const RULES_MEMORY_BYTES: usize = 2 * 1024 * 1024;
/// Longest text in a column, in characters.
const COLUMN_CHARS_MAX: usize = 80;

/// Most issuers to choose from; of more, the name is typed.
const ISSUERS_MAX: usize = 100;

/// Person in the list.
struct PersonLine {
    id: Uuid,
    owner: String,
    email: String,
    issuer: String,
    subject: String,
    /// Role at the last sight; empty for a person who was blocked before the first.
    role: String,
    last_seen: Option<Moment>,
    blocked: Option<Moment>,
    /// Link to the person's records.
    activity: String,
    /// True if the visitor is this person.
    is_own: bool,
}

/// Issuer to choose.
struct IssuerOption {
    name: String,
    is_chosen: bool,
}

#[derive(Template)]
#[template(path = "people.html", config = "src/faces/console/askama.toml")]
struct PeoplePage {
    nav: Nav,
    csrf: String,
    people: Vec<PersonLine>,
    /// Fault of the form that blocks somebody; `None` without one.
    again: Option<FormNotice>,
    /// Issuers to choose from; none where the name is typed.
    issuers: Vec<IssuerOption>,
    /// Issuer that was typed; empty in an empty form.
    issuer: String,
    /// Subject that was typed; empty in an empty form.
    subject: String,
    /// Link to the next page; `None` if there is none.
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "identity_rules.html", config = "src/faces/console/askama.toml")]
struct IdentityRulesPage {
    nav: Nav,
    version: i64,
    /// Rules as JSON, in their order.
    rules: Vec<LongText>,
}

/// Shows the list.
pub(super) async fn list(visit: PageVisit) -> Response {
    visit.answer_sensitive("identities.list", Section::People, |visit| Box::pin(people(visit, None))).await
}

async fn people(
    visit: &PageVisit,
    fault: Option<(StatusCode, FormNotice)>,
) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ManageKeys)?;
    visit.needs_tenant()?;
    let page = Params::of(&visit.given(PAGE)?, PAGE)?.page()?;
    let after = page.after(Uuid::nil(), |key| Uuid::try_parse(key).ok())?;
    visit.expect(LIST_MEMORY_BYTES).await?;
    let found = visit.gateway().tenants.list_identities(visit.caller(), after, page.fetch()).await?;
    let (shown, next) = page.split(&found, |(person, _)| person.id.to_string());
    let typed = |name| if fault.is_some() { visit.field(name).trim().to_owned() } else { String::new() };
    let (issuer, subject) = (typed("issuer"), typed("subject"));
    let issuers = issuers(visit.gateway().tenants.issuer_names(visit.caller())?, &issuer);
    let (status, again) = fault.unzip();
    let nav = visit.nav(Section::People);
    let page = PeoplePage {
        csrf: nav.csrf.clone(),
        nav,
        people: shown.iter().map(|person| line(visit, person)).collect(),
        again,
        issuers,
        issuer,
        subject,
        next: next.map(|cursor| format!("{}?limit={}&cursor={cursor}", Section::People.href(), page.limit)),
    };
    visit.show(status.unwrap_or(StatusCode::OK), &page).await
}

/// Returns the issuers to choose from, with the one that was typed, whether or not the tenant has it; none where there are no others, or
/// too many.
fn issuers(mut names: Vec<String>, typed: &str) -> Vec<IssuerOption> {
    if names.is_empty() || names.len() > ISSUERS_MAX {
        return Vec::new();
    }
    if !typed.is_empty() && !names.iter().any(|name| name == typed) {
        names.push(typed.to_owned());
    }
    names.into_iter().map(|name| IssuerOption { is_chosen: name == typed, name }).collect()
}

fn line(visit: &PageVisit, (person, issuer): &(Identity, String)) -> PersonLine {
    let column = |text: &str| short(text, COLUMN_CHARS_MAX);
    let is_seen = !person.role.is_empty();
    PersonLine {
        id: person.id,
        owner: column(&person.owner),
        email: column(person.email.as_deref().unwrap_or_default()),
        issuer: column(issuer),
        subject: column(&person.subject),
        role: person.role.clone(),
        last_seen: is_seen.then(|| Moment::new(person.last_seen_at, visit.now())),
        blocked: person.blocked_at.map(|at| Moment::new(at, visit.now())),
        activity: format!("{}?identity_id={}", Section::Activity.href(), person.id),
        is_own: visit.caller().identity_id() == Some(IdentityId(person.id)),
    }
}

/// Shows the rules, which are changed elsewhere.
pub(super) async fn rules(visit: PageVisit) -> Response {
    visit.answer_sensitive("identity.get_rules", Section::People, |visit| Box::pin(rules_page(visit))).await
}

async fn rules_page(visit: &PageVisit) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::ManageKeys)?;
    visit.needs_tenant()?;
    visit.given(NONE)?;
    visit.expect(RULES_MEMORY_BYTES).await?;
    let view = visit.gateway().tenants.identity_rules(visit.caller()).await?;
    let rule = |rule| LongText::of(&indented(&serde_json::to_string(rule).unwrap_or_default()));
    let page = IdentityRulesPage {
        nav: visit.nav(Section::People),
        version: view.version,
        rules: view.rules.iter().map(rule).collect(),
    };
    visit.show(StatusCode::OK, &page).await
}

/// Blocks a person, or ends a block, and shows the list.
pub(super) async fn on_person(Path((id, verb)): Path<(String, String)>, visit: PageVisit) -> Response {
    let blocks = match verb.as_str() {
        "block" => true,
        "unblock" => false,
        _ => return visit.failed(Section::People, &GatewayError::NotFound("page")),
    };
    let done = set_blocked(&visit, &id, blocks).await;
    visit.answer_act(Section::People, Section::People.href(), done)
}

async fn set_blocked(visit: &PageVisit, id: &str, blocks: bool) -> Result<(), GatewayError> {
    let what = if blocks { "identities.block" } else { "identities.unblock" };
    let act = VisitorAct::new(what, Action::ManageKeys);
    let id = Uuid::try_parse(id).map(IdentityId).map_err(|_| GatewayError::NotFound("identity"));
    let (gateway, attempt) = (Arc::clone(visit.gateway()), visit.attempt().clone());
    let work = async move {
        let id = id?;
        gateway.tenants.block_identity(&attempt.caller, id, blocks).await?;
        if blocks {
            // if this fails, the person is blocked once more, which is no error
            gateway.consent.withdraw_of(&attempt, KeyId::of_identity(id)).await?;
        }
        Ok(())
    };
    perform(visit, act, work).await
}

/// Leads from the path of the form that blocks somebody to its page.
pub(super) async fn to_list() -> Redirect {
    Redirect::to(Section::People.href())
}

/// Blocks a person by issuer and subject, and shows the list. A form with a fault is shown again, with what was typed.
pub(super) async fn block_subject(visit: PageVisit) -> Response {
    let error = match subject_blocked(&visit).await {
        // the form is sent to its own place on the page
        Ok(()) => return visit.answer_act(Section::People, "/console/people#top", Ok(())),
        Err(error @ (GatewayError::Invalid { .. } | GatewayError::NotFound("issuer"))) => error,
        Err(error) => return visit.failed(Section::People, &error),
    };
    let notice = match &error {
        GatewayError::NotFound(_) => {
            let says = format!("No issuer of this tenant is named '{}'.", visit.field("issuer").trim());
            FormNotice::said(&visit, says)
        }
        error => FormNotice::of(&visit, error),
    };
    let fault = Some((status_of(&error).0, notice));
    visit
        .answer_sensitive("identities.list", Section::People, move |visit| Box::pin(people(visit, fault)))
        .await
}

async fn subject_blocked(visit: &PageVisit) -> Result<(), GatewayError> {
    let [issuer, subject] = ["issuer", "subject"].map(|name| visit.field(name).trim().to_owned());
    let act = VisitorAct {
        fields: vec![("issuer", issuer.clone()), ("subject", subject.clone())],
        ..VisitorAct::new("identities.block_subject", Action::ManageKeys)
    };
    let (gateway, attempt) = (Arc::clone(visit.gateway()), visit.attempt().clone());
    let work = async move {
        if issuer.is_empty() || subject.is_empty() {
            let text = "Issuer and subject are both needed: the name of the identity provider here, and the claim of the person's token.";
            return Err(GatewayError::Invalid { field: None, message: text.to_owned() });
        }
        let (person, _) = gateway.tenants.block_subject(&attempt.caller, (&issuer, &subject)).await?;
        gateway.consent.withdraw_of(&attempt, KeyId::of_identity(IdentityId(person.id))).await
    };
    perform(visit, act, work).await
}
