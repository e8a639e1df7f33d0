//! Offers of servers besides tools: prompts, resources and resource templates.

/// Kind of an offer of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum OfferKind {
    /// A prompt.
    Prompt,
    /// A resource.
    Resource,
    /// A resource template.
    Template,
}

impl OfferKind {
    /// All kinds.
    pub const ALL: [OfferKind; 3] = [OfferKind::Prompt, OfferKind::Resource, OfferKind::Template];

    /// Returns the name in the database and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            OfferKind::Prompt => "prompt",
            OfferKind::Resource => "resource",
            OfferKind::Template => "template",
        }
    }

    /// Parses a stored name; `None` for any other text.
    pub fn parse(text: &str) -> Option<OfferKind> {
        OfferKind::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}
