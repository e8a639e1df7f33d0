//! Having the service make vectors of definitions that have none, on the one replica that holds the lease for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{Gateway, LEASE, sleep_or_stop};
use crate::domain::id::TenantId;
use crate::domain::redact;
use crate::domain::search::{Document, Embedding, Parameter, text_of};
use crate::domain::tool::Definition;
use crate::gateway::embeddings::Embeddings;
use crate::store::{Backoff, Kind, Lease, StoreError, Unembedded};
use crate::upstream::EmbedError;

/// How often all tenants are looked at, for changes whose notice was lost.
const LOOK: Duration = Duration::from_secs(300);
/// How long changes are gathered.
const GATHER: Duration = Duration::from_millis(100);
/// Tenants found in one such look.
const TENANTS_MAX: i64 = 1000;
/// Pauses of a service, or a database, that fails.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// Definitions that the service refuses, remembered so that they are not sent again and again.
const REFUSED_MAX: usize = 10_000;
/// What is logged and kept apart as this job.
const JOB: &str = "embeddings";

/// What this replica knows about being the one that does it.
#[derive(Default)]
struct Duty {
    lease: Option<Lease>,
    looked: Option<Instant>,
    refused: BTreeSet<(TenantId, String)>,
}

/// Why a round ended early.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Service(#[from] EmbedError),
}

/// A definition, ready to be sent.
struct Wanted {
    pin: String,
    text: String,
}

impl Gateway {
    /// Looks after vectors for as long as the gateway runs.
    pub(super) async fn embed_definitions(self: Arc<Self>) {
        let Some(embeddings) = self.embeddings.clone() else { return };
        let mut backoff = Backoff::new(RETRY_MIN, RETRY_MAX);
        let mut duty = Duty::default();
        while !self.stop.is_cancelled() {
            let ended = tokio::select! {
                () = self.stop.cancelled() => return,
                ended = self.embed_what_changed(&embeddings, &mut duty) => ended,
            };
            let Err(error) = ended else {
                backoff.reset();
                self.upkeep.forget_complaint(JOB);
                tokio::select! {
                    () = self.stop.cancelled() => return,
                    () = embeddings.wake.notified() => {}
                    () = tokio::time::sleep(LEASE) => {}
                }
                if sleep_or_stop(GATHER, &self.stop).await {
                    return;
                }
                continue;
            };
            if self.upkeep.is_new_complaint(JOB, &error.to_string()) {
                tracing::warn!(%error, "definitions got no vectors; it is tried again");
            }
            if sleep_or_stop(backoff.pause(), &self.stop).await {
                return;
            }
        }
    }

    async fn embed_what_changed(&self, embeddings: &Embeddings, duty: &mut Duty) -> Result<(), Ended> {
        let lease = self.store.take_lease(JOB, self.replica).await?;
        let mut changed = embeddings.take_changed();
        if lease.is_none() {
            duty.lease = None;
            return Ok(());
        }
        let is_due = duty.looked.is_none_or(|at| at.elapsed() > LOOK);
        if duty.lease != lease || is_due || changed.is_everybody {
            let found = self.store.tenants_to_embed(&embeddings.space, TENANTS_MAX).await;
            if found.is_err() {
                embeddings.note_all(std::mem::take(&mut changed.tenants));
            }
            changed.tenants.extend(found?);
            // a service that refused what it takes now is asked again
            duty.refused.clear();
            (duty.lease, duty.looked) = (lease, Some(Instant::now()));
        }
        let mut waiting = changed.tenants;
        // one batch of each in turn
        while !waiting.is_empty() {
            for tenant in std::mem::take(&mut waiting) {
                match self.embed_some(embeddings, duty, tenant).await {
                    Ok(false) => {}
                    Ok(true) => drop(waiting.insert(tenant)),
                    Err(error) => {
                        // whoever was not looked at is found by the next look at all
                        duty.looked = None;
                        return Err(error);
                    }
                }
            }
        }
        Ok(())
    }

    /// One batch of a tenant's; `true` if there may be more.
    async fn embed_some(
        &self,
        embeddings: &Embeddings,
        duty: &mut Duty,
        tenant: TenantId,
    ) -> Result<bool, Ended> {
        let batch = i64::try_from(embeddings.batch).unwrap_or(i64::MAX);
        let refused: Vec<String> =
            duty.refused.iter().filter(|(whose, _)| *whose == tenant).map(|(_, pin)| pin.clone()).collect();
        let found = self.store.definitions_to_embed(tenant, &embeddings.space, &refused, batch).await?;
        if found.is_empty() {
            return Ok(false);
        }
        let wanted: Vec<Wanted> = found.iter().map(wanted).collect();
        let vectors = embed_or_split(embeddings, &wanted, |pin| {
            tracing::warn!(%tenant, pin, "the embeddings endpoint refuses a definition");
            if duty.refused.len() < REFUSED_MAX {
                duty.refused.insert((tenant, pin.to_owned()));
            }
        })
        .await?;
        if !vectors.is_empty()
            && let Some(rev) = self.store.keep_embeddings(tenant, &embeddings.space, &vectors).await?
        {
            tracing::debug!(%tenant, count = vectors.len(), "definitions got vectors");
            self.applied(tenant, Kind::Vectors, rev).await;
        }
        // with no room for the refused they would be sent for ever
        Ok(duty.refused.len() < REFUSED_MAX)
    }
}

fn wanted(found: &Unembedded) -> Wanted {
    let definition = Definition::read(&found.definition).ok();
    let parameters = definition.iter().flat_map(|definition| &definition.parameters);
    let document = Document {
        server: "",
        name: &found.name,
        title: definition.as_ref().and_then(|definition| definition.title.as_deref()),
        description: definition.as_ref().map_or("", |definition| &definition.description),
        parameters: parameters.map(|(name, _)| Parameter { name, description: "" }).collect(),
    };
    Wanted { pin: found.pin.clone(), text: redact::redact(&text_of(&document)).into_owned() }
}

/// Vectors by pin. A batch that is refused for what it says is halved until it is known whose text it is.
async fn embed_or_split(
    embeddings: &Embeddings,
    wanted: &[Wanted],
    mut refuse: impl FnMut(&str),
) -> Result<Vec<(String, Vec<u8>)>, EmbedError> {
    let mut vectors = Vec::with_capacity(wanted.len());
    let mut parts = vec![wanted];
    while let Some(part) = parts.pop() {
        let texts: Vec<String> = part.iter().map(|wanted| wanted.text.clone()).collect();
        match embeddings.embedder.embed(&texts).await {
            Ok(found) => {
                let bytes = found.iter().map(Embedding::to_bytes);
                vectors.extend(part.iter().map(|wanted| wanted.pin.clone()).zip(bytes));
            }
            Err(error) if error.is_about_the_texts() => match part {
                [one] => refuse(&one.pin),
                _ => {
                    let (left, right) = part.split_at(part.len() / 2);
                    parts.extend([left, right]);
                }
            },
            // what came before is not lost: it is not asked for again
            Err(_) if !vectors.is_empty() => return Ok(vectors),
            Err(error) => return Err(error),
        }
    }
    Ok(vectors)
}
