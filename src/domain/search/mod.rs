//! Ranking of tools by a question in natural language: the search behind `retrieve_tools`.
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
mod spellings;
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

/// Least similarity by meaning for a hit without a word in common, 0 to 1.
const NEARNESS_MIN: f32 = 0.3;

/// Share of a score that comes from an embeddings service, for tools that have a vector from it.
const EMBEDDING_SHARE: f32 = 0.5;

/// Least similarity from an embeddings service for a hit without anything else in common, 0 to 1.
const EMBEDDING_MIN: f32 = 0.3;

/// Least similarity by meaning for a document that nearly matched, 0 to 1.
const NEARLY_MIN: f32 = 0.25;

/// Most documents that nearly matched.
const NEARLY_MAX: usize = 20;

/// Bonus for a tool whose name is the whole question, more than all other parts of a score together.
const EXACT_BONUS: f32 = 3.0;

/// Tool as the ranking reads it. All texts are untrusted; each field is read up to a fixed length.
#[derive(Clone, Debug)]
pub struct Document<'a> {
    /// Name of the upstream server.
    pub server: &'a str,
    /// Name of the tool on that server.
    pub name: &'a str,
    /// Display title of the tool.
    pub title: Option<&'a str>,
    /// Description of the tool.
    pub description: &'a str,
    /// Arguments of the tool.
    pub parameters: Vec<Parameter<'a>>,
}

/// Argument of a tool.
#[derive(Clone, Copy, Debug)]
pub struct Parameter<'a> {
    /// Name of the argument.
    pub name: &'a str,
    /// Description and allowed values from the schema; may be empty.
    pub description: &'a str,
}

/// Document that matched a question.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hit {
    /// Position in the order of building, from 0.
    pub document: u32,
    /// Score of the match: positive and finite, comparable within one search only.
    pub score: f32,
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hits {
    /// Best matches: by score, descending, then in the order of building.
    pub hits: Vec<Hit>,
    /// Matches that were admitted, including those beyond the limit.
    pub total: usize,
    /// Documents without a match that nearly had one, the nearest first: a word is spelled almost as in the question, or the
    /// meaning is near. Empty when there are as many matches as the limit.
    pub nearly: Vec<u32>,
}

/// Immutable search index of documents.
#[derive(Debug, Default)]
pub struct Index {
    texts: Texts,
    meanings: Meanings,
    names: NameIndex,
    documents: usize,
}

impl Index {
    /// Indexes `documents`; [`Hit::document`] is a position among them.
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

    /// Returns the number of documents.
    pub fn len(&self) -> usize {
        self.documents
    }

    /// Returns whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.documents == 0
    }

    /// Returns the scope of the documents that `is_visible` accepts. The scope is valid for this index only.
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
        let is_wanted = |document: u32| scope.contains(document) && admit(document);
        let mut hits: Vec<Hit> = (0..)
            .zip(&scores)
            .filter(|&(document, &score)| score > 0.0 && is_wanted(document))
            .map(|(document, &score)| Hit { document, score })
            .collect();
        let total = hits.len();
        let nearly = if total < limit { self.nearly(scope, &query, &scores, is_wanted) } else { Vec::new() };
        keep_best(&mut hits, limit);
        Hits { hits, total, nearly }
    }

    /// Returns the wanted documents without a score that nearly have one, the nearest first.
    fn nearly(
        &self,
        scope: &SearchScope,
        query: &Query,
        scores: &[f32],
        is_wanted: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let mut nearness = vec![0.0_f32; scores.len()];
        if query.direction.is_known() {
            for (near, found) in nearness.iter_mut().zip(self.meanings.nearness(&query.direction)) {
                *near = if found >= NEARLY_MIN { found } else { 0.0 };
            }
        }
        for word in &query.unknown {
            for document in self.texts.spelled_nearly(scope, word) {
                if let Some(near) = nearness.get_mut(document as usize) {
                    *near += 1.0;
                }
            }
        }
        let mut found: Vec<Hit> = (0..)
            .zip(nearness.iter().zip(scores))
            .filter(|&(document, (&near, &score))| near > 0.0 && score <= 0.0 && is_wanted(document))
            .map(|(document, (&near, _))| Hit { document, score: near })
            .collect();
        keep_best(&mut found, NEARLY_MAX);
        found.into_iter().map(|hit| hit.document).collect()
    }

    /// Returns one score per document. Words count as a share of the worth of all words in the question. So one word of
    /// many in common does not beat a meaning in common.
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

/// Weights of the parts of a score.
#[derive(Clone, Copy, Debug)]
pub struct Design<'a> {
    /// Share of words in common, 0 to 1; the rest is the meaning from the table of word vectors.
    pub words_share: f32,
    /// Similarities from an embeddings service; `None` without one.
    pub nearness: Option<&'a Nearness>,
    /// Share of the embeddings service, 0 to 1; the rest is all other parts.
    pub embedding_share: f32,
}

impl Default for Design<'_> {
    fn default() -> Self {
        Design { words_share: WORDS_SHARE, nearness: None, embedding_share: EMBEDDING_SHARE }
    }
}

/// Mixes the similarities of an embeddings service into the scores. A document without one keeps its score.
fn mix(nearness: &Nearness, share: f32, scores: &mut [f32]) {
    for (score, near) in scores.iter_mut().zip(&nearness.0) {
        let Some(near) = *near else { continue };
        if *score > 0.0 || near >= EMBEDDING_MIN {
            *score = (1.0 - share) * *score + share * near;
        }
    }
}

/// Keeps the best `limit` hits in their final order, without sorting the rest.
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
