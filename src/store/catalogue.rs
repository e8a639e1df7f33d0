//! Catalogue of a tenant, read in one consistent snapshot.

use super::offers::{self, StoredOffer};
use super::revisions::{self, RevisionKind};
use super::secrets::{self, SecretRows};
use super::servers::{Server, server_columns};
use super::tools::{StoredTool, ToolRow, select_tools};
use super::tx::{Lane, TxAccess};
use super::{Store, StoreError, quotas};
use crate::domain::id::TenantId;

/// Catalogue of a tenant, as returned by [`Store::load_catalogue`].
#[derive(Clone, Debug)]
pub struct CatalogueRows {
    /// Revision of this snapshot.
    pub rev: i64,
    /// Servers, by name.
    pub servers: Vec<Server>,
    /// Present tools of all servers, in no order.
    pub tools: Vec<StoredTool>,
    /// Prompts, resources and templates of all servers, the longest offered first.
    pub offers: Vec<StoredOffer>,
    /// Sealed headers that the servers are called with, and the keys to open them.
    pub secrets: SecretRows,
}

impl Store {
    /// Returns the catalogue of a tenant in one consistent snapshot: servers, present tools, offers, credentials and
    /// revision.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted, [`StoreError::Inconsistent`] if a row holds a value that this
    /// version does not know. Other errors come from the database.
    pub async fn load_catalogue(&self, tenant: TenantId) -> Result<CatalogueRows, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(tenant)).await?;
        // a deleted tenant has no catalogue
        quotas::own(&mut tx, tenant).await?;
        let rev = revisions::current(&mut tx, tenant, RevisionKind::Catalogue).await?;
        let servers: Vec<Server> = sqlx::query_as(concat!(
            "select ",
            server_columns!(),
            " from servers where tenant_id = $1 and removed_at is null order by name"
        ))
        .bind(tenant.0)
        .fetch_all(&mut *tx)
        .await?;
        let tools: Vec<ToolRow> = sqlx::query_as(select_tools!(
            "case when t.approved_pin <> t.pin then t.approved_definition end",
            ""
        ))
        .bind(tenant.0)
        .fetch_all(&mut *tx)
        .await?;
        let offers = offers::load(&mut tx, tenant).await?;
        let sealed = servers.iter().any(|server| !server.header_names.is_empty());
        let secrets =
            if sealed { secrets::load(&mut tx, tenant, None).await? } else { SecretRows::default() };
        tx.commit().await?;
        let tools = tools.into_iter().map(StoredTool::try_from).collect::<Result<Vec<_>, _>>()?;
        Ok(CatalogueRows { rev, servers, tools, offers, secrets })
    }
}
