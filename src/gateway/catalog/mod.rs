//! Catalogues: snapshots of a tenant's servers and tools, the views that callers have of them, and the lists and schemas
//! made of definitions. This module knows neither keys nor live tenants.

mod lists;
mod offers;
mod schemas;
mod snapshot;
mod tool;

pub use self::lists::{ListKey, ListPlan};
pub use self::offers::Offer;
pub use self::snapshot::Catalog;
pub use self::snapshot::states::{ServerState, ServerStates};
pub use self::snapshot::views::direct::{DirectPage, DirectView};
pub use self::snapshot::views::offers::{OffersPage, OffersView};
pub use self::snapshot::views::{ToolCounts, View};
pub use self::tool::{ServerEntry, Tool};

pub(in crate::gateway) use self::offers::Offers;
pub(in crate::gateway) use self::schemas::SchemaCheck;
pub(in crate::gateway) use self::snapshot::views::{Away, ViewKey, sees};
pub(in crate::gateway) use self::tool::target;

use std::sync::Arc;

use self::lists::Lists;
use self::schemas::Schemas;
use super::Ground;
use crate::domain::id::TenantId;
use crate::upstream::Pool;

/// Caches for all tenants that are made of definitions: finished lists and compiled schemas.
pub(in crate::gateway) struct Catalogs {
    upstreams: Arc<Pool>,
    lists: Lists,
    schemas: Schemas,
}

impl Catalogs {
    pub(super) fn new(ground: &Ground) -> Catalogs {
        Catalogs {
            upstreams: Arc::clone(&ground.upstreams),
            lists: Lists::new(ground.options.lists_bytes_max),
            schemas: Schemas::new(ground.options.schemas_bytes_max),
        }
    }

    /// Drops the lists and schemas of a deleted tenant.
    pub(super) fn forget(&self, tenant: TenantId) {
        self.lists.forget(tenant);
        self.schemas.forget(tenant);
    }
}

#[cfg(test)]
pub(in crate::gateway) use self::snapshot::tests;
