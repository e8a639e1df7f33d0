//! `/servers/{name}/prompts/{prompt}/approve|block|diff` and `/servers/{name}/resources/approve|block|unblock|diff`:
//! decisions of people about prompts, resources and templates. Resources are named in the body, or in the query of a
//! read, by `uri` and `kind`: URIs do not survive as a part of a path in every proxy.

use std::sync::Arc;

use serde::Serialize;

use super::error::RestError;
use super::exchange::Exchange;
use super::fields::{Fields, Nulls};
use super::params::{ParamNames, Params, one_of};
use super::pins::{Compared, differences, shown_diff};
use super::show::RestAnswer;
use super::{servers, show};
use crate::domain::offer::OfferKind;
use crate::domain::tool::PinState;
use crate::faces::query::offer;
use crate::gateway::{GatewayError, OfferName, OfferView};

/// Query parameters that name a resource or template.
pub(super) const RESOURCE: ParamNames = &["kind", "uri"];
/// Values of `kind`; the first is the default.
const KINDS: [OfferKind; 2] = [OfferKind::Resource, OfferKind::Template];

/// Name of an offer, as its list shows it.
#[derive(Serialize)]
#[serde(untagged)]
enum ShownName<'a> {
    Prompt { name: &'a str },
    Resource { kind: &'a str, uri: &'a str },
}

/// Outcome of a decision.
#[derive(Serialize)]
struct Decided<'a> {
    #[serde(flatten)]
    name: ShownName<'a>,
    state: PinState,
    pin: &'a str,
}

fn shown_name(offer: &OfferView) -> ShownName<'_> {
    match offer.kind.known() {
        Some(OfferKind::Prompt) => ShownName::Prompt { name: &offer.name },
        _ => ShownName::Resource { kind: offer.kind.as_str(), uri: &offer.name },
    }
}

fn decided(offer: &OfferView) -> RestAnswer {
    show::ok(&Decided { name: shown_name(offer), state: offer.state(), pin: &offer.pin })
}

/// Returns the offer that a request names.
async fn named<'a>(
    exchange: &'a Exchange,
    kind: OfferKind,
    name: &'a str,
) -> Result<OfferName<'a>, RestError> {
    let offer = OfferName { server: servers::name(exchange)?, kind, name };
    Ok(offer::named(&exchange.gateway().servers, exchange.caller(), offer).await?)
}

async fn prompt(exchange: &Exchange) -> Result<OfferName<'_>, RestError> {
    named(exchange, OfferKind::Prompt, exchange.segment("prompt")).await
}

/// Reads the kind and the URI that a body names.
fn resource_of(fields: &mut Fields) -> Result<(OfferKind, String), GatewayError> {
    let kind = fields.text("kind")?.map(|kind| one_of("kind", &kind, &KINDS)).transpose()?;
    Ok((kind.unwrap_or(KINDS[0]), fields.needed_text("uri")?))
}

pub(super) async fn approve_prompt(exchange: Arc<Exchange>) -> RestAnswer {
    let pin = exchange.fields(&["pin"], Nulls::Absent).await?.needed_text("pin")?;
    let offer = prompt(&exchange).await?;
    decided(&exchange.gateway().servers.approve_offer(exchange.caller(), offer, &pin).await?)
}

pub(super) async fn block_prompt(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let offer = prompt(&exchange).await?;
    decided(&exchange.gateway().servers.block_offer(exchange.caller(), offer).await?)
}

pub(super) async fn unblock_prompt(exchange: Arc<Exchange>) -> RestAnswer {
    exchange.no_body().await?;
    let offer = prompt(&exchange).await?;
    decided(&exchange.gateway().servers.unblock_offer(exchange.caller(), offer).await?)
}

pub(super) async fn diff_prompt(exchange: Arc<Exchange>, _: Params) -> RestAnswer {
    let offer = prompt(&exchange).await?;
    diff(&exchange, offer).await
}

pub(super) async fn approve_resource(exchange: Arc<Exchange>) -> RestAnswer {
    let mut fields = exchange.fields(&["kind", "pin", "uri"], Nulls::Absent).await?;
    let ((kind, uri), pin) = (resource_of(&mut fields)?, fields.needed_text("pin")?);
    let offer = named(&exchange, kind, &uri).await?;
    decided(&exchange.gateway().servers.approve_offer(exchange.caller(), offer, &pin).await?)
}

pub(super) async fn block_resource(exchange: Arc<Exchange>) -> RestAnswer {
    let (kind, uri) = resource_of(&mut exchange.fields(RESOURCE, Nulls::Absent).await?)?;
    let offer = named(&exchange, kind, &uri).await?;
    decided(&exchange.gateway().servers.block_offer(exchange.caller(), offer).await?)
}

pub(super) async fn unblock_resource(exchange: Arc<Exchange>) -> RestAnswer {
    let (kind, uri) = resource_of(&mut exchange.fields(RESOURCE, Nulls::Absent).await?)?;
    let offer = named(&exchange, kind, &uri).await?;
    decided(&exchange.gateway().servers.unblock_offer(exchange.caller(), offer).await?)
}

pub(super) async fn diff_resource(exchange: Arc<Exchange>, params: Params) -> RestAnswer {
    let kind = params.one_of("kind", &KINDS)?.unwrap_or(KINDS[0]);
    let uri = params.text("uri").ok_or_else(|| GatewayError::invalid("uri", "uri is needed"))?;
    let offer = named(&exchange, kind, uri).await?;
    diff(&exchange, offer).await
}

async fn diff(exchange: &Exchange, offer: OfferName<'_>) -> RestAnswer {
    let offer = exchange.gateway().servers.get_offer(exchange.caller(), offer).await?;
    let approved = offer.approved_definition.as_deref();
    let compared = Compared {
        name: shown_name(&offer),
        state: offer.state(),
        pin: &offer.pin,
        approved_pin: offer.approved_pin.as_deref(),
        drift: None,
        definition: &offer.definition,
        approved_definition: approved,
    };
    show::ok(&shown_diff(compared, &differences(approved, &offer.definition))?)
}
