//! Prompts, resources and templates of a server, as REST and the console name and page them.

use crate::domain::offer::OfferKind;
use crate::domain::publish::OfferPart;
use crate::gateway::Caller;
use crate::gateway::{GatewayError, OfferName, OfferView, Servers, URI_BYTES_MAX};

/// Returns the key of an offer in a cursor.
pub(in crate::faces) fn key(offer: &OfferView) -> String {
    format!("{} {}", offer.kind.as_str(), offer.name)
}

/// Parses the key after which a page begins: kind and name.
pub(in crate::faces) fn read_key(key: &str) -> Option<(String, String)> {
    let (kind, name) = key.split_once(' ')?;
    let is_good = OfferKind::parse(kind).is_some() && !name.contains('\0');
    is_good.then(|| (kind.to_owned(), name.to_owned()))
}

/// Returns the reason why no list of `/mcp/direct` has the offer; `None` if lists have it.
pub(in crate::faces) fn not_listed(offer: &OfferView) -> Option<&'static str> {
    let part = match offer.kind.known() {
        Some(OfferKind::Prompt) => OfferPart::prompt(&offer.definition),
        Some(OfferKind::Template) => OfferPart::template(&offer.definition),
        _ => OfferPart::resource(&offer.definition),
    };
    part.err().map(|why| why.0)
}

/// Returns the offer that a request names.
///
/// # Errors
/// [`GatewayError::NotFound`] for a name that no offer has; that of the server comes first, as an impossible name must not tell more than a
/// missing one.
pub(in crate::faces) async fn named<'a>(
    servers: &Servers,
    caller: &Caller,
    offer: OfferName<'a>,
) -> Result<OfferName<'a>, GatewayError> {
    if offer.name.is_empty() || offer.name.len() > URI_BYTES_MAX || offer.name.contains('\0') {
        servers.get_server(caller, offer.server).await?;
        return Err(GatewayError::NotFound(offer.kind.as_str()));
    }
    Ok(offer)
}
