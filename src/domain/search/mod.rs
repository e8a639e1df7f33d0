//! Ranking of tools by a question in words: the search behind `retrieve_tools`.
//!
//! An [`Index`] is built once per tenant catalogue and never changes. A search reads nothing but the index.
//! A [`SearchScope`] names the documents that the caller may see: hits, totals and scores follow from these alone, so that a
//! score says nothing about a tool out of scope. `admit` filters further, before anything is counted or cut.

use std::cmp::Ordering;

mod bm25;
mod embedding;
mod meaning;
mod names;
mod query;
mod tokens;
mod words;

pub use bm25::SearchScope;
pub use embedding::{DIMS_MAX, Embedding, Nearness, TEXT_VERSION, text_of};

use bm25::Texts;
use meaning::Meanings;
use names::NameIndex;
use query::Query;

/// Bytes of a tool's name that are read.
const NAME_BYTES_MAX: usize = 256;

/// Share of a score that comes from words in common; the rest comes from the meaning.
const WORDS_SHARE: f32 = 0.5;

/// How near a tool must be to a question by meaning to be found without a word in common.
const NEARNESS_MIN: f32 = 0.3;

/// Share of a score that an embeddings service has, where it has said something.
const EMBEDDING_SHARE: f32 = 0.5;

/// How near a tool must be as such a service sees it to be found without anything else.
const EMBEDDING_MIN: f32 = 0.3;

/// What a tool gets that the whole question is the name of: more than anything else can add up to.
const EXACT_BONUS: f32 = 3.0;

/// A tool as the ranking sees it. All texts are untrusted; each field is read up to a fixed length.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    /// The upstream server's name.
    pub server: &'a str,
    /// The tool's name on that server.
    pub name: &'a str,
    /// The tool's display title.
    pub title: Option<&'a str>,
    /// The tool's description.
    pub description: &'a str,
    /// The arguments it takes.
    pub parameters: Vec<Parameter<'a>>,
}

/// An argument of a tool.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// The argument's name.
    pub name: &'a str,
    /// What the schema says about it; empty if nothing.
    pub description: &'a str,
}

/// A document that matched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Position in the order of building, from 0.
    pub document: u32,
    /// How well it matched: positive and finite, comparable within one search only.
    pub score: f32,
}

/// The outcome of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hits {
    /// The best matches: by score, descending, then in the order of building.
    pub hits: Vec<Hit>,
    /// Matches that were admitted, including those beyond the limit.
    pub total: usize,
}

/// An immutable ranking of documents.
#[derive(Debug, Default)]
pub struct Index {
    texts: Texts,
    meanings: Meanings,
    names: NameIndex,
    documents: usize,
}

impl Index {
    /// Indexes `documents`; their positions are what [`Hit::document`] refers to.
    pub fn build<'a>(documents: impl IntoIterator<Item = Document<'a>>) -> Self {
        let mut texts = bm25::IndexBuilder::new();
        let mut meanings = meaning::Builder::new();
        let mut names = NameIndex::default();
        let mut count = 0;
        for document in documents {
            let Some(position) = texts.add(&document) else { break };
            meanings.add(&document);
            names.add(&document, position);
            count += 1;
        }
        Self { texts: texts.finish(), meanings: meanings.finish(), names, documents: count }
    }

    /// How many documents there are.
    pub fn len(&self) -> usize {
        self.documents
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.documents == 0
    }

    /// Returns the scope of the documents that `is_visible` accepts. It holds for this index alone.
    pub fn scope(&self, is_visible: impl Fn(u32) -> bool) -> SearchScope {
        self.texts.scope(is_visible)
    }

    /// Returns the best `limit` documents for `query` among those of `scope` that `admit` accepts. A query that is a
    /// tool's name, as far as names and queries are read, finds that tool first. A query that has neither a word nor a
    /// meaning in common with any document has no hits.
    pub fn search(
        &self,
        scope: &SearchScope,
        query: &str,
        limit: usize,
        admit: impl Fn(u32) -> bool,
    ) -> Hits {
        self.search_with(Design::default(), scope, query, limit, admit)
    }

    /// Searches as [`Index::search`] does, with another design.
    pub fn search_with(
        &self,
        design: Design<'_>,
        scope: &SearchScope,
        query: &str,
        limit: usize,
        admit: impl Fn(u32) -> bool,
    ) -> Hits {
        let query = Query::read(query, &self.texts, scope);
        let mut scores = self.scores(scope, &query, design.words_share);
        if let Some(nearness) = design.nearness {
            mix(nearness, design.embedding_share, &mut scores);
        }
        self.names.add_exact(&query, EXACT_BONUS, &mut scores);
        let mut hits: Vec<Hit> = (0..)
            .zip(scores)
            .filter(|&(document, score)| score > 0.0 && scope.contains(document) && admit(document))
            .map(|(document, score)| Hit { document, score })
            .collect();
        let total = hits.len();
        keep_best(&mut hits, limit);
        Hits { hits, total }
    }

    /// One per document. Words count as a share of what all of the question's words are worth, so that one word
    /// of many in common does not beat a meaning in common.
    fn scores(&self, scope: &SearchScope, query: &Query, words_share: f32) -> Vec<f32> {
        let mut scores = vec![0.0_f32; self.documents];
        for term in &query.terms {
            self.texts.add_scores(scope, term.id, term.weight * term.idf, &mut scores);
        }
        self.names.add_named(query, &mut scores);
        let per_worth = if query.worth > 0.0 { words_share / query.worth } else { 0.0 };
        for score in &mut scores {
            *score *= per_worth;
        }
        if words_share < 1.0 && query.direction.is_known() {
            for (score, nearness) in scores.iter_mut().zip(self.meanings.nearness(&query.direction)) {
                if *score > 0.0 || nearness >= NEARNESS_MIN {
                    *score += (1.0 - words_share) * nearness.max(0.0);
                }
            }
        }
        scores
    }
}

/// Shares of the parts that a score is made of.
#[derive(Clone, Copy, Debug)]
pub struct Design<'a> {
    /// Share of words in common, 0 to 1, beside the table's meaning.
    pub words_share: f32,
    /// What an embeddings service says.
    pub nearness: Option<&'a Nearness>,
    /// Its share, 0 to 1, beside all else.
    pub embedding_share: f32,
}

impl Default for Design<'_> {
    fn default() -> Self {
        Design { words_share: WORDS_SHARE, nearness: None, embedding_share: EMBEDDING_SHARE }
    }
}

/// Where the service has said nothing yet, what is there is taken for what it would say.
fn mix(nearness: &Nearness, share: f32, scores: &mut [f32]) {
    for (score, near) in scores.iter_mut().zip(&nearness.0) {
        let Some(near) = *near else { continue };
        if *score > 0.0 || near >= EMBEDDING_MIN {
            *score = (1.0 - share) * *score + share * near;
        }
    }
}

/// Leaves the best `limit` hits in their final order without sorting the rest.
fn keep_best(hits: &mut Vec<Hit>, limit: usize) {
    if limit < hits.len() {
        hits.select_nth_unstable_by(limit, best_first);
        hits.truncate(limit);
    }
    hits.sort_unstable_by(best_first);
}

fn best_first(a: &Hit, b: &Hit) -> Ordering {
    b.score.total_cmp(&a.score).then(a.document.cmp(&b.document))
}

#[cfg(test)]
mod tests;
