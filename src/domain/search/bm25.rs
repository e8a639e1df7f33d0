//! BM25F over weighted fields: the terms of each document, and their worth among the documents that the caller may see.
//!
//! A term's counts are weighted per field, divided by that field's length norm, added up, and only then
//! saturated, so that repeating a word in a long description never beats having it in the name.

use std::collections::HashMap;

use super::spellings::Spellings;
use super::tokens::{Terms, for_each_piece};
use super::{Document, NAME_BYTES_MAX};

/// Documents beyond this many are not indexed; a tenant's catalogue is bounded far below it.
const DOCUMENTS_MAX: u32 = 1_000_000;

/// Weighted count at which a term reaches half of its worth (`k1` of BM25).
const SATURATION: f32 = 1.2;

/// Occurrences of a term that count per field: an upstream must not win searches by repeating a word.
const REPEATS_MAX: u32 = 3;

/// Scoring parameters of one field of a document.
struct Field {
    /// Worth of one occurrence.
    weight: f32,
    /// Strength of the length normalisation, 0 to 1 (`b` of BM25).
    length_share: f32,
    /// Text read per document; the rest is not searchable.
    bytes_max: usize,
}

/// Fields of a document, in the order of [`texts`].
const FIELDS: [Field; 6] = [
    Field { weight: 3.0, length_share: 0.4, bytes_max: NAME_BYTES_MAX }, // tool name
    Field { weight: 2.0, length_share: 0.4, bytes_max: 512 },            // title
    Field { weight: 1.5, length_share: 0.0, bytes_max: 128 },            // server name
    Field { weight: 1.0, length_share: 0.5, bytes_max: 8192 },           // description
    Field { weight: 0.75, length_share: 0.5, bytes_max: 4096 },          // parameter names
    Field { weight: 0.35, length_share: 0.75, bytes_max: 16384 },        // parameter descriptions and values
];

/// Returns the texts of a document with the position of their field in [`FIELDS`].
fn texts<'a>(document: &Document<'a>) -> impl Iterator<Item = (u8, &'a str)> {
    let whole = [
        (0, document.name),
        (1, document.title.unwrap_or_default()),
        (2, document.server),
        (3, document.description),
    ];
    let parameters = document.parameters.iter().flat_map(|p| [(4, p.name), (5, p.description)]);
    whole.into_iter().chain(parameters)
}

/// Bits of a packed count: enough for [`REPEATS_MAX`].
const COUNT_BITS: usize = 2;

/// Occurrences of a term in one document.
#[derive(Clone, Copy, Debug)]
struct Posting {
    document: u32,
    /// Occurrences per field up to [`REPEATS_MAX`], [`COUNT_BITS`] each, the first field in the lowest bits.
    counts: u16,
}

/// Finished index of texts. The worth of a term depends on the caller: see [`SearchScope`].
#[derive(Debug, Default)]
pub(super) struct Texts {
    terms: HashMap<Box<str>, u32>,
    /// Documents of each term, ascending.
    lists: Vec<Box<[Posting]>>,
    /// Terms per field of each document.
    lengths: Vec<[u32; FIELDS.len()]>,
    spellings: Spellings,
}

/// Documents that one kind of caller may see, with their statistics. Scores depend on these documents alone: a caller
/// learns nothing about words of the others.
#[derive(Debug)]
pub struct SearchScope {
    /// Bit set of the visible documents.
    visible: Box<[u64]>,
    documents: usize,
    averages: [f32; FIELDS.len()],
}

impl SearchScope {
    /// Returns whether the document at this position is in the scope.
    pub fn contains(&self, document: u32) -> bool {
        let word = self.visible.get(document as usize / 64).copied().unwrap_or_default();
        (word >> (document % 64)) & 1 == 1
    }
}

impl Texts {
    /// Returns the scope of the documents that `is_visible` accepts.
    pub(super) fn scope(&self, is_visible: impl Fn(u32) -> bool) -> SearchScope {
        let mut visible = vec![0_u64; self.lengths.len().div_ceil(64)];
        let (mut documents, mut averages) = (0, Averages::default());
        for (document, lengths) in (0_u32..).zip(&self.lengths) {
            if !is_visible(document) {
                continue;
            }
            if let Some(word) = visible.get_mut(document as usize / 64) {
                *word |= 1 << (document % 64);
            }
            documents += 1;
            averages.add(lengths);
        }
        SearchScope { visible: visible.into(), documents, averages: averages.finish() }
    }

    /// Returns a term's id and its worth in `scope`; `None` if no document of the scope has it. The worth is positive,
    /// larger for rarer terms.
    pub(super) fn find(&self, scope: &SearchScope, term: &str) -> Option<(u32, f32)> {
        let id = *self.terms.get(term)?;
        let list = self.lists.get(id as usize)?;
        let having = list.iter().filter(|posting| scope.contains(posting.document)).count();
        (having > 0).then(|| (id, rarity(scope.documents, having)))
    }

