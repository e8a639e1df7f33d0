//! Deliveries of events to webhooks: signed, bounded, and none waits for another tenant's receiver.
//!
//! The events are rows. A replica holds one while it delivers it, so that another takes over what a dead one held: an event is
//! delivered at least once. Calls have no part in it.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Notify;
use tokio::time::timeout;
use uuid::Uuid;

use super::shown::{self, ShownConsent};
use super::{Consent, ConsentView, failed, new_id};
use crate::domain::activity::{Record, RecordKind, Source, Status};
use crate::domain::backoff::chance;
use crate::domain::consent::ConsentState;
use crate::domain::id::TenantId;
use crate::domain::measure::Count;
use crate::domain::seal::{self, Place};
use crate::domain::settings::{Effective, Settings};
use crate::domain::shares::{Amount, Shares};
use crate::domain::webhook::{WebhookSecret, retry_delay};
use crate::gateway::clock;
use crate::gateway::credentials::open_data_key;
use crate::store::{
    DataKey, StepAuthor, StoreError, WebhookClaim, WebhookEvent, WebhookParts, WebhookRoom, WebhookRow,
    WebhookTry,
};
use crate::upstream::{WebhookError, WebhookPost};

/// Longest time of one try, from the look-up of the name to the head of the answer.
const TRY_MAX: Duration = Duration::from_secs(10);
/// Time for which a replica holds an event: longer than a try takes, and its note in the database.
const HOLD: Duration = Duration::from_secs(15);
/// Deliveries of this replica at the same time; each holds one event, of at most some ten KiB.
const ALL: Amount = Amount::items(128);
/// Divisor of these deliveries for one tenant.
const PART: usize = 16;
/// Deliveries to receivers that failed the last time, one for each tenant.
const FAILING: Amount = Amount::items(64);
/// Interval at which the events are looked at if nothing is heard of them.
pub(in crate::gateway) const LOOK: Duration = Duration::from_secs(5);
/// Deliveries under way on this replica, and how all have ended so far.
#[derive(Debug, Default)]
pub struct Deliveries {
    under_way: Mutex<UnderWay>,
    woken: Notify,
    /// Events that their receivers confirmed.
    pub confirmed: Count,
    /// Tries that failed.
    pub failed: Count,
    /// Events whose time was over.
    pub given_up: Count,
    /// Events of tenants that had too many.
    pub dropped: Count,
}

#[derive(Debug, Default)]
struct UnderWay {
    all: Shares<TenantId>,
    /// Deliveries to receivers that had failed the last time.
    failing: Shares<TenantId>,
}

/// Delivery under way; it ends when this is dropped.
pub(super) struct DeliverySlot {
    deliveries: Arc<Deliveries>,
    tenant: TenantId,
    is_failing: bool,
}

impl Deliveries {
    /// Counts a delivery in; `None` if the tenant, or the replica, has too many.
    pub(super) fn begin(self: &Arc<Self>, tenant: TenantId, is_failing: bool) -> Option<DeliverySlot> {
        let mut under_way = self.under_way.lock();
        let UnderWay { all, failing } = &mut *under_way;
        let has_room = all.all().has_room(Amount::ONE, ALL, 1)
            && all.of(&tenant).has_room(Amount::ONE, ALL, PART)
            && (!is_failing || failing.all().has_room(Amount::ONE, FAILING, 1));
        if !has_room {
            return None;
        }
        all.take(tenant, Amount::ONE);
        if is_failing {
            failing.take(tenant, Amount::ONE);
        }
        Some(DeliverySlot { deliveries: Arc::clone(self), tenant, is_failing })
    }

    fn room(&self) -> WebhookRoom {
        let under_way = self.under_way.lock();
        let is_full = |amount: Amount| !amount.has_room(Amount::ONE, ALL, PART);
        let holders = || under_way.all.holders();
        WebhookRoom {
            events: i64::try_from(ALL.items.saturating_sub(under_way.all.all().items)).unwrap_or_default(),
            full: holders().filter(|(_, amount)| is_full(*amount)).map(|(tenant, _)| *tenant).collect(),
            busy: holders().map(|(tenant, _)| *tenant).collect(),
            has_no_room_for_failing: !under_way.failing.all().has_room(Amount::ONE, FAILING, 1),
        }
    }

    /// Lets the task that delivers look at the events now.
    pub(super) fn wake(&self) {
        self.woken.notify_one();
    }

    /// Waits until something may have become due. Cancel-safe.
    pub(in crate::gateway) async fn woken(&self) {
        self.woken.notified().await;
    }
}

impl Drop for DeliverySlot {
    fn drop(&mut self) {
        let mut under_way = self.deliveries.under_way.lock();
        under_way.all.give_back(&self.tenant, Amount::ONE);
        if self.is_failing {
            under_way.failing.give_back(&self.tenant, Amount::ONE);
        }
        drop(under_way);
        self.deliveries.wake();
    }
}

/// Event to be sent.
pub(super) struct OutgoingEvent {
    id: Uuid,
    request: Option<Uuid>,
    /// Last part of the type.
    what: String,
    created_at: DateTime<Utc>,
}

