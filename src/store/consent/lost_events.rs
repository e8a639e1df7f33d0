//! Events for webhooks that nobody will be told of: their time is over, or their tenant has too many. Each is recorded by
//! the transaction that deletes it.

use std::collections::BTreeSet;

use sqlx::FromRow;
use uuid::Uuid;

use crate::domain::activity::Record;
use crate::domain::consent::ConsentState;
use crate::domain::id::{ReplicaId, TenantId};
use crate::store::tx::{Lane, TxAccess};
use crate::store::{Store, StoreError, Stored, activity_write};

/// Most events of one tenant that wait. Beyond it, the oldest go: first those of requests that wait for nobody any more.
pub const WEBHOOK_EVENTS_MAX: i64 = 1000;

/// Event that was deleted without having been delivered.
#[derive(Clone, Debug, FromRow)]
pub struct LostEvent {
    tenant_id: Uuid,
    /// Id of the permission request.
    pub request_id: Uuid,
    /// Server of the request; `None` if the request is gone.
    pub server: Option<String>,
    /// Tool of the request, as its server calls it; `None` if the request is gone.
    pub tool: Option<String>,
    /// State of the request when this happened.
    pub state: Stored<ConsentState>,
    /// Number of tries.
    pub tries: i32,
    /// True if the event's time was over; false if its tenant had more than [`WEBHOOK_EVENTS_MAX`].
    pub is_over: bool,
}

/// SQL for what is read of a deleted event `e`, but for the reason.
macro_rules! lost {
    () => {
        "e.tenant_id, e.request_id, e.state, e.tries,
             (select r.server from consent_requests r where r.tenant_id = e.tenant_id and r.id = e.request_id) as server,
             (select r.tool from consent_requests r where r.tenant_id = e.tenant_id and r.id = e.request_id) as tool"
    };
}

impl LostEvent {
    /// Returns the tenant of the request.
    pub fn tenant(&self) -> TenantId {
        TenantId(self.tenant_id)
    }
}

impl Store {
    /// Deletes events whose time is over, and of each tenant those beyond [`WEBHOOK_EVENTS_MAX`], at most `limit` for either
    /// reason. An event that is being delivered stays. Each deleted one gets its record.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn lose_webhook_events(
        &self,
        limit: i64,
        replica: ReplicaId,
        record: impl Fn(&LostEvent) -> Record + Send + Sync,
    ) -> Result<Vec<LostEvent>, StoreError> {
        let days = async { Ok(BTreeSet::from([chrono::Utc::now().date_naive()])) };
        self.with_partitions(days, || self.try_to_lose(limit, replica, &record)).await
    }

    async fn try_to_lose(
        &self,
        limit: i64,
        replica: ReplicaId,
        record: &(impl Fn(&LostEvent) -> Record + Send + Sync),
    ) -> Result<Vec<LostEvent>, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let mut lost: Vec<LostEvent> = sqlx::query_as(concat!(
            "delete from webhook_events e using (
                 select tenant_id, id from webhook_events
                 where gives_up_at <= now() and not (is_held and due_at > now())
                 order by gives_up_at limit $1 for update skip locked) over
             where e.tenant_id = over.tenant_id and e.id = over.id
             returning ",
            lost!(),
            ", true as is_over"
        ))
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        let dropped: Vec<LostEvent> = sqlx::query_as(concat!(
            "with recursive waiting (tenant_id) as (
                 (select tenant_id from webhook_events order by tenant_id limit 1)
                 union all
                 select next.tenant_id from waiting w, lateral (
                     select e.tenant_id from webhook_events e where e.tenant_id > w.tenant_id
                     order by e.tenant_id limit 1) next),
             crowded as materialized (
                 select w.tenant_id, n.waiting - $1 as too_many from waiting w, lateral (
                     select count(*) as waiting from (
                         select from webhook_events e where e.tenant_id = w.tenant_id limit $1 + $2) e) n
                 where n.waiting > $1),
             least_useful as (
                 select e.tenant_id, e.id from crowded c, lateral (
                     select e.tenant_id, e.id from webhook_events e
                     where e.tenant_id = c.tenant_id and not (e.is_held and e.due_at > now())
                     order by exists (
                         select from consent_requests r
                         where r.tenant_id = e.tenant_id and r.id = e.request_id and r.state = 'pending'
                             and r.expires_at > now()), e.created_at
                     limit c.too_many for update of e skip locked) e
                 limit $2)
             delete from webhook_events e using least_useful l where e.tenant_id = l.tenant_id and e.id = l.id
             returning ",
            lost!(),
            ", false as is_over"
        ))
        .bind(WEBHOOK_EVENTS_MAX)
        .bind(limit)
        .fetch_all(&mut *tx)
        .await?;
        lost.extend(dropped);
        let records: Vec<Record> = lost.iter().map(record).collect();
        activity_write::insert_within(&mut tx, replica, &records.iter().collect::<Vec<_>>()).await?;
        tx.commit().await?;
        Ok(lost)
    }
}