    /// Returns the documents of the scope that have a term spelled almost as `word`, which has the same first letter.
    pub(super) fn spelled_nearly(&self, scope: &SearchScope, word: &str) -> Vec<u32> {
        let documents = |term: u32| {
            let list = self.lists.get(term as usize).into_iter().flatten();
            list.map(|posting| posting.document).filter(|document| scope.contains(*document))
        };
        // terms of documents out of scope do not count, so that they change nothing
        let near = self.spellings.near(word, |term| documents(term).next().is_some());
        near.into_iter().flat_map(documents).collect()
    }

    /// Returns the worth of a term that one document of the scope would have.
    pub(super) fn idf_max(scope: &SearchScope) -> f32 {
        rarity(scope.documents, 1)
    }

    /// Adds a term's `worth`, its idf times its weight in the query, to the scores of the documents of the scope
    /// that have it. `scores` has one entry per document.
    pub(super) fn add_scores(&self, scope: &SearchScope, term: u32, worth: f32, scores: &mut [f32]) {
        let Some(list) = self.lists.get(term as usize) else { return };
        for posting in list.iter().filter(|posting| scope.contains(posting.document)) {
            let at = posting.document as usize;
            let (Some(score), Some(lengths)) = (scores.get_mut(at), self.lengths.get(at)) else { continue };
            let frequency = frequency(posting.counts, lengths, &scope.averages);
            *score += worth * (frequency / (SATURATION + frequency));
        }
    }
}

/// Occurrences of a term in one field of a document.
#[derive(Clone, Copy)]
struct Occurrence {
    document: u32,
    term: u32,
    field: u8,
    count: u32,
}

/// Builder of the index. Scores need averages over all documents, so they are computed later.
pub(super) struct IndexBuilder {
    reading: Terms,
    /// Term of each word so far: words repeat, and a lookup is cheaper than stemming.
    words: HashMap<Box<str>, Option<u32>>,
    terms: HashMap<Box<str>, u32>,
    occurrences: Vec<Occurrence>,
    /// Terms per field of each document.
    lengths: Vec<[u32; FIELDS.len()]>,
    /// Terms of the current document, with their field.
    found: Vec<(u32, u8)>,
}

