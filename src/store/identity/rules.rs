//! Rules of a tenant that map claims to a role, as one document.

use crate::domain::id::TenantId;
use crate::store::revisions::{self, RevisionKind};
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError};

/// Rules of a tenant, as stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredRules {
    /// Number of changes; 0 before the first rules.
    pub version: i64,
    /// Rules, a JSON array in which issuers are named by their ids; empty before the first.
    pub rules: String,
}

impl Store {
    /// Returns the rules of a tenant.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn identity_rules(&self, tenant: TenantId) -> Result<StoredRules, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rules = in_force(&mut tx, tenant).await?;
        tx.commit().await?;
        Ok(rules)
    }

    /// Replaces the rules of a tenant. Returns their new version.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if the rules have another version than `replaces`, [`StoreError::NotFound`] if the tenant is
    /// deleted. Other errors come from the database.
    pub async fn put_identity_rules(
        &self,
        tenant: TenantId,
        replaces: i64,
        rules: &str,
    ) -> Result<i64, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump(&mut tx, tenant, RevisionKind::Access).await?;
        // the revision's row lock makes this read current
        if in_force(&mut tx, tenant).await?.version != replaces {
            return Err(StoreError::Conflict("the rules changed since that version"));
        }
        sqlx::query(
            "insert into identity_rules (tenant_id, version, rules, rev) values ($1, $2, $3, $4)
             on conflict (tenant_id) do update set version = excluded.version, rules = excluded.rules,
                 rev = excluded.rev",
        )
        .bind(tenant.0)
        .bind(replaces + 1)
        .bind(rules)
        .bind(rev)
        .execute(&mut *tx)
        .await?;
        revisions::commit(tx, tenant, RevisionKind::Access, rev).await?;
        Ok(replaces + 1)
    }
}

/// Returns the rules of a tenant, within a transaction.
pub(in crate::store) async fn in_force(tx: &mut Unit, tenant: TenantId) -> Result<StoredRules, StoreError> {
    let row: Option<(i64, String)> =
        sqlx::query_as("select version, rules from identity_rules where tenant_id = $1")
            .bind(tenant.0)
            .fetch_optional(&mut **tx)
            .await?;
    Ok(row.map(|(version, rules)| StoredRules { version, rules }).unwrap_or_default())
}
