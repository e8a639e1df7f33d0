//! Checks of requests for prompts, resources and completions. They are those of a call of a read tool, without the
//! arguments.

use std::sync::Arc;

use bytes::Bytes;

use super::{Pinned, approved, open, reachable};
use crate::domain::json;
use crate::domain::offer::OfferKind;
use crate::domain::refusal::{Code, Refusal};
use crate::gateway::calls::pipeline::facts::Facts;
use crate::gateway::calls::pipeline::request::{OfferRequest, Wanted};
use crate::gateway::calls::pipeline::sending::SpanSubject;
use crate::gateway::catalog::{Offer, Offers, ViewKey};
use crate::gateway::tenants::Caller;
use crate::upstream::{Subject, URI_BYTES_MAX};

/// Longest name or URI that errors and records repeat, in characters.
const NAME_SHOWN_CHARS_MAX: usize = 300;

/// A request for a prompt, a resource or a completion that passed its checks.
#[derive(Debug)]
pub(in crate::gateway::calls::pipeline) struct CheckedOffer {
    pub(super) offer: Arc<Offer>,
    request: OfferRequest,
}

impl CheckedOffer {
    /// Returns the method of the request.
    pub(super) fn method(&self) -> &'static str {
        self.request.wanted.method()
    }

    /// Returns the server's own name for the offer: a prompt's name, otherwise the name or URI as requested.
    pub(super) fn own_name(&self) -> &str {
        match &self.request.wanted {
            Wanted::Prompt(_) => &self.offer.name,
            other => other.name(),
        }
    }

    /// Returns the arguments of a prompt; empty without any.
    pub(super) fn arguments(&self) -> &str {
        let raw = arguments(&self.request).map(|raw| std::str::from_utf8(raw).unwrap_or_default());
        raw.unwrap_or_default()
    }

    /// Returns the subject of the request's span.
    pub(super) fn about(&self) -> SpanSubject<'_> {
        match &self.request.wanted {
            Wanted::Prompt(_) | Wanted::PromptCompletion(_) => SpanSubject::Prompt(&self.offer.name),
            Wanted::Resource(uri) => SpanSubject::Resource(uri),
            Wanted::TemplateCompletion(_) => SpanSubject::Other,
        }
    }

    /// Returns the upstream request: its subject under the server's own names, and the members of `params`.
    pub(super) fn to_send(&self) -> (Subject, Vec<(&'static str, Bytes)>) {
        let OfferRequest { wanted, members } = &self.request;
        let mut members = members.clone();
        let subject = match wanted {
            Wanted::Prompt(_) => Subject::Prompt(self.offer.name.to_string()),
            Wanted::Resource(uri) => Subject::Resource(uri.clone()),
            Wanted::PromptCompletion(_) => {
                if let Some((_, reference)) = members.iter_mut().find(|(name, _)| *name == "ref") {
                    *reference = renamed(reference, &self.offer.name);
                }
                Subject::Completion
            }
            Wanted::TemplateCompletion(_) => Subject::Completion,
        };
        (subject, members)
    }
}

/// Runs the checks: finds the server, and whether the caller may ask it. Notes the facts as far as they are known, also on a
/// refusal. `admitted` is the verdict of the rate limit.
pub(in crate::gateway::calls::pipeline) fn run(
    caller: &Caller,
    request: OfferRequest,
    facts: &mut Facts,
    admitted: Result<(), Refusal>,
) -> Result<CheckedOffer, Refusal> {
    let wanted = &request.wanted;
    facts.tier = Some(Offer::TIER);
    let shown: String = wanted.name().chars().take(NAME_SHOWN_CHARS_MAX).collect();
    facts.note_tool(None, &format!("{} {shown}", wanted.method()));
    // no server offers so long a name, it would be matched against every template, and nothing counts the memory of what a
    // refusal repeats
    if wanted.name().len() > URI_BYTES_MAX {
        facts.subject = Some(shown);
        return Err(unknown(wanted));
    }
    facts.subject = Some(wanted.name().to_owned());
    // templates cost more than a map lookup, so they come after the rate limit
    if matches!(wanted, Wanted::Resource(_) | Wanted::TemplateCompletion(_)) {
        admitted.clone()?;
    }
    let catalogue = caller.catalogue();
    let offer = catalogue.as_ref().and_then(|catalogue| find(wanted, catalogue.offers()).cloned());
    let offer = offer.filter(|offer| ViewKey::of(&caller.settings).sees_offer(&canonical(wanted, offer)));
    let offer = offer.ok_or_else(|| unknown(wanted))?;
    let own = if matches!(wanted, Wanted::Prompt(_)) { &*offer.name } else { shown.as_str() };
    facts.note_tool(Some(&offer.server.name), &format!("{} {own}", wanted.method()));
    open(&offer.server)?;
    approved(offer.state, || pinned(&offer))?;
    admitted?;
    reachable(&offer.server)?;
    facts.arguments = arguments(&request).cloned();
    Ok(CheckedOffer { offer, request })
}

fn find<'a>(wanted: &Wanted, offers: &'a Offers) -> Option<&'a Arc<Offer>> {
    match wanted {
        Wanted::Prompt(name) | Wanted::PromptCompletion(name) => offers.prompt(name),
        Wanted::Resource(uri) => offers.route(uri),
        Wanted::TemplateCompletion(text) => offers.route_of_template(text),
    }
}

/// Returns the name that is compared with a key's `allowed_tools`.
fn canonical(wanted: &Wanted, offer: &Offer) -> String {
    match wanted {
        Wanted::Prompt(_) | Wanted::PromptCompletion(_) => offer.canonical.to_string(),
        Wanted::Resource(uri) | Wanted::TemplateCompletion(uri) => format!("{}:{uri}", offer.server.name),
    }
}

fn unknown(wanted: &Wanted) -> Refusal {
    let shown: String = wanted.name().chars().take(NAME_SHOWN_CHARS_MAX).collect();
    let what = match wanted {
        Wanted::Prompt(_) | Wanted::PromptCompletion(_) => "Unknown prompt",
        Wanted::Resource(_) | Wanted::TemplateCompletion(_) => "Resource not found",
    };
    Refusal::new(Code::NotFound, format!("{what}: {shown}"))
}

fn arguments(request: &OfferRequest) -> Option<&Bytes> {
    request.members.iter().find(|(name, _)| *name == "arguments").map(|(_, raw)| raw)
}

/// Describes an offer that is not approved, for a refusal.
fn pinned(offer: &Offer) -> Pinned<'_> {
    let (what, name, list) = match offer.kind {
        OfferKind::Prompt => ("prompt", &offer.canonical, "prompts"),
        OfferKind::Resource => ("resource", &offer.name, "resources"),
        OfferKind::Template => ("template", &offer.name, "resources"),
    };
    Pinned { what, name: name.chars().take(NAME_SHOWN_CHARS_MAX).collect(), server: &offer.server.name, list }
}

/// Returns a reference to a prompt with its name replaced by this one.
fn renamed(reference: &Bytes, name: &str) -> Bytes {
    let text = std::str::from_utf8(reference).unwrap_or("{}");
    let mut quoted = String::new();
    json::escape_into(&mut quoted, name);
    json::with_member_first(&json::without_members(text, &["name"]), "name", &quoted).into()
}
