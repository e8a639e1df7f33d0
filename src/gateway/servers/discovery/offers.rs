//! Listing of a server's prompts, resources and templates.

use tokio::time::Instant;

use super::{ERROR_BYTES_MAX, ListingError, discovered, doubt, stored, warn_of_problems};
use crate::domain::id::TenantId;
use crate::domain::offer::OfferKind;
use crate::domain::redact;
use crate::gateway::servers::Servers;
use crate::store::{
    AppliedOffers, Discovered, FoundOffers, NewOffers, RevisionKind, Right, Server, StoreError,
};
use crate::upstream::{
    Announced, Connection, Doubt, FailureKind as UpstreamKind, ListKind, Listed, Slowness,
};

/// Storable definitions of a list, or the reason why it could not be read; `None` if neither is known.
type FoundOf = Option<Result<Vec<Discovered>, String>>;

/// Result of reading a server's lists other than tools.
#[derive(Default)]
struct Found {
    prompts: FoundOf,
    resources: FoundOf,
    templates: FoundOf,
    /// True if a list took too long.
    is_slow: bool,
    /// Lists that failed now but may succeed later, with the reason.
    unread: Vec<(OfferKind, String)>,
}

/// Result of storing these lists.
struct ListedKinds {
    changes: usize,
    rev: Option<i64>,
    /// Reason why a list failed that may succeed later; `None` if none did.
    unread: Option<String>,
    /// Kinds that another replica has stored meanwhile.
    overtaken: Vec<OfferKind>,
    /// Kinds that were stored as found.
    stored: Vec<OfferKind>,
}

impl Servers {
    /// Lists the prompts, or the resources and templates, of a server that announced a change, and stores them. Returns the
    /// number of changes.
    ///
    /// # Errors
    /// [`ListingError::Here`] if a list failed that may succeed later; the others are stored. A list that the server cannot
    /// give is noted at the server, and is no error.
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

    /// Lists all of these kinds. A scheduled listing is skipped if the last one was too slow a short while ago.
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
        let first = self.list_kinds_once(tenant, server, (&connection, kinds, &[]), &mut turn, right).await?;
        // as with tools that another replica has stored meanwhile
        let again = kinds.iter().copied().filter(|kind| first.overtaken.contains(&stored(*kind)));
        let again: Vec<ListKind> = again.collect();
        if again.is_empty() {
            return Ok((first.changes, first.unread));
        }
        let right = right.after(first.rev);
        let rest = (&*connection, &again[..], &first.stored[..]);
        let last = self.list_kinds_once(tenant, server, rest, &mut turn, right).await?;
        Ok((first.changes + last.changes, first.unread.or(last.unread)))
    }

    async fn list_kinds_once(
        &self,
        tenant: TenantId,
        server: &Server,
        (connection, kinds, already): (&Connection, &[ListKind], &[OfferKind]),
        turn: &mut Slowness,
        right: Right,
    ) -> Result<ListedKinds, ListingError> {
        let before = self.store.tally(tenant, server.id(), server.version).await?;
        let doubt = match kinds == ListKind::OTHERS {
            true => doubt(&before, right),
            // a server that announces changes of a kind has that kind
            false => Doubt { kinds: kinds.to_vec(), since: Instant::now() },
        };
        let listed = connection.list_others(kinds, &doubt).await;
        let found = Found::of(tenant, server, listed);
        if found.is_slow {
            turn.was_slow(Instant::now());
        } else if kinds == ListKind::OTHERS {
            turn.was_quick();
        }
        if self.life.is_draining()
            && let Some(why) = found.unread(&[])
        {
            // its programs and connections end with this replica; the others go on
            return Err(ListingError::Here(why));
        }
        let new = NewOffers { stored: already, ..found.as_new() };
        let (as_of, quotas) = ((server.version, &before.tally), &self.options.quotas);
        let applied = self.store.apply_offers(tenant, server.id(), as_of, (&new, right), quotas).await?;
        if let Some(remark) = applied.remark {
            self.log_server(tenant, server.id(), &remark);
        }
        if let Some(rev) = applied.rev {
            self.tenants.applied(tenant, RevisionKind::Catalogue, rev).await;
        }
        let unread = found.unread(&applied.overtaken);
        let AppliedOffers { changes, rev, overtaken, stored, .. } = applied;
        Ok(ListedKinds { changes, rev, unread, overtaken, stored })
    }
}

impl Found {
    fn of(tenant: TenantId, server: &Server, listed: Vec<Listed>) -> Found {
        let mut found = Found::default();
        for (kind, listed) in listed {
            match listed {
                Ok(listing) => {
                    warn_of_problems(tenant, server, &listing);
                    *found.of_kind(kind) = Some(Ok(discovered(&listing, usize::MAX)));
                }
                Err(error) => {
                    let why = format!("its {} could not be listed: {}", nouns(kind), error.whole());
                    let why = redact::preview(&why, ERROR_BYTES_MAX).text;
                    found.is_slow |= error.kind == UpstreamKind::Timeout;
                    if !matches!(error.kind, UpstreamKind::Invalid | UpstreamKind::TooLarge) {
                        found.unread.push((stored(kind), why.clone()));
                    }
                    // a lack of free slots here says nothing about the server
                    if error.kind != UpstreamKind::NoPlace {
                        *found.of_kind(kind) = Some(Err(why));
                    }
                }
            }
        }
        found
    }

    /// Returns why a list failed that may succeed later, except lists of these kinds.
    fn unread(&self, except: &[OfferKind]) -> Option<String> {
        self.unread.iter().find(|(kind, _)| !except.contains(kind)).map(|(_, why)| why.clone())
    }

    fn of_kind(&mut self, kind: ListKind) -> &mut FoundOf {
        match stored(kind) {
            OfferKind::Prompt => &mut self.prompts,
            OfferKind::Resource => &mut self.resources,
            OfferKind::Template => &mut self.templates,
        }
    }

    fn as_new(&self) -> NewOffers<'_> {
        NewOffers {
            prompts: as_found(&self.prompts),
            resources: as_found(&self.resources),
            templates: as_found(&self.templates),
            stored: &[],
        }
    }
}

fn as_found(found: &FoundOf) -> Option<FoundOffers<'_>> {
    found.as_ref().map(|found| found.as_deref().map_err(String::as_str))
}

fn nouns(kind: ListKind) -> &'static str {
    match stored(kind) {
        OfferKind::Prompt => "prompts",
        OfferKind::Resource => "resources",
        OfferKind::Template => "templates of resources",
    }
}
