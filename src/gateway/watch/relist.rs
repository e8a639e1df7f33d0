//! Listing every enabled server again, on the one replica that holds the lease for it.

use std::sync::PoisonError;
use std::time::Instant;

use futures_util::StreamExt;

use super::Gateway;
use crate::domain::id::ServerId;
use crate::store::{DueServer, Lease, StoreError};

/// Servers listed at the same time by the one replica that re-lists.
const RELISTS_MAX: usize = 16;
pub(super) const RELIST_PAGE: i64 = 500;

impl Gateway {
    /// Lists all enabled servers again when it is time, if this replica holds the lease for it.
    pub(super) async fn relist_if_due(&self) -> Result<(), StoreError> {
        let Some(Lease { .. }) = self.store.take_lease("relist", self.replica).await? else { return Ok(()) };
        let due = {
            let mut last = self.upkeep.relisted.lock().unwrap_or_else(PoisonError::into_inner);
            let due = last.is_none_or(|at| at.elapsed() >= self.options.relist_interval);
            if due {
                *last = Some(Instant::now());
            }
            due
        };
        if due { self.relist().await } else { Ok(()) }
    }

    async fn relist(&self) -> Result<(), StoreError> {
        let mut after = ServerId(uuid::Uuid::nil());
        loop {
            let page = self.store.enabled_servers(after, RELIST_PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = last.server;
            futures_util::stream::iter(page)
                .for_each_concurrent(RELISTS_MAX, |due| async move { self.relist_one(&due).await })
                .await;
        }
    }

    async fn relist_one(&self, due: &DueServer) {
        if self.announces_and_answers(due).await {
            return;
        }
        let listed = match self.store.get_server(due.tenant, &due.name).await {
            Ok(server) if server.id() == due.server => self
                .list_server(due.tenant, &server)
                .await
                .map(|found| self.upkeep.streams.relisted(due, &found)),
            Ok(_) | Err(StoreError::NotFound) => Ok(()),
            Err(error) => Err(error.into()),
        };
        if let Err(error) = listed {
            tracing::debug!(tenant = %due.tenant, server = due.name, %error, "a server could not be listed again");
        }
    }
}
