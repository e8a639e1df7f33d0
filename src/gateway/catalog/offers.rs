//! Prompts, resources and templates of a catalogue: which may be listed, and which server owns each.
//!
//! A URI belongs to the server that has offered it the longest, connected or not; the same URI of other servers is not
//! published. So a URI never leads to another server while the first one offers it. A server that was never released owns
//! nothing, and neither does an offer without an approved definition.
//!
//! Offers that are not approved are neither listed nor requested. They still block templates of their own server that match
//! their URI: a template is no way around a block or a pin.

use std::collections::HashMap;
use std::sync::Arc;

use super::tool::ServerEntry;
use crate::domain::annotations::Tier;
use crate::domain::id::ServerId;
use crate::domain::offer::OfferKind;
use crate::domain::publish::OfferPart;
use crate::domain::tool::PinState;
use crate::domain::uri_template::{UriTemplate, is_straight};
use crate::store::StoredOffer;

/// Most template pieces that are matched against one URI, over all servers. The longest URI then costs tens of milliseconds
/// at worst.
const PIECES_MAX: usize = 13_000;
/// Most template pieces of one server that are matched against one URI.
const SERVER_PIECES_MAX: usize = 1300;

/// Result of parsing a definition, shared by every snapshot with the same bytes.
#[derive(Debug)]
pub(super) struct OfferShape {
    pub(super) digest: String,
    /// Form in which the offer is listed; `None` where clients would refuse the whole list for it.
    part: Option<OfferPart>,
    /// Parsed URI template; `None` for other kinds, and for a template that cannot be parsed.
    template: Option<UriTemplate>,
}

impl OfferShape {
    fn of(server: &str, row: &StoredOffer) -> OfferShape {
        let part = match row.kind {
            OfferKind::Prompt => OfferPart::prompt(&row.definition),
            OfferKind::Resource => OfferPart::resource(&row.definition),
            OfferKind::Template => OfferPart::template(&row.definition),
        };
        if let Err(why) = &part {
            tracing::debug!(why = why.0, server, kind = row.kind.as_str(), "an offer cannot be listed");
        }
        let template = (row.kind == OfferKind::Template).then(|| UriTemplate::parse(&row.name)).flatten();
        OfferShape { digest: row.digest.clone(), part: part.ok(), template }
    }
}

/// A prompt, resource or template at one revision.
#[derive(Debug)]
pub struct Offer {
    /// `server:name` of a prompt; `server:URI`, by which resources are allowed to keys.
    pub canonical: Box<str>,
    /// Prompt's own name, resource's URI, or template's text.
    pub name: Box<str>,
    /// The other spelling of a prompt's canonical name.
    pub safe_name: Option<Box<str>>,
    /// Kind of the offer.
    pub kind: OfferKind,
    /// State of the definition against the approved pin.
    pub state: PinState,
    /// Server that offers it.
    pub server: Arc<ServerEntry>,
    pub(super) shape: Arc<OfferShape>,
    /// True if the server was released and some definition of the offer approved. While such an offer exists,
    /// its URI leads to no other server.
    is_owner: bool,
    /// True for a template that no URI is matched against: not released, never approved, not parsable, or
    /// over the bounds.
    is_beyond: bool,
}

impl Offer {
    /// Tier of every prompt and every resource: asking for one counts as read, for ceilings and in records.
    pub const TIER: Tier = Tier::Read;

    /// Returns the form in which the offer is listed; `None` where clients would refuse it.
    pub fn part(&self) -> Option<&OfferPart> {
        self.shape.part.as_ref()
    }

    fn is_listed(&self) -> bool {
        let is_approved = self.state == PinState::Approved;
        is_approved && self.server.is_exposed() && self.shape.part.is_some() && !self.is_beyond
    }
}

type ByName = HashMap<Box<str>, Arc<Offer>>;

/// All offers of one kind.
#[derive(Debug, Default)]
struct Kind {
    /// Offers in any state: prompts by canonical name, all others by URI.
    by_name: ByName,
    /// Offers that may be listed, sorted by the same name.
    listed: Vec<Arc<Offer>>,
}