impl OutgoingEvent {
    /// Returns an event about no request.
    pub(super) fn test() -> OutgoingEvent {
        let now = clock::now();
        OutgoingEvent { id: new_id(now), request: None, what: "test".to_owned(), created_at: now }
    }

    fn of(event: &WebhookEvent) -> OutgoingEvent {
        OutgoingEvent {
            id: event.id,
            request: Some(event.request_id),
            what: event.state.as_str().to_owned(),
            created_at: event.created_at,
        }
    }
}

/// Body of an event.
#[derive(Serialize)]
struct EventBody<'a> {
    id: Uuid,
    r#type: String,
    created_at: String,
    tenant: &'a str,
    /// Ways to answer, while a person is being asked.
    answer: Option<AnswerWays>,
    /// The request as it is now.
    data: Option<ShownConsent<'a>>,
}

#[derive(Serialize)]
struct AnswerWays {
    command: String,
    path: String,
}

/// Try to deliver an event.
pub(super) struct Tried {
    /// Reason for which it was not confirmed; `None` if it was.
    pub(super) error: Option<String>,
    /// Server and tool of the request.
    names: Option<(String, String)>,
}

impl Consent {
    /// Delivers what is due, beside this task, as far as there is room. Returns how long nothing more will be due, unless
    /// something is heard.
    ///
    /// # Errors
    /// The database is out of reach or fails.
    pub(in crate::gateway) async fn deliver_due(self: &Arc<Self>) -> Result<Duration, StoreError> {
        loop {
            let room = self.deliveries.room();
            // a replica that leaves begins nothing that another could do
            if room.events <= 0 || self.life.is_draining() {
                return Ok(LOOK);
            }
            let events = match self.store.claim_webhook_events(&room, HOLD.as_secs_f64()).await? {
                WebhookClaim::Held(events) => events,
                WebhookClaim::NextIn(seconds) => {
                    let next = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
                    return Ok(next.unwrap_or(LOOK).min(LOOK));
                }
            };
            for event in events {
                // a test may have taken the room: the event is due again when its hold is over
                let Some(slot) = self.deliveries.begin(event.tenant(), event.is_failing) else { continue };
                let consent = Arc::clone(self);
                self.life.tasks.spawn(async move {
                    consent.deliver(&event).await;
                    drop(slot);
                });
            }
        }
    }

    async fn deliver(&self, event: &WebhookEvent) {
        let tenant = event.tenant();
        let tried = match self.try_to_deliver(tenant, &OutgoingEvent::of(event)).await {
            Ok(Some(tried)) => tried,
            // removed along with its webhook
            Ok(None) => return,
            // nothing is known of the receiver: the event is due again when its hold is over
            Err(error) => return failed(tenant, &error),
        };
        let tries = u32::try_from(event.tries).unwrap_or(u32::MAX);
        let ended = match &tried.error {
            None => WebhookTry::Confirmed,
            Some(error) => WebhookTry::Failed(error, retry_delay(tries, chance()).as_secs_f64()),
        };
        match ended {
            WebhookTry::Confirmed => self.deliveries.confirmed.one(),
            WebhookTry::Failed(..) => self.deliveries.failed.one(),
        }
        if let WebhookTry::Failed(error, _) = ended
            && event.tries == 1
        {
            tracing::warn!(%tenant, error, "a webhook was not told of a permission request; it is tried again");
        }
        let author = StepAuthor { replica: self.options.replica, record: record(event, &tried) };
        let noted = match self.store.end_webhook_try(event, ended, Some(&author)).await {
            // better without a record than told again and again
            Err(error) if error.is_missing_partition() => {
                self.store.end_webhook_try(event, ended, None).await
            }
            noted => noted,
        };
        if let Err(error) = noted {
            failed(tenant, &error);
        }
    }

    /// Sends an event once. Returns how that went; `None` if the tenant has no webhook.
    ///
    /// # Errors
    /// The database is out of reach or fails, so that nothing was sent.
    pub(super) async fn try_to_deliver(
        &self,
        tenant: TenantId,
        event: &OutgoingEvent,
    ) -> Result<Option<Tried>, StoreError> {
        let Some(parts) = self.store.webhook_parts(tenant, event.request).await? else { return Ok(None) };
        let own = self.store.get_settings(tenant, None).await?.settings;
        let language = Effective::resolve(&Settings::default(), &own, &self.options.defaults).locale;
        let WebhookParts { webhook, keys, tenant: name, request } = parts;
        let names = request.as_ref().map(|row| (row.server.clone(), row.tool.clone()));
        let tried = |error| Ok(Some(Tried { error, names }));
        let Some(secret) = self.open_secret(tenant, &webhook, &keys) else {
            let error =
                "the secret of the webhook cannot be opened with the master keys at hand; set it again";
            return tried(Some(error.to_owned()));
        };
        let view = request.map(ConsentView::from);
        let is_open = |view: &&ConsentView| view.row.state == ConsentState::Pending;
        let body = EventBody {
            id: event.id,
            r#type: format!("consent.{}", event.what),
            created_at: shown::time(event.created_at),
            tenant: &name,
            answer: view.as_ref().filter(is_open).map(|view| AnswerWays {
                command: format!("mcpproxy consent show {}", view.row.id),
                path: format!("/api/v1/consent/{}/decision", view.row.id),
            }),
            data: view.as_ref().map(|view| view.shown(language)),
        };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let (id, now) = (event.id.to_string(), clock::now().timestamp());
        let mut signature = secret.sign(&id, now, &body);
        if let Some(previous) = self.open_previous(tenant, &webhook, &keys) {
            signature = format!("{signature} {}", previous.sign(&id, now, &body));
        }
        let headers =
            [("webhook-id", id), ("webhook-timestamp", now.to_string()), ("webhook-signature", signature)];
        let post = WebhookPost { tenant: tenant.0, url: &webhook.url, headers, body: body.into() };
        let sent = timeout(TRY_MAX, self.upstreams.post_event(post)).await;
        let sent = sent.unwrap_or_else(|_| Err(WebhookError::timeout()));
        tried(sent.err().map(|error| error.to_string()))
    }

