//! `/servers/{name}/prompts` and `/servers/{name}/resources`: definitions as discovered.

use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::cursor::{self, CursorPage, DEFINITIONS_BYTES_MAX, DEFINITIONS_MEMORY_BYTES};
use super::error::RestError;
use super::exchange::Exchange;
use super::params::Params;
use super::servers;
use super::show;
use super::show::RestAnswer;
use crate::domain::offer::OfferKind;
use crate::domain::tool::PinState;
use crate::faces::query::offer;
use crate::gateway::OfferView;
use crate::store::OfferFilter;

/// Members about the pin, alike for prompts, resources and templates.
#[derive(Serialize)]
struct Pinned<'a> {
    state: PinState,
    pin: &'a str,
    approved_pin: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked_by: Option<Uuid>,
    /// Approved definition, if it differs from the current one.
    #[serde(skip_serializing_if = "Option::is_none")]
    approved_definition: Option<&'a RawValue>,
}

/// Prompt with its state. The server's own JSON text stands in it byte for byte.
#[derive(Serialize)]
struct Prompt<'a> {
    name: &'a str,
    safe_name: Option<&'a str>,
    #[serde(flatten)]
    pinned: Pinned<'a>,
    definition: &'a RawValue,
    /// Reason why no list of `/mcp/direct` has the prompt; `None` if lists have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_listed: Option<&'static str>,
}

/// Resource, or template of resources, with its state.
#[derive(Serialize)]
struct Resource<'a> {
    kind: &'a str,
    uri: &'a str,
    #[serde(flatten)]
    pinned: Pinned<'a>,
    definition: &'a RawValue,
    /// Server that has offered the same URI for longer, so that this resource is published nowhere.
    shadowed_by: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_listed: Option<&'static str>,
}

fn pinned(offer: &OfferView) -> Result<Pinned<'_>, RestError> {
    let approved = offer.approved_definition.as_deref().filter(|approved| *approved != offer.definition);
    Ok(Pinned {
        state: offer.state(),
        pin: &offer.pin,
        approved_pin: offer.approved_pin.as_deref(),
        blocked_by: offer.blocked_by,
        approved_definition: approved.map(show::raw).transpose()?,
    })
}

fn prompt(offer: &OfferView) -> Result<Prompt<'_>, RestError> {
    Ok(Prompt {
        name: &offer.name,
        safe_name: offer.safe_name.as_deref(),
        pinned: pinned(offer)?,
        definition: show::raw(&offer.definition)?,
        not_listed: offer::not_listed(offer),
    })
}

fn resource(offer: &OfferView) -> Result<Resource<'_>, RestError> {
    Ok(Resource {
        kind: offer.kind.as_str(),
        uri: &offer.name,
        pinned: pinned(offer)?,
        definition: show::raw(&offer.definition)?,
        shadowed_by: offer.shadowed_by.as_deref(),
        not_listed: offer::not_listed(offer),
    })
}

pub(super) async fn prompts(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let mut page = params.page()?;
    let offers = fetch(&exchange, &mut page, &[OfferKind::Prompt]).await?;
    cursor::list(&offers, &page, offer::key, prompt)
}

pub(super) async fn resources(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let mut page = params.page()?;
    let offers = fetch(&exchange, &mut page, &[OfferKind::Resource, OfferKind::Template]).await?;
    cursor::list(&offers, &page, offer::key, resource)
}

async fn fetch(
    exchange: &Exchange,
    page: &mut CursorPage,
    kinds: &[OfferKind],
) -> Result<Vec<OfferView>, RestError> {
    let (kind, name) = page.after((String::new(), String::new()), offer::read_key)?;
    let server = servers::name(exchange)?;
    let after = (kind.as_str(), name.as_str());
    exchange.expect_answer(DEFINITIONS_MEMORY_BYTES).await?;
    let bounds = (page.fetch(), DEFINITIONS_BYTES_MAX);
    let filter = OfferFilter { kinds, is_waiting: false };
    let offers = exchange
        .gateway()
        .servers
        .list_server_offers(exchange.caller(), server, filter, after, bounds)
        .await?;
    page.fit(offers.iter().map(|offer| offer.definition.len()));
    Ok(offers)
}
