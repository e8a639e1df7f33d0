//! Order of the listings of one server, whichever replicas make them.
//!
//! Listings that run at the same time have no order: the first to begin may be the last to read. So a listing is stored
//! only if the tally is as it was before the server was asked; then all stored data is older. No lock is held
//! meanwhile, so nothing waits for a replica that is slow or gone. Releases without tallies neither count nor compare.

use sqlx::FromRow;

use super::found::NewOffers;
use crate::domain::id::{ServerId, TenantId};
use crate::domain::offer::OfferKind;
use crate::store::tx::{Lane, TxAccess};
use crate::store::{Store, StoreError};

/// Number of times that each list of a server was stored. Failed listings of the tools count as well, since they
/// disconnect the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromRow)]
pub struct Tally {
    tools_listings: i64,
    prompts_listings: i64,
    resources_listings: i64,
    templates_listings: i64,
}

/// Stored state of a server, read before the server is asked. The kinds matter because offers that the server no longer
/// declares are removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Before {
    /// Tally of the server.
    pub tally: Tally,
    /// Kinds of which offers are stored.
    pub stored: Vec<OfferKind>,
}

#[derive(FromRow)]
struct Row {
    #[sqlx(flatten)]
    tally: Tally,
    stored: Vec<String>,
}

impl Tally {
    /// Returns whether a listing of the tools was stored since `since`, successful or not.
    pub(super) fn has_newer_tools(&self, since: &Tally) -> bool {
        self.tools_listings != since.tools_listings
    }

    /// Returns the kinds that `found` asked for and of which another listing was stored since `since`.
    pub(super) fn newer_of(&self, found: &NewOffers<'_>, since: &Tally) -> Vec<OfferKind> {
        let is_newer = |kind: &OfferKind| self.of(*kind) != since.of(*kind);
        OfferKind::ALL.into_iter().filter(|kind| found.tells_of(*kind)).filter(is_newer).collect()
    }

    fn of(&self, kind: OfferKind) -> i64 {
        match kind {
            OfferKind::Prompt => self.prompts_listings,
            OfferKind::Resource => self.resources_listings,
            OfferKind::Template => self.templates_listings,
        }
    }
}

impl Store {
    /// Returns the tally of a server at `version`, and the kinds of offers stored. Read it before the server is asked.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the server has changed meanwhile. Other errors come from the database.
    pub async fn tally(
        &self,
        tenant: TenantId,
        server: ServerId,
        version: i64,
    ) -> Result<Before, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        let row: Option<Row> = sqlx::query_as(
            "select tools_listings, prompts_listings, resources_listings, templates_listings,
                 array(select kind from unnest($4::text[]) as kinds (kind) where exists (
                     select from offers o where o.tenant_id = $1 and o.server_id = $2 and o.kind = kinds.kind)) as stored
             from servers
             where tenant_id = $1 and server_id = $2 and removed_at is null and version = $3",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(version)
        .bind(OfferKind::ALL.map(OfferKind::as_str))
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        let before = row.map(|Row { tally, stored }| Before {
            tally,
            stored: stored.iter().filter_map(|kind| OfferKind::parse(kind)).collect(),
        });
        before.ok_or(StoreError::Conflict("the server changed before it was listed"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_listed_since_is_told_kind_by_kind() {
        let since =
            Tally { tools_listings: 1, prompts_listings: 2, resources_listings: 3, templates_listings: 4 };
        let now = Tally { prompts_listings: 3, templates_listings: 5, ..since };
        assert!(!now.has_newer_tools(&since));
        assert!(Tally { tools_listings: 2, ..since }.has_newer_tools(&since));
        assert_eq!(now.newer_of(&NewOffers::NONE, &since), [OfferKind::Prompt, OfferKind::Template]);
        assert!(since.newer_of(&NewOffers::NONE, &since).is_empty());
        let failed = NewOffers { templates: Some(Err("away")), ..NewOffers::default() };
        assert_eq!(
            now.newer_of(&failed, &since),
            [OfferKind::Template],
            "what was not asked for is no matter"
        );
        let left = NewOffers::NONE.without(&now.newer_of(&NewOffers::NONE, &since));
        assert_eq!(OfferKind::ALL.map(|kind| left.tells_of(kind)), [false, true, false]);
    }
}