/// Prompts, resources and templates of a catalogue's servers.
#[derive(Debug, Default)]
pub struct Offers {
    prompts: Kind,
    resources: Kind,
    templates: Kind,
    prompts_by_safe_name: ByName,
    /// Templates that a URI may match, the longest offered first.
    routes: Vec<Arc<Offer>>,
    /// Resources that are not approved, by server and URI: templates of the same server do not lead to them.
    withheld: HashMap<ServerId, ByName>,
    /// Number of offers that wait for a decision of a person, by server.
    waiting: HashMap<ServerId, usize>,
}

/// Budget of template pieces that is left, in total and by server.
struct Work<'a> {
    left: usize,
    by_server: HashMap<&'a str, usize>,
}

impl<'a> Work<'a> {
    /// Takes the cost of this template from the budget. Returns `false` if too little is left.
    fn take(&mut self, server: &'a str, template: &UriTemplate) -> bool {
        let own = self.by_server.entry(server).or_insert(SERVER_PIECES_MAX);
        let costs = template.pieces();
        if costs > *own || costs > self.left {
            return false;
        }
        (*own, self.left) = (*own - costs, self.left - costs);
        true
    }
}

impl Offers {
    /// Returns how many offers of a server wait for a decision of a person, those included that another server has offered for longer.
    pub(super) fn waiting_at(&self, server: ServerId) -> usize {
        self.waiting.get(&server).copied().unwrap_or_default()
    }

    /// Builds the offers of rows that are sorted by age, oldest first. Shapes of unchanged definitions are taken from `old`.
    pub(in crate::gateway) fn build(
        rows: &[StoredOffer],
        servers: &HashMap<ServerId, &Arc<ServerEntry>>,
        old: &Offers,
    ) -> Offers {
        let mut offers = Offers::default();
        let mut work = Work { left: PIECES_MAX, by_server: HashMap::new() };
        let known = rows.iter().filter_map(|row| servers.get(&row.server).map(|server| (row, *server)));
        // offers without a release and an approval take nothing from those that have both
        let is_released = |row: &StoredOffer, server: &ServerEntry| {
            server.baselined && row.is_approved_once && !row.is_gone
        };
        let (released, others): (Vec<_>, Vec<_>) = known.partition(|(row, server)| is_released(row, server));
        for (row, server) in released.into_iter().chain(others) {
            let is_released = is_released(row, server);
            if !row.is_gone && matches!(row.state, PinState::Pending | PinState::Changed) {
                *offers.waiting.entry(row.server).or_default() += 1;
            }
            let canonical: Box<str> = format!("{}:{}", server.name, row.name).into();
            let key =
                if row.kind == OfferKind::Prompt { canonical.clone() } else { row.name.as_str().into() };
            // another server may have offered it before
            let is_taken = offers.of(row.kind).by_name.contains_key(&key) || row.is_gone;
            let is_withheld = row.kind == OfferKind::Resource && row.state != PinState::Approved;
            if is_taken && !is_withheld {
                continue;
            }
            let known = old.of(row.kind).by_name.get(&key);
            let known = known.filter(|offer| offer.shape.digest == row.digest);
            let shape = match known {
                Some(offer) => Arc::clone(&offer.shape),
                None => Arc::new(OfferShape::of(&server.name, row)),
            };
            let is_route = match &shape.template {
                Some(template) if is_released => work.take(&server.name, template),
                _ => false,
            };
            let is_beyond = row.kind == OfferKind::Template && !is_route;
            let safe_name: Option<Box<str>> = row.safe_name.as_deref().map(Into::into);
            let offer = Arc::new(Offer {
                canonical,
                name: row.name.as_str().into(),
                safe_name: safe_name.clone(),
                kind: row.kind,
                state: row.state,
                server: Arc::clone(server),
                shape,
                is_owner: is_released,
                is_beyond,
            });
            if is_withheld {
                offers.withheld.entry(row.server).or_default().insert(key.clone(), Arc::clone(&offer));
            }
            if is_taken {
                continue;
            }
            offers.of_mut(row.kind).by_name.insert(key, Arc::clone(&offer));
            if let Some(safe_name) = safe_name {
                offers.prompts_by_safe_name.insert(safe_name, Arc::clone(&offer));
            }
            if is_route {
                offers.routes.push(offer);
            }
        }
        for kind in OfferKind::ALL {
            offers.of_mut(kind).list(kind);
        }
        offers
    }

