//! Webhooks of tenants: where their permission requests are told, and how telling went.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::{ConsentRow, read};
use crate::domain::id::TenantId;
use crate::store::secrets::{self, DataKey};
use crate::store::tx::{Lane, TxAccess};
use crate::store::{Store, StoreError, revisions};

/// Columns of a webhook, with the number of its events that wait. Of a previous secret whose time is over there is nothing.
macro_rules! webhook_columns {
    () => {
        "url, key_id, sealed, created_at, succeeded_at, failed_at, last_error,
         case when previous_until > now() then previous_key_id end as previous_key_id,
         case when previous_until > now() then previous_sealed end as previous_sealed,
         case when previous_until > now() then previous_until end as previous_until,
         (select count(*) from webhook_events e where e.tenant_id = w.tenant_id) as waiting"
    };
}

/// Webhook of a tenant, as stored.
#[derive(Clone, Debug, FromRow)]
pub struct WebhookRow {
    /// URL of the receiver.
    pub url: String,
    /// Id of the data key that seals the secret.
    pub key_id: Uuid,
    /// Envelope of the secret.
    pub sealed: Vec<u8>,
    /// Id of the data key that seals the previous secret; `None` if that signs nothing any more.
    pub previous_key_id: Option<Uuid>,
    /// Envelope of the previous secret; `None` if that signs nothing any more.
    pub previous_sealed: Option<Vec<u8>>,
    /// Time until which the previous secret signs events too; `None` if there is none.
    pub previous_until: Option<DateTime<Utc>>,
    /// Time at which it was set.
    pub created_at: DateTime<Utc>,
    /// Time of a recent delivery, a few seconds before the last one at most; `None` before the first.
    pub succeeded_at: Option<DateTime<Utc>>,
    /// Time of the last failure; `None` before the first.
    pub failed_at: Option<DateTime<Utc>>,
    /// Reason of the last failure.
    pub last_error: Option<String>,
    /// Number of events that no receiver has confirmed yet.
    pub waiting: i64,
}

impl WebhookRow {
    /// Returns whether the last delivery failed.
    pub fn is_failing(&self) -> bool {
        self.failed_at.is_some_and(|failed| self.succeeded_at.is_none_or(|succeeded| succeeded < failed))
    }
}

/// Webhook to be stored.
#[derive(Clone, Debug)]
pub struct NewWebhook {
    /// URL of the receiver.
    pub url: String,
    /// Id of the data key that seals the secret.
    pub key_id: Uuid,
    /// Envelope of the secret.
    pub sealed: Vec<u8>,
    /// Time for which the present secret of the same URL goes on signing, in seconds; `None` if it ends at once.
    pub previous_s: Option<f64>,
}

/// Parts of which an event is made, as of one moment.
#[derive(Clone, Debug)]
pub struct WebhookParts {
    /// Webhook.
    pub webhook: WebhookRow,
    /// Wrapped data keys of the tenant.
    pub keys: Vec<DataKey>,
    /// Name of the tenant.
    pub tenant: String,
    /// Permission request; `None` where none was asked for, or it is gone.
    pub request: Option<ConsentRow>,
}

impl Store {
    /// Returns the webhook of a tenant; `None` without one.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn get_webhook(&self, tenant: TenantId) -> Result<Option<WebhookRow>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        let row = sqlx::query_as(concat!(
            "select ",
            webhook_columns!(),
            " from consent_webhooks w where w.tenant_id = $1"
        ))
        .bind(tenant.0)
        .fetch_optional(&mut *tx)
        .await?;
        tx.commit().await?;
        Ok(row)
    }

    /// Sets the webhook of a tenant. Events that wait go to the new receiver.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if the tenant is deleted. Other errors come from the database.
    pub async fn put_webhook(&self, tenant: TenantId, new: &NewWebhook) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        revisions::hold(&mut tx, tenant).await?;
        sqlx::query(
            "insert into consent_webhooks as w (tenant_id, url, key_id, sealed) values ($1, $2, $3, $4)
             on conflict (tenant_id) do update set url = excluded.url, key_id = excluded.key_id,
                 sealed = excluded.sealed, created_at = now(), succeeded_at = null, failed_at = null, last_error = null,
                 previous_key_id = case when w.url = excluded.url and $5::float8 is not null then w.key_id end,
                 previous_sealed = case when w.url = excluded.url and $5 is not null then w.sealed end,
                 previous_until = case when w.url = excluded.url then now() + make_interval(secs => $5) end",
        )
        .bind(tenant.0)
        .bind(&new.url)
        .bind(new.key_id)
        .bind(&new.sealed)
        .bind(new.previous_s)
        .execute(&mut *tx)
        .await?;
        sqlx::query(
            "update webhook_events set due_at = now() where tenant_id = $1 and not is_held and due_at > now()",
        )
        .bind(tenant.0)
        .execute(&mut *tx)
        .await?;
        tx.commit_change().await
    }

    /// Removes the webhook of a tenant, with the events that wait.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] without a webhook. Other errors come from the database.
    pub async fn remove_webhook(&self, tenant: TenantId) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::Tenant(tenant)).await?;
        revisions::hold(&mut tx, tenant).await?;
        let done = sqlx::query("delete from consent_webhooks where tenant_id = $1")
            .bind(tenant.0)
            .execute(&mut *tx)
            .await?;
        if done.rows_affected() == 0 {
            return Err(StoreError::NotFound);
        }
        sqlx::query("delete from webhook_events where tenant_id = $1")
            .bind(tenant.0)
            .execute(&mut *tx)
            .await?;
        tx.commit_change().await
    }

    /// Returns the parts of an event about a permission request, or of one about none; `None` without a webhook.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn webhook_parts(
        &self,
        tenant: TenantId,
        request: Option<Uuid>,
    ) -> Result<Option<WebhookParts>, StoreError> {
        let mut tx = self.begin(Lane::Control, TxAccess::TenantSnapshot(tenant)).await?;
        let webhook: Option<WebhookRow> = sqlx::query_as(concat!(
            "select ",
            webhook_columns!(),
            " from consent_webhooks w where w.tenant_id = $1"
        ))
        .bind(tenant.0)
        .fetch_optional(&mut *tx)
        .await?;
        let Some(webhook) = webhook else { return Ok(None) };
        let keys = secrets::keys(&mut tx, tenant).await?;
        let name: Option<String> = sqlx::query_scalar("select name from tenants where tenant_id = $1")
            .bind(tenant.0)
            .fetch_optional(&mut *tx)
            .await?;
        let request = match request {
            Some(id) => read::find(&mut tx, tenant, id).await?,
            None => None,
        };
        tx.commit().await?;
        Ok(Some(WebhookParts { webhook, keys, tenant: name.unwrap_or_default(), request }))
    }
}
