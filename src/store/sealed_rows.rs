//! Rows that hold one sealed value until they expire: drafts and cookies of web pages, texts that were cut off results. Nothing here
//! can decrypt them.

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{FromRow, Postgres};
use uuid::Uuid;

use super::secrets::{self, DataKey};
use super::tx::{Lane, TxAccess};
use super::unit::Unit;
use super::{Store, StoreError};
use crate::domain::id::TenantId;

/// Expired rows deleted in one transaction.
const EXPIRED_BATCH: i64 = 500;

/// Stored value, sealed, that is replaced by version.
#[derive(Clone, Debug)]
pub struct SealedRow {
    /// Version, another one after each change.
    pub version: Uuid,
    /// Id of the data key that seals the value.
    pub data_key: Uuid,
    /// Envelope of the value.
    pub sealed: Vec<u8>,
    /// Wrapped data keys of the tenant, the newest first.
    pub keys: Vec<DataKey>,
}

/// Value to be stored.
#[derive(Debug)]
pub struct NewSealedRow {
    /// Version that is replaced; `None` where there was none.
    pub replaces: Option<Uuid>,
    /// Version, one that no value of the row had before.
    pub version: Uuid,
    /// Id of the data key that seals the value.
    pub data_key: Uuid,
    /// Envelope of the value.
    pub sealed: Vec<u8>,
    /// Lifetime of the row from now on, in seconds.
    pub keep_s: u32,
}

/// Columns of a [`SealedRow`], as tables name them.
#[derive(FromRow)]
pub(super) struct SealedColumns {
    version: Uuid,
    data_key_id: Uuid,
    sealed: Vec<u8>,
}

impl SealedColumns {
    /// Returns the row with the data keys of its tenant.
    pub(super) async fn with_keys(self, tx: &mut Unit, tenant: TenantId) -> Result<SealedRow, StoreError> {
        let SealedColumns { version, data_key_id: data_key, sealed } = self;
        Ok(SealedRow { version, data_key, sealed, keys: secrets::keys(tx, tenant).await? })
    }
}

impl Store {
    /// Deletes a batch of expired rows of all tenants by this statement, whose argument is the number of rows. Returns whether there may
    /// be more.
    pub(super) async fn delete_expired(
        &self,
        statement: Query<'static, Postgres, PgArguments>,
    ) -> Result<bool, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let deleted = statement.bind(EXPIRED_BATCH).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(deleted.rows_affected() == EXPIRED_BATCH as u64)
    }
}
