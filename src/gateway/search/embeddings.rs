//! Search with an embeddings service, if the operator configured one. Vectors of definitions are kept beside each tenant's
//! catalogue; the vector of a query is awaited only shortly.
//!
//! One replica sends the definitions, outside the path of calls (`upkeep/embed.rs`).

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

/// Queries being embedded at the same time; further ones are ranked without vectors.
const ASKED_MAX: usize = 8;
/// Bytes of a query that are sent.
const QUESTION_BYTES_MAX: usize = 2048;

/// Client of the embeddings service, with its limits.
#[derive(Debug)]
pub(in crate::gateway) struct Embeddings {
    pub(in crate::gateway) embedder: Embedder,
    pub(in crate::gateway) batch: usize,
    wait: Duration,
    asked: Arc<Semaphore>,
}

impl Embeddings {
    /// Creates the client; no request is sent yet.
    ///
    /// # Errors
    /// The URL or key cannot be used for requests.
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
    /// Returns the vector of a query; `None` if it is neither cached nor computed in time. Tenants without vectors cause no
    /// request.
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
        // goes on when nobody waits any more, so that a later equal query finds the vector
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

/// Returns the similarity of a query to the tools of `catalogue` in `scope`; `None` if none has a comparable vector.
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
