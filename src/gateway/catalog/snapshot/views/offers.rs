//! What callers see of prompts, resources and templates on `/mcp/direct`.

use super::ViewKey;
use crate::domain::fingerprint::{Fingerprint, Fingerprinting};
use crate::domain::offer::OfferKind;
use crate::domain::settings::ToolNames;
use crate::gateway::catalog::offers::{Offer, Offers, sort_key};
use crate::gateway::catalog::snapshot::Catalog;

/// Most offers on one page. Everything on one page: several clients never ask for the second.
const PAGE_OFFERS_MAX: usize = 2000;
/// Most bytes of definitions on one page.
const PAGE_BYTES_MAX: usize = 8 * 1024 * 1024;

/// What one kind of caller sees of one kind.
#[derive(Debug)]
struct Seen {
    /// Positions among those that are listed, in their order.
    positions: Vec<u32>,
    print: Fingerprint,
}

/// What one kind of caller sees.
#[derive(Debug)]
pub struct OffersView {
    prompts: Seen,
    resources: Seen,
    templates: Seen,
    /// Equal prints are equal lists of resources and of templates, on every replica.
    resources_print: Fingerprint,
}

/// Part of a list.
#[derive(Debug)]
pub struct OffersPage<'a> {
    /// Those that are listed, with the name of each in the spelling that was asked for.
    pub offers: Vec<(&'a Offer, &'a str)>,
    /// Bytes of their definitions.
    pub bytes: usize,
    /// After which the next page begins, and where in the view that is.
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

    /// What stands for the list of this kind alone. No two kinds have the same, empty or not.
    pub fn print(&self, kind: OfferKind) -> Fingerprint {
        self.of(kind).print
    }

    /// What stands for the lists of resources and of templates, of which changes are told together.
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

    /// Where the page after this name begins: what comes and goes does not shift it.
    pub fn position_after(&self, catalogue: &Catalog, kind: OfferKind, name: &str) -> usize {
        let listed = catalogue.offers().listed(kind);
        let is_before = |position: &u32| {
            listed.get(*position as usize).is_some_and(|offer| sort_key(kind, offer) <= name)
        };
        self.of(kind).positions.partition_point(is_before)
    }

    /// The page that begins at this position. Prompts without a safe name are in no list of such names.
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
