//! What servers offer besides tools: prompts, resources and resource templates.

/// Kind of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferKind {
    /// A prompt.
    Prompt,
    /// A resource.
    Resource,
    /// A template of resources.
    Template,
}

impl OfferKind {
    /// All kinds.
    pub const ALL: [OfferKind; 3] = [OfferKind::Prompt, OfferKind::Resource, OfferKind::Template];

    /// The stored name, which is also the wire's.
    pub fn as_str(self) -> &'static str {
        match self {
            OfferKind::Prompt => "prompt",
            OfferKind::Resource => "resource",
            OfferKind::Template => "template",
        }
    }

    /// `None` for any other text.
    pub fn parse(text: &str) -> Option<OfferKind> {
        OfferKind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}
