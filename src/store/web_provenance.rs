//! Ledger of calls that filled in forms of web pages. Rows are only ever added; the retention of the activity log deletes them.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use ulid::Ulid;
use uuid::Uuid;

use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::web_drafts::{self, DraftPlace};
use super::{Store, StoreError};
use crate::domain::id::{ServerId, TenantId};
use crate::domain::provenance::{LEDGER_ROWS_MAX, LedgerHash, LedgerLayer, LedgerPhase, LedgerRow};

/// Rows per batch: a few milliseconds of work, and one commit.
const BATCH: i64 = 1000;

#[derive(FromRow)]
struct Row {
    principal: Uuid,
    server_id: Uuid,
    step: i32,
    at: DateTime<Utc>,
    phase: String,
    layer: String,
    consent_id: Option<Uuid>,
    page_url: String,
    page_hash: Vec<u8>,
    selector: String,
    explanation: String,
    original_digest: Option<Vec<u8>>,
    new_digest: Option<Vec<u8>>,
    new_preview: Option<String>,
    orchestrator: Option<String>,
    prev_hash: Vec<u8>,
    hash: Vec<u8>,
}

impl Row {
    fn read(self) -> Result<LedgerRow, StoreError> {
        Ok(LedgerRow {
            principal: self.principal,
            server: ServerId(self.server_id),
            step: self.step,
            at: self.at,
            phase: LedgerPhase::parse(&self.phase).ok_or_else(|| unknown("phase", self.phase))?,
            layer: LedgerLayer::parse(&self.layer).ok_or_else(|| unknown("layer", self.layer))?,
            consent_id: self.consent_id,
            page_url: self.page_url,
            page_hash: hash("page_hash", self.page_hash)?,
            selector: self.selector,
            explanation: self.explanation,
            original_digest: self.original_digest.map(|raw| hash("original_digest", raw)).transpose()?,
            new_digest: self.new_digest.map(|raw| hash("new_digest", raw)).transpose()?,
            new_preview: self.new_preview,
            orchestrator: self.orchestrator,
            prev_hash: hash("prev_hash", self.prev_hash)?,
            hash: hash("hash", self.hash)?,
        })
    }
}

fn hash(column: &'static str, raw: Vec<u8>) -> Result<LedgerHash, StoreError> {
    raw.try_into().map_err(|raw: Vec<u8>| unknown(column, format!("{} bytes", raw.len())))
}

fn unknown(column: &'static str, value: String) -> StoreError {
    StoreError::Inconsistent { table: "web_provenance", column, value }
}

