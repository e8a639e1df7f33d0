//! Embedding of definitions without vectors, on the one replica that holds the lease for it.
//!
//! Tenants take turns, one request each (`embed/turns.rs`). So no tenant waits for another's backlog, or for definitions of
//! another's that the service refuses.

mod turns;

use std::sync::Arc;
use std::time::{Duration, Instant};

use self::turns::{Batch, BatchEnd, EmbedTurns};
use super::{LEASE, Upkeep};
use crate::domain::backoff::{Backoff, chance};
use crate::domain::id::TenantId;
use crate::domain::redact;
use crate::domain::search::{Document, Embedding, Parameter, text_of};
use crate::domain::tool::Definition;
use crate::gateway::life::sleep_or_stop;
use crate::gateway::search::Embeddings;
use crate::gateway::tenants::Embedded;
use crate::store::{ReplicaLease, RevisionKind, StoreError, Unembedded};
use crate::upstream::{EmbedError, Fault};

/// Interval between full scans of all tenants, for changes whose notice was lost.
const LOOK: Duration = Duration::from_secs(300);
/// Time for which changes are gathered (debounce).
const GATHER: Duration = Duration::from_millis(100);
/// Tenants per query of a full scan.
const TENANTS_PAGE: usize = 200;
/// First backoff when the service or the database is unreachable; doubles up to [`RETRY_MAX`].
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// Name of the job, for its lease and in logs.
const JOB: &str = "embeddings";

/// State of this replica while it holds the lease.
#[derive(Debug)]
struct Duty {
    lease: ReplicaLease,
    looked: Option<Instant>,
    turns: EmbedTurns,
}

/// Result of one step of the job.
enum Step {
    /// The service returned vectors.
    Made,
    /// A tenant's batch was handled, without vectors.
    Taken,
    /// No tenant is due before this time.
    Rest(Instant),
}

/// Failure that stops the job for all tenants for now.
#[derive(Debug, thiserror::Error)]
enum Stopped {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Service(#[from] EmbedError),
}

impl Upkeep {
    /// Embeds definitions until the gateway stops.
    pub(super) async fn embed_definitions(self: Arc<Self>) {
        let (Some(service), Some(embedded)) = (&self.search.embeddings, &self.tenants.embedded) else {
            return;
        };
        let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
        let mut duty = None;
        while !self.life.stop.is_cancelled() {
            let step = tokio::select! {
                () = self.life.stop.cancelled() => return,
                step = self.embed_next(service, embedded, &mut duty) => step,
            };
            match step {
                Ok(Step::Made) => {
                    backoff.reset();
                    self.complaints.forget(JOB);
                }
                Ok(Step::Taken) => {}
                Ok(Step::Rest(until)) => {
                    tokio::select! {
                        () = self.life.stop.cancelled() => return,
                        () = embedded.wake.notified() => tokio::time::sleep(GATHER).await,
                        () = tokio::time::sleep_until(until.into()) => {}
                    }
                }
                Err(error) => {
                    if self.complaints.is_new(JOB, &error.to_string()) {
                        tracing::warn!(%error, "definitions got no vectors; it is tried again");
                    }
                    if sleep_or_stop(backoff.jittered(chance()), &self.life.stop).await {
                        return;
                    }
                }
            }
        }
    }

    /// Sends the next tenant's batch, if this replica still holds the lease.
    async fn embed_next(
        &self,
        service: &Embeddings,
        embedded: &Embedded,
        duty: &mut Option<Duty>,
    ) -> Result<Step, Stopped> {
        let lease = self.store.take_lease(JOB, self.replica).await?;
        let changed = embedded.take_changed();
        let now = Instant::now();
        let Some(lease) = lease else {
            *duty = None;
            return Ok(Step::Rest(now + LEASE));
        };
        if duty.as_ref().is_none_or(|duty| duty.lease != lease) {
            *duty = None;
        }
        let duty =
            duty.get_or_insert_with(|| Duty { lease, looked: None, turns: EmbedTurns::new(service.batch) });
        changed.tenants.into_iter().for_each(|tenant| duty.turns.add(tenant, now));
        if changed.is_everybody {
            duty.looked = None;
        }
        if duty.looked.is_none_or(|at| at.elapsed() > LOOK) {
            self.look_at_all(&embedded.space, &mut duty.turns).await?;
            duty.looked = Some(now);
        }
        let Some(tenant) = duty.turns.next(now) else {
            let next = duty.turns.next_at().unwrap_or(now + LEASE);
            return Ok(Step::Rest(next.min(now + LEASE)));
        };
        self.embed_some(service, &embedded.space, &mut duty.turns, tenant).await
    }

