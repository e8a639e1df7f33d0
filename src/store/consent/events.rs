//! Events for webhooks. A trigger writes each in the transaction of its step. A replica holds an event while it delivers it;
//! when its hold is over, another one may. What is not delivered in time, or is too much, ends in [`super::lost_events`].

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::StepAuthor;
use crate::domain::consent::ConsentState;
use crate::domain::id::TenantId;
use crate::store::tx::{Lane, TxAccess};
use crate::store::unit::Unit;
use crate::store::{Store, StoreError, Stored, activity_write};

/// Age of the noted success after which the next one is noted too, in seconds.
const NOTED_FOR_S: f64 = 5.0;
/// Time without a success after which a receiver counts as away, in seconds: when it is back, no event waits for its next try.
const AWAY_FOR_S: f64 = 20.0;

/// Event that a replica holds.
#[derive(Clone, Debug, FromRow)]
pub struct WebhookEvent {
    tenant_id: Uuid,
    /// Id of the event, the same for every try.
    pub id: Uuid,
    /// Id of the permission request.
    pub request_id: Uuid,
    /// State of the request when this happened.
    pub state: Stored<ConsentState>,
    /// Time at which this happened.
    pub created_at: DateTime<Utc>,
    /// Number of tries, with the one that begins now.
    pub tries: i32,
    /// True if the last delivery of the tenant failed.
    pub is_failing: bool,
}

impl WebhookEvent {
    /// Returns the tenant of the request.
    pub fn tenant(&self) -> TenantId {
        TenantId(self.tenant_id)
    }
}

/// Bounds of a claim.
#[derive(Clone, Debug, Default)]
pub struct WebhookRoom {
    /// Most events to claim.
    pub events: i64,
    /// Tenants for which no event may be claimed.
    pub full: Vec<TenantId>,
    /// Tenants for which no event may be claimed if their last delivery failed.
    pub busy: Vec<TenantId>,
    /// True if no event may be claimed for any tenant whose last delivery failed.
    pub has_no_room_for_failing: bool,
}

/// Result of a claim.
#[derive(Clone, Debug)]
pub enum WebhookClaim {
    /// Events that this replica holds now.
    Held(Vec<WebhookEvent>),
    /// No event: the next one is due after so many seconds, `None` if there is none.
    NextIn(Option<f64>),
}

/// End of one try to deliver an event.
#[derive(Clone, Copy, Debug)]
pub enum WebhookTry<'a> {
    /// The receiver confirmed the event.
    Confirmed,
    /// Failure for a reason; the next try begins after so many seconds.
    Failed(&'a str, f64),
}

fn ids(tenants: &[TenantId]) -> Vec<Uuid> {
    tenants.iter().map(|tenant| tenant.0).collect()
}