impl IndexBuilder {
    /// Creates an empty builder.
    pub(super) fn new() -> Self {
        Self {
            reading: Terms::english(),
            words: HashMap::new(),
            terms: HashMap::new(),
            occurrences: Vec::new(),
            lengths: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Adds the next document and returns its position; `None` when the index is full.
    pub(super) fn add(&mut self, document: &Document<'_>) -> Option<u32> {
        let position = u32::try_from(self.lengths.len()).ok().filter(|&at| at < DOCUMENTS_MAX)?;
        self.found.clear();
        let mut budgets = FIELDS.map(|field| field.bytes_max);
        for (field, text) in texts(document) {
            let Some(budget) = budgets.get_mut(usize::from(field)) else { continue };
            let text = text.get(..text.floor_char_boundary(*budget)).unwrap_or_default();
            // one more than the bytes of the text, so that the number of texts is bounded too
            *budget = budget.saturating_sub(text.len() + 1);
            for_each_piece(text, |_, word| {
                if let Some(term) = intern(&self.reading, &mut self.words, &mut self.terms, word) {
                    self.found.push((term, field));
                }
            });
        }
        self.found.sort_unstable();
        let mut lengths = [0_u32; FIELDS.len()];
        for same in self.found.chunk_by(|a, b| a == b) {
            let (Some(&(term, field)), Ok(count)) = (same.first(), u32::try_from(same.len())) else {
                continue;
            };
            self.occurrences.push(Occurrence { document: position, term, field, count });
            if let Some(length) = lengths.get_mut(usize::from(field)) {
                *length = length.saturating_add(count);
            }
        }
        self.lengths.push(lengths);
        Some(position)
    }

    /// Finishes the index.
    pub(super) fn finish(self) -> Texts {
        let mut lists: Vec<Vec<Posting>> = vec![Vec::new(); self.terms.len()];
        for &Occurrence { document, term, field, count } in &self.occurrences {
            let Some(list) = lists.get_mut(term as usize) else { continue };
            let counts = (count.min(REPEATS_MAX) as u16) << (usize::from(field) * COUNT_BITS);
            match list.last_mut() {
                Some(last) if last.document == document => last.counts |= counts,
                _ => list.push(Posting { document, counts }),
            }
        }
        let lists = lists.into_iter().map(Vec::into_boxed_slice).collect();
        let spellings = Spellings::of(self.terms.iter().map(|(term, id)| (&**term, *id)));
        Texts { terms: self.terms, lists, lengths: self.lengths, spellings }
    }
}

/// Returns the worth (idf) of a term that `having` of `documents` have. It is positive even if all have it.
fn rarity(documents: usize, having: usize) -> f32 {
    let (documents, having) = (documents as f32, having as f32);
    (1.0 + (documents - having + 0.5) / (having + 0.5)).ln()
}

/// Returns the term id of a word, and creates it if necessary; `None` for a stop word.
fn intern(
    reading: &Terms,
    words: &mut HashMap<Box<str>, Option<u32>>,
    terms: &mut HashMap<Box<str>, u32>,
    word: &str,
) -> Option<u32> {
    if let Some(&known) = words.get(word) {
        return known;
    }
    let term = reading.term(word).and_then(|term| {
        if let Some(&known) = terms.get(term.as_ref()) {
            return Some(known);
        }
        let id = u32::try_from(terms.len()).ok()?;
        terms.insert(term.into(), id);
        Some(id)
    });
    words.insert(word.into(), term);
    term
}

/// Terms per field, averaged over the documents that have the field: a title must not count as long only
/// because most tools have none.
#[derive(Default)]
struct Averages([(u64, u64); FIELDS.len()]);

impl Averages {
    fn add(&mut self, lengths: &[u32; FIELDS.len()]) {
        for (sum, &length) in self.0.iter_mut().zip(lengths).filter(|(_, length)| **length > 0) {
            *sum = (sum.0 + u64::from(length), sum.1 + 1);
        }
    }

    fn finish(self) -> [f32; FIELDS.len()] {
        self.0.map(|(terms, documents)| terms as f32 / documents.max(1) as f32)
    }
}

/// Returns the weighted count of a term in one document: positive and finite.
fn frequency(counts: u16, lengths: &[u32; FIELDS.len()], averages: &[f32; FIELDS.len()]) -> f32 {
    let mut frequency = 0.0;
    for (at, ((field, &length), &average)) in FIELDS.iter().zip(lengths).zip(averages).enumerate() {
        let count = (counts >> (at * COUNT_BITS)) & ((1 << COUNT_BITS) - 1);
        if count > 0 {
            let norm = 1.0 - field.length_share + field.length_share * length as f32 / average.max(1.0);
            frequency += field.weight * f32::from(count) / norm;
        }
    }
    frequency
}

#[cfg(test)]
mod tests {
    use super::super::Parameter;
    use super::*;

    fn scores(documents: &[Document<'_>], word: &str) -> Vec<f32> {
        let mut builder = IndexBuilder::new();
        for document in documents {
            builder.add(document).unwrap();
        }
        let texts = builder.finish();
        let (mut scores, scope) = (vec![0.0; documents.len()], texts.scope(|_| true));
        let (term, worth) = texts.find(&scope, &Terms::english().term(word).unwrap()).expect("a known term");
        texts.add_scores(&scope, term, worth, &mut scores);
        scores
    }

    #[test]
    fn fields_weigh_in_the_promised_order() {
        let blank =
            Document { server: "x", name: "x", title: Some("x"), description: "x", parameters: vec![] };
        let parameter = |name, description| vec![Parameter { name, description }];
        let documents = [
            Document { name: "wanted", ..blank.clone() },
            Document { title: Some("wanted"), ..blank.clone() },
            Document { server: "wanted", ..blank.clone() },
            Document { description: "wanted", ..blank.clone() },
            Document { parameters: parameter("wanted", "x"), ..blank.clone() },
            Document { parameters: parameter("x", "wanted"), ..blank.clone() },
            blank,
        ];
        let scores = scores(&documents, "wanted");
        assert!(scores.is_sorted_by(|a, b| a > b), "{scores:?}");
        assert_eq!(scores.last(), Some(&0.0));
    }

    #[test]
    fn a_rare_term_is_worth_more_and_a_common_one_still_something() {
        let document =
            |description| Document { server: "s", name: "n", title: None, description, parameters: vec![] };
        let documents = [document("common rare"), document("common"), document("common")];
        let (common, rare) = (scores(&documents, "common"), scores(&documents, "rare"));
        assert!(rare[0] > common[0] && common[0] > 0.0);
    }

    #[test]
    fn a_field_that_most_lack_is_not_long_where_it_is() {
        let mut averages = Averages::default();
        for lengths in [[1, 6, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0]] {
            averages.add(&lengths);
        }
        assert_eq!(averages.finish(), [2.0, 6.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn repetition_does_not_beat_the_name() {
        let long = "wanted ".repeat(1000);
        let documents = [
            Document { server: "s", name: "other", title: None, description: &long, parameters: vec![] },
            Document {
                server: "s",
                name: "wanted",
                title: None,
                description: "wanted here",
                parameters: vec![],
            },
        ];
        let scores = scores(&documents, "wanted");
        assert!(scores[1] > scores[0], "{scores:?}");
    }

    #[test]
    fn text_beyond_the_bounds_is_not_read() {
        let long = format!("start {} finish", "é ".repeat(8192));
        let many: Vec<_> = (0..100_000).map(|_| Parameter { name: "", description: "" }).collect();
        let mut parameters = many;
        parameters.push(Parameter { name: "late", description: "" });
        let mut builder = IndexBuilder::new();
        builder
            .add(&Document { server: "s", name: "n", title: None, description: &long, parameters })
            .unwrap();
        let texts = builder.finish();
        let scope = texts.scope(|_| true);
        assert!(texts.find(&scope, "start").is_some());
        assert!(texts.find(&scope, "finish").is_none());
        assert!(texts.find(&scope, "late").is_none());
    }
}
