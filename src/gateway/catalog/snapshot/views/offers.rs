//! Views of prompts, resources and templates on `/mcp/direct`.

use super::ViewKey;
use crate::domain::fingerprint::{Fingerprint, Fingerprinting};
use crate::domain::offer::OfferKind;
use crate::domain::settings::ToolNames;
use crate::gateway::catalog::offers::{Offer, Offers, sort_key};
use crate::gateway::catalog::snapshot::Catalog;

/// Most offers on one page: as many as possible, because several clients never request a second page.
const PAGE_OFFERS_MAX: usize = 2000;
/// Most bytes of definitions on one page.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Offers of one kind in a view.
#[derive(Debug)]
struct Seen {
    /// Positions among the listed offers, in that order.
    positions: Vec<u32>,
    print: Fingerprint,
}

/// Prompts, resources and templates for callers with equal settings.
#[derive(Debug)]
pub struct OffersView {
    prompts: Seen,
    resources: Seen,
    templates: Seen,
    /// Fingerprint of resources and templates together: equal fingerprints are equal lists, on every replica.
    resources_print: Fingerprint,
}

/// Page of a view's offers of one kind.
#[derive(Debug)]
pub struct OffersPage<'a> {
    /// Offers on the page, each with its name in the requested spelling.
    pub offers: Vec<(&'a Offer, &'a str)>,
    /// Total size of their definitions, in bytes.
    pub bytes: usize,
    /// Name after which the next page begins, and its position in the view; `None` on the last page.
    pub next: Option<(&'a str, usize)>,
}

impl OffersView {
    pub(in crate::gateway) fn make(offers: &Offers, key: &ViewKey) -> OffersView {
        let resources = Seen::make(offers, OfferKind::Resource, key);
        let templates = Seen::make(offers, OfferKind::Template, key);
        let mut both = Fingerprinting::default();
        both.field(&resources.print.to_string());
        both.field(&templates.print.to_string());
        OffersView {
            prompts: Seen::make(offers, OfferKind::Prompt, key),
            resources,
            templates,
            resources_print: both.finish(),
        }
    }

    /// Returns the fingerprint of this kind's list. Fingerprints of different kinds differ, even of empty lists.
    pub fn print(&self, kind: OfferKind) -> Fingerprint {
        self.of(kind).print
    }

    /// Returns the fingerprint of resources and templates, whose changes share one notification.
    pub(in crate::gateway) fn resources_print(&self) -> Fingerprint {
        self.resources_print
    }

    fn of(&self, kind: OfferKind) -> &Seen {
        match kind {
            OfferKind::Prompt => &self.prompts,
            OfferKind::Resource => &self.resources,
            OfferKind::Template => &self.templates,
        }
    }

    /// Returns the position where the page after this name begins: added and removed offers do not shift it.
    pub fn position_after(&self, catalogue: &Catalog, kind: OfferKind, name: &str) -> usize {
        let listed = catalogue.offers().listed(kind);
        let is_before = |position: &u32| {
            listed.get(*position as usize).is_some_and(|offer| sort_key(kind, offer) <= name)
        };
        self.of(kind).positions.partition_point(is_before)
    }

    /// Returns the page that begins at this position. Prompts without a safe name are left out of lists in that spelling.
    pub fn page<'a>(
        &self,
        catalogue: &'a Catalog,
        kind: OfferKind,
        from: usize,
        names: ToolNames,
    ) -> OffersPage<'a> {
        let mut page = OffersPage { offers: Vec::new(), bytes: 0, next: None };
        let mut after_last = from;
        let listed = catalogue.offers().listed(kind);
        for (at, position) in self.of(kind).positions.iter().enumerate().skip(from) {
            let Some(offer) = listed.get(*position as usize) else { continue };
            let name = match (kind, names) {
                (OfferKind::Prompt, ToolNames::Safe) => offer.safe_name.as_deref(),
                _ => Some(sort_key(kind, offer)),
            };
            let (Some(name), Some(part)) = (name, offer.part()) else { continue };
            if let Some((last, _)) = page.offers.last()
                && (page.bytes + part.bytes() > PAGE_BYTES_MAX || page.offers.len() == PAGE_OFFERS_MAX)
            {
                page.next = Some((sort_key(kind, last), after_last));
                break;
            }
            page.bytes += part.bytes();
            page.offers.push((offer.as_ref(), name));
            after_last = at + 1;
        }
        page
    }
}

impl Seen {
    fn make(offers: &Offers, kind: OfferKind, key: &ViewKey) -> Seen {
        let mut print = Fingerprinting::default();
        print.field(kind.as_str());
        let mut positions = Vec::new();
        for (position, offer) in (0..).zip(offers.listed(kind)) {
            if key.sees_offer(&offer.canonical) {
                positions.push(position);
                print.field(sort_key(kind, offer));
                print.field(&offer.shape.digest);
                print.optional(offer.safe_name.as_deref());
            }
        }
        Seen { positions, print: print.finish() }
    }
}