impl Store {
    /// Holds due events for `hold_s` seconds, at most one of each tenant: no receiver keeps the others waiting. Events of one
    /// request go one after the other, those of suspended tenants not at all. Without any, returns the seconds until the next
    /// one is due.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn claim_webhook_events(
        &self,
        room: &WebhookRoom,
        hold_s: f64,
    ) -> Result<WebhookClaim, StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::System).await?;
        let events: Vec<WebhookEvent> = sqlx::query_as(
            // each tenant with events is found by one step in the index: a tenant with many costs the others nothing
            "with recursive waiting (tenant_id) as (
                 (select tenant_id from webhook_events order by tenant_id limit 1)
                 union all
                 select next.tenant_id from waiting w, lateral (
                     select e.tenant_id from webhook_events e where e.tenant_id > w.tenant_id
                     order by e.tenant_id limit 1) next),
             due as (
                 select w.tenant_id, h.is_failing, first.due_at
                 from waiting w join consent_webhooks c on c.tenant_id = w.tenant_id
                     join tenants t on t.tenant_id = w.tenant_id,
                     lateral (select coalesce(c.failed_at > coalesce(c.succeeded_at, '-infinity'), false)) h (is_failing),
                     lateral (
                         select e.due_at from webhook_events e
                         where e.tenant_id = w.tenant_id and e.due_at <= now() and e.gives_up_at > now()
                             and not exists (
                                 select from webhook_events before
                                 where before.tenant_id = e.tenant_id and before.request_id = e.request_id
                                     and before.created_at < e.created_at)
                         order by e.due_at limit 1) first
                 where t.suspended_at is null and t.deleted_at is null and w.tenant_id <> all($1)
                     and not (h.is_failing and ($3 or w.tenant_id = any($2)))
                 order by first.due_at limit $4),
             held as (
                 select e.tenant_id, e.id, due.is_failing from due, lateral (
                     select tenant_id, id from webhook_events e
                     where e.tenant_id = due.tenant_id and e.due_at <= now() and e.gives_up_at > now()
                         and not exists (
                             select from webhook_events before
                             where before.tenant_id = e.tenant_id and before.request_id = e.request_id
                                 and before.created_at < e.created_at)
                     order by e.due_at limit 1 for update skip locked) e)
             update webhook_events e set due_at = now() + make_interval(secs => $5), tries = e.tries + 1, is_held = true
             from held where e.tenant_id = held.tenant_id and e.id = held.id
             returning e.tenant_id, e.id, e.request_id, e.state, e.created_at, e.tries, held.is_failing",
        )
        .bind(ids(&room.full))
        .bind(ids(&room.busy))
        .bind(room.has_no_room_for_failing)
        .bind(room.events)
        .bind(hold_s)
        .fetch_all(&mut *tx)
        .await?;
        let claimed = match events.is_empty() {
            false => WebhookClaim::Held(events),
            true => WebhookClaim::NextIn(sqlx::query_scalar(
                "select extract(epoch from due_at - now())::float8
                 from (select tenant_id, due_at from webhook_events where due_at > now() order by due_at limit 1) next",
            )
            .fetch_optional(&mut *tx)
            .await?),
        };
        tx.commit().await?;
        Ok(claimed)
    }

    /// Notes the end of a try. What ends an event is recorded by the author, if there is one.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn end_webhook_try(
        &self,
        event: &WebhookEvent,
        ended: WebhookTry<'_>,
        author: Option<&StepAuthor>,
    ) -> Result<(), StoreError> {
        let tenant = event.tenant();
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        // first the webhook, then its events, as who removes it: neither waits for the other
        note(&mut tx, tenant, ended).await?;
        match ended {
            WebhookTry::Failed(_, pause_s) => {
                // by now another replica may hold it
                sqlx::query(
                    "update webhook_events set due_at = now() + make_interval(secs => $4), is_held = false
                     where tenant_id = $1 and id = $2 and tries = $3",
                )
                .bind(tenant.0)
                .bind(event.id)
                .bind(event.tries)
                .bind(pause_s)
                .execute(&mut *tx)
                .await?;
            }
            WebhookTry::Confirmed => {
                sqlx::query("delete from webhook_events where tenant_id = $1 and id = $2")
                    .bind(tenant.0)
                    .bind(event.id)
                    .execute(&mut *tx)
                    .await?;
            }
        }
        if let Some(author) = author.filter(|_| !matches!(ended, WebhookTry::Failed(..))) {
            activity_write::insert_within(&mut tx, author.replica, &[&author.record]).await?;
        }
        Ok(tx.commit().await?)
    }

    /// Notes how a try went that was about no event.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub async fn note_webhook(&self, tenant: TenantId, ended: WebhookTry<'_>) -> Result<(), StoreError> {
        let mut tx = self.begin(Lane::Upkeep, TxAccess::Tenant(tenant)).await?;
        note(&mut tx, tenant, ended).await?;
        Ok(tx.commit().await?)
    }
}

async fn note(tx: &mut Unit, tenant: TenantId, ended: WebhookTry<'_>) -> Result<(), StoreError> {
    if let WebhookTry::Failed(error, _) = ended {
        sqlx::query(
            "update consent_webhooks set failed_at = now(), last_error = left($2, 1000) where tenant_id = $1",
        )
        .bind(tenant.0)
        .bind(error)
        .execute(&mut **tx)
        .await?;
        return Ok(());
    }
    let was_away: Option<bool> = sqlx::query_scalar(
        "update consent_webhooks w set succeeded_at = clock_timestamp()
         from (select tenant_id as its_tenant, coalesce(failed_at, '-infinity') as failed,
                   coalesce(succeeded_at, '-infinity') as succeeded
               from consent_webhooks where tenant_id = $1 for no key update) before
         where w.tenant_id = before.its_tenant
             and (succeeded < now() - make_interval(secs => $2) or failed >= succeeded)
         returning failed > succeeded and succeeded < now() - make_interval(secs => $3)",
    )
    .bind(tenant.0)
    .bind(NOTED_FOR_S)
    .bind(AWAY_FOR_S)
    .fetch_optional(&mut **tx)
    .await?;
    if was_away == Some(true) {
        sqlx::query(
            "update webhook_events set due_at = now() where tenant_id = $1 and not is_held and due_at > now()",
        )
        .bind(tenant.0)
        .execute(&mut **tx)
        .await?;
    }
    Ok(())
}
