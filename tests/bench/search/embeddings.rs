//! What an embeddings service adds, when one is named in the environment: `EMBEDDINGS_URL`, `EMBEDDINGS_MODEL`,
//! `EMBEDDINGS_API_KEY`. The tools and questions of the compared folders are sent there.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::{Context, Result};
use mcpproxy::domain::search::{Embedding, Nearness, text_of};
use mcpproxy::upstream::{Embedder, EmbedderOptions, native_tls};

use super::data::Catalogue;

/// Texts in one request.
const BATCH: usize = 64;

/// The vectors of a catalogue.
pub(super) struct Vectors {
    tools: Vec<Embedding>,
    questions: HashMap<String, Embedding>,
}

impl Vectors {
    /// Asks the service, if there is one.
    pub(super) fn ask(catalogue: &Catalogue) -> Result<Option<Vectors>> {
        #[expect(clippy::disallowed_methods, reason = "a comparison has no configuration")]
        let given = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        let Some(url) = given("EMBEDDINGS_URL") else { return Ok(None) };
        let options = EmbedderOptions {
            url,
            model: given("EMBEDDINGS_MODEL").context("EMBEDDINGS_MODEL is not set")?,
            api_key: given("EMBEDDINGS_API_KEY"),
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(120),
        };
        let embedder = Embedder::new(&options, native_tls().ok())?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let tools: Vec<String> = catalogue.documents().map(|document| text_of(&document)).collect();
        let questions: Vec<String> =
            catalogue.questions.iter().map(|question| question.text.clone()).collect();
        let all = |texts: &[String]| -> Result<Vec<Embedding>> {
            let mut vectors = Vec::new();
            for batch in texts.chunks(BATCH) {
                vectors.extend(runtime.block_on(embedder.embed(batch))?);
            }
            Ok(vectors)
        };
        let tools = all(&tools)?;
        let vectors = all(&questions)?;
        Ok(Some(Vectors { tools, questions: questions.into_iter().zip(vectors).collect() }))
    }

    /// How near a question is to every tool.
    pub(super) fn nearness(&self, question: &str) -> Option<Nearness> {
        Nearness::of(self.questions.get(question)?, self.tools.iter().map(Some))
    }
}
