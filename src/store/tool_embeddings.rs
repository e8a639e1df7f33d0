//! Vectors that an embeddings service made of definitions.

use sqlx::FromRow;
use uuid::Uuid;

use super::revisions::{self, RevisionKind};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Most definitions of a tenant that have a vector, in each space.
pub const EMBEDDED_PER_TENANT_MAX: i64 = 20_000;
/// Rows deleted in one transaction.
const DELETED_BATCH: i64 = 500;

/// A definition without a vector.
#[derive(Clone, Debug, FromRow)]
pub struct Unembedded {
    /// Digest of the definition.
    pub pin: String,
    /// Name of the tool at its server.
    pub name: String,
    /// Definition as discovered.
    pub definition: String,
}

/// Vectors of a tenant that were stored after a given revision.
#[derive(Clone, Debug)]
pub struct EmbeddingRows {
    /// Revision of this snapshot.
    pub rev: i64,
    /// Vectors by pin, the newest first.
    pub vectors: Vec<(String, Vec<u8>)>,
}

impl Store {
    /// Returns served tenants after `after`, by id, with a searchable definition that has no vector in `space`.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn tenants_to_embed(
        &self,
        space: &str,
        after: TenantId,
        limit: usize,
    ) -> Result<Vec<TenantId>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let tenants: Vec<Uuid> = sqlx::query_scalar(
            "select a.tenant_id from tenants a
             where a.tenant_id > $2 and a.deleted_at is null and a.suspended_at is null and exists (
                 select from tools t
                 join servers s on s.tenant_id = t.tenant_id and s.server_id = t.server_id
                 where t.tenant_id = a.tenant_id and t.removed_at is null and t.state = 'approved' and s.enabled
                   and not s.quarantined and s.removed_at is null
                   and not exists (select from tool_embeddings e
                       where e.tenant_id = t.tenant_id and e.space = $1 and e.pin = t.pin))
             order by a.tenant_id limit $3",
        )
        .bind(space)
        .bind(after.0)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(tenants.into_iter().map(TenantId).collect())
    }

    /// Returns some of a served tenant's searchable definitions after `after`, by pin, that have no vector in `space`
    /// and are not in `except`. Returns none once the tenant has as many vectors as it may have.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn definitions_to_embed(
        &self,
        tenant: TenantId,
        space: &str,
        after: &str,
        except: &[String],
        limit: usize,
    ) -> Result<Vec<Unembedded>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        let rows = sqlx::query_as(
            "select distinct on (t.pin) t.pin, t.name, t.definition from tools t
             join servers s on s.tenant_id = t.tenant_id and s.server_id = t.server_id
             join tenants a on a.tenant_id = t.tenant_id
             where t.tenant_id = $1 and a.deleted_at is null and a.suspended_at is null
               and t.removed_at is null and t.state = 'approved' and s.enabled
               and not s.quarantined and s.removed_at is null and t.pin > $3 and t.pin <> all($4)
               and not exists (select from tool_embeddings e
                   where e.tenant_id = $1 and e.space = $2 and e.pin = t.pin)
             order by t.pin
             limit least($5, greatest(0, $6 - (
                 select count(*) from tool_embeddings e where e.tenant_id = $1 and e.space = $2)))",
        )
        .bind(tenant.0)
        .bind(space)
        .bind(after)
        .bind(except)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .bind(EMBEDDED_PER_TENANT_MAX)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(rows)
    }

    /// Stores vectors by pin and notifies every replica. Returns the new revision; `None` if all of them were stored
    /// before.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn keep_embeddings(
        &self,
        tenant: TenantId,
        space: &str,
        vectors: &[(String, Vec<u8>)],
    ) -> Result<Option<i64>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        let rev = revisions::bump_or_begin(&mut tx, tenant, RevisionKind::Vectors).await?;
        let kept = sqlx::query(
            "insert into tool_embeddings (tenant_id, space, pin, vector, rev)
             select $1, $2, pin, vector, $5 from unnest($3::text[], $4::bytea[]) as f (pin, vector)
             on conflict do nothing",
        )
        .bind(tenant.0)
        .bind(space)
        .bind(vectors.iter().map(|(pin, _)| pin.as_str()).collect::<Vec<_>>())
        .bind(vectors.iter().map(|(_, vector)| vector.as_slice()).collect::<Vec<_>>())
        .bind(rev)
        .execute(&mut *tx)
        .await?;
        if kept.rows_affected() == 0 {
            return Ok(None);
        }
        revisions::commit(tx, tenant, RevisionKind::Vectors, rev).await.map(Some)
    }

    /// Returns a tenant's vectors in `space` that were stored after revision `after`.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn load_embeddings(
        &self,
        tenant: TenantId,
        space: &str,
        after: i64,
    ) -> Result<EmbeddingRows, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(tenant)).await?;
        let rev = match revisions::current(&mut tx, tenant, RevisionKind::Vectors).await {
            Err(StoreError::NotFound) => 0,
            rev => rev?,
        };
        let vectors = sqlx::query_as(
            "select pin, vector from tool_embeddings
             where tenant_id = $1 and space = $2 and rev > $3 order by rev desc limit $4",
        )
        .bind(tenant.0)
        .bind(space)
        .bind(after)
        .bind(EMBEDDED_PER_TENANT_MAX)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(EmbeddingRows { rev, vectors })
    }

    /// Deletes a batch of vectors whose definition no tool has any more, or whose space no known replica uses
    /// ([`Store::forget_replicas`]). Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_old_embeddings(&self) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let deleted = sqlx::query(
            "delete from tool_embeddings where (tenant_id, space, pin) in (
                 select e.tenant_id, e.space, e.pin from tool_embeddings e
                 where not exists (select from replicas r where r.embedding_space = e.space)
                    or not exists (select from tools t
                        where t.tenant_id = e.tenant_id and t.pin = e.pin and t.removed_at is null)
                 limit $1)",
        )
        .bind(DELETED_BATCH)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == DELETED_BATCH as u64)
    }
}

/// Deletes the vectors of a deleted tenant.
pub(super) async fn remove_all(tx: &mut Unit, tenant: TenantId) -> Result<(), StoreError> {
    sqlx::query("delete from tool_embeddings where tenant_id = $1").bind(tenant.0).execute(&mut **tx).await?;
    Ok(())
}