    /// Opens the secret of a webhook; `None` if no master key at hand opens it.
    pub(super) fn open_secret(
        &self,
        tenant: TenantId,
        webhook: &WebhookRow,
        keys: &[DataKey],
    ) -> Option<WebhookSecret> {
        self.open_sealed((tenant, &webhook.url), keys, (webhook.key_id, &webhook.sealed))
    }

    /// Opens the secret that signs events too, while the receiver changes over; `None` without one, or if it does not open.
    fn open_previous(
        &self,
        tenant: TenantId,
        webhook: &WebhookRow,
        keys: &[DataKey],
    ) -> Option<WebhookSecret> {
        let sealed = (webhook.previous_key_id?, webhook.previous_sealed.as_deref()?);
        self.open_sealed((tenant, &webhook.url), keys, sealed)
    }

    fn open_sealed(
        &self,
        (tenant, url): (TenantId, &str),
        keys: &[DataKey],
        (key_id, sealed): (Uuid, &[u8]),
    ) -> Option<WebhookSecret> {
        let key = open_data_key(&self.options.keyring, tenant, keys, key_id)?;
        WebhookSecret::read(&seal::open(&key, Place::WebhookSecret { tenant, url }, sealed).ok()?)
    }
}

/// Returns the record of an event that was delivered.
fn record(event: &WebhookEvent, tried: &Tried) -> Record {
    let of = (event.tenant(), event.request_id);
    let mut record = record_of(of, tried.names.clone(), (event.state.as_str(), event.tries));
    record.status = Status::Success;
    record
}

/// Returns the record of an event about a permission request, but for how it ended. `names` are server and tool of the
/// request, if it is still there.
pub(super) fn record_of(
    (tenant, request): (TenantId, Uuid),
    names: Option<(String, String)>,
    (event, tries): (&str, i32),
) -> Record {
    let (server, tool) = names.unzip();
    let mut record = Record::start(tenant, RecordKind::Consent, Source::System, clock::now());
    record.tool = Some("consent.webhook".to_owned());
    record.consent_id = Some(request);
    record.server = server;
    record.arguments = Some(serde_json::json!({ "tool": tool, "event": event, "tries": tries }).to_string());
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{Ground, Tenants};

    #[tokio::test]
    async fn a_replica_that_drains_begins_no_delivery() {
        let ground = Ground::example();
        let consent = Arc::new(Consent::new(&ground, &Arc::new(Tenants::new(&ground))));
        ground.life.begin_drain();
        // there is no database to look for events in
        assert_eq!(consent.deliver_due().await.unwrap(), LOOK);
    }

    fn tenant(n: u128) -> TenantId {
        TenantId(Uuid::from_u128(n))
    }

    #[test]
    fn no_tenant_takes_all_room() {
        let deliveries = Arc::new(Deliveries::default());
        let mut slots: Vec<_> = (0..8).map(|_| deliveries.begin(tenant(1), false).unwrap()).collect();
        assert!(deliveries.begin(tenant(1), false).is_none());
        let room = deliveries.room();
        assert_eq!((room.full, room.events), (vec![tenant(1)], 120));
        assert!(deliveries.begin(tenant(2), false).is_some());
        slots.pop();
        assert!(deliveries.room().full.is_empty());
        slots.push(deliveries.begin(tenant(1), false).unwrap());
        slots.clear();
        assert_eq!(deliveries.room().events, 128);
    }

    #[test]
    fn receivers_that_fail_leave_half_of_the_room() {
        let deliveries = Arc::new(Deliveries::default());
        let slots: Vec<_> = (0..64).map(|n| deliveries.begin(tenant(n), true).unwrap()).collect();
        assert!(deliveries.begin(tenant(99), true).is_none());
        let room = deliveries.room();
        assert!(room.has_no_room_for_failing && room.full.is_empty());
        assert_eq!((room.busy.len(), room.events), (64, 64));
        assert!(deliveries.begin(tenant(99), false).is_some());
        drop(slots);
        assert!(!deliveries.room().has_no_room_for_failing);
    }
}
