//! Listing what a server offers besides tools: prompts, resources and templates.

use tokio::time::Instant;

use super::{ERROR_BYTES_MAX, ListingError, discovered, warn_of_problems};
use crate::domain::id::TenantId;
use crate::domain::redact;
use crate::gateway::Gateway;
use crate::store::{Discovered, Kind, NewOffers, OfferKind, Right, Server, StoreError};
use crate::upstream::{Announced, Kind as UpstreamKind, ListKind, Listed};

/// What can be stored of a server's other lists, and what cannot.
#[derive(Default)]
struct Found {
    prompts: Option<Vec<Discovered>>,
    resources: Option<Vec<Discovered>>,
    templates: Option<Vec<Discovered>>,
    faults: Vec<(OfferKind, String)>,
    /// A list took too long.
    is_slow: bool,
    /// A list that may be read if it is asked for again.
    unread: Option<String>,
}

impl Gateway {
    /// Lists what a server announced a change of, which is not its tools, and stores it; gives how much of it is other
    /// than before.
    ///
    /// # Errors
    /// [`ListingError::Here`] if a list could not be read that may be the next time; what could be read is stored. One
    /// that the server cannot give is noted at the server, and is no error.
    pub(in crate::gateway) async fn list_offers(
        &self,
        tenant: TenantId,
        server: &Server,
        what: Announced,
        right: Right,
    ) -> Result<usize, ListingError> {
        let kinds = match what {
            Announced::Prompts => &[ListKind::Prompts][..],
            _ => &[ListKind::Resources, ListKind::Templates][..],
        };
        let listed = self.list_kinds(tenant, server, kinds, right, |_| false).await;
        if let Err(ListingError::Store(StoreError::Conflict(_) | StoreError::NotFound)) = &listed {
            self.end_unless_on(tenant, server.id()).await;
        }
        let (changes, unread) = listed?;
        unread.map_or(Ok(changes), |why| Err(ListingError::Here(why)))
    }

    /// Lists all of it because it is time, unless that took too long a short while ago, or because somebody asks for it.
    pub(super) async fn list_others(
        &self,
        tenant: TenantId,
        server: &Server,
        right: Right,
    ) -> Result<usize, ListingError> {
        let is_asked = right == Right::Asked;
        let rests = |rests| rests && !is_asked;
        Ok(self.list_kinds(tenant, server, &ListKind::OTHERS, right, rests).await?.0)
    }

    async fn list_kinds(
        &self,
        tenant: TenantId,
        server: &Server,
        kinds: &[ListKind],
        right: Right,
        leaves: impl FnOnce(bool) -> bool,
    ) -> Result<(usize, Option<String>), ListingError> {
        let connection = self.connection_for_listing(tenant, server).await?;
        let mut turn = connection.turn_of_others().await;
        if leaves(turn.rests(Instant::now())) {
            return Ok((0, None));
        }
        let found = Found::of(tenant, server, connection.list_others(kinds).await);
        if found.is_slow {
            turn.was_slow(Instant::now());
        } else if kinds == ListKind::OTHERS {
            turn.was_quick();
        }
        if self.is_draining()
            && let Some(why) = found.unread
        {
            // its programs and connections end with this replica; the others go on
            return Err(ListingError::Here(why));
        }
        let (new, quotas) = (found.as_new(), &self.options.quotas);
        let applied =
            self.store.apply_offers(tenant, server.id(), server.version, (&new, right), quotas).await?;
        drop(turn);
        if let Some(remark) = applied.remark {
            self.log_server(tenant, server.id(), &remark);
        }
        if let Some(rev) = applied.rev {
            self.applied(tenant, Kind::Catalogue, rev).await;
        }
        Ok((applied.changes, found.unread))
    }
}

impl Found {
    fn of(tenant: TenantId, server: &Server, listed: Vec<Listed>) -> Found {
        let mut found = Found::default();
        for (kind, listed) in listed {
            match listed {
                Ok(listing) => {
                    warn_of_problems(tenant, server, &listing);
                    *found.of_kind(kind) = Some(discovered(&listing, usize::MAX));
                }
                Err(error) => {
                    let why = format!("its {} could not be listed: {}", nouns(kind), error.whole());
                    let why = redact::preview(&why, ERROR_BYTES_MAX).text;
                    found.is_slow |= error.kind == UpstreamKind::Timeout;
                    if !matches!(error.kind, UpstreamKind::Invalid | UpstreamKind::TooLarge) {
                        found.unread = Some(why.clone());
                    }
                    // that there is no place here says nothing about the server
                    if error.kind != UpstreamKind::NoPlace {
                        found.faults.push((stored(kind), why));
                    }
                }
            }
        }
        found
    }

    fn of_kind(&mut self, kind: ListKind) -> &mut Option<Vec<Discovered>> {
        match stored(kind) {
            OfferKind::Prompt => &mut self.prompts,
            OfferKind::Resource => &mut self.resources,
            OfferKind::Template => &mut self.templates,
        }
    }

    fn as_new(&self) -> NewOffers<'_> {
        NewOffers {
            prompts: self.prompts.as_deref(),
            resources: self.resources.as_deref(),
            templates: self.templates.as_deref(),
            faults: &self.faults,
        }
    }
}

fn nouns(kind: ListKind) -> &'static str {
    match stored(kind) {
        OfferKind::Prompt => "prompts",
        OfferKind::Resource => "resources",
        OfferKind::Template => "templates of resources",
    }
}

fn stored(kind: ListKind) -> OfferKind {
    match kind {
        // tools are none of these
        ListKind::Prompts | ListKind::Tools => OfferKind::Prompt,
        ListKind::Resources => OfferKind::Resource,
        ListKind::Templates => OfferKind::Template,
    }
}