    /// Returns how many offers may be listed.
    pub(in crate::gateway) fn len(&self) -> usize {
        OfferKind::ALL.into_iter().map(|kind| self.listed(kind).len()).sum()
    }

    fn of(&self, kind: OfferKind) -> &Kind {
        match kind {
            OfferKind::Prompt => &self.prompts,
            OfferKind::Resource => &self.resources,
            OfferKind::Template => &self.templates,
        }
    }

    fn of_mut(&mut self, kind: OfferKind) -> &mut Kind {
        match kind {
            OfferKind::Prompt => &mut self.prompts,
            OfferKind::Resource => &mut self.resources,
            OfferKind::Template => &mut self.templates,
        }
    }

    /// Returns the offers of a kind that may be listed, in list order.
    pub(super) fn listed(&self, kind: OfferKind) -> &[Arc<Offer>] {
        &self.of(kind).listed
    }

    /// Returns a prompt in any state, by either spelling of its name.
    pub(in crate::gateway) fn prompt(&self, name: &str) -> Option<&Arc<Offer>> {
        self.prompts.by_name.get(name).or_else(|| self.prompts_by_safe_name.get(name))
    }

    /// Returns the offer whose server is asked for a URI: its owner, otherwise the first template that matches. Keys'
    /// patterns are compared with the text of the URI, so a URI that servers may normalise to another one matches no
    /// template.
    pub(in crate::gateway) fn route(&self, uri: &str) -> Option<&Arc<Offer>> {
        let listed = self.resources.by_name.get(uri);
        if let Some(owner) = listed.filter(|offer| offer.is_owner) {
            return Some(owner);
        }
        let is_of =
            |offer: &&Arc<Offer>| offer.shape.template.as_ref().is_some_and(|template| template.matches(uri));
        let template = is_straight(uri).then(|| self.routes.iter().find(is_of)).flatten();
        let withheld = |template: &Arc<Offer>| self.withheld.get(&template.server.id)?.get(uri);
        template.map(|template| withheld(template).unwrap_or(template)).or(listed)
    }

    /// Returns whether a URI, or the text of a template, may lead to such a server. It is compared with names only, so any
    /// template counts where no name is equal.
    pub(in crate::gateway) fn may_lead_to(&self, uri: &str, is_such: impl Fn(&ServerEntry) -> bool) -> bool {
        let named = self.templates.by_name.get(uri).or_else(|| self.resources.by_name.get(uri));
        match named.filter(|offer| offer.is_owner) {
            Some(offer) => is_such(&offer.server),
            None => named.into_iter().chain(&self.routes).any(|offer| is_such(&offer.server)),
        }
    }

    /// Returns the offer whose server completes a template's arguments: the template with this text, otherwise as for a URI.
    pub(in crate::gateway) fn route_of_template(&self, text: &str) -> Option<&Arc<Offer>> {
        self.templates.by_name.get(text).or_else(|| self.route(text))
    }
}

impl Kind {
    fn list(&mut self, kind: OfferKind) {
        self.listed = self.by_name.values().filter(|offer| offer.is_listed()).cloned().collect();
        self.listed.sort_by(|a, b| sort_key(kind, a).cmp(sort_key(kind, b)));
    }
}

/// Returns the sort key of lists and their cursors: a prompt's canonical name, otherwise the URI.
pub(super) fn sort_key(kind: OfferKind, offer: &Offer) -> &str {
    if kind == OfferKind::Prompt { &offer.canonical } else { &offer.name }
}