    async fn look_at_all(&self, space: &str, turns: &mut EmbedTurns) -> Result<(), StoreError> {
        let mut after = TenantId::PLATFORM;
        loop {
            let page = self.store.tenants_to_embed(space, after, TENANTS_PAGE).await?;
            let now = Instant::now();
            page.iter().for_each(|tenant| turns.add(*tenant, now));
            match page.last() {
                Some(last) if page.len() == TENANTS_PAGE => after = *last,
                _ => return Ok(()),
            }
        }
    }

    /// Sends one batch of a tenant.
    async fn embed_some(
        &self,
        service: &Embeddings,
        space: &str,
        turns: &mut EmbedTurns,
        tenant: TenantId,
    ) -> Result<Step, Stopped> {
        let Batch { after, except, limit } = turns.batch(tenant, Instant::now());
        let found = self.store.definitions_to_embed(tenant, space, &after, &except, limit).await?;
        if found.is_empty() {
            turns.nothing(tenant, Instant::now());
            tell(turns, tenant, None);
            return Ok(Step::Taken);
        }
        let (pins, texts): (Vec<String>, Vec<String>) = found.into_iter().map(pin_and_text).unzip();
        let error = match service.embedder.embed(&texts).await {
            Ok(vectors) => {
                turns.ended(tenant, &pins, BatchEnd::Well, Instant::now());
                if pins.len() < limit {
                    turns.nothing(tenant, Instant::now());
                    tell(turns, tenant, None);
                }
                let vectors = vectors.iter().map(Embedding::to_bytes);
                let vectors: Vec<(String, Vec<u8>)> = pins.into_iter().zip(vectors).collect();
                self.keep_vectors(space, turns, tenant, &vectors).await?;
                return Ok(Step::Made);
            }
            Err(error) => error,
        };
        let ended = match error.fault() {
            Fault::Service => return Err(error.into()),
            Fault::Texts => BatchEnd::Refused,
            Fault::Unclear => BatchEnd::Failed,
        };
        turns.ended(tenant, &pins, ended, Instant::now());
        if let [pin] = pins.as_slice() {
            tracing::debug!(%tenant, pin, %error, "a definition got no vector");
        }
        tell(turns, tenant, Some(&error));
        Ok(Step::Taken)
    }

    async fn keep_vectors(
        &self,
        space: &str,
        turns: &mut EmbedTurns,
        tenant: TenantId,
        vectors: &[(String, Vec<u8>)],
    ) -> Result<(), StoreError> {
        match self.store.keep_embeddings(tenant, space, vectors).await {
            Ok(Some(rev)) => {
                tracing::debug!(%tenant, count = vectors.len(), "definitions got vectors");
                self.tenants.applied(tenant, RevisionKind::Vectors, rev).await;
                Ok(())
            }
            Ok(None) => Ok(()),
            // the tenant was deleted meanwhile
            Err(StoreError::NotFound) => {
                turns.forget(tenant);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }
}

/// Logs one line for all of a tenant's definitions set aside.
fn tell(turns: &mut EmbedTurns, tenant: TenantId, last: Option<&EmbedError>) {
    if let Some(count) = turns.news(tenant, Instant::now()) {
        let error = last.map(tracing::field::display);
        tracing::warn!(%tenant, count, error, "definitions of a tenant got no vectors; they are tried again");
    }
}

fn pin_and_text(found: Unembedded) -> (String, String) {
    let definition = Definition::read(&found.definition).ok();
    let parameters = definition.iter().flat_map(|definition| &definition.parameters);
    let document = Document {
        server: "",
        name: &found.name,
        title: definition.as_ref().and_then(|definition| definition.title.as_deref()),
        description: definition.as_ref().map_or("", |definition| &definition.description),
        parameters: parameters.map(|(name, _)| Parameter { name, description: "" }).collect(),
    };
    let text = redact::redact(&text_of(&document)).into_owned();
    (found.pin, text)
}