impl Store {
    /// Commits rows of a call, all or none. Once this returns, no crash can lose them.
    ///
    /// # Errors
    /// The database is out of reach or fails. The rows may be committed all the same.
    pub async fn add_provenance(
        &self,
        tenant: TenantId,
        record: Ulid,
        rows: &[LedgerRow],
    ) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Commit, TxAccess::Tenant(tenant)).await?;
        insert(&mut tx, tenant, record, rows).await?;
        Ok(tx.commit().await?)
    }

    /// Commits rows of a call as [`Store::add_provenance`] does, and deletes the draft that the call sends in the same transaction.
    /// Returns false, and commits nothing, if the draft has not this version any more.
    ///
    /// # Errors
    /// The database is out of reach or fails. Rows and deletion may be committed all the same.
    pub async fn add_provenance_of_draft(
        &self,
        (place, version): (DraftPlace, Uuid),
        record: Ulid,
        rows: &[LedgerRow],
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Commit, TxAccess::Tenant(place.tenant)).await?;
        if !web_drafts::take(&mut tx, place, version).await? {
            return Ok(false);
        }
        insert(&mut tx, place.tenant, record, rows).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Returns the rows of a call, in their order.
    ///
    /// # Errors
    /// The database is out of reach or fails, or [`StoreError::Inconsistent`] for a row that this version never writes.
    pub async fn read_provenance(
        &self,
        tenant: TenantId,
        record: Ulid,
    ) -> Result<Vec<LedgerRow>, StoreError> {
        let mut tx = self.begin(Lane::Report, TxAccess::TenantSnapshot(tenant)).await?;
        let rows: Vec<Row> = sqlx::query_as(
            "select principal, server_id, step, at, phase, layer, consent_id, page_url, page_hash, selector, explanation,
                 original_digest, new_digest, new_preview, orchestrator, prev_hash, hash
             from web_provenance where tenant_id = $1 and request_id = $2 order by step limit $3",
        )
        .bind(tenant.0)
        .bind(Uuid::from(record))
        .bind(LEDGER_ROWS_MAX as i64)
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        rows.into_iter().map(Row::read).collect()
    }

    /// Returns the newest calls of a principal that have a ledger at a server, or had one by their records. The newest come first.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn own_provenance(
        &self,
        tenant: TenantId,
        (principal, server): (Uuid, ServerId),
        limit: i64,
    ) -> Result<Vec<Ulid>, StoreError> {
        let mut tx = self.begin(Lane::Report, TxAccess::TenantSnapshot(tenant)).await?;
        let calls: Vec<Uuid> = sqlx::query_scalar(
            "with ledgers as (
                 select request_id as id from web_provenance
                 where tenant_id = $1 and principal = $2 and server_id = $3 and step = 0 order by at desc limit $4),
             sent as (
                 select a.id from activity a join servers s on s.tenant_id = a.tenant_id and s.name = a.server
                 where a.tenant_id = $1 and a.key_id is not distinct from $5 and s.server_id = $3
                   and a.started_at >= s.created_at and a.has_ledger
                 order by a.started_at desc limit $4)
             select id from ledgers union select id from sent order by id desc limit $4",
        )
        .bind(tenant.0)
        .bind(principal)
        .bind(server.0)
        .bind(limit)
        .bind((!principal.is_nil()).then_some(principal))
        .fetch_all(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(calls.into_iter().map(Ulid::from).collect())
    }

    /// Deletes a batch of rows from before `until`, of one tenant or with `None` of all. Returns whether there may be more.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn delete_provenance(
        &self,
        tenant: Option<TenantId>,
        until: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Owner).await?;
        let deleted = sqlx::query(
            "delete from web_provenance where (tenant_id, request_id, step) in (
                 select tenant_id, request_id, step from web_provenance
                 where at < $2 and ($1::uuid is null or tenant_id = $1) limit $3)",
        )
        .bind(tenant.map(|tenant| tenant.0))
        .bind(until)
        .bind(BATCH)
        .execute(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == BATCH as u64)
    }
}

async fn insert(tx: &mut Unit, tenant: TenantId, record: Ulid, rows: &[LedgerRow]) -> Result<(), StoreError> {
    fn all<'r, T>(rows: &'r [LedgerRow], value: impl Fn(&'r LedgerRow) -> T) -> Vec<T> {
        rows.iter().map(value).collect()
    }
    sqlx::query(
        "insert into web_provenance (tenant_id, request_id, step, at, phase, layer, consent_id, page_url, page_hash,
             selector, explanation, original_digest, new_digest, new_preview, orchestrator, prev_hash, hash, principal,
             server_id)
         select $1, $2, * from unnest($3::integer[], $4::timestamptz[], $5::text[], $6::text[], $7::uuid[], $8::text[],
             $9::bytea[], $10::text[], $11::text[], $12::bytea[], $13::bytea[], $14::text[], $15::text[], $16::bytea[],
             $17::bytea[], $18::uuid[], $19::uuid[])",
    )
    .bind(tenant.0)
    .bind(Uuid::from(record))
    .bind(all(rows, |row| row.step))
    .bind(all(rows, |row| row.at))
    .bind(all(rows, |row| row.phase.as_str()))
    .bind(all(rows, |row| row.layer.as_str()))
    .bind(all(rows, |row| row.consent_id))
    .bind(all(rows, |row| row.page_url.as_str()))
    .bind(all(rows, |row| row.page_hash.as_slice()))
    .bind(all(rows, |row| row.selector.as_str()))
    .bind(all(rows, |row| row.explanation.as_str()))
    .bind(all(rows, |row| row.original_digest.as_ref().map(|digest| digest.as_slice())))
    .bind(all(rows, |row| row.new_digest.as_ref().map(|digest| digest.as_slice())))
    .bind(all(rows, |row| row.new_preview.as_deref()))
    .bind(all(rows, |row| row.orchestrator.as_deref()))
    .bind(all(rows, |row| row.prev_hash.as_slice()))
    .bind(all(rows, |row| row.hash.as_slice()))
    .bind(all(rows, |row| row.principal))
    .bind(all(rows, |row| row.server.0))
    .execute(&mut **tx)
    .await?;
    Ok(())
}
