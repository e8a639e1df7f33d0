//! What people decide about tools: approvals, blocks, overrides.

use sqlx::FromRow;

use super::locks::lock_server;
use super::revisions::{self, RevisionKind};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::{KeyId, ServerId, TenantId};
use crate::domain::overrides::Override;

/// An override that is to be.
#[derive(Clone, Debug)]
pub struct NewOverride {
    /// What is said, and of which definition.
    pub said: Override,
    /// The version of the one that it replaces, if that matters; 0 for none.
    pub version: Option<i64>,
    /// Who says so.
    pub by: Option<KeyId>,
}

/// A tool's row, as far as a decision needs it.
#[derive(FromRow)]
struct Decided {
    pin: String,
    state: String,
    override_version: i64,
    is_overridden: bool,
}

/// A decision under way: nobody lists the server or decides about its tools until it ends.
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

    /// What was looked at has to be what is there.
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
    /// Begins a decision about something that a server offers. A listing reads what was decided before it takes the
    /// revision: the server's row is locked first, as it does, or a listing under way would write over the decision.
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

    /// Approves a tool's current definition, if it still is the one that was reviewed; a block ends with that.
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
    pub async fn block_tool(
        &self,
        tenant: TenantId,
        server: ServerId,
        tool: &str,
        by: Option<KeyId>,
    ) -> Result<(), StoreError> {
        let mut decision = self.decide(tenant, server, tool).await?;
        if decision.tool.state == "blocked" {
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

    /// Lifts a block: the tool is what it would be without. Nothing is approved by that.
    pub async fn unblock_tool(
        &self,
        tenant: TenantId,
        server: ServerId,
        tool: &str,
    ) -> Result<(), StoreError> {
        let mut decision = self.decide(tenant, server, tool).await?;
        if decision.tool.state != "blocked" {
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

    /// Says of a tool what stands in the place of what its server says, if the definition still is the one that was
    /// looked at, and the override the one that is to be replaced.
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

    /// Takes away what was said of a tool.
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
