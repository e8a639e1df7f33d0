//! Decisions of people about tools: approvals, blocks, overrides.

use sqlx::FromRow;

use super::locks::lock_server;
use super::revisions::{self, RevisionKind};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError, Stored};
use crate::domain::id::{KeyId, ServerId, TenantId};
use crate::domain::overrides::Override;
use crate::domain::tool::PinState;

/// An override to be stored.
#[derive(Clone, Debug)]
pub struct NewOverride {
    /// Annotations to set, and the pin of the definition that they are for.
    pub said: Override,
    /// Version of the override to be replaced, 0 for none; `None` for any.
    pub version: Option<i64>,
    /// Key that makes the override; `None` for the bootstrap key.
    pub by: Option<KeyId>,
}

/// Columns of a tool's row that a decision needs.
#[derive(FromRow)]
struct Decided {
    pin: String,
    state: Stored<PinState>,
    override_version: i64,
    is_overridden: bool,
}

/// A decision under way: until it ends, no listing of the server and no other decision is stored.
struct Decision {
    tx: Unit,
    tenant: TenantId,
    rev: i64,
    tool: Decided,
}

impl Decision {
    async fn commit(self) -> Result<(), StoreError> {
        revisions::commit(self.tx, self.tenant, RevisionKind::Catalogue, self.rev).await.map(drop)
    }

    /// Refuses a decision if the reviewed definition is not the current one.
    fn expect_pin(&self, pin: &str) -> Result<(), StoreError> {
        expect_pin(&self.tool.pin, pin)
    }
}

/// Refuses a decision about a definition that is not the current one.
pub(super) fn expect_pin(current: &str, reviewed: &str) -> Result<(), StoreError> {
    if current == reviewed {
        return Ok(());
    }
    Err(StoreError::Conflict("the definition is not the one with this pin any more"))
}

impl Store {
    /// Begins a decision about something that a server offers. It locks the server's row before the revision, as
    /// listings do. Otherwise a listing under way would overwrite the decision.
    pub(super) async fn begin_decision(
        &self,
        tenant: TenantId,
        server: ServerId,
    ) -> Result<(Unit, i64), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        lock_server(&mut tx, tenant, server).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Catalogue).await?;
        Ok((tx, rev))
    }

    async fn decide(&self, tenant: TenantId, server: ServerId, tool: &str) -> Result<Decision, StoreError> {
        let (mut tx, rev) = self.begin_decision(tenant, server).await?;
        let found: Option<Decided> = sqlx::query_as(
            "select pin, state, override_version, override_annotations is not null as is_overridden from tools
             where tenant_id = $1 and server_id = $2 and name = $3 and removed_at is null",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(tool)
        .fetch_optional(&mut *tx)
        .await?;
        Ok(Decision { tx, tenant, rev, tool: found.ok_or(StoreError::NotFound)? })
    }

    /// Approves a tool's current definition, if its pin is still `pin`, and lifts a block.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the current definition has another pin. [`StoreError::NotFound`] if the server does
    /// not offer the tool, or the tenant is deleted. Other errors come from the database.
    pub async fn approve_tool(
        &self,
        tenant: TenantId,
        server: ServerId,
        tool: &str,
        pin: &str,
        by: Option<KeyId>,
    ) -> Result<(), StoreError> {
        let mut decision = self.decide(tenant, server, tool).await?;
        decision.expect_pin(pin)?;
        sqlx::query(
            "update tools set state = 'approved', approved_pin = pin, approved_definition = definition,
                 approved_by = $4, blocked_by = null, drift = null, drifted_at = null, rev = $5
             where tenant_id = $1 and server_id = $2 and name = $3",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(tool)
        .bind(by.map(|key| key.0))
        .bind(decision.rev)
        .execute(&mut *decision.tx)
        .await?;
        decision.commit().await
    }

    /// Blocks a tool, whatever its definition is or becomes.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server does not offer the tool, or the tenant is deleted. Other errors come from
    /// the database.
    pub async fn block_tool(
        &self,
        tenant: TenantId,
        server: ServerId,
        tool: &str,
        by: Option<KeyId>,
    ) -> Result<(), StoreError> {
        let mut decision = self.decide(tenant, server, tool).await?;
        if decision.tool.state == PinState::Blocked {
            return Ok(());
        }
        sqlx::query(
            "update tools set state = 'blocked', blocked_by = $4, rev = $5
             where tenant_id = $1 and server_id = $2 and name = $3",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(tool)
        .bind(by.map(|key| key.0))
        .bind(decision.rev)
        .execute(&mut *decision.tx)
        .await?;
        decision.commit().await
    }

    /// Lifts the block of a tool; nothing is approved by that.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server does not offer the tool, or the tenant is deleted. Other errors come from
    /// the database.
    pub async fn unblock_tool(
        &self,
        tenant: TenantId,
        server: ServerId,
        tool: &str,
    ) -> Result<(), StoreError> {
        let mut decision = self.decide(tenant, server, tool).await?;
        if decision.tool.state != PinState::Blocked {
            return Ok(());
        }
        sqlx::query(
            "update tools set blocked_by = null, rev = $4,
                 state = case when approved_pin = pin then 'approved' when approved_pin is not null then 'changed'
                     else 'pending' end
             where tenant_id = $1 and server_id = $2 and name = $3",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(tool)
        .bind(decision.rev)
        .execute(&mut *decision.tx)
        .await?;
        decision.commit().await
    }

    /// Overrides annotations of a tool, if the reviewed definition and the override to be replaced are still current.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the current definition has another pin, or the override another version.
    /// [`StoreError::NotFound`] if the server does not offer the tool, or the tenant is deleted. Other errors come from
    /// the database.
    pub async fn override_tool(
        &self,
        tenant: TenantId,
        server: ServerId,
        tool: &str,
        NewOverride { said, version, by }: &NewOverride,
    ) -> Result<(), StoreError> {
        let mut decision = self.decide(tenant, server, tool).await?;
        decision.expect_pin(&said.pin)?;
        let Decided { override_version, is_overridden, .. } = decision.tool;
        let current = if is_overridden { override_version } else { 0 };
        if version.is_some_and(|version| version != current) {
            return Err(StoreError::Conflict("the override changed since that version"));
        }
        sqlx::query(
            "update tools set override_annotations = $4, override_pin = $5, override_version = override_version + 1,
                 override_by = $6, overridden_at = now(), rev = $7
             where tenant_id = $1 and server_id = $2 and name = $3",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(tool)
        .bind(said.hints.text())
        .bind(&said.pin)
        .bind(by.map(|key| key.0))
        .bind(decision.rev)
        .execute(&mut *decision.tx)
        .await?;
        decision.commit().await
    }

    /// Removes the override of a tool.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the server does not offer the tool, or the tenant is deleted. Other errors come from
    /// the database.
    pub async fn clear_override(
        &self,
        tenant: TenantId,
        server: ServerId,
        tool: &str,
    ) -> Result<(), StoreError> {
        let mut decision = self.decide(tenant, server, tool).await?;
        if !decision.tool.is_overridden {
            return Ok(());
        }
        sqlx::query(
            "update tools set override_annotations = null, override_pin = null, override_by = null,
                 overridden_at = null, rev = $4
             where tenant_id = $1 and server_id = $2 and name = $3",
        )
        .bind(tenant.0)
        .bind(server.0)
        .bind(tool)
        .bind(decision.rev)
        .execute(&mut *decision.tx)
        .await?;
        decision.commit().await
    }
}
