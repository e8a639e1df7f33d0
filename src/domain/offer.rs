//! Offers of servers besides tools: prompts, resources and resource templates.

use super::text_enum::text_enum;

text_enum! {
    /// Kind of an offer of a server.
    #[derive(PartialOrd, Ord)]
    pub enum OfferKind {
        /// A prompt.
        Prompt = "prompt",
        /// A resource.
        Resource = "resource",
        /// A resource template.
        Template = "template",
    }
}
