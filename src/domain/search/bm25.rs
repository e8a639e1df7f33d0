//! BM25F over weighted fields: what each term is worth in each document, computed once when built.
//!
//! A term's counts are weighted per field, divided by that field's length norm, added up, and only then
//! saturated, so that repeating a word in a long description never beats having it in the name.

use std::collections::HashMap;

use super::tokens::{Terms, for_each_piece};
use super::{Document, NAME_BYTES_MAX};

/// Documents beyond this many are not indexed; a tenant's catalogue is bounded far below it.
const DOCUMENTS_MAX: u32 = 1_000_000;

/// Where a term's weighted count reaches half of its worth.
const SATURATION: f32 = 1.2;

/// Occurrences of a term that count per field: an upstream must not win searches by repeating a word.
const REPEATS_MAX: u32 = 3;

/// How a part of a document counts.
struct Field {
    /// Worth of one occurrence.
    weight: f32,
    /// How much a text longer than the average of this field lowers that worth, 0 to 1.
    length_share: f32,
    /// Text read per document; the rest is not searchable.
    bytes_max: usize,
}

/// The fields, in the order of [`texts`].
const FIELDS: [Field; 6] = [
    Field { weight: 3.0, length_share: 0.4, bytes_max: NAME_BYTES_MAX }, // tool name
    Field { weight: 2.0, length_share: 0.4, bytes_max: 512 },            // title
    Field { weight: 1.5, length_share: 0.0, bytes_max: 128 },            // server name
    Field { weight: 1.0, length_share: 0.5, bytes_max: 8192 },           // description
    Field { weight: 0.75, length_share: 0.5, bytes_max: 4096 },          // parameter names
    Field { weight: 0.35, length_share: 0.75, bytes_max: 16384 },        // parameter descriptions and values
];

/// The texts of a document with the position of their field in [`FIELDS`].
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

/// What one term adds to one document's score.
#[derive(Clone, Copy, Debug)]
struct Posting {
    document: u32,
    score: f32,
}

/// The documents of a term, ascending, and how rare it is.
#[derive(Debug, Default)]
struct List {
    idf: f32,
    postings: Vec<Posting>,
}

/// The finished index of texts.
#[derive(Debug, Default)]
pub(super) struct Texts {
    terms: HashMap<Box<str>, u32>,
    lists: Vec<List>,
    documents: usize,
}

impl Texts {
    /// The id of a term, if any document has it.
    pub(super) fn find(&self, term: &str) -> Option<u32> {
        self.terms.get(term).copied()
    }

    /// The most a term can add to a score: positive, larger for rarer terms.
    pub(super) fn idf(&self, term: u32) -> f32 {
        self.lists.get(term as usize).map_or(0.0, |list| list.idf)
    }

    /// What a term would be worth that one document has.
    pub(super) fn idf_max(&self) -> f32 {
        rarity(self.documents, 1)
    }

    /// Adds a term's worth, times `weight`, to the scores of the documents that have it. `scores` has one
    /// entry per document.
    pub(super) fn add_scores(&self, term: u32, weight: f32, scores: &mut [f32]) {
        let Some(list) = self.lists.get(term as usize) else { return };
        for posting in &list.postings {
            if let Some(score) = scores.get_mut(posting.document as usize) {
                *score += weight * posting.score;
            }
        }
    }
}

/// How often a term occurs in a field of a document.
#[derive(Clone, Copy)]
struct Occurrence {
    document: u32,
    term: u32,
    field: u8,
    count: u32,
}

/// Collects documents; the scores need averages, so they come last.
pub(super) struct Builder {
    reading: Terms,
    /// Words met so far: stemming costs more than a look-up and words repeat.
    words: HashMap<Box<str>, Option<u32>>,
    terms: HashMap<Box<str>, u32>,
    occurrences: Vec<Occurrence>,
    /// Terms per field of each document.
    lengths: Vec<[u32; FIELDS.len()]>,
    /// Terms of the document at hand, with their field.
    found: Vec<(u32, u8)>,
}

impl Builder {
    /// An empty one.
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

