//! Prompts, resources and templates that a server was found to offer.

use super::Discovered;
use crate::domain::offer::OfferKind;

/// Offers found of one kind, or why that kind could not be listed. The reason is shown with the server until a listing
/// succeeds.
pub type FoundOffers<'a> = Result<&'a [Discovered], &'a str>;

/// Offers found of each kind that was asked for. Stored offers of other kinds, and of kinds that could not be listed,
/// stay.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewOffers<'a> {
    /// Prompts; `None` if they were not asked for.
    pub prompts: Option<FoundOffers<'a>>,
    /// Resources; `None` if they were not asked for.
    pub resources: Option<FoundOffers<'a>>,
    /// Templates; `None` if they were not asked for.
    pub templates: Option<FoundOffers<'a>>,
    /// Kinds that an earlier part of the same listing has stored, all within the quota.
    pub stored: &'a [OfferKind],
}

impl<'a> NewOffers<'a> {
    /// Offers of a server that has only tools.
    pub const NONE: NewOffers<'static> =
        NewOffers { prompts: Some(Ok(&[])), resources: Some(Ok(&[])), templates: Some(Ok(&[])), stored: &[] };

    pub(super) fn asked_for(&self, kind: OfferKind) -> Option<FoundOffers<'a>> {
        match kind {
            OfferKind::Prompt => self.prompts,
            OfferKind::Resource => self.resources,
            OfferKind::Template => self.templates,
        }
    }

    pub(super) fn of(&self, kind: OfferKind) -> Option<&'a [Discovered]> {
        self.asked_for(kind)?.ok()
    }

    /// Returns whether offers of this kind were asked for.
    pub(super) fn tells_of(&self, kind: OfferKind) -> bool {
        self.asked_for(kind).is_some()
    }

    /// Returns the same offers as if those of `kinds` had not been asked for.
    pub(super) fn without(mut self, kinds: &[OfferKind]) -> NewOffers<'a> {
        for kind in kinds {
            match kind {
                OfferKind::Prompt => self.prompts = None,
                OfferKind::Resource => self.resources = None,
                OfferKind::Template => self.templates = None,
            }
        }
        self
    }

    pub(super) fn is_empty(&self) -> bool {
        OfferKind::ALL.into_iter().all(|kind| self.of(kind).is_none())
    }
}
