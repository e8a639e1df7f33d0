//! Searches with the help of an embeddings service, where the operator names one: what it made of definitions is
//! kept beside each tenant's catalogue, and what it makes of questions is waited for only shortly.
//!
//! Definitions are sent by one replica, off every call's path (`watch/embed.rs`).

mod questions;
mod vectors;

use self::vectors::TooMany;
pub(super) use self::vectors::Vectors;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, oneshot};
use tokio::time::timeout;

use super::Gateway;
use super::access::Caller;
use super::catalog::Catalog;
use super::tenancy::LiveTenant;
use crate::domain::id::TenantId;
use crate::domain::redact;
use crate::domain::search::{Embedding, Nearness, Scope, TEXT_VERSION};
use crate::store::StoreError;
use crate::upstream::{Embedder, EmbedderOptions, Question, UpstreamError};

/// Questions that are being asked at the same time; further ones are ranked without.
const ASKED_MAX: usize = 8;
/// Bytes of a question that are sent.
const QUESTION_BYTES_MAX: usize = 2048;
/// Tenants with new definitions that are remembered by name; if there are more, all are looked at.
const CHANGED_MAX: usize = 10_000;

/// What the operator says of the service.
#[derive(Clone, Debug)]
pub struct EmbeddingsOptions {
    /// Where it is.
    pub embedder: EmbedderOptions,
    /// How long a search waits for the vector of its question.
    pub wait: Duration,
    /// Definitions sent in one request.
    pub batch: usize,
}

/// The service, and what is to be asked of it.
#[derive(Debug)]
pub(super) struct Embeddings {
    pub(super) embedder: Embedder,
    /// Where vectors can be compared: the model, and how texts are made for it.
    pub(super) space: String,
    pub(super) batch: usize,
    wait: Duration,
    asked: Arc<Semaphore>,
    changed: Mutex<Changed>,
    pub(super) wake: Notify,
}

/// Whose definitions may have changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    /// More than can be named.
    pub(super) is_everybody: bool,
    /// By name.
    pub(super) tenants: BTreeSet<TenantId>,
}

impl Changed {
    fn add(&mut self, tenant: TenantId) {
        if self.tenants.len() < CHANGED_MAX {
            self.tenants.insert(tenant);
        } else {
            self.is_everybody = true;
        }
    }
}

impl Embeddings {
    /// Prepares the client; nothing is sent yet.
    ///
    /// # Errors
    /// A URL or key that nothing can be sent with.
    pub(super) fn new(
        options: &EmbeddingsOptions,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Result<Embeddings, UpstreamError> {
        Ok(Embeddings {
            embedder: Embedder::new(&options.embedder, tls)?,
            space: format!("{}#{TEXT_VERSION}", options.embedder.model),
            batch: options.batch,
            wait: options.wait,
            asked: Arc::new(Semaphore::new(ASKED_MAX)),
            changed: Mutex::default(),
            wake: Notify::new(),
        })
    }

    /// Notes that a tenant's catalogue changed.
    pub(super) fn note(&self, tenant: TenantId) {
        self.changed.lock().unwrap_or_else(PoisonError::into_inner).add(tenant);
        self.wake.notify_one();
    }

    /// What was noted since the last time.
    pub(super) fn take_changed(&self) -> Changed {
        std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Gateway {
    /// The vector of a question, if it is known or comes in time. Asks nobody for a tenant without vectors.
    pub(super) async fn vector_of(&self, caller: &Caller, query: &str) -> Option<Arc<Embedding>> {
        let (embeddings, live) = (self.embeddings.as_ref()?, caller.tenant.as_ref()?);
        let text = redact::preview(query.trim(), QUESTION_BYTES_MAX).text;
        if text.is_empty() || live.vectors.is_empty() {
            return None;
        }
        let questions = &live.vectors.questions;
        if let Some(known) = questions.find(&text) {
            return Some(known);
        }
        let turn = (questions.turn()?, Arc::clone(&embeddings.asked).try_acquire_owned().ok()?);
        let (say, said) = oneshot::channel();
        let (embeddings, live) = (Arc::clone(embeddings), Arc::clone(live));
        let wait = embeddings.wait;
        // goes on when nobody waits any more: whoever asks the same again finds the answer
        tokio::spawn(async move {
            let questions = &live.vectors.questions;
            let (tenant, patience) = (live.id, &questions.patience);
            let question = Question { tenant, patience, text: text.clone(), wait, turn };
            let found = embeddings.embedder.embed_question(question).await.map(Arc::new);
            if let Some(found) = &found {
                questions.keep(text, Arc::clone(found));
            }
            drop(say.send(found));
        });
        timeout(wait, said).await.ok()?.ok()?
    }

    /// Brings a live tenant's vectors to at least `rev`.
    pub(super) async fn reload_vectors(&self, live: &LiveTenant, rev: i64) -> Result<(), StoreError> {
        let Some(embeddings) = &self.embeddings else { return Ok(()) };
        let _one_at_a_time = live.vectors.reloading.lock().await;
        if live.vectors.rev() >= rev {
            return Ok(());
        }
        let after = live.vectors.rev();
        let rows = self.store.load_embeddings(live.id, &embeddings.space, after).await?;
        if let Err(TooMany) = live.vectors.add(rows) {
            // most of what is known here is of definitions that are gone
            let rows = self.store.load_embeddings(live.id, &embeddings.space, 0).await?;
            live.vectors.replace(rows);
        }
        Ok(())
    }
}

/// Returns how near a question is to what `scope` has of what `catalogue` lists; `None` when no vector of it can be
/// compared.
pub(super) fn nearness(
    live: &LiveTenant,
    catalogue: &Arc<Catalog>,
    scope: &Scope,
    question: &Embedding,
) -> Option<Nearness> {
    let placed = live.vectors.placed(catalogue);
    let visible = (0..)
        .zip(placed.iter())
        .map(|(document, vector)| if scope.contains(document) { vector.as_deref() } else { None });
    Nearness::of(question, visible)
}