    /// Adds the next document and returns its position; none when the index is full.
    pub(super) fn add(&mut self, document: &Document<'_>) -> Option<u32> {
        let position = u32::try_from(self.lengths.len()).ok().filter(|&at| at < DOCUMENTS_MAX)?;
        self.found.clear();
        let mut budgets = FIELDS.map(|field| field.bytes_max);
        for (field, text) in texts(document) {
            let Some(budget) = budgets.get_mut(usize::from(field)) else { continue };
            let text = text.get(..text.floor_char_boundary(*budget)).unwrap_or_default();
            // One more than its bytes, so that the number of texts is bounded too.
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

    /// Computes the scores.
    pub(super) fn finish(self) -> Texts {
        let averages = average_lengths(&self.lengths);
        let mut lists: Vec<List> = Vec::new();
        lists.resize_with(self.terms.len(), List::default);
        let same_posting = |a: &Occurrence, b: &Occurrence| (a.document, a.term) == (b.document, b.term);
        for occurrences in self.occurrences.chunk_by(same_posting) {
            let Some(&Occurrence { document, term, .. }) = occurrences.first() else { continue };
            let Some(lengths) = self.lengths.get(document as usize) else { continue };
            let frequency: f32 = occurrences.iter().map(|o| weighted_count(o, lengths, &averages)).sum();
            if let Some(list) = lists.get_mut(term as usize) {
                list.postings.push(Posting { document, score: frequency / (SATURATION + frequency) });
            }
        }
        let documents = self.lengths.len();
        for list in &mut lists {
            list.idf = rarity(documents, list.postings.len());
            for posting in &mut list.postings {
                posting.score *= list.idf;
            }
            list.postings.shrink_to_fit();
        }
        Texts { terms: self.terms, lists, documents }
    }
}

/// The worth of a term that `having` of `documents` have, in the form that stays positive even if all have it.
fn rarity(documents: usize, having: usize) -> f32 {
    let (documents, having) = (documents as f32, having as f32);
    (1.0 + (documents - having + 0.5) / (having + 0.5)).ln()
}

/// The term id of a word, new if need be; none for a stop word.
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
fn average_lengths(lengths: &[[u32; FIELDS.len()]]) -> [f32; FIELDS.len()] {
    let mut sums = [(0_u64, 0_u64); FIELDS.len()];
    for document in lengths {
        for (sum, &length) in sums.iter_mut().zip(document).filter(|(_, length)| **length > 0) {
            *sum = (sum.0 + u64::from(length), sum.1 + 1);
        }
    }
    sums.map(|(terms, documents)| terms as f32 / documents.max(1) as f32)
}

/// What an occurrence adds to its term's frequency: positive and finite.
fn weighted_count(occurrence: &Occurrence, lengths: &[u32], averages: &[f32]) -> f32 {
    let at = usize::from(occurrence.field);
    let (Some(field), Some(&length), Some(&average)) = (FIELDS.get(at), lengths.get(at), averages.get(at))
    else {
        return 0.0;
    };
    let norm = 1.0 - field.length_share + field.length_share * length as f32 / average.max(1.0);
    field.weight * occurrence.count.min(REPEATS_MAX) as f32 / norm
}

#[cfg(test)]
mod tests {
    use super::super::Parameter;
    use super::*;

    fn scores(documents: &[Document<'_>], word: &str) -> Vec<f32> {
        let mut builder = Builder::new();
        for document in documents {
            builder.add(document).unwrap();
        }
        let texts = builder.finish();
        let mut scores = vec![0.0; documents.len()];
        let term = texts.find(&Terms::english().term(word).unwrap());
        texts.add_scores(term.expect("a known term"), 1.0, &mut scores);
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
        let averages = average_lengths(&[[1, 6, 0, 0, 0, 0], [3, 0, 0, 0, 0, 0], [2, 0, 0, 0, 0, 0]]);
        assert_eq!(averages, [2.0, 6.0, 0.0, 0.0, 0.0, 0.0]);
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
        let mut builder = Builder::new();
        builder
            .add(&Document { server: "s", name: "n", title: None, description: &long, parameters })
            .unwrap();
        let texts = builder.finish();
        assert!(texts.find("start").is_some());
        assert!(texts.find("finish").is_none());
        assert!(texts.find("late").is_none());
    }
}
