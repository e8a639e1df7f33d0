//! What a server was found to offer besides tools.

use super::Discovered;
use crate::domain::offer::OfferKind;

/// What was found of a kind, or why it could not be listed: that stands in the server's `last_error` until it can.
pub type FoundOffers<'a> = Result<&'a [Discovered], &'a str>;

/// What was found of each kind that was asked for; of the others, and of what could not be listed, the stored ones stay.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewOffers<'a> {
    /// Prompts.
    pub prompts: Option<FoundOffers<'a>>,
    /// Resources.
    pub resources: Option<FoundOffers<'a>>,
    /// Templates.
    pub templates: Option<FoundOffers<'a>>,
    /// What the same listing has stored already, and there was room for all of it.
    pub stored: &'a [OfferKind],
}

impl<'a> NewOffers<'a> {
    /// Of a server that has nothing but tools.
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

    /// Whether these were asked for.
    pub(super) fn tells_of(&self, kind: OfferKind) -> bool {
        self.asked_for(kind).is_some()
    }

    /// The same, as if these had not been asked for.
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
