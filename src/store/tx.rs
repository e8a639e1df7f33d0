//! Units of work: one transaction, one role, nothing that outlives it.

use sqlx::{AssertSqlSafe, PgPool, Postgres, Transaction};

use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// As whom a unit of work runs.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// One tenant's rows, by row-level security.
    Tenant(TenantId),
    /// One tenant's rows in one consistent picture, read only.
    TenantSnapshot(TenantId),
    /// Cross-tenant jobs only (`store/system`).
    System,
    /// Partition upkeep.
    Owner,
}

/// Which connections a unit of work may use.
#[derive(Clone, Copy, Debug)]
pub(super) enum Lane {
    /// Short work of requests and background tasks.
    Control,
    /// Commits of the activity log.
    Commit,
    /// Reading the activity log.
    Report,
}

/// Tries a fresh connection this often when the line was broken before anything was asked.
/// More often than a pool has connections: after a restart of Postgres every one of them is stale.
pub(super) const BEGIN_ATTEMPTS: u32 = 20;

impl Store {
    /// Begins a unit of work: isolation, role and tenant in one round trip, all of it local to the
    /// transaction, since poolers leak whatever is not.
    pub(super) async fn begin(
        &self,
        lane: Lane,
        access: Access,
    ) -> Result<Transaction<'static, Postgres>, StoreError> {
        let statement = format!("{}{}", begin_statement(access), local_settings(lane));
        let mut attempt = 1;
        loop {
            match self.pool(lane).begin_with(AssertSqlSafe(statement.clone())).await {
                Ok(tx) => return Ok(tx),
                Err(sqlx::Error::PoolTimedOut) => return Err(sqlx::Error::PoolTimedOut.into()),
                Err(error) if attempt < BEGIN_ATTEMPTS && StoreError::is_broken_line(&error) => attempt += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn pool(&self, lane: Lane) -> &PgPool {
        match lane {
            Lane::Control => &self.control,
            Lane::Commit => &self.commit,
            Lane::Report => &self.report,
        }
    }
}

/// What holds for the length of the transaction, whatever the login's own settings are.
fn local_settings(lane: Lane) -> &'static str {
    match lane {
        Lane::Control => "",
        // a record that is said to be committed survives a crash of the database (behaviour, section 9)
        Lane::Commit => ", set_config('synchronous_commit', 'on', true)",
        Lane::Report => ", set_config('statement_timeout', '10000', true)",
    }
}

/// The statement holds no text of a caller: a uuid and names of ours.
fn begin_statement(access: Access) -> String {
    match access {
        Access::Tenant(tenant) => format!(
            "begin; select set_config('role', 'mcpproxy_app', true), set_config('app.tenant', '{tenant}', true)"
        ),
        Access::TenantSnapshot(tenant) => format!(
            "begin isolation level repeatable read read only; \
             select set_config('role', 'mcpproxy_app', true), set_config('app.tenant', '{tenant}', true)"
        ),
        Access::System => "begin; select set_config('role', 'mcpproxy_system', true)".to_owned(),
        Access::Owner => "begin; select set_config('role', 'mcpproxy_owner', true)".to_owned(),
    }
}
