//! What the servers of a tenant offer: snapshots of it, what callers see of them, and what is made of definitions.
//!
//! The lowest wing: it knows no keys and no live tenants.

mod lists;
mod offers;
mod schemas;
mod snapshot;
mod tool;

pub use self::lists::{ListKey, ListPlan};
pub use self::offers::Offer;
pub use self::snapshot::Catalog;
pub use self::snapshot::states::{ServerState, ServerStates};
pub use self::snapshot::views::View;
pub use self::snapshot::views::direct::{DirectPage, DirectView};
pub use self::snapshot::views::offers::{OffersPage, OffersView};
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

/// What is made of definitions and kept for all tenants: finished lists and compiled schemas.
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

    /// Forgets what was made for a tenant that is no more.
    pub(super) fn forget(&self, tenant: TenantId) {
        self.lists.forget(tenant);
        self.schemas.forget(tenant);
    }
}
