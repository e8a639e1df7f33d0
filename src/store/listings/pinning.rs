//! Effect of a listing on pins of prompts, resources and templates.

use sqlx::FromRow;

use super::Discovered;
use super::found::NewOffers;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::offer::OfferKind;
use crate::domain::tool::PinState;
use crate::store::unit::Unit;
use crate::store::{StoreError, Stored};

/// Rules by which a listing sets pins of offers.
#[derive(Clone, Debug, Default)]
pub(super) struct Pinning {
    /// True under automatic approval: every definition found is approved.
    pub(super) takes_all: bool,
    /// Kinds for which this listing is the baseline, if it succeeds.
    pub(super) baselines: Vec<OfferKind>,
}

impl Pinning {
    pub(super) fn takes(&self, kind: OfferKind) -> bool {
        self.takes_all || self.baselines.contains(&kind)
    }

    /// Returns the kinds whose baseline is set by what was found.
    pub(super) fn set_by(&self, found: &NewOffers<'_>) -> Vec<&'static str> {
        let is_found = |kind: &&OfferKind| found.of(**kind).is_some();
        self.baselines.iter().filter(is_found).map(|kind| kind.as_str()).collect()
    }
}

/// Stored side of an offer, or of a pin whose offer is gone.
#[derive(FromRow)]
pub(super) struct KnownPins {
    pub(super) kind: Stored<OfferKind>,
    pub(super) name: String,
    /// Pin of the current definition; `None` if the server does not offer it.
    pub(super) pin: Option<String>,
    pub(super) approved_pin: Option<String>,
    pub(super) is_blocked: bool,
    /// Bytes of the current definition.
    pub(super) bytes: i64,
    /// Bytes of the approved definition.
    pub(super) approved_bytes: i64,
}

impl KnownPins {
    pub(super) fn bytes(&self) -> i64 {
        if self.pin.is_some() { self.bytes.max(self.approved_bytes) } else { 0 }
    }
}

/// Offer that a listing writes.
pub(super) struct Written<'a> {
    pub(super) kind: OfferKind,
    pub(super) offer: &'a Discovered,
    /// True if the definition differs from the stored one.
    pub(super) is_new_text: bool,
    /// True if the pin of the definition becomes the approved one.
    pub(super) approves: bool,
    /// True if no definition was approved under this name before.
    pub(super) is_first: bool,
    /// Bytes that the offer takes up once it is written.
    pub(super) bytes: i64,
}

impl<'a> Written<'a> {
    /// Compares an offer with its stored side; `None` if nothing is to be written.
    pub(super) fn of(
        known: Option<&KnownPins>,
        kind: OfferKind,
        offer: &'a Discovered,
        takes: bool,
    ) -> Option<Written<'a>> {
        let stored_pin = known.and_then(|known| known.pin.as_deref());
        let approved_pin = known.and_then(|known| known.approved_pin.as_deref());
        let is_blocked = known.is_some_and(|known| known.is_blocked);
        let approved_by_now = if takes { Some(&*offer.pin) } else { approved_pin };
        let is_approved = PinState::of(&offer.pin, approved_by_now, is_blocked) == PinState::Approved;
        let is_new_text = stored_pin != Some(offer.pin.as_str());
        let approves = is_approved && approved_pin != Some(offer.pin.as_str());
        let bytes = i64::try_from(offer.definition.len()).unwrap_or(i64::MAX);
        let beside = if approves { 0 } else { known.map_or(0, |known| known.approved_bytes) };
        let is_first = approved_pin.is_none();
        let written = Written { kind, offer, is_new_text, approves, is_first, bytes: bytes.max(beside) };
        (is_new_text || approves).then_some(written)
    }
}

/// Returns the stored offers of a server, and its pins.
pub(super) async fn known(
    tx: &mut Unit,
    tenant: TenantId,
    server: ServerId,
) -> Result<Vec<KnownPins>, StoreError> {
    let known = sqlx::query_as(
        "select kind, name, pin, approved_pin, blocked_at is not null as is_blocked,
             coalesce(octet_length(definition), 0)::bigint as bytes,
             coalesce(octet_length(approved_definition), 0)::bigint as approved_bytes
         from (select * from offers where tenant_id = $1 and server_id = $2) o
         full join (select * from offer_pins where tenant_id = $1 and server_id = $2) p using (kind, name)",
    )
    .bind(tenant.0)
    .bind(server.0)
    .fetch_all(&mut **tx)
    .await?;
    Ok(known)
}
