//! Pages of a server's prompts, resources and templates: the list, and one of them with what changed since it was approved.

use askama::Template;
use axum::response::Response;
use http::StatusCode;
use serde::Deserialize;
use url::form_urlencoded::Serializer;

use super::changes::DefinitionChanges;
use super::{field_of, href_of, needs_name, tone};
use crate::domain::offer::OfferKind;
use crate::domain::tenant::Action;
use crate::domain::tool::PinState;
use crate::faces::console::done::{DONE, notice};
use crate::faces::console::nav::{Nav, Section};
use crate::faces::console::page_visit::PageVisit;
use crate::faces::console::text::{LongText, indented, short};
use crate::faces::query::cursor::{DEFINITIONS_BYTES_MAX, DEFINITIONS_MEMORY_BYTES};
use crate::faces::query::offer;
use crate::faces::query::params::{ParamNames, Params};
use crate::gateway::{GatewayError, OfferName, OfferView, ServerView};
use crate::store::OfferFilter;

/// Parameters of the pages.
const PARAMS: ParamNames = &["kind", "offer", "state", "cursor", "limit", DONE];
/// Value of `state` for offers that wait for a decision.
const WAITING: &str = "waiting";
/// Longest description in the list, in characters.
const DESCRIPTION_CHARS_MAX: usize = 300;

/// Offer in the list.
struct OfferLine {
    name: String,
    kind: &'static str,
    href: String,
    description: String,
    state: &'static str,
    tone: &'static str,
    is_waiting: bool,
    /// Server that goes first with the same URI; `None` if there is none.
    shadowed_by: Option<String>,
}

#[derive(Template)]
#[template(path = "offers.html", config = "src/faces/console/askama.toml")]
struct OffersPage {
    nav: Nav,
    server: String,
    server_href: String,
    /// Path of the list.
    href: String,
    /// True if the page lists the offers that wait for a decision alone.
    is_waiting: bool,
    /// Number of offers that wait, as far as it is known.
    waiting: usize,
    /// Link to those.
    waiting_href: String,
    offers: Vec<OfferLine>,
    /// Link to the next page; `None` if there is none.
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "offer.html", config = "src/faces/console/askama.toml")]
struct OfferPage {
    nav: Nav,
    csrf: String,
    /// Notice of what the visitor has just done; `None` without one.
    done: Option<String>,
    /// Link to the page.
    href: String,
    server: String,
    server_href: String,
    /// Path of the list.
    list: String,
    name: String,
    kind: &'static str,
    /// Name as a field of a form has it.
    field: String,
    state: &'static str,
    tone: &'static str,
    description: LongText,
    pin: String,
    approved_pin: Option<String>,
    /// Server that has offered the same URI for longer, so that this one is published nowhere.
    shadowed_by: Option<String>,
    /// Reason why no list has the offer; `None` if lists have it.
    not_listed: Option<&'static str>,
    changes: DefinitionChanges,
    definition: LongText,
    is_waiting: bool,
    /// True if the page compares the definition with the approved one: where it waits, and where it is blocked and differs.
    is_compared: bool,
    /// Number of other offers of the server that wait for a decision.
    others_waiting: usize,
    /// Link to those.
    waiting_href: String,
    /// True if the visitor's role approves definitions, and not those of this server.
    is_others_to_approve: bool,
    /// True if the visitor's role lifts blocks, and not those of this server.
    is_others_to_unblock: bool,
    /// True if the form that approves the definition is shown.
    may_approve: bool,
    /// True if the form that blocks the offer is shown.
    may_block: bool,
    /// True if the form that lifts the block is shown.
    may_unblock: bool,
}

/// Words of the server about its offer.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Said {
    description: String,
}

/// Returns the path of the list.
pub(super) fn href_of_offers(server: &str) -> String {
    format!("{}/offers", href_of(server))
}

/// Returns the path of the list of offers that wait for a decision.
pub(super) fn href_of_waiting(server: &str) -> String {
    format!("{}?state={WAITING}", href_of_offers(server))
}

/// Returns the path of an offer's page.
pub(super) fn href_of_offer(of: OfferName<'_>) -> String {
    let mut query = Serializer::new(String::new());
    query.append_pair("kind", of.kind.as_str()).append_pair("offer", of.name);
    format!("{}?{}", href_of_offers(of.server), query.finish())
}

/// Shows the list, or the page of the offer that the address names.
///
/// # Errors
/// Error of the role, of a parameter or of the read; [`GatewayError::NotFound`] without such a server or offer.
pub(super) async fn show(visit: &PageVisit, server: &str) -> Result<Response, GatewayError> {
    visit.caller().authorise(Action::SeeServers)?;
    visit.needs_tenant()?;
    needs_name(server)?;
    let params = Params::of(&visit.given(PARAMS)?, PARAMS)?;
    let kind = params.one_of("kind", &OfferKind::ALL)?;
    let is_waiting = params.one_of("state", &[WAITING])?.is_some();
    visit.expect(DEFINITIONS_MEMORY_BYTES).await?;
    let view = visit.gateway().servers.get_server(visit.caller(), server).await?;
    match (kind, params.text("offer")) {
        (Some(kind), Some(name)) => {
            one(visit, &view, OfferName { server, kind, name }, notice(visit, &params)).await
        }
        (None, None) => list(visit, server, &params, is_waiting).await,
        _ => Err(GatewayError::invalid("offer", "kind and offer are needed together")),
    }
}

