//! Searches with the help of an embeddings service, where the operator names one: what it made of definitions is
//! kept beside each tenant's catalogue, and what it makes of questions is waited for only shortly.
//!
//! Definitions are sent by one replica, off every call's path (`upkeep/embed.rs`).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, oneshot};
use tokio::time::timeout;

use super::Search;
use crate::domain::redact;
use crate::domain::search::{Embedding, Nearness, SearchScope};
use crate::gateway::catalog::Catalog;
use crate::gateway::options::EmbeddingsOptions;
use crate::gateway::tenants::{Caller, LiveTenant};
use crate::upstream::{Embedder, Question, UpstreamError};

/// Questions that are being asked at the same time; further ones are ranked without.
const ASKED_MAX: usize = 8;
/// Bytes of a question that are sent.
const QUESTION_BYTES_MAX: usize = 2048;

/// The service, and what is to be asked of it.
#[derive(Debug)]
pub(in crate::gateway) struct Embeddings {
    pub(in crate::gateway) embedder: Embedder,
    pub(in crate::gateway) batch: usize,
    wait: Duration,
    asked: Arc<Semaphore>,
}

impl Embeddings {
    /// Prepares the client; nothing is sent yet.
    ///
    /// # Errors
    /// A URL or key that nothing can be sent with.
    pub(in crate::gateway) fn new(
        options: &EmbeddingsOptions,
        tls: Option<Arc<rustls::ClientConfig>>,
    ) -> Result<Embeddings, UpstreamError> {
        Ok(Embeddings {
            embedder: Embedder::new(&options.embedder, tls)?,
            batch: options.batch,
            wait: options.wait,
            asked: Arc::new(Semaphore::new(ASKED_MAX)),
        })
    }
}

impl Search {
    /// The vector of a question, if it is known or comes in time. Asks nobody for a tenant without vectors.
    pub(in crate::gateway) async fn vector_of(&self, caller: &Caller, query: &str) -> Option<Arc<Embedding>> {
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
}

/// Returns how near a question is to what `scope` has of what `catalogue` lists; `None` when no vector of it can be
/// compared.
pub(in crate::gateway) fn nearness(
    live: &LiveTenant,
    catalogue: &Arc<Catalog>,
    scope: &SearchScope,
    question: &Embedding,
) -> Option<Nearness> {
    let placed = live.vectors.placed(catalogue);
    let visible = (0..)
        .zip(placed.iter())
        .map(|(document, vector)| if scope.contains(document) { vector.as_deref() } else { None });
    Nearness::of(question, visible)
}