async fn list(
    visit: &PageVisit,
    server: &str,
    params: &Params,
    is_waiting: bool,
) -> Result<Response, GatewayError> {
    let mut page = params.page()?;
    let (kind, name) = page.after((String::new(), String::new()), offer::read_key)?;
    let bounds = (page.fetch(), DEFINITIONS_BYTES_MAX);
    let filter = OfferFilter { kinds: &OfferKind::ALL, is_waiting };
    let servers = &visit.gateway().servers;
    let found = servers.list_server_offers(visit.caller(), server, filter, (&kind, &name), bounds).await?;
    page.fit(found.iter().map(|offer| offer.definition.len()));
    let (shown, next) = page.split(&found, offer::key);
    let state = if is_waiting { "state=waiting&" } else { "" };
    let href = href_of_offers(server);
    let page = OffersPage {
        nav: visit.nav(Section::Servers),
        server: server.to_owned(),
        server_href: href_of(server),
        is_waiting,
        waiting: waiting_at(visit, server),
        waiting_href: href_of_waiting(server),
        offers: shown.iter().filter_map(|offer| line(server, offer)).collect(),
        next: next.map(|cursor| format!("{href}?{state}limit={}&cursor={cursor}", page.limit)),
        href,
    };
    visit.show(StatusCode::OK, &page).await
}

/// Returns the number of offers of a server that wait for a decision, as far as it is known.
pub(super) fn waiting_at(visit: &PageVisit, server: &str) -> usize {
    let states = visit.caller().catalogue().map(|catalogue| catalogue.states());
    states.and_then(|states| states.get(server).map(|state| state.waiting_offers)).unwrap_or_default()
}

/// Returns an offer in the list; `None` for a kind of a later release.
fn line(server: &str, offer: &OfferView) -> Option<OfferLine> {
    let kind = offer.kind.known()?;
    let state = offer.state();
    Some(OfferLine {
        name: offer.name.clone(),
        kind: kind.as_str(),
        href: href_of_offer(OfferName { server, kind, name: &offer.name }),
        description: short(&description(offer), DESCRIPTION_CHARS_MAX),
        state: state.as_str(),
        tone: tone(state),
        is_waiting: is_to_review(state),
        shadowed_by: offer.shadowed_by.clone(),
    })
}

fn is_to_review(state: PinState) -> bool {
    matches!(state, PinState::Pending | PinState::Changed)
}

/// Returns what the server says about its offer; empty if it says nothing, or what is no text.
fn description(offer: &OfferView) -> String {
    serde_json::from_str::<Said>(&offer.definition).unwrap_or_default().description
}

async fn one(
    visit: &PageVisit,
    server: &ServerView,
    named: OfferName<'_>,
    done: Option<String>,
) -> Result<Response, GatewayError> {
    let servers = &visit.gateway().servers;
    let named = offer::named(servers, visit.caller(), named).await?;
    let found = servers.get_offer(visit.caller(), named).await?;
    let role = visit.caller().role;
    let may_approve = servers.may_approve(visit.caller(), server);
    let state = found.state();
    let (is_waiting, is_blocked) = (is_to_review(state), state == PinState::Blocked);
    let definition = LongText::of(&indented(&found.definition));
    let nav = visit.nav(Section::Servers);
    let page = OfferPage {
        csrf: nav.csrf.clone(),
        nav,
        done,
        href: href_of_offer(named),
        server: server.name.clone(),
        server_href: href_of(&server.name),
        list: href_of_offers(&server.name),
        kind: named.kind.as_str(),
        field: field_of(&found.name),
        state: state.as_str(),
        tone: tone(state),
        description: LongText::of(&description(&found)),
        shadowed_by: found.shadowed_by.clone(),
        not_listed: offer::not_listed(&found),
        changes: DefinitionChanges::between(found.approved_definition.as_deref(), &found.definition),
        is_waiting,
        is_compared: is_waiting || (is_blocked && found.approved_pin.as_ref() != Some(&found.pin)),
        others_waiting: waiting_at(visit, &server.name).saturating_sub(usize::from(is_waiting)),
        waiting_href: href_of_waiting(&server.name),
        is_others_to_approve: is_waiting && role.may(Action::Approve) && !may_approve,
        is_others_to_unblock: is_blocked && role.may(Action::Approve) && !may_approve,
        may_approve: is_waiting && may_approve && definition.left_out.is_none(),
        may_block: !is_blocked && role.may(Action::ChangeServers),
        may_unblock: is_blocked && may_approve,
        definition,
        name: found.name,
        pin: found.pin,
        approved_pin: found.approved_pin,
    };
    visit.show(StatusCode::OK, &page).await
}
